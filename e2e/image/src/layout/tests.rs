//! The archive, read back as a container runtime reads it.

use std::{collections::BTreeMap, io::Read};

use flate2::read::GzDecoder;
use oci_spec::image::{
    ANNOTATION_LICENSES, ANNOTATION_REVISION, Arch, ImageIndex, ImageManifest, OciLayout,
};
use serde_json::Value;

use super::*;
use crate::{
    program::{Program, tests::minimal_program},
    shipped::Shipped,
};

fn image() -> Shipped {
    Shipped {
        name: "localhost/orrery:dev".parse().unwrap(),
        architecture: Architecture::Amd64,
        created: Timestamp::from_second(1_700_000_000).unwrap(),
        revision: Some("c0ffee".to_owned()),
        programs: vec![
            Program::checked("one", minimal_program(), Architecture::Amd64).unwrap(),
            Program::checked("two", minimal_program(), Architecture::Amd64).unwrap(),
        ],
    }
}

fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(entry.path().unwrap().display().to_string(), bytes);
    }
    files
}

/// What a descriptor points to, after a look at its size and digest.
fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Descriptor) -> &'a [u8] {
    let bytes = &files[&format!("blobs/sha256/{}", descriptor.digest().digest())];
    assert_eq!(descriptor.size(), bytes.len() as u64);
    assert_eq!(descriptor.digest(), &digest(bytes).unwrap());
    bytes
}

fn manifest(archive: &Archive) -> (BTreeMap<String, Vec<u8>>, ImageManifest) {
    let files = files(&archive.bytes);
    let index = ImageIndex::from_reader(files["index.json"].as_slice()).unwrap();
    let manifest = ImageManifest::from_reader(blob(&files, &index.manifests()[0])).unwrap();
    (files, manifest)
}

#[test]
fn a_digest_is_the_one_that_sha256sum_prints() {
    let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(digest(b"abc").unwrap().to_string(), expected);
}

#[test]
fn the_index_names_the_image_for_every_runtime() {
    let archive = image().archive().unwrap();
    let files = files(&archive.bytes);
    let layout = OciLayout::from_reader(files["oci-layout"].as_slice()).unwrap();
    assert_eq!(layout.image_layout_version(), "1.0.0");

    let index = ImageIndex::from_reader(files["index.json"].as_slice()).unwrap();
    let [descriptor] = index.manifests().as_slice() else {
        panic!("one image is expected: {index:?}")
    };
    assert_eq!(descriptor.digest(), &archive.digest);
    let annotations = descriptor.annotations().clone().unwrap();
    assert_eq!(annotations[CONTAINERD_NAME], "localhost/orrery:dev");
    assert_eq!(annotations[ANNOTATION_REF_NAME], "dev");
    assert_eq!(
        descriptor.platform().clone().unwrap().architecture(),
        &Arch::Amd64
    );

    let docker: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
    assert_eq!(docker[0]["RepoTags"], json!(["localhost/orrery:dev"]));
    for path in [&docker[0]["Config"], &docker[0]["Layers"][0]] {
        assert!(files.contains_key(path.as_str().unwrap()), "{path}");
    }
}

#[test]
fn every_digest_and_size_is_right() {
    let (files, manifest) = manifest(&image().archive().unwrap());
    let config = ImageConfiguration::from_reader(blob(&files, manifest.config())).unwrap();
    let [layer] = manifest.layers().as_slice() else {
        panic!("one layer is expected: {manifest:?}")
    };
    let mut plain = Vec::new();
    GzDecoder::new(blob(&files, layer))
        .read_to_end(&mut plain)
        .unwrap();
    assert_eq!(
        config.rootfs().diff_ids(),
        &[digest(&plain).unwrap().to_string()]
    );
}

#[test]
fn the_first_program_runs_as_a_user_without_rights() {
    let (files, manifest) = manifest(&image().archive().unwrap());
    let whole = ImageConfiguration::from_reader(blob(&files, manifest.config())).unwrap();
    assert_eq!(whole.created().as_deref(), Some("2023-11-14T22:13:20Z"));
    let config = whole.config().clone().unwrap();
    assert_eq!(config.user().as_deref(), Some("65532:65532"));
    assert_eq!(
        config.entrypoint().as_deref(),
        Some(["/usr/bin/one".to_owned()].as_slice())
    );
    let labels = config.labels().clone().unwrap();
    assert_eq!(labels[ANNOTATION_REVISION], "c0ffee");
    assert_eq!(labels[ANNOTATION_LICENSES], "Apache-2.0");
    assert_eq!(labels.len(), 6);
}

#[test]
fn the_same_image_gives_the_same_bytes() {
    let once = image().archive().unwrap();
    for _ in 0..10 {
        assert!(
            image().archive().unwrap().bytes == once.bytes,
            "the bytes differ"
        );
    }
}

#[test]
fn a_layer_that_stays_here_is_not_compressed() {
    let image = Image {
        name: "localhost/store:1".parse().unwrap(),
        architecture: Architecture::Arm64,
        created: Timestamp::UNIX_EPOCH,
        labels: HashMap::new(),
        start: Start {
            entrypoint: vec!["/bin/start".to_owned()],
            user: "1:2".to_owned(),
            env: vec!["HOME=/home".to_owned()],
        },
    };
    let (files, manifest) = manifest(&image.archive(Layer::Plain(b"files".to_vec())).unwrap());
    let layer = &manifest.layers()[0];
    assert_eq!(layer.media_type(), &MediaType::ImageLayer);
    assert_eq!(blob(&files, layer), b"files");

    let whole = ImageConfiguration::from_reader(blob(&files, manifest.config())).unwrap();
    assert_eq!(
        whole.rootfs().diff_ids(),
        &[layer.digest().to_string()],
        "what is stored is what a container sees"
    );
    assert_eq!(whole.architecture(), &Arch::ARM64);
    let config = whole.config().clone().unwrap();
    assert_eq!(config.user().as_deref(), Some("1:2"));
    assert_eq!(config.env().clone().unwrap(), ["HOME=/home"]);
    assert_eq!(config.entrypoint().clone().unwrap(), ["/bin/start"]);
}
