//! Commands beside `local`, and what programs are told when something fails.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::tree::{Tree, said};

#[test]
fn a_store_in_the_tree_whose_name_cannot_be_left_out_is_refused() {
    let tree = Tree::with(3);
    let store = tree.path(OsStr::from_bytes(b"\xff.sqlite"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_orrery-checksum"));
    command.arg("local").arg(tree.root());
    command.arg("--store").arg(&store);
    let refused = said(&command.output().unwrap());
    assert_eq!(refused.code, 3);
    let words = r"/root/\xff.sqlite is in the folder that is read, under a name that is no text";
    assert!(refused.complaint.contains(words), "{refused:?}");
    assert!(!store.exists());
}
