use std::os::unix::{fs::symlink, net::UnixListener};

use tar::{Archive, EntryType};
use tempfile::{TempDir, tempdir};

use super::*;

fn created() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn write(folder: &TempDir, path: &str, mode: u32) {
    let file = folder.path().join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, path).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn files_come_in_order_with_their_kind_and_without_their_past() {
    let folder = tempdir().unwrap();
    write(&folder, "b/program", 0o500);
    write(&folder, "b/a.conf", 0o660);
    write(&folder, "b.conf", 0o600);
    symlink("program", folder.path().join("b/link")).unwrap();
    fs::create_dir(folder.path().join("a")).unwrap();

    let files = files(folder.path(), created()).unwrap();
    let mut seen = Vec::new();
    for entry in Archive::new(files.as_slice()).entries().unwrap() {
        let entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        assert_eq!(header.mtime().unwrap(), 1_700_000_000);
        let path = entry.path().unwrap().display().to_string();
        seen.push((path, header.entry_type(), header.mode().unwrap()));
    }
    let expected = [
        ("a/", EntryType::Directory, 0o755),
        ("b/", EntryType::Directory, 0o755),
        ("b/a.conf", EntryType::Regular, 0o644),
        ("b/link", EntryType::Symlink, 0o777),
        ("b/program", EntryType::Regular, 0o755),
        ("b.conf", EntryType::Regular, 0o644),
    ]
    .map(|(path, kind, mode)| (path.to_owned(), kind, mode));
    assert_eq!(seen, expected);
}

#[test]
fn equal_folders_give_equal_bytes() {
    let names = ["one", "two", "three/four", "three/five"];
    let (forth, back) = (tempdir().unwrap(), tempdir().unwrap());
    for name in names {
        write(&forth, name, 0o644);
    }
    for name in names.iter().rev() {
        write(&back, name, 0o600);
    }
    let packed = |folder: &TempDir| files(folder.path(), created()).unwrap();
    assert!(packed(&forth) == packed(&back), "the bytes differ");
    write(&back, "one", 0o755);
    assert!(packed(&forth) != packed(&back), "a program is no file");
}

#[test]
fn a_long_path_is_kept() {
    let folder = tempdir().unwrap();
    let long = format!("{}/{}", "folder".repeat(20), "name".repeat(40));
    write(&folder, &long, 0o644);
    let files = files(folder.path(), created()).unwrap();
    let mut archive = Archive::new(files.as_slice());
    let last = archive.entries().unwrap().last().unwrap().unwrap();
    assert_eq!(last.path().unwrap().to_str(), Some(long.as_str()));
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let folder = tempdir().unwrap();
    fs::create_dir(folder.path().join("run")).unwrap();
    let _socket = UnixListener::bind(folder.path().join("run/socket")).unwrap();
    let error = format!("{:#}", files(folder.path(), created()).unwrap_err());
    assert!(error.contains("run/socket: it is neither"), "{error}");
}

#[test]
fn a_folder_that_is_missing_or_empty_is_refused() {
    let folder = tempdir().unwrap();
    let error = files(folder.path(), created()).unwrap_err().to_string();
    assert!(error.ends_with("is empty"), "{error}");
    let missing = folder.path().join("missing");
    let error = format!("{:#}", files(&missing, created()).unwrap_err());
    assert!(
        error.contains("missing") && error.contains("No such file"),
        "{error}"
    );
}
