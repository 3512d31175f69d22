use std::io::Read;

use super::*;
use crate::program::tests::minimal_program;

fn image() -> Shipped {
    Shipped {
        name: "localhost/orrery:dev".parse().unwrap(),
        architecture: Architecture::Amd64,
        created: Timestamp::from_second(1_700_000_000).unwrap(),
        revision: Some("c0ffee".to_owned()),
        programs: vec![Program::checked("one", minimal_program(), Architecture::Amd64).unwrap()],
    }
}

#[test]
fn a_container_sees_its_user_and_the_programs_and_nothing_else() {
    let files = image().files().unwrap();
    let mut archive = tar::Archive::new(files.as_slice());
    let mut seen = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        assert_eq!(entry.header().mtime().unwrap(), 1_700_000_000, "{path}");
        assert_eq!(entry.header().uid().unwrap(), 0, "{path}");
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        seen.push((path, entry.header().mode().unwrap(), bytes));
    }
    let expected = [
        ("etc/", 0o755, Vec::new()),
        ("etc/group", 0o644, GROUP.into()),
        ("etc/passwd", 0o644, PASSWD.into()),
        ("usr/", 0o755, Vec::new()),
        ("usr/bin/", 0o755, Vec::new()),
        ("usr/bin/one", 0o755, minimal_program()),
    ]
    .map(|(path, mode, bytes)| (path.to_owned(), mode, bytes));
    assert_eq!(seen, expected);
}

#[test]
fn the_user_is_known_by_name() {
    assert!(PASSWD.contains(&format!(":x:{USER}:")));
    assert!(GROUP.contains(":x:65532:"));
}

#[test]
fn an_image_without_programs_is_refused() {
    let empty = Shipped {
        programs: Vec::new(),
        ..image()
    };
    let error = empty.archive().unwrap_err().to_string();
    assert_eq!(error, "an image needs a program");
}

#[test]
fn the_dockerfile_says_the_same() {
    let dockerfile = include_str!("../../../../Dockerfile");
    let binaries = include_str!("../../binaries");
    let (_, first) = binaries.lines().next().unwrap().split_once(' ').unwrap();
    for line in [
        format!(
            "FROM docker.io/library/rust:{}-slim-bookworm AS build",
            env!("CARGO_PKG_RUST_VERSION")
        ),
        format!("USER {USER}"),
        format!("ENTRYPOINT [\"/usr/bin/{first}\"]"),
    ] {
        assert!(
            dockerfile.lines().any(|it| it == line),
            "the Dockerfile lacks {line:?}"
        );
    }
    for label in image().labels().keys() {
        assert!(
            dockerfile.contains(label),
            "the Dockerfile lacks the label {label}"
        );
    }
}
