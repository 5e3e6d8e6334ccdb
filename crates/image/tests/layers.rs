//! Unpacks layers into a store, good ones and hostile ones. The tests run as root and as a user.

mod layout;

use husk_image::{Ids, Image, Limits, Reference, Store, Unpacked, Use};
use layout::{Archive, How, Layout};
use rustix::fs::{getxattr, statat};
use serde_json::json;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tar::EntryType;
use tempfile::TempDir;

/// A store in a directory of its own, with a file beside it that no layer may change.
struct Place {
    directory: TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("outside"), "outside").unwrap();
        let store = Store::open(&directory.path().join("store"), Use::Shared, ids()).unwrap();
        Self { directory, store }
    }

    fn unpack_within(&self, layout: &Layout, limits: Limits) -> Result<(Image, Unpacked), String> {
        let reference = Reference::Layout { path: layout.path().to_owned(), tag: None };
        let text = |error: husk_image::Error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            format!("{error}{}", source.unwrap_or_default())
        };
        let image = Image::open(&reference).map_err(text)?;
        let unpacked = self.store.unpack(&image, limits).map_err(text)?;
        Ok((image, unpacked))
    }

    /// Unpacks an image and returns the directories of its layers, from the lowest to the highest.
    fn unpack(&self, layout: &Layout) -> Vec<PathBuf> {
        let (image, _) = self.unpack_within(layout, Limits::default()).unwrap();
        image.layers().map(|diff_id| self.store.layer(diff_id).unwrap()).collect()
    }

    /// Unpacks a hostile layer. Nothing of it may stay.
    fn refuses(&self, archive: Archive) -> String {
        let error = self.unpack_within(&Layout::of(archive), Limits::default()).map(|_| ()).unwrap_err();
        self.is_untouched();
        error.split_once(": ").map(|(_, reason)| reason.to_owned()).unwrap_or(error)
    }

    /// Checks that the store is empty and that nothing beside it was changed.
    fn is_untouched(&self) {
        let path = |name: &str| self.directory.path().join(name);
        assert_eq!(fs::read_to_string(path("outside")).unwrap(), "outside");
        assert_eq!(names(self.directory.path()), ["outside", "store"]);
        assert_eq!(names(&path("store/new")), [""; 0]);
        let owners = names(&path("store/layers"));
        assert_eq!(names(&path("store/layers").join(&owners[0])), [""; 0]);
    }
}

/// Returns the ids that files can belong to: all for root, and a single one for other users, who cannot change owners.
fn ids() -> Ids {
    let me = rustix::process::geteuid();
    if me.is_root() {
        return Ids::of_this_process().unwrap();
    }
    let map = format!("0 {} 1\n", me.as_raw());
    Ids::of_maps(&map, &map)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn every_compression_gives_the_same_files() {
    for how in [How::Plain, How::Gzip, How::Zstd] {
        let place = Place::new();
        let long = format!("{}/file", "long/".repeat(40));
        let content = b"content".repeat(100_000);
        let archive = Archive::new().directory("a/").file("a/b", &content).file(&long, b"deep");
        let layers = place.unpack(&Layout::new().layer(how, archive).tagged("v1", json!({})));
        assert!(fs::read(layers[0].join("a/b")).unwrap() == content, "{how:?}");
        assert_eq!(fs::read_to_string(layers[0].join(&long)).unwrap(), "deep", "{how:?}");
    }
}

#[test]
fn zstd_layer_of_several_frames_is_whole() {
    let place = Place::new();
    let tar = Archive::new().file("a", b"a").bytes();
    let (first, second) = tar.split_at(100);
    let frame =
        |bytes: &[u8]| ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest);
    let skippable = b"\x50\x2a\x4d\x18\x03\0\0\0xyz".to_vec();
    let blob = [skippable.clone(), frame(first), skippable, frame(second)].concat();
    let layout = Layout::new().layer_of(How::Plain, &blob);
    // The configuration names the uncompressed layer.
    let layout = layout.renaming_layer(&layout::digest(&tar)).tagged("v1", json!({}));
    assert_eq!(names(&place.unpack(&layout)[0]), ["a"]);
}

#[test]
fn attributes_of_files_are_kept() {
    let place = Place::new();
    let archive = Archive::new()
        .mode(0o750)
        .directory("d")
        .mode(0o4755)
        .record("mtime", "12.5")
        .record("SCHILY.xattr.user.note", b"\xff\0")
        .record("SCHILY.xattr.trusted.dropped", b"x")
        .file("d/suid", b"x")
        .link("d/same", "d/suid")
        .symlink("d/link", "/outside")
        .mode(0o640)
        .entry(EntryType::Fifo, "fifo", b"", b"")
        .file(b"\xff\xfe", b"not UTF-8");
    let layer = &place.unpack(&Layout::of(archive))[0];
    let found = |name: &str| layer.join(name).symlink_metadata().unwrap();
    assert_eq!((found("d").mode() & 0o7777, found("d").mtime()), (0o750, 1_000_000_000));
    assert_eq!(found("d/suid").mode() & 0o7777, 0o4755);
    assert_eq!((found("d/suid").mtime(), found("d/suid").mtime_nsec()), (12, 500_000_000));
    assert_eq!((found("d/suid").ino(), found("d/suid").nlink()), (found("d/same").ino(), 2));
    assert_eq!(fs::read_link(layer.join("d/link")).unwrap(), Path::new("/outside"));
    assert_eq!(found("d/link").mtime(), 1_000_000_000);
    assert!(found("fifo").file_type().is_fifo() && found("fifo").mode() & 0o7777 == 0o640);
    assert!(layer.join(std::ffi::OsStr::from_bytes(b"\xff\xfe")).exists());
    let mut value = [0; 8];
    let length = getxattr(layer.join("d/suid"), "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"\xff\0");
    // Nobody but the caller can reach a set-user-ID file.
    let store = place.directory.path().join("store").metadata().unwrap();
    assert_eq!(store.permissions().mode() & 0o777, 0o700);
}

#[test]
fn owners_and_devices_are_roots_to_make() {
    let place = Place::new();
    let archive = Archive::new()
        .owned(1234, 5678)
        .file("owned", b"")
        .directory("directory")
        .symlink("link", "x")
        .entry(EntryType::Char, "null", b"", b"");
    let (image, unpacked) = place.unpack_within(&Layout::of(archive), Limits::default()).unwrap();
    let layer = place.store.layer(image.layers().next().unwrap()).unwrap();
    if !rustix::process::geteuid().is_root() {
        assert_eq!(unpacked.skipped_devices, 1);
        assert_eq!(names(&layer), ["directory", "link", "owned"]);
        return;
    }
    for name in ["owned", "directory", "link", "null"] {
        let found = layer.join(name).symlink_metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 5678), "{name}");
    }
    assert_eq!(layer.join("null").metadata().unwrap().rdev(), rustix::fs::makedev(1, 3));
    assert_eq!(unpacked, Unpacked { layers: 1, skipped_devices: 0 });
}

#[test]
fn zeros_become_holes() {
    let place = Place::new();
    let mut content = vec![0; 8 << 20];
    content[4 << 20] = 1;
    let layer = &place.unpack(&Layout::of(Archive::new().file("sparse", &content)))[0];
    assert!(fs::read(layer.join("sparse")).unwrap() == content);
    let blocks = layer.join("sparse").metadata().unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "{blocks} blocks");
}

#[test]
fn whiteouts_have_the_form_of_overlayfs() {
    let place = Place::new();
    let archive = Archive::new()
        .file("gone/.wh.file", b"")
        .directory("opaque")
        .file("opaque/.wh..wh..opq", b"")
        .file("opaque/new", b"")
        // Each of these replaces what lower layers have by a directory.
        .file(".wh.before", b"")
        .file("before/new", b"")
        .directory("after")
        .file(".wh.after", b"")
        // A file replaces it anyway.
        .file("file", b"")
        .file(".wh.file", b"")
        .file(".wh..wh.plnk", b"");
    let layer = &place.unpack(&Layout::of(archive))[0];
    let found = layer.join("gone/file").symlink_metadata().unwrap();
    assert!(found.file_type().is_char_device() && found.rdev() == 0);
    let is_opaque = |name: &str| getxattr(layer.join(name), "user.overlay.opaque", &mut [0; 8][..]).is_ok();
    assert_eq!(["opaque", "before", "after", "gone"].map(is_opaque), [true, true, true, false]);
    assert_eq!(names(layer), ["after", "before", "file", "gone", "opaque"]);
    assert!(layer.join("file").is_file());
}

#[test]
fn later_entry_replaces_an_earlier_one() {
    let place = Place::new();
    let archive = Archive::new()
        .file("a", b"first")
        .file("a", b"second")
        .directory("tree")
        .file("tree/below/file", b"")
        .file("tree", b"a file")
        .symlink("link", "a")
        .file("link", b"no link")
        .mode(0o700)
        .directory("kept")
        .file("kept/file", b"")
        .mode(0o755)
        .directory("kept");
    let layer = &place.unpack(&Layout::of(archive))[0];
    assert_eq!(fs::read_to_string(layer.join("a")).unwrap(), "second");
    assert_eq!(fs::read_to_string(layer.join("tree")).unwrap(), "a file");
    assert_eq!(fs::read_to_string(layer.join("link")).unwrap(), "no link");
    assert_eq!(layer.join("kept").metadata().unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(names(&layer.join("kept")), ["file"]);
}

#[test]
fn absolute_names_are_below_the_root() {
    let place = Place::new();
    let layer = &place.unpack(&Layout::of(Archive::new().file("/etc/./passwd", b"x").directory("/")))[0];
    assert_eq!(fs::read_to_string(layer.join("etc/passwd")).unwrap(), "x");
}

#[test]
fn entries_that_lead_outside_are_refused() {
    let place = Place::new();
    let outside = place.directory.path().to_str().unwrap().to_owned();
    let up = "../../../../../../../outside";
    for name in [
        "..",
        "../outside",
        "a/../../outside",
        "/../outside",
        ".wh...",
        ".wh..",
        ".wh.",
        "a/.wh..",
        ".wh.a/b",
    ] {
        let reason = place.refuses(Archive::new().file(name, b"x"));
        assert!(reason.starts_with(&format!("{name}: ")), "{name}: {reason}");
    }
    let through = "escape/outside: is below a symlink or a file of the same layer";
    for target in [outside.as_str(), "..", up, "/", "."] {
        assert_eq!(
            place.refuses(Archive::new().symlink("escape", target).file("escape/outside", b"x")),
            through
        );
        // The symlink takes the place of a directory in which an entry was just written.
        let swapped = Archive::new().file("escape/first", b"").symlink("escape", target);
        assert_eq!(place.refuses(swapped.file("escape/outside", b"x")), through);
        let hidden = Archive::new().symlink("escape", target).file("escape/.wh.outside", b"");
        assert!(place.refuses(hidden).ends_with("is below a symlink or a file of the same layer"));
        let opaque = Archive::new().symlink("escape", target).file("escape/.wh..wh..opq", b"");
        assert!(place.refuses(opaque).ends_with("is below a symlink or a file of the same layer"));
        let linked = Archive::new().symlink("escape", target).link("a", "escape/outside");
        assert!(place.refuses(linked).ends_with("is a hard link to a file that the layer does not have"));
    }
    for target in [up, "/../outside", &format!("{outside}/outside"), "missing", ".", ".wh.x", "a"] {
        let reason = place.refuses(Archive::new().link("a", target));
        assert!(reason.starts_with("a: is a hard link to "), "{target}: {reason}");
    }
    assert!(place.refuses(Archive::new().directory("d").link("a", "d")).contains("not a file"));
}

#[test]
fn hard_link_to_a_symlink_is_the_symlink() {
    let place = Place::new();
    let outside = place.directory.path().join("outside");
    let archive = Archive::new().symlink("a", outside.to_str().unwrap()).link("b", "a").file("b", b"changed");
    let layer = &place.unpack(&Layout::of(archive))[0];
    assert_eq!(fs::read_link(layer.join("a")).unwrap(), outside);
    assert_eq!(fs::read_to_string(layer.join("b")).unwrap(), "changed");
    assert_eq!(fs::read_to_string(outside).unwrap(), "outside");
}

#[test]
fn entries_that_imitate_overlayfs_are_refused() {
    let place = Place::new();
    for name in ["user.overlay.redirect", "user.overlay.opaque", "trusted.overlay.opaque"] {
        let archive = Archive::new().record(&format!("SCHILY.xattr.{name}"), "y").directory("d");
        assert_eq!(place.refuses(archive), "d: has an extended attribute of overlayfs");
    }
    let device = Archive::new().entry(EntryType::Char, "d", b"", b"0:0");
    assert!(place.refuses(device).contains("is a whiteout of overlayfs"));
    // The name of the hidden file exists in the layer, as a device.
    let linked = Archive::new().file(".wh.a", b"").link("b", "a");
    assert!(place.refuses(linked).contains("not a file"));
}

#[test]
fn senseless_entries_are_refused() {
    let place = Place::new();
    assert_eq!(place.refuses(Archive::new().file(".", b"")), ".: replaces the root directory");
    assert!(place.refuses(Archive::new().symlink("a", "")).contains("without a target"));
    assert!(place.refuses(Archive::new().file("a/".repeat(300), b"")).contains("deep"));
    assert!(place.refuses(Archive::new().file("a".repeat(300), b"")).contains("255 bytes"));
    assert!(place.refuses(Archive::new().file("a/".repeat(3000), b"")).contains("4096 bytes"));
    if rustix::process::geteuid().is_root() {
        assert!(place.refuses(Archive::new().owned(u64::from(u32::MAX), 0).file("a", b"")).contains("owner"));
    }
}

#[test]
fn bombs_are_stopped() {
    let place = Place::new();
    let refuses = |archive: Archive, limits| {
        let error = place.unpack_within(&Layout::of(archive), limits).map(|_| ()).unwrap_err();
        place.is_untouched();
        error
    };
    let few = |bytes, entries| Limits { bytes, entries };
    let error = refuses(Archive::new().file("zeros", &vec![0; 4 << 20]), few(1 << 20, 100));
    assert!(
        error.ends_with("the image has more than 1048576 bytes; raise the limit with --max-bytes"),
        "{error}"
    );
    let many = (0..20).fold(Archive::new(), |archive, number| archive.file(number.to_string(), b""));
    let error = refuses(many, few(1 << 20, 10));
    assert!(error.ends_with("the image has more than 10 files; raise the limit with --max-files"), "{error}");
    // The header of a PAX archive would be held in memory.
    let huge = Archive::new().record("comment", vec![b'x'; 4 << 20]).file("a", b"");
    let error = refuses(huge, Limits::default());
    assert!(error.ends_with("an entry has a header of more than 1 MiB"), "{error}");
}

#[test]
fn sparse_file_counts_with_its_holes() {
    let place = Place::new();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(EntryType::GNUSparse);
    header.set_path("sparse").unwrap();
    header.set_mode(0o644);
    header.set_size(0);
    header.as_gnu_mut().unwrap().set_real_size(1 << 50);
    let block = &mut header.as_gnu_mut().unwrap().sparse[0];
    block.set_offset(1 << 50);
    block.set_length(0);
    header.set_cksum();
    let bytes = [header.as_bytes().as_slice(), &[0; 1024]].concat();
    let layout = Layout::new().layer_of(How::Gzip, &bytes).tagged("v1", json!({}));
    let error = place.unpack_within(&layout, Limits::default()).map(|_| ()).unwrap_err();
    assert!(error.contains("raise the limit with --max-bytes"), "{error}");
    place.is_untouched();
}

/// Returns an archive of a sparse file in version 1.0: the map precedes the data.
fn sparse(map: &str, data: &[u8]) -> Archive {
    let mut content = map.as_bytes().to_vec();
    content.resize(map.len().next_multiple_of(512), 0);
    content.extend_from_slice(data);
    Archive::new()
        .record("GNU.sparse.major", "1")
        .record("GNU.sparse.minor", "0")
        .record("GNU.sparse.name", "d/sparse")
        .record("GNU.sparse.realsize", "3000000")
        .file("GNUSparseFile.0/sparse", &content)
}

#[test]
fn sparse_files_of_pax_are_read() {
    let place = Place::new();
    let old = Archive::new()
        .record("GNU.sparse.size", "3000000")
        .record("GNU.sparse.numblocks", "2")
        .record("GNU.sparse.map", "1000000,3,2000000,4")
        .record("GNU.sparse.name", "d/sparse")
        .file("GNUSparseFile.0/sparse", b"abcdefg");
    let mut content = vec![0; 3_000_000];
    content[1_000_000..1_000_003].copy_from_slice(b"abc");
    content[2_000_000..2_000_004].copy_from_slice(b"defg");
    for archive in [old, sparse("3\n1000000\n3\n2000000\n4\n3000000\n0\n", b"abcdefg")] {
        let layer = &place.unpack(&Layout::of(archive.file("next", b"next")))[0];
        assert_eq!(
            (names(layer), names(&layer.join("d"))),
            (vec!["d".into(), "next".into()], vec!["sparse".into()])
        );
        assert!(fs::read(layer.join("d/sparse")).unwrap() == content);
        assert!(layer.join("d/sparse").metadata().unwrap().blocks() < 1000);
    }
}

#[test]
fn damaged_sparse_files_are_refused() {
    let damaged = "d/sparse: is a sparse file with a damaged map";
    for (map, data) in [
        // Data at the same place, in the wrong order, behind the end, or at the end of all numbers.
        ("2\n10\n3\n12\n4\n", &b"abcdefg"[..]),
        ("2\n100\n3\n10\n4\n", b"abcdefg"),
        ("1\n2999999\n7\n", b"abcdefg"),
        ("1\n18446744073709551615\n7\n", b"abcdefg"),
        ("2\n0\n18446744073709551615\n0\n8\n", b"abcdefg"),
        // More or less data than the map says.
        ("1\n0\n8\n", b"abcdefg"),
        ("1\n0\n6\n", b"abcdefg"),
        // No map, one without an end, and one with too many entries.
        ("", b""),
        ("1\n0\n", b""),
        ("x\n", b""),
        ("100000000000000000000\n", b""),
        ("99999999\n", b""),
        ("1\n-1\n7\n", b"abcdefg"),
    ] {
        let place = Place::new();
        assert_eq!(place.refuses(sparse(map, data)), damaged, "{map:?}");
    }
    let place = Place::new();
    let unknown = "is a sparse file in a format that husk does not read";
    for (key, value) in [("GNU.sparse.major", "2"), ("GNU.sparse.offset", "0")] {
        let archive = Archive::new().record(key, value).record("GNU.sparse.name", "a").file("x", b"");
        assert!(place.refuses(archive).ends_with(unknown), "{key}");
    }
    for name in ["../outside", "a/../../outside"] {
        let archive = sparse("1\n0\n1\n", b"x").record("GNU.sparse.name", name);
        let archive = archive.record("GNU.sparse.map", "0,1").record("GNU.sparse.size", "1").file("x", b"x");
        assert!(place.refuses(archive).starts_with(&format!("{name}: ")), "{name}");
    }
    // The holes count.
    let huge =
        Archive::new().record("GNU.sparse.size", (1_u64 << 50).to_string()).record("GNU.sparse.name", "a");
    let error = place.refuses(huge.record("GNU.sparse.map", "").file("a", b""));
    assert!(error.contains("raise the limit with --max-bytes"), "{error}");
}

#[test]
fn damaged_blobs_are_refused() {
    let place = Place::new();
    let archive = || Archive::new().file("a", b"content");
    let refuses = |layout: &Layout| {
        let error = place.unpack_within(layout, Limits::default()).map(|_| ()).unwrap_err();
        place.is_untouched();
        error
    };
    // The archive is the same, but the blob is not.
    let layout = Layout::new().layer(How::Plain, archive()).tagged("v1", json!({}));
    let mut bytes = fs::read(layout.blob_of(0)).unwrap();
    bytes[512] ^= 1;
    fs::write(layout.blob_of(0), &bytes).unwrap();
    assert!(refuses(&layout).starts_with("the blob of a layer has the digest sha256:"));
    bytes.pop();
    fs::write(layout.blob_of(0), &bytes).unwrap();
    assert!(refuses(&layout).starts_with("the blob of a layer has "), "it is too short");
    // The blob is right, but not the layer that the configuration means.
    let other = layout::digest(b"another layer");
    let layout = Layout::new().layer(How::Gzip, archive()).renaming_layer(&other).tagged("v1", json!({}));
    assert!(refuses(&layout).starts_with("an uncompressed layer has the digest sha256:"));
    // The manifest was changed after it was named.
    let layout = Layout::of(archive());
    let index = fs::read_to_string(layout.path().join("index.json")).unwrap();
    let manifest = index.split("sha256:").nth(1).unwrap()[..64].to_owned();
    let path = layout.path().join("blobs/sha256").join(manifest);
    let text = fs::read_to_string(&path).unwrap().replace("\"schemaVersion\":2", "\"schemaVersion\":3");
    fs::write(&path, text).unwrap();
    assert!(refuses(&layout).starts_with("the manifest has the digest sha256:"));
    let layout =
        Layout::new().layer_of(How::Gzip, b"no archive".repeat(100).as_slice()).tagged("v1", json!({}));
    assert!(refuses(&layout).starts_with("read sha256:"));
}

#[test]
fn damaged_entry_of_the_store_counts_as_absent() {
    let place = Place::new();
    let layout = Layout::of(Archive::new().file("a", b"content"));
    let layer = place.unpack(&layout).remove(0);
    let unpack = || place.unpack_within(&layout, Limits::default()).unwrap().1.layers;
    assert_eq!(unpack(), 0, "the layer is there");
    fs::write(layer.parent().unwrap().join("complete"), "half").unwrap();
    fs::remove_file(layer.join("a")).unwrap();
    assert_eq!(unpack(), 1);
    assert_eq!(fs::read_to_string(layer.join("a")).unwrap(), "content");
    fs::remove_dir_all(&layer).unwrap();
    assert_eq!(unpack(), 1);
    assert_eq!(names(&place.directory.path().join("store/new")), [""; 0]);
}

#[test]
fn writers_at_the_same_time_agree() {
    let place = Place::new();
    let archive = (0..200).fold(Archive::new(), |archive, number| archive.file(number.to_string(), b"x"));
    let layout = Layout::of(archive);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| place.unpack(&layout));
        }
    });
    assert_eq!(names(&place.unpack(&layout)[0]).len(), 200);
    assert_eq!(names(&place.directory.path().join("store/new")), [""; 0]);
}

#[test]
fn layers_of_no_bundle_are_pruned() {
    let place = Place::new();
    let (kept, gone) = (Layout::of(Archive::new().file("a", b"")), Layout::of(Archive::new().file("b", b"")));
    let (kept, gone) = (place.unpack(&kept), place.unpack(&gone));
    let (bundle, former) = (place.directory.path().join("bundle"), place.directory.path().join("former"));
    place.store.register(&bundle).unwrap();
    place.store.register(&former).unwrap();
    // A killed process has left this.
    fs::create_dir(place.directory.path().join("store/new/1-1")).unwrap();
    let used = |path: &Path| if path == bundle { kept.clone() } else { Vec::new() };
    let pruned = place.store.prune(used).unwrap();
    assert_eq!((pruned.layers, pruned.bundles), (1, 1));
    assert!(kept[0].exists() && !gone[0].exists());
    assert_eq!(names(&place.directory.path().join("store/new")), [""; 0]);
    assert_eq!(names(&place.directory.path().join("store/bundles")).len(), 1);
    let pruned = place.store.prune(|_| Vec::new()).unwrap();
    assert_eq!((pruned.layers, pruned.bundles), (1, 1));
}

#[test]
fn store_that_others_could_change_is_refused() {
    let directory = TempDir::new().unwrap();
    let open = |name: &str| {
        let opened = Store::open(&directory.path().join(name), Use::Shared, ids());
        opened.map(|_| ()).map_err(|error| error.to_string())
    };
    fs::create_dir(directory.path().join("open")).unwrap();
    fs::set_permissions(directory.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(open("open").unwrap_err().contains("has the mode 777 instead of 700"));
    std::os::unix::fs::symlink("open", directory.path().join("link")).unwrap();
    assert!(open("link").is_err(), "a symlink may lead anywhere");
    assert_eq!(open("new"), Ok(()));
    assert!(statat(rustix::fs::CWD, directory.path().join("new"), rustix::fs::AtFlags::empty()).is_ok());
}
