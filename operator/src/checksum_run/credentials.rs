//! Credentials that agents log in with. In: what the spec refers to, and the Secrets of those names.
//! Out: the content of the one Secret that is mounted. Pure; no value is ever shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use crds::{
    reference::{LocalRef, Tls},
    report::checksum::credential::{
        QUEUE_CA, QUEUE_CERTIFICATE, QUEUE_KEY, QUEUE_PASSWORD, QUEUE_USERNAME, STORE_CA,
        STORE_CERTIFICATE, STORE_KEY, STORE_PASSWORD, STORE_USERNAME,
    },
};

use super::config::Validated;
use crate::secrets::Content;

/// A key of a Secret, and the file it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    secret: String,
    key: &'static str,
    file: &'static str,
    required: bool,
}

/// Files by name. Their contents are never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What is known of the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// The run needs none.
    None,
    /// All of them.
    Known(Files),
    /// Something is not there; the words name it.
    Missing(String),
}

/// The Secrets that the run refers to.
pub fn secrets(run: &Validated) -> BTreeSet<String> {
    wanted(run)
        .into_iter()
        .map(|wanted| wanted.secret)
        .collect()
}

/// The credentials, given the Secrets that the run refers to.
pub fn gather(run: &Validated, found: &BTreeMap<String, Option<Arc<Content>>>) -> Credentials {
    let wanted = wanted(run);
    if wanted.is_empty() {
        return Credentials::None;
    }
    let mut files = BTreeMap::new();
    for Wanted {
        secret,
        key,
        file,
        required,
    } in wanted
    {
        let Some(content) = found.get(&secret).and_then(Option::as_deref) else {
            return Credentials::Missing(format!("Secret {secret} does not exist"));
        };
        match content.data.get(key) {
            Some(value) => drop(files.insert(file.into(), value.clone())),
            None if required => {
                return Credentials::Missing(format!("Secret {secret} has no key {key}"));
            }
            None => {}
        }
    }
    Credentials::Known(Files(files))
}

fn wanted(run: &Validated) -> Vec<Wanted> {
    let (mysql, redis) = (run.mysql(), run.redis());
    let store = mysql.map(|mysql| {
        login(
            &mysql.credentials_ref,
            [STORE_USERNAME, STORE_PASSWORD],
            true,
        )
    });
    let store_tls = mysql.and_then(|mysql| mysql.tls.as_ref());
    let store_tls = store_tls.map(|t| tls(t, [STORE_CA, STORE_CERTIFICATE, STORE_KEY]));
    let queue = redis.and_then(|redis| redis.credentials_ref.as_ref());
    let queue = queue.map(|login_ref| login(login_ref, [QUEUE_USERNAME, QUEUE_PASSWORD], false));
    let queue_tls = redis.and_then(|redis| redis.tls.as_ref());
    let queue_tls = queue_tls.map(|t| tls(t, [QUEUE_CA, QUEUE_CERTIFICATE, QUEUE_KEY]));
    let all = [store, store_tls, queue, queue_tls];
    all.into_iter().flatten().flatten().collect()
}

fn login(secret: &LocalRef, files: [&'static str; 2], named: bool) -> Vec<Wanted> {
    wanted_of(secret, ["username", "password"], files, [named, true])
}

/// A certificate of our own is for servers that ask for one.
fn tls(tls: &Tls, files: [&'static str; 3]) -> Vec<Wanted> {
    let keys = ["ca.crt", "tls.crt", "tls.key"];
    wanted_of(&tls.secret_ref, keys, files, [true, false, false])
}

fn wanted_of<const N: usize>(
    secret: &LocalRef,
    keys: [&'static str; N],
    files: [&'static str; N],
    required: [bool; N],
) -> Vec<Wanted> {
    let keys = keys.into_iter().zip(files).zip(required);
    keys.map(|((key, file), required)| Wanted {
        secret: secret.name.clone(),
        key,
        file,
        required,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::fixture::{distributed, validated},
        *,
    };

    #[expect(clippy::unnecessary_wraps, reason = "a Secret may be there or not")]
    fn secret(keys: &[&str]) -> Option<Arc<Content>> {
        let data = keys
            .iter()
            .map(|key| ((*key).to_owned(), b"s3cret".to_vec()));
        Some(Arc::new(Content {
            data: data.collect(),
            ..Content::default()
        }))
    }

    fn found(database: Option<Arc<Content>>) -> BTreeMap<String, Option<Arc<Content>>> {
        [
            ("db-user".to_owned(), database),
            ("db-tls".to_owned(), secret(&["ca.crt"])),
            ("cache-user".to_owned(), secret(&["password"])),
        ]
        .into()
    }

    #[test]
    fn an_embedded_store_needs_none() {
        let run = validated(json!({}));
        assert_eq!(gather(&run, &BTreeMap::new()), Credentials::None);
        assert!(secrets(&run).is_empty());
    }

    #[test]
    fn the_keys_become_files_and_nothing_is_shown() {
        let run = validated(distributed());
        assert_eq!(secrets(&run).len(), 3);
        let all = gather(&run, &found(secret(&["username", "password", "other"])));
        let Credentials::Known(files) = &all else {
            panic!("{all:?}");
        };
        let names: Vec<_> = files.0.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "queue-password",
                "store-ca.crt",
                "store-password",
                "store-username"
            ]
        );
        assert!(!format!("{all:?}").contains("115"), "{all:?}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let run = validated(distributed());
        for (database, words) in [
            (None, "Secret db-user does not exist"),
            (secret(&["username"]), "Secret db-user has no key password"),
        ] {
            let expected = Credentials::Missing(words.into());
            assert_eq!(gather(&run, &found(database)), expected);
        }
    }
}
