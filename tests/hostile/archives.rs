//! The archives of hostile images: unpacked into the store, into a bundle with `--flat`, and for `husk test --image`.

use super::false_answers::{self, FalseAnswer};
use super::tripwire::SECRET;
use super::{Tripwire, same_as_golden};
use crate::hermetic::has_sandboxes;
use crate::image::layout::{Archive, How, Layout};
use crate::image::{Place, base, oci};
use crate::util::{Seen, is_root, need};
use serde_json::json;
use tar::EntryType;

/// An image that attacks whoever unpacks it.
struct Attack {
    name: &'static str,
    /// Returns the layers, from the lowest to the highest.
    layers: fn(&Tripwire) -> Vec<Archive>,
    /// Options of `husk bundle`.
    options: &'static [&'static str],
    /// The reason for which it must be refused; `None` if it must do no harm.
    refused: Option<&'static str>,
}

const NOT_A_DIRECTORY: Option<&str> = Some("is below a symlink or a file of the same layer");

/// Returns the path of the tripwire's directory.
fn directory(tripwire: &Tripwire) -> String {
    tripwire.at("directory").to_str().unwrap().to_owned()
}

/// Returns a name that leads from anywhere to a path of the host.
fn climbing(path: &str) -> String {
    format!("{}{path}", "../".repeat(20))
}

fn attack(
    name: &'static str,
    layers: fn(&Tripwire) -> Vec<Archive>,
    refused: Option<&'static str>,
) -> Attack {
    Attack { name, layers, options: &[], refused }
}

fn links() -> Vec<Attack> {
    vec![
        attack(
            "file below a symlink to a directory of the host",
            |tripwire| vec![base().symlink("a", &directory(tripwire)).file("a/file", b"x")],
            NOT_A_DIRECTORY,
        ),
        attack(
            "file below a symlink with `..`",
            |tripwire| vec![base().symlink("a", &climbing(&directory(tripwire))).file("a/new", b"x")],
            NOT_A_DIRECTORY,
        ),
        attack(
            "directory that a symlink replaces between two files",
            |tripwire| {
                let first = base().file("a/first", b"x").symlink("a", &directory(tripwire));
                vec![first.file("a/file", b"x")]
            },
            NOT_A_DIRECTORY,
        ),
        attack(
            "file below a symlink of a lower layer",
            |tripwire| vec![base().symlink("a", &directory(tripwire)), Archive::new().file("a/file", b"x")],
            None,
        ),
        attack(
            "whiteout below a symlink of a lower layer",
            |tripwire| {
                vec![base().symlink("a", &directory(tripwire)), Archive::new().file("a/.wh.file", b"")]
            },
            None,
        ),
        attack(
            "opaque directory in place of a symlink of a lower layer",
            |tripwire| {
                let upper = Archive::new().directory("a").file("a/.wh..wh..opq", b"");
                vec![base().symlink("a", &directory(tripwire)), upper]
            },
            None,
        ),
        attack(
            "whiteout below a symlink",
            |tripwire| vec![base().symlink("a", &directory(tripwire)).file("a/.wh.file", b"")],
            NOT_A_DIRECTORY,
        ),
        attack(
            "opaque directory that is a symlink",
            |tripwire| vec![base().symlink("a", &directory(tripwire)).file("a/.wh..wh..opq", b"")],
            NOT_A_DIRECTORY,
        ),
        attack(
            "content and permissions for a symlink",
            |tripwire| {
                let file = tripwire.at("file");
                let linked = base().symlink("a", file.to_str().unwrap()).symlink("d", &directory(tripwire));
                vec![linked.owned(1, 1).mode(0o777).file("a", b"x").directory("d")]
            },
            None,
        ),
        attack(
            "hard link to a file of the host",
            |tripwire| vec![base().link("a", tripwire.at("file").to_str().unwrap()).file("a", b"x")],
            Some("is a hard link to a file that the layer does not have"),
        ),
        attack(
            "hard link with `..`",
            |tripwire| vec![base().link("a", &climbing(tripwire.at("file").to_str().unwrap()))],
            Some("is a hard link to a name that a layer cannot have"),
        ),
        attack(
            "hard link to a file below a symlink",
            |tripwire| vec![base().symlink("a", &directory(tripwire)).link("b", "a/file")],
            Some("is a hard link to a file that the layer does not have"),
        ),
        attack(
            "content for a hard link to a symlink",
            |tripwire| {
                let linked = base().symlink("a", tripwire.at("file").to_str().unwrap()).link("b", "a");
                vec![linked.file("b", b"x")]
            },
            None,
        ),
    ]
}

fn names() -> Vec<Attack> {
    const UP: Option<&str> = Some("has a name that contains `..`");
    vec![
        attack(
            "name with `..`",
            |tripwire| vec![base().file(climbing(tripwire.at("file").to_str().unwrap()), b"x")],
            UP,
        ),
        attack("whiteout of `..`", |_| vec![base().file("a/.wh...", b"")], Some("a/.wh...")),
        attack("whiteout of nothing", |_| vec![base().file("a/.wh.", b"")], Some("a/.wh.")),
        attack("file below a whiteout", |_| vec![base().file(".wh.a/b", b"")], Some(".wh.a/b")),
        attack(
            "absolute name",
            |tripwire| vec![base().file(tripwire.at("file").to_str().unwrap(), b"x")],
            None,
        ),
        attack(
            "name of a sparse file with `..`",
            |tripwire| {
                let name = climbing(tripwire.at("file").to_str().unwrap());
                let sparse = base().record("GNU.sparse.name", name).record("GNU.sparse.size", "1");
                vec![sparse.record("GNU.sparse.map", "0,1").file("a", b"x")]
            },
            UP,
        ),
        attack(
            "the same name for a file, a directory, a symlink and a file",
            |tripwire| {
                let all = base().file("a", b"x").directory("a").file("a/b", b"x");
                vec![all.symlink("a", &directory(tripwire)).file("a", b"x")]
            },
            None,
        ),
        attack(
            "names that are not UTF-8 or that terminals interpret",
            |_| vec![base().file(b"\xff\xfe", b"x").file("\x1b[2J\n", b"x")],
            None,
        ),
        attack("root that is a file", |_| vec![base().file(".", b"x")], Some("replaces the root directory")),
        attack(
            "whiteout of a file of the same layer, and of the root's content",
            |_| vec![base().file("a", b"x").file(".wh.a", b"").file(".wh..wh..opq", b"")],
            None,
        ),
        attack(
            "whiteouts of everything in a higher layer",
            |_| {
                vec![base(), Archive::new().file(".wh.etc", b"").file(".wh.data", b"").file(".wh.data/", b"")]
            },
            None,
        ),
    ]
}

fn content() -> Vec<Attack> {
    const OVERLAY: Option<&str> = Some("has an extended attribute of overlayfs");
    vec![
        attack(
            "attribute that leads overlayfs to other files",
            |tripwire| {
                vec![base().record("SCHILY.xattr.user.overlay.redirect", directory(tripwire)).directory("a")]
            },
            OVERLAY,
        ),
        attack(
            "attribute that hides files of lower layers",
            |_| vec![base().record("SCHILY.xattr.trusted.overlay.opaque", "y").directory("a")],
            OVERLAY,
        ),
        attack(
            "device that is a whiteout",
            |_| vec![base().entry(EntryType::Char, "a", b"", b"0:0")],
            Some("is a whiteout of overlayfs"),
        ),
        attack(
            "header of four mebibytes",
            |_| vec![base().record("comment", vec![b'x'; 4 << 20]).file("a", b"")],
            Some("an entry has a header of more than 1 MiB"),
        ),
        attack(
            "sparse file of a pebibyte",
            |_| {
                let sparse = base().record("GNU.sparse.name", "a").record("GNU.sparse.map", "");
                vec![sparse.record("GNU.sparse.size", (1_u64 << 50).to_string()).file("a", b"")]
            },
            Some("raise the limit with --max-bytes"),
        ),
        Attack {
            options: &["--max-bytes", "100000000"],
            ..attack(
                "compressed zeros",
                |_| vec![base(), Archive::new().file("a", &vec![0; 200 << 20])],
                Some("raise the limit with --max-bytes"),
            )
        },
        Attack {
            options: &["--max-files", "1000"],
            ..attack(
                "many small files",
                |_| vec![(0..2000).fold(base(), |archive, number| archive.file(number.to_string(), b""))],
                Some("raise the limit with --max-files"),
            )
        },
    ]
}

/// Performs an attack with these words of a command line, and returns what happened.
fn attempt(attack: &Attack, words: &[&'static str], false_answers: &[FalseAnswer]) -> String {
    let (place, tripwire) = (Place::new(), Tripwire::new());
    let layers = (attack.layers)(&tripwire).into_iter();
    let how = if attack.options.is_empty() { How::Plain } else { How::Gzip };
    let layout = layers.fold(Layout::new(), |layout, archive| layout.layer(how, archive));
    let layout = layout.tagged("v1", json!({ "Cmd": ["/guest", "cwd"] }));
    let reference = oci(&layout);
    // On a simulated kernel, the working directory is another one.
    let web = place.path("web");
    let word = |word: &'static str| match word {
        "IMAGE" => reference.as_str(),
        "BUNDLE" => web.to_str().unwrap(),
        word => word,
    };
    let words: Vec<_> = words.iter().map(|text| word(text)).collect();
    let mut command = match words[0] {
        "test" => place.test_command(&words[1..]),
        _ => place.bundle_command(&words[1..]),
    };
    let seen = match false_answers {
        [] => Seen(command.output().unwrap()),
        false_answers => false_answers::run(&command, false_answers),
    };
    let (out, err) = (String::from_utf8_lossy(&seen.0.stdout), String::from_utf8_lossy(&seen.0.stderr));
    if let Some(harm) = tripwire.harm() {
        return format!("**harm**: {}", harm.replace(&format!("{}/", tripwire.path().display()), ""));
    }
    assert!(!out.contains(SECRET), "{}", attack.name);
    if seen.0.status.success() {
        return "no harm".to_owned();
    }
    // The digest of a layer depends on the tripwire's name.
    let said = err.lines().rfind(|line| !line.contains("warning")).unwrap_or_default();
    let said =
        said.split_once("sha256:").and_then(|(_, rest)| Some(rest.split_once(": ")?.1)).unwrap_or(said);
    format!("refused: {}", said.replace(&*tripwire.path().to_string_lossy(), "TRIPWIRE"))
}

#[test]
fn no_archive_reaches_the_host() {
    need!(is_root(), "needs root to be able to harm the host");
    need!(has_sandboxes(), "needs user namespaces");
    let mut table = String::from(HEAD);
    let mut lost = Vec::new();
    let links = links();
    for (index, attack) in links.iter().chain(&names()).chain(&content()).enumerate() {
        let bundle =
            |flat: &[&'static str]| [&["bundle"], flat, attack.options, &["IMAGE", "BUNDLE"]].concat();
        let stored = attempt(attack, &bundle(&[]), &[]);
        let flat = attempt(attack, &bundle(&["--flat"]), &[]);
        // Sandboxes have the default limits.
        let sandbox = match attack.options {
            [] => attempt(attack, &["test", "--image", "IMAGE"], &[]),
            _ => "not tried".to_owned(),
        };
        for outcome in [&stored, &flat, &sandbox].into_iter().filter(|outcome| *outcome != "not tried") {
            let is_withstood = match attack.refused {
                Some(reason) => outcome.starts_with("refused: ") && outcome.contains(reason),
                None => outcome == "no harm",
            };
            if !is_withstood {
                lost.push(format!("{}: {outcome}", attack.name));
            }
        }
        let without = match index < links.len() {
            true => attempt(attack, &bundle(&["--flat"]), &[FalseAnswer::Follows]),
            false => String::new(),
        };
        let sandbox = if sandbox == stored { "the same" } else { &sandbox };
        let flat = if flat == stored { "the same" } else { &flat };
        let without = if without.starts_with("**harm**") { &without } else { "" };
        table += &format!("| {} | {stored} | {flat} | {sandbox} | {without} |\n", attack.name);
    }
    eprintln!("{table}");
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    assert!(table.contains("| **harm**: "), "the test cannot fail: nothing is lost without the defence");
    same_as_golden("archives.md", &table);
}

const HEAD: &str = "\
Generated by `HUSK_GOLDEN=write cargo test --test tests hostile::`. The last column is the result of `husk bundle --flat`
on a simulated kernel where symlinks are followed, if that does harm.

| attack | `husk bundle` | `--flat` | `husk test --image` | without the defence |
| - | - | - | - | - |
";
