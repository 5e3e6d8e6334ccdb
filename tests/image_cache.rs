//! `test --image` with `--cache`: a test that passed is not run again in the same image.

use crate::hermetic::has_sandboxes;
use crate::image::layout::{Archive, How, Layout};
use crate::image::{Place, base, image, oci};
use crate::util::need;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The note on a run that was not repeated.
const CACHED: &str = "husk: cached\n";

/// Runs the guest in an image. Returns whether its result was remembered.
#[track_caller]
fn is_cached(place: &Place, reference: &str, options: &[&str], words: &[&str]) -> bool {
    let options = [&["--explain", "off", "--cache", "store", "--image", reference], options].concat();
    let mut command = place.test_command(&[&options[..], &["--", "/guest"], words].concat());
    was_cached(&mut command)
}

#[track_caller]
fn was_cached(command: &mut Command) -> bool {
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !said.contains("not cached"), "{said}");
    said.contains(CACHED)
}

/// Returns the directories of the files of the layers in the store.
fn layers(place: &Place) -> Vec<PathBuf> {
    let list =
        |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let owners = list(&place.path("cache/husk/layers"));
    owners.iter().flat_map(|owners| list(owners)).map(|layer| layer.join("files")).collect()
}

#[test]
fn test_in_an_image_is_not_run_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layouts = [(); 2].map(|()| image(json!({ "Env": ["FOO=bar"] })));
    let [reference, same] = [oci(&layouts[0]), oci(&layouts[1])];
    assert!(!is_cached(&place, &reference, &[], &["cat", "/data/old"]));
    assert!(is_cached(&place, &reference, &[], &["cat", "/data/old"]));
    let words = ["--cache", "store", "--image", &same, "--", "/guest", "cat", "/data/old"];
    let seen = place.test(&words);
    seen.prints("old");
    seen.says(CACHED.trim_end());
    // Neither the caller's directory nor its files are visible in the image.
    fs::create_dir(place.path("elsewhere")).unwrap();
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_husk"));
    elsewhere.args(["test", "--cache"]).arg(place.path("store")).args(&words[2..]);
    elsewhere.current_dir(place.path("elsewhere")).env("XDG_CACHE_HOME", place.path("cache"));
    assert!(was_cached(&mut elsewhere));
    // The same image in another user's store.
    elsewhere.env("XDG_CACHE_HOME", place.path("other"));
    assert!(was_cached(&mut elsewhere));
    // A failure is not remembered.
    for _ in 0..2 {
        let options = ["--cache", "store", "--image", &same, "--", "/guest", "cat", "/none"];
        let seen = place.test(&options);
        assert!(!String::from_utf8_lossy(&seen.0.stderr).contains(CACHED));
        seen.fails(1, "");
    }
}

#[test]
fn change_of_an_image_or_option_runs_its_test_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let settings = json!({ "WorkingDir": "/data" });
    let layout = image(settings.clone());
    let reference = oci(&layout);
    let usual = |options: &[&str]| is_cached(&place, &reference, options, &["list", "/data"]);
    assert!(!usual(&[]));
    for options in [
        &["--env", "A=1"] as &[&str],
        &["--hide", "/tree"],
        &["--read", "/"],
        &["--net", "none"],
        &["--timeout", "77s"],
    ] {
        assert!(!usual(options), "{options:?}");
        assert!(usual(options), "{options:?}");
    }
    assert!(!is_cached(&place, &reference, &[], &["list", "/tree"]));
    // A tag that now names another configuration, and then other layers.
    for other in [json!({ "WorkingDir": "/tree" }), json!({ "Env": ["A=2"] }), json!({ "User": "app" })] {
        let other = image(other);
        copy(&other, &layout);
        assert!(!usual(&[]));
        assert!(usual(&[]));
    }
    let new = Archive::new().file("data/more", b"more");
    let moved = Layout::new().layer(How::Gzip, base()).layer(How::Plain, new).tagged("v1", settings.clone());
    copy(&moved, &layout);
    assert!(!usual(&[]));
    assert!(usual(&[]));
    // The first image is still known.
    copy(&image(settings), &layout);
    assert!(usual(&[]));
}

/// Makes a layout the same as another.
fn copy(from: &Layout, to: &Layout) {
    let from = format!("{}/.", from.path().display());
    assert!(Command::new("cp").args(["-r", &from]).arg(to.path()).status().unwrap().success());
}

#[test]
fn layer_that_is_changed_in_the_store_runs_its_test_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({}));
    let reference = oci(&layout);
    let usual = || is_cached(&place, &reference, &[], &["cat", "/data/old"]);
    assert!(!usual());
    let layers = layers(&place);
    let base = layers.iter().find(|layer| layer.join("data/old").exists()).unwrap();
    let old = base.join("data/old");
    let mode = |mode| fs::set_permissions(&old, fs::Permissions::from_mode(mode)).unwrap();
    type Act<'a> = &'a dyn Fn();
    let changes: [(&str, Act<'_>, Act<'_>); 4] = [
        ("content", &|| fs::write(&old, "new").unwrap(), &|| fs::write(&old, "old").unwrap()),
        ("permissions", &|| mode(0o600), &|| mode(0o644)),
        ("symlink", &|| symlink("x", base.join("link")).unwrap(), &|| {
            fs::remove_file(base.join("link")).unwrap()
        }),
        ("file that hides", &|| fs::write(layers[0].join("etc2"), "").unwrap(), &|| {
            fs::remove_file(layers[0].join("etc2")).unwrap()
        }),
    ];
    for (what, change, undo) in changes {
        change();
        assert!(!usual(), "{what}");
        undo();
        assert!(usual(), "{what}, undone");
    }
    // Two layers that are exchanged.
    let entries = [layers[0].parent().unwrap(), layers[1].parent().unwrap()];
    let exchange = || {
        let away = place.path("away");
        fs::rename(entries[0].join("files"), &away).unwrap();
        fs::rename(entries[1].join("files"), entries[0].join("files")).unwrap();
        fs::rename(&away, entries[1].join("files")).unwrap();
    };
    exchange();
    assert!(!is_cached(&place, &reference, &[], &["cat", "/etc/passwd"]));
    exchange();
    assert!(usual());
}

#[test]
fn image_that_shows_more_is_not_remembered() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({}));
    let reference = oci(&layout);
    for (options, why) in [
        (&["--net", "host"] as &[&str], "--net host shows the machine's network"),
        (&["--nested"], "--nested allows mounts"),
        (&["--keep", "kept"], "--keep needs the files of a run"),
    ] {
        let options = [options, &["--cache", "store", "--image", &reference, "--", "/guest", "cwd"]].concat();
        let seen = place.test(&options);
        seen.says("not cached: ");
        seen.says(why);
    }
    let shell = ["--cache", "store", "--rootfs", "/", "--", "true"];
    place.test(&shell).fails(125, "cannot be used with");
}
