//! What `mm*` commands say. In: their words. Out: what they mean. Pure.

/// A field of the first row that has it, in the form that `-Y` gives: a row of names, then rows of values, all with colons
/// between them and percent signs before what is escaped.
pub(super) fn field(said: &str, name: &str) -> Option<String> {
    let mut rows = said.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let names = rows.find(|row| row.get(2) == Some(&"HEADER"))?;
    let at = |wanted: &str| names.iter().position(|it| *it == wanted);
    // A row has a field by the name of its column, or by the name that it carries.
    match (at(name), at("fieldName"), at("data")) {
        (Some(column), _, _) => rows.find_map(|row| row.get(column).map(|it| unescaped(it))),
        (None, Some(key), Some(data)) => rows
            .find(|row| row.get(key) == Some(&name))
            .and_then(|row| row.get(data).map(|it| unescaped(it))),
        _ => None,
    }
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.first_chunk::<2>().and_then(|digits| {
            let digits = str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        let (byte, length) = match code {
            Some(byte) if *first == b'%' => (byte, 2),
            _ => (*first, 0),
        };
        bytes.push(byte);
        rest = &after[length..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The folder that snapshots of a whole file system appear in: the last name in quotes of the line about it.
pub(super) fn snapshot_folder(said: &str) -> Option<&str> {
    let about = |words: &str| {
        let mut lines = said.lines();
        lines.find(|line| line.to_ascii_lowercase().contains(words))
    };
    let line = about("global snapshot directory").or_else(|| about("snapshot directory"))?;
    // `… for "fs" is ".snapshots" in …`: what is in quotes are the second, the fourth, …
    let quoted: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
    quoted
        .last()
        .copied()
        .filter(|it| !it.is_empty() && !it.contains('/'))
}

/// Whether a message has this number.
pub(super) fn has_code(said: &str, code: &str) -> bool {
    said.contains(code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_field_is_found_by_column_or_by_the_name_in_its_row() {
        let said = "mmlsfs::HEADER:version:reserved:reserved:deviceName:fieldName:data:remarks:\n\
                    mmlsfs::0:1:::gpfs0:defaultMountPoint:%2Fgpfs%2Fa b%3A::\n";
        assert_eq!(
            field(said, "defaultMountPoint").as_deref(),
            Some("/gpfs/a b:")
        );
        assert_eq!(field(said, "deviceName").as_deref(), Some("gpfs0"));
        assert_eq!(field(said, "other"), None);
        assert_eq!(field("no such file system", "data"), None);
    }

    #[test]
    fn the_folder_of_snapshots_is_told_in_one_line_or_in_two() {
        let one = "Snapshot directory for \"gpfs0\" is \".snapshots\" (root directory only)\n";
        assert_eq!(snapshot_folder(one), Some(".snapshots"));
        let two = "Fileset snapshot directory for \"gpfs0\" is \".snaps\" (all directories)\n\
                   Global snapshot directory for \"gpfs0\" is \".snapshots\" in root fileset\n";
        assert_eq!(snapshot_folder(two), Some(".snapshots"));
        assert_eq!(snapshot_folder("nothing of it"), None);
        assert_eq!(
            snapshot_folder("snapshot directory for \"x\" is \"../etc\""),
            None
        );
    }

    proptest! {
        #[test]
        fn no_words_panic(said: String, name: String) {
            let _ = (field(&said, &name), snapshot_folder(&said));
        }
    }
}
