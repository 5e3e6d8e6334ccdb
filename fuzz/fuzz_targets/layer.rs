//! Unpacks a layer of arbitrary entries. Nothing outside of the bundle may change, whatever the entries are.

#![no_main]

use husk_image::{Draft, Ids, Image, Limits, Reference};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tar::{Builder, EntryType, Header};

/// The parts of names. Together they make paths that leave the root, whiteouts and symlinks to each other.
const PARTS: [&str; 12] = ["a", "b", "c", "..", ".", "", ".wh.a", ".wh..wh..opq", ".wh.", ".wh...", "\u{ff}", "outside"];

const KINDS: [EntryType; 8] = [
    EntryType::Regular,
    EntryType::Directory,
    EntryType::Symlink,
    EntryType::Link,
    EntryType::Fifo,
    EntryType::Char,
    EntryType::GNUSparse,
    EntryType::XHeader,
];

/// A digest that no input has: the end of every run is an error, after everything was unpacked.
const DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

#[derive(Arbitrary, Debug)]
struct Entry {
    kind: u8,
    is_absolute: bool,
    name: Vec<u8>,
    target: Vec<u8>,
    content: Vec<u8>,
    mode: u16,
}

#[derive(Arbitrary, Debug)]
struct Layer {
    entries: Vec<Entry>,
    /// Bytes after the entries.
    rest: Vec<u8>,
}

static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = std::env::temp_dir().join(format!("husk-fuzz-layer-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("outside"), "outside").unwrap();
    place
});

fuzz_target!(|layer: Layer| {
    let mut builder = Builder::new(Vec::new());
    for entry in &layer.entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(KINDS[usize::from(entry.kind) % KINDS.len()]);
        header.set_mode(entry.mode.into());
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(entry.content.len() as u64);
        let old = header.as_old_mut();
        put(&mut old.name, &path(entry.is_absolute, &entry.name));
        put(&mut old.linkname, &path(entry.is_absolute, &entry.target));
        header.set_cksum();
        builder.append(&header, &entry.content[..]).unwrap();
    }
    let mut bytes = builder.get_ref().clone();
    bytes.extend(&layer.rest);
    unpack(&PLACE, &bytes);
    assert_eq!(fs::read_to_string(PLACE.join("outside")).unwrap(), "outside");
    let mut names: Vec<_> = fs::read_dir(&*PLACE).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["image.tar", "outside"]);
});

/// Puts the layer into an image and the image into a bundle, which is removed because of the digest.
fn unpack(place: &Path, layer: &[u8]) {
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["sha256:{DIGEST}"]}}}}"#
    );
    let manifest = r#"[{"Config":"config","RepoTags":null,"Layers":["layer"]}]"#;
    let mut archive = Builder::new(Vec::new());
    for (name, bytes) in [("manifest.json", manifest.as_bytes()), ("config", config.as_bytes()), ("layer", layer)] {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        archive.append_data(&mut header, name, bytes).unwrap();
    }
    let path = place.join("image.tar");
    fs::write(&path, archive.into_inner().unwrap()).unwrap();
    let image = Image::open(&Reference::DockerArchive { path, tag: None }).unwrap();
    let mut draft = Draft::begin(&place.join("bundle")).unwrap();
    let one = Ids::of_maps("0 0 1", "0 0 1");
    let limits = Limits { bytes: 1 << 20, entries: 1000 };
    assert!(draft.flatten(&image, &one, limits).is_err());
}

fn path(is_absolute: bool, parts: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = parts.iter().map(|part| PARTS[usize::from(*part) % PARTS.len()]).collect();
    [if is_absolute { "/" } else { "" }, &parts.join("/")].concat().into_bytes()
}

fn put(field: &mut [u8; 100], text: &[u8]) {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
}
