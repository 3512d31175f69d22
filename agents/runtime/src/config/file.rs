//! In: `config.json` in a folder, as a ConfigMap is mounted. Out: an offer to the store whenever its content changes.
//! Reads that file, again and again.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crds::report::DOCUMENT_LIMIT;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{ConfigStore, Source};

/// The key of the ConfigMap that holds the document.
pub const CONFIG_FILE: &str = "config.json";

/// How often the file is looked at.
pub const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Follows the mounted document. No file is fine: the operator may push one.
///
/// It compares contents, because a mounted ConfigMap changes by a symbolic link beside the file's own.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    interval: Duration,
    store: Arc<ConfigStore>,
    offered: Option<Vec<u8>>,
    unreadable: Option<io::ErrorKind>,
}

impl ConfigFile {
    /// Looks into `folder` every `interval`; nothing is read yet.
    pub fn new(folder: &Path, interval: Duration, store: Arc<ConfigStore>) -> Self {
        Self {
            path: folder.join(CONFIG_FILE),
            interval,
            store,
            offered: None,
            unreadable: None,
        }
    }

    /// Keeps looking until `token` is cancelled.
    pub async fn run(mut self, token: CancellationToken) -> Result<(), Infallible> {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while token.run_until_cancelled(ticks.tick()).await.is_some() {
            self.poll().await;
        }
        Ok(())
    }

    /// Looks once.
    ///
    /// The same content is never offered twice, even if it could not be read in between: what was pushed since then is newer.
    pub async fn poll(&mut self) {
        match read(&self.path).await {
            Ok(content) => {
                self.unreadable = None;
                if self.offered.as_ref() != Some(&content) {
                    self.store.offer(Source::File, &content);
                    self.offered = Some(content);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.unreadable = None,
            Err(error) => self.complain(&error),
        }
    }

    fn complain(&mut self, error: &io::Error) {
        if self.unreadable.replace(error.kind()) != Some(error.kind()) {
            warn!(path = %self.path.display(), %error, "failed to read the mounted configuration");
        }
    }
}

/// Reads just enough to see that a file is too long.
async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = File::open(path).await?;
    let limit = DOCUMENT_LIMIT as u64 + 1;
    file.take(limit).read_to_end(&mut content).await?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;
    use crate::metrics::Metrics;

    fn document(uid: &str, generation: i64) -> String {
        format!(r#"{{"version":1,"uid":"{uid}","generation":{generation}}}"#)
    }

    fn fixture() -> (TempDir, Arc<ConfigStore>, ConfigFile) {
        let folder = TempDir::new().unwrap();
        let store = Arc::new(ConfigStore::new(&Metrics::new(), |_| Ok(())));
        let file = ConfigFile::new(folder.path(), POLL_INTERVAL, store.clone());
        (folder, store, file)
    }

    fn generation(store: &ConfigStore) -> Option<i64> {
        store.current().map(|document| document.generation)
    }

    #[tokio::test]
    async fn no_file_is_fine_and_a_later_one_is_read() {
        let (folder, store, mut file) = fixture();
        file.poll().await;
        assert_eq!((generation(&store), store.error()), (None, None));
        fs::write(folder.path().join(CONFIG_FILE), document("a", 1)).unwrap();
        file.poll().await;
        assert_eq!(generation(&store), Some(1));
    }

    #[tokio::test]
    async fn the_kubelets_swap_of_a_link_is_seen() {
        let (folder, store, mut file) = fixture();
        let root = folder.path();
        for generation in [1, 2] {
            let version = format!("..2026_11_16_12_00_0{generation}");
            fs::create_dir(root.join(&version)).unwrap();
            let content = document("a", generation);
            fs::write(root.join(&version).join(CONFIG_FILE), content).unwrap();
            symlink(&version, root.join("..data_tmp")).unwrap();
            fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
            if generation == 1 {
                symlink("..data/config.json", root.join(CONFIG_FILE)).unwrap();
            }
            file.poll().await;
            assert_eq!(super::tests::generation(&store), Some(generation));
        }
    }

    #[tokio::test]
    async fn an_old_file_does_not_undo_a_push_of_another_resource() {
        let (folder, store, mut file) = fixture();
        let path = folder.path().join(CONFIG_FILE);
        fs::write(&path, document("old", 7)).unwrap();
        file.poll().await;
        store.offer(Source::Push, document("new", 1).as_bytes());
        file.poll().await;
        fs::remove_file(&path).unwrap();
        file.poll().await;
        fs::write(&path, document("old", 7)).unwrap();
        file.poll().await;
        assert_eq!(store.current().unwrap().uid, "new");
    }

    #[tokio::test]
    async fn a_file_that_is_too_long_is_refused() {
        let (folder, store, mut file) = fixture();
        let endless = vec![b' '; DOCUMENT_LIMIT + 10];
        fs::write(folder.path().join(CONFIG_FILE), endless).unwrap();
        file.poll().await;
        assert!(store.error().unwrap().contains("more than 1048576 bytes"));
    }

    #[tokio::test]
    async fn a_folder_in_place_of_the_file_changes_nothing() {
        let (folder, store, mut file) = fixture();
        fs::create_dir(folder.path().join(CONFIG_FILE)).unwrap();
        file.poll().await;
        assert_eq!(generation(&store), None);
    }

    #[tokio::test]
    async fn the_loop_looks_again_and_ends_when_told() {
        let (folder, store, _) = fixture();
        let file = ConfigFile::new(folder.path(), Duration::from_millis(5), store.clone());
        let token = CancellationToken::new();
        let mut receiver = store.subscribe();
        let arrival = async {
            fs::write(folder.path().join(CONFIG_FILE), document("a", 1)).unwrap();
            let arrived = receiver.wait_for(Option::is_some).await.is_ok();
            token.cancel();
            arrived
        };
        let both = async { tokio::join!(file.run(token.clone()), arrival) };
        let (ended, arrived) = timeout(Duration::from_secs(5), both).await.unwrap();
        assert!(ended.is_ok() && arrived);
    }
}
