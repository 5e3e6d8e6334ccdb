//! `bundle`: images become bundles, and containers run in them, as root and as a user.

/// Builds images.
#[expect(dead_code, reason = "only the tests of the crate need all kinds of entries")]
#[path = "../crates/image/tests/layout/mod.rs"]
mod layout;

use crate::util::{Runtime, Seen, guest, is_root, need, watch};
use layout::{Archive, How, Layout};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A directory with a user's store and bundles.
struct Place {
    directory: TempDir,
    path: Option<PathBuf>,
}

impl Place {
    fn new() -> Self {
        watch();
        Self { directory: TempDir::new().unwrap(), path: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a program named `skopeo` the only one that husk finds.
    fn with_skopeo(mut self, script: &str) -> Self {
        let bin = self.path("bin");
        fs::create_dir(&bin).unwrap();
        let skopeo = bin.join("skopeo");
        // Another process writes the program: a child of another test could inherit this one's descriptor.
        let mut tee =
            Command::new("tee").arg(&skopeo).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        std::io::Write::write_all(&mut tee.stdin.take().unwrap(), script.as_bytes()).unwrap();
        assert!(tee.wait().unwrap().success());
        fs::set_permissions(&skopeo, fs::Permissions::from_mode(0o755)).unwrap();
        self.path = Some(bin);
        self
    }

    fn bundle(&self, arguments: &[&str]) -> Seen {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.arg("bundle").args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", self.path("cache"));
        if let Some(path) = &self.path {
            let usual = std::env::var("PATH").unwrap();
            // `newuidmap` is beside skopeo, if that is installed.
            command.env("PATH", format!("{}:{usual}", path.display()));
        }
        Seen(command.output().unwrap())
    }

    /// Runs the bundle with this program instead of the image's.
    fn run(&self, name: &str, args: &[&str]) -> Seen {
        let path = self.path(name).join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["process"]["terminal"] = json!(false);
        if is_root() {
            let id = self.directory.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.');
            config["linux"]["cgroupsPath"] = json!(format!("/husk-test-{id}"));
        }
        if !args.is_empty() {
            config["process"]["args"] = json!(args);
        }
        fs::write(&path, config.to_string()).unwrap();
        let runtime = Runtime::under_test();
        let mut command = runtime.command("run");
        command.arg("--bundle").arg(self.path(name)).arg("c");
        runtime.detached(command)
    }

    fn layers(&self) -> usize {
        let owners = fs::read_dir(self.path("cache/husk/layers")).unwrap();
        owners.map(|owners| fs::read_dir(owners.unwrap().path()).unwrap().count()).sum()
    }

    fn config(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name).join("config.json")).unwrap()).unwrap()
    }
}

/// Returns an archive with the guest and a list of users.
fn base() -> Archive {
    Archive::new()
        .mode(0o755)
        .directory("etc")
        .directory("data")
        .directory("tree")
        .file("guest", &fs::read(guest()).unwrap())
        .mode(0o644)
        .file("etc/passwd", b"root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n")
        .file("etc/group", b"root:x:0:\napp:x:1001:\nextra:x:77:app\n")
        .file("data/old", b"old")
        .file("data/gone", b"gone")
        .file("tree/hidden", b"hidden")
}

/// Returns an image of three layers that change each other's files.
fn image(settings: Value) -> Layout {
    let second = Archive::new()
        .file("data/.wh.gone", b"")
        .mode(0o755)
        .directory("tree")
        .file("tree/.wh..wh..opq", b"");
    let third = Archive::new().file("data/new", b"new").file("tree/shown", b"shown");
    let layout = Layout::new().layer(How::Gzip, base()).layer(How::Zstd, second).layer(How::Plain, third);
    layout.tagged("v1", settings)
}

fn oci(layout: &Layout) -> String {
    format!("oci:{}:v1", layout.path().display())
}

fn has_containers() -> bool {
    is_root() || Command::new("unshare").args(["-Ur", "true"]).status().is_ok_and(|status| status.success())
}

#[test]
fn image_becomes_a_bundle_that_runs() {
    need!(has_containers(), "needs user namespaces");
    let place = Place::new();
    let settings = json!({
        "Entrypoint": ["/guest"], "Cmd": ["env"], "Env": ["FOO=bar"], "WorkingDir": "/data",
        "Volumes": { "/volume": {} }, "StopSignal": "SIGQUIT", "ExposedPorts": { "80/tcp": {} },
        "Labels": { "a": "b", "run.oci.pidfd_receiver": "/escape", "org.systemd.property.After": "'x'" }
    });
    place.bundle(&[&oci(&image(settings)), "web"]).succeeds();
    let config = place.config("web");
    assert_eq!(config["process"]["cwd"], "/data");
    let annotations = &config["annotations"];
    assert_eq!(annotations["org.opencontainers.image.stopSignal"], "SIGQUIT");
    assert_eq!(annotations["org.opencontainers.image.exposedPorts"], "80/tcp");
    assert_eq!((&annotations["a"], annotations.as_object().unwrap().len()), (&json!("b"), 5));
    assert_eq!(config["mounts"].as_array().unwrap().last().unwrap()["destination"], "/volume");
    place.run("web", &[]).prints(
        "FOO=bar\nPATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nTERM=xterm\nHOME=/root",
    );
    place.run("web", &["/guest", "list", "/data"]).prints("new\nold");
    place.run("web", &["/guest", "list", "/tree"]).prints("shown");
    // The bundle keeps what its containers write; the layers do not change.
    place.run("web", &["/guest", "write", "/data/old"]).succeeds();
    place.run("web", &["/guest", "cat", "/data/old"]).prints("written");
    place.bundle(&[&oci(&image(json!({}))), "other"]).succeeds();
    place.run("other", &["/guest", "cat", "/data/old"]).prints("old");
    // Nobody else reaches set-user-ID programs of an image.
    assert_eq!(place.path("web").metadata().unwrap().mode() & 0o777, 0o700);
}

#[test]
fn flat_bundle_needs_no_store() {
    need!(has_containers(), "needs user namespaces");
    let place = Place::new();
    place.bundle(&["--flat", &oci(&image(json!({}))), "flat"]).succeeds();
    let rootfs = place.path("flat/rootfs");
    assert_eq!(fs::read_to_string(rootfs.join("data/new")).unwrap(), "new");
    assert!(!rootfs.join("data/gone").exists() && !rootfs.join("tree/hidden").exists());
    assert!(rootfs.join("tree/shown").exists() && !place.path("flat/husk-layers").exists());
    assert_eq!(place.layers(), 0);
    place.run("flat", &["/guest", "list", "/data"]).prints("new\nold");
}

/// With one layer in the place of another's directory, a name leads elsewhere. No layer may write through it.
#[test]
fn flat_layers_do_not_write_through_lower_symlinks() {
    let place = Place::new();
    fs::write(place.path("outside"), "outside").unwrap();
    let lower = Archive::new().symlink("escape", place.directory.path().to_str().unwrap());
    let upper = Archive::new().file("escape/outside", b"changed");
    let layout = Layout::new().layer(How::Gzip, lower).layer(How::Gzip, upper).tagged("v1", json!({}));
    need!(has_containers(), "needs user namespaces");
    place.bundle(&["--flat", &oci(&layout), "flat"]).succeeds();
    assert_eq!(fs::read_to_string(place.path("outside")).unwrap(), "outside");
    // As in an overlay, the directory takes the place of the symlink.
    assert_eq!(fs::read_to_string(place.path("flat/rootfs/escape/outside")).unwrap(), "changed");
}

#[test]
fn user_of_the_image_is_looked_up_in_the_image() {
    need!(is_root(), "needs the ids of other users");
    let place = Place::new();
    for (user, expected) in [
        ("app", json!({ "uid": 1000, "gid": 1001, "additionalGids": [77] })),
        ("app:0", json!({ "uid": 1000, "gid": 0, "additionalGids": [] })),
        ("5:extra", json!({ "uid": 5, "gid": 77, "additionalGids": [] })),
        ("", json!({ "uid": 0, "gid": 0, "additionalGids": [] })),
    ] {
        let layout = image(json!({ "User": user }));
        fs::remove_dir_all(place.path("web")).unwrap_or_default();
        place.bundle(&[&oci(&layout), "web"]).succeeds();
        assert_eq!(place.config("web")["process"]["user"], expected, "{user}");
    }
    fs::remove_dir_all(place.path("web")).unwrap();
    let seen = place.bundle(&[&oci(&image(json!({ "User": "nobody-here" }))), "web"]);
    seen.fails(1, "nobody-here");
    assert!(!place.path("web").exists(), "a failed command leaves no bundle");
}

#[test]
fn archives_contain_the_same_image() {
    need!(has_containers(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({ "Cmd": ["/guest"] }));
    let tar = |archive: &str, directory: &Path| {
        let mut tar = Command::new("tar");
        tar.arg("-cf").arg(place.path(archive)).arg("-C").arg(directory).arg(".");
        assert!(tar.status().unwrap().success());
    };
    tar("oci.tar", layout.path());
    place.bundle(&["oci-archive:oci.tar:v1", "one"]).succeeds();
    // The format of `docker save`: layers are not compressed, and equal ones are symlinks.
    let (lower, upper) = (base().bytes(), Archive::new().file("data/new", b"new").bytes());
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": { "Cmd": ["/guest"], "Volumes": null },
        "rootfs": { "type": "layers",
            "diff_ids": [layout::digest(&lower), layout::digest(&upper), layout::digest(&upper)] }
    })
    .to_string();
    let name = format!("{}.json", layout::digest(config.as_bytes()).trim_start_matches("sha256:"));
    let saved = place.path("saved");
    for layer in ["a", "b", "c"] {
        fs::create_dir_all(saved.join(layer)).unwrap();
    }
    fs::write(saved.join(&name), &config).unwrap();
    fs::write(saved.join("a/layer.tar"), &lower).unwrap();
    fs::write(saved.join("b/layer.tar"), &upper).unwrap();
    std::os::unix::fs::symlink("../b/layer.tar", saved.join("c/layer.tar")).unwrap();
    let layers = ["a/layer.tar", "b/layer.tar", "c/layer.tar"];
    let manifest = json!([{ "Config": name, "RepoTags": ["web:latest"], "Layers": layers }]);
    fs::write(saved.join("manifest.json"), manifest.to_string()).unwrap();
    tar("docker.tar", &saved);
    place.bundle(&["docker-archive:docker.tar:docker.io/library/web:latest", "two"]).succeeds();
    assert_eq!(place.config("two")["process"]["args"], json!(["/guest"]));
    for (bundle, files) in [("one", "new\nold"), ("two", "gone\nnew\nold")] {
        place.run(bundle, &["/guest", "list", "/data"]).prints(files);
    }
    place.bundle(&["docker-archive:docker.tar:other", "three"]).fails(1, "its tags: web:latest");
    place
        .bundle(&["oci-archive:oci.tar:v2", "three"])
        .fails(1, "has no image that has the tag v2; its tags: v1");
    fs::write(saved.join(&name), config.replace("/guest", "/other")).unwrap();
    tar("docker.tar", &saved);
    place.bundle(&["docker-archive:docker.tar", "three"]).fails(1, "the configuration has the digest");
}

#[test]
fn second_bundle_unpacks_nothing_and_prune_removes_what_is_unused() {
    need!(has_containers(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({}));
    place.bundle(&[&oci(&layout), "one"]).succeeds();
    assert_eq!(place.layers(), 3);
    // The layers are not read again: they could not be.
    for layer in 0..3 {
        fs::write(layout.blob_of(layer), "damaged").unwrap();
    }
    place.bundle(&[&oci(&layout), "two"]).succeeds();
    place.bundle(&[&oci(&layout), "two"]).fails(1, "config.json");
    fs::create_dir(place.path("shared")).unwrap();
    fs::set_permissions(place.path("shared"), fs::Permissions::from_mode(0o777)).unwrap();
    place.bundle(&[&oci(&layout), "shared"]).fails(1, "shared: other users may change it");
    place.bundle(&["--prune"]).prints("removed 0 unused layers\n");
    assert_eq!(place.layers(), 3);
    fs::remove_dir_all(place.path("one")).unwrap();
    place.bundle(&["--prune"]).succeeds();
    assert_eq!(place.layers(), 3, "the second bundle uses them");
    place.run("two", &["/guest", "list", "/data"]).prints("new\nold");
    fs::remove_file(place.path("two/husk-layers/0")).unwrap();
    place.bundle(&["--prune"]).prints("removed 3 unused layers\n");
    assert_eq!(place.layers(), 0);
    place.run("two", &["/guest"]).fails(1, "husk-layers: is empty");
}

#[test]
fn bundle_without_its_layers_says_so() {
    need!(has_containers(), "needs user namespaces");
    let place = Place::new();
    place.bundle(&[&oci(&image(json!({}))), "web"]).succeeds();
    fs::rename(place.path("cache"), place.path("moved")).unwrap();
    place.run("web", &["/guest"]).fails(1, "is not in the store of layers any more");
    let mut test = Command::new(env!("CARGO_BIN_EXE_husk"));
    fs::rename(place.path("moved"), place.path("cache")).unwrap();
    test.args(["test", "--bundle"]).arg(place.path("web"));
    Seen(test.output().unwrap()).fails(125, "husk-layers");
}

/// Copies the layout that `IMAGE` names, as skopeo would copy one from a registry.
const SKOPEO: &str = "#!/bin/sh
[ \"$1 $2 $3\" = 'copy --quiet --' ] || exit 3
[ \"$4\" = docker://docker.io/library/web:1 ] || { echo 'manifest unknown' >&2; exit 1; }
to=${5#oci:}
mkdir -p \"${to%:image}\" && cp -r IMAGE/. \"${to%:image}\"
";

#[test]
fn skopeo_copies_images_from_registries() {
    need!(has_containers(), "needs user namespaces");
    let layout = image(json!({ "Cmd": ["/guest"] })).tagged("image", json!({ "Cmd": ["/guest"] }));
    let script = SKOPEO.replace("IMAGE", layout.path().to_str().unwrap());
    let place = Place::new().with_skopeo(&script);
    let name = "docker.io/library/web:1";
    place.bundle(&[name, "one"]).succeeds();
    place.run("one", &["/guest", "list", "/data"]).prints("new\nold");
    // The second time needs no registry.
    fs::write(place.path("bin/skopeo"), "#!/bin/sh\nexit 9\n").unwrap();
    place.bundle(&[name, "two"]).succeeds();
    assert_eq!(place.config("two")["process"]["args"], json!(["/guest"]));
    place.bundle(&["--pull", name, "three"]).fails(1, "skopeo could not copy docker.io/library/web:1");
    assert!(!place.path("three").exists());
    assert_eq!(fs::read_dir(place.path("cache/husk/new")).unwrap().count(), 0);
}

#[test]
fn missing_skopeo_is_named_with_the_command_that_installs_it() {
    need!(is_root(), "without newuidmap in PATH, a user has no other message");
    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
    command.args(["bundle", "alpine", "a"]).current_dir(place.directory.path()).env("PATH", "/nowhere");
    let seen = Seen(command.env("XDG_CACHE_HOME", place.path("cache")).output().unwrap());
    seen.fails(1, "run `apt install skopeo` or `dnf install skopeo`");
}

#[test]
fn unusable_images_leave_nothing() {
    need!(has_containers(), "needs user namespaces");
    let place = Place::new();
    let hostile = Layout::of(Archive::new().symlink("a", "/").file("a/b", b""));
    for flat in [&[][..], &["--flat"]] {
        place.bundle(&[flat, &[&oci(&hostile), "web"]].concat()).fails(1, "a/b: is below a symlink");
        assert!(!place.path("web").exists());
    }
    assert_eq!(place.layers(), 0);
    let layout = image(json!({}));
    place.bundle(&["--max-files", "3", &oci(&layout), "web"]).fails(1, "--max-files");
    place.bundle(&["--max-bytes", "1000", &oci(&layout), "web"]).fails(1, "--max-bytes");
    place.bundle(&["dir:/etc", "web"]).fails(1, "is a kind of image that husk does not read");
    place.bundle(&["oci:/no/such", "web"]).fails(1, "/no/such/index.json");
    place.bundle(&[&oci(&layout)]).fails(1, "DIRECTORY is missing");
}
