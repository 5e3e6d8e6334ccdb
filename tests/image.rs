//! `bundle`: images become bundles, and containers run in them, as root and as a user.

/// Builds images.
#[expect(dead_code, reason = "only the tests of the crate need all kinds of entries")]
#[path = "../crates/image/tests/layout/mod.rs"]
pub(crate) mod layout;

use crate::checkpoint::{NEEDS_CRIU, criu_works};
use crate::util::{Runtime, Seen, guest, is_root, need, watch};
use layout::{Archive, How, Layout};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A directory with a user's store and bundles.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
    path: Option<PathBuf>,
}

impl Place {
    pub(crate) fn new() -> Self {
        watch();
        Self { directory: TempDir::new().unwrap(), path: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a program named `skopeo` the only one that husk finds.
    pub(crate) fn with_skopeo(mut self, script: &str) -> Self {
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

    pub(crate) fn bundle(&self, arguments: &[&str]) -> Seen {
        Seen(self.bundle_command(arguments).output().unwrap())
    }

    pub(crate) fn bundle_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.arg("bundle").args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", self.path("cache"));
        if let Some(path) = &self.path {
            let usual = std::env::var("PATH").unwrap();
            // `newuidmap` is beside skopeo, if that is installed.
            command.env("PATH", format!("{}:{usual}", path.display()));
        }
        command
    }

    /// Runs `husk test` with this store.
    pub(crate) fn test(&self, arguments: &[&str]) -> Seen {
        Seen(self.test_command(arguments).output().unwrap())
    }

    pub(crate) fn test_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.arg("test").args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("XDG_CACHE_HOME", self.path("cache"));
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        command
    }

    /// Gives the bundle another cgroup.
    fn move_cgroup(&self, name: &str) {
        let path = self.path(name).join("config.json");
        let config = fs::read_to_string(&path).unwrap();
        fs::write(path, config.replace("/husk-test-", "/husk-other-")).unwrap();
    }

    /// Runs the bundle with this program instead of the image's.
    pub(crate) fn run(&self, name: &str, args: &[&str]) -> Seen {
        self.prepare(name, args);
        let runtime = Runtime::under_test();
        let mut command = runtime.command("run");
        command.arg("--bundle").arg(self.path(name)).arg("c");
        runtime.detached(command)
    }

    /// Changes the bundle so that it runs this program, without a terminal and in a cgroup of its own.
    fn prepare(&self, name: &str, args: &[&str]) {
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
    }

    pub(crate) fn layers(&self) -> usize {
        let owners = fs::read_dir(self.path("cache/husk/layers")).unwrap();
        owners.map(|owners| fs::read_dir(owners.unwrap().path()).unwrap().count()).sum()
    }

    pub(crate) fn config(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name).join("config.json")).unwrap()).unwrap()
    }
}

/// Returns an archive with the guest and a list of users.
pub(crate) fn base() -> Archive {
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
pub(crate) fn image(settings: Value) -> Layout {
    let second = Archive::new()
        .file("data/.wh.gone", b"")
        .mode(0o755)
        .directory("tree")
        .file("tree/.wh..wh..opq", b"");
    let third = Archive::new().file("data/new", b"new").file("tree/shown", b"shown");
    let layout = Layout::new().layer(How::Gzip, base()).layer(How::Zstd, second).layer(How::Plain, third);
    layout.tagged("v1", settings)
}

pub(crate) fn oci(layout: &Layout) -> String {
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
fn container_of_layers_goes_on_after_a_restore() {
    need!(has_containers(), "needs user namespaces");
    need!(criu_works(), NEEDS_CRIU);
    let place = Place::new();
    place.bundle(&[&oci(&image(json!({}))), "web"]).succeeds();
    place.prepare("web", &["/guest", "echo"]);
    let mut config = place.config("web");
    if !is_root() {
        // A user's /sys is the host's, with mounts that CRIU does not know.
        config["mounts"].as_array_mut().unwrap().retain(|mount| mount["destination"] != "/sys");
    }
    config["mounts"].as_array_mut().unwrap().retain(|mount| mount["destination"] != "/sys/fs/cgroup");
    fs::write(place.path("web/config.json"), config.to_string()).unwrap();
    let (runtime, images) = (Runtime::under_test(), place.path("images"));
    let begin = |verb: &str, more: &[&str]| {
        let ((stdin, input), (output, stdout)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let mut command = runtime.command(verb);
        command.args(more).args(["--detach", "--bundle"]).arg(place.path("web")).arg("c");
        let started = command.stdin(stdin).stdout(stdout).stderr(Stdio::null()).status().unwrap();
        assert!(started.success());
        (input, BufReader::new(output).lines())
    };
    let images = images.to_str().unwrap();
    let (mut input, mut lines) = begin("run", &[]);
    writeln!(input, "one").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "0 one");
    runtime.call("exec", &["c", "/guest", "write", "/data/old"]).succeeds();
    runtime.call("checkpoint", &["--image-path", images, "c"]).succeeds();
    let (mut input, mut lines) = begin("restore", &["--image-path", images]);
    writeln!(input, "two").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "1 two");
    runtime.call("exec", &["c", "/guest", "cat", "/data/old"]).prints("written");
    runtime.call("exec", &["c", "/guest", "list", "/data"]).prints("new\nold");
    // The layers are in use, by this container and no other.
    place.prepare("web", &["/guest"]);
    place.move_cgroup("web");
    let second = Runtime::under_test();
    let mut command = second.command("run");
    command.arg("--bundle").arg(place.path("web")).arg("c");
    second.detached(command).fails(1, "another container of this bundle is running");
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(runtime.is_empty());
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
    for archive in ["oci.tar", "docker.tar"] {
        assert!(Command::new("gzip").arg("-k").arg(place.path(archive)).status().unwrap().success());
    }
    place.bundle(&["docker-archive:docker.tar.gz:web", "zipped"]).succeeds();
    place.bundle(&["oci-archive:oci.tar.gz", "zipped-too"]).succeeds();
    assert_eq!(place.config("zipped")["process"]["args"], json!(["/guest"]));
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
    place.test(&["--bundle", "web"]).fails(125, "is not in the store of layers any more");
}

/// overlayfs guarantees nothing if two containers write to one directory.
#[test]
fn second_container_of_a_bundle_is_refused() {
    need!(has_containers(), "needs user namespaces");
    let place = Place::new();
    place.bundle(&[&oci(&image(json!({}))), "web"]).succeeds();
    place.prepare("web", &["/guest", "cat", "/data/old"]);
    let (runtime, bundle) = (Runtime::under_test(), place.path("web"));
    let bundle = bundle.to_str().unwrap();
    let begin = |name: &str| {
        let mut command = runtime.command("create");
        command.args(["--bundle", bundle, name]);
        runtime.detached(command)
    };
    begin("one").succeeds();
    place.move_cgroup("web");
    begin("two").fails(1, "another container of this bundle is running; `husk bundle` makes a second bundle");
    // A test of the bundle sees the image, and disturbs nobody.
    place.test(&["--bundle", "web", "--", "/guest", "cat", "/data/old"]).prints("old");
    runtime.call("delete", &["--force", "one"]).succeeds();
    begin("two").succeeds();
    runtime.call("delete", &["--force", "two"]).succeeds();
}

/// Copies the layout that `IMAGE` names, as skopeo would copy one from a registry.
const SKOPEO: &str = "#!/bin/sh
[ \"$1 $2 $3\" = 'copy --quiet --' ] || exit 3
[ \"${_CONTAINERS_ROOTLESS_UID-0}\" = CALLER ] || exit 4
[ \"$4\" = docker://docker.io/library/web:1 ] || { echo 'manifest unknown' >&2; exit 1; }
to=${5#oci:}
mkdir -p \"${to%:image}\" && cp -r IMAGE/. \"${to%:image}\"
";

#[test]
fn skopeo_copies_images_from_registries() {
    need!(has_containers(), "needs user namespaces");
    let layout = image(json!({ "Cmd": ["/guest"] })).tagged("image", json!({ "Cmd": ["/guest"] }));
    let caller = rustix::process::getuid().to_string();
    let script = SKOPEO.replace("IMAGE", layout.path().to_str().unwrap()).replace("CALLER", &caller);
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

/// Whether a user has subordinate ids, and the programs that map them.
fn has_subordinate_ids() -> bool {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut users = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|user| user.get(2) == Some(&&*uid)).map_or(uid.clone(), |user| user[0].to_owned());
    let is_listed = |file| {
        let list = fs::read_to_string(file).unwrap_or_default();
        list.lines().any(|line| line.split(':').next().is_some_and(|owner| owner == user || owner == uid))
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &&str| std::env::split_paths(&path).any(|at| at.join(program).exists());
    ["newuidmap", "newgidmap"].iter().all(is_there)
        && ["/etc/subuid", "/etc/subgid"].into_iter().all(is_listed)
}

#[test]
fn files_belong_to_subordinate_ids_of_a_user() {
    need!(!is_root(), "needs an ordinary user");
    need!(has_subordinate_ids(), "needs newuidmap, and ranges in /etc/subuid and /etc/subgid");
    let place = Place::new();
    let private = base().mode(0o600).owned(77, 78).file("private", b"private").mode(0o700).directory("own");
    let layout = Layout::new().layer(How::Gzip, private).tagged("v1", json!({ "User": "77:78" }));
    place.bundle(&[&oci(&layout), "web"]).succeeds();
    place.bundle(&["--flat", &oci(&layout), "flat"]).succeeds();
    for bundle in ["web", "flat"] {
        assert!(place.config(bundle)["linux"]["uidMappings"].as_array().unwrap().len() > 1);
        place.run(bundle, &["/guest", "cat", "/private"]).prints("private");
        place.run(bundle, &["/guest", "status", "Uid"]).prints("77\t77\t77\t77");
        place.run(bundle, &["/guest", "write", "/own/new"]).succeeds();
    }
    let file = place.path("flat/rootfs/private").metadata().unwrap();
    let own = rustix::process::geteuid().as_raw();
    assert!(file.uid() != own && file.mode() & 0o777 == 0o600, "it belongs to {}", file.uid());
    // A second bundle needs no user namespace for the layers, and has the same files.
    place.bundle(&[&oci(&layout), "second"]).succeeds();
    place.run("second", &["/guest", "list", "/own"]).prints("");
    // A sandbox has one id, to which all files belong.
    place.test(&["--image", &oci(&layout), "--", "/guest", "cat", "/private"]).prints("private");
    // Only root of a namespace with these ids can remove the files.
    for bundle in ["web", "second", "flat"] {
        let mut remove = Command::new("unshare");
        remove.args(["--map-root-user", "--map-auto", "rm", "-rf"]).arg(place.path(bundle));
        assert!(remove.status().unwrap().success(), "{bundle}");
    }
    place.bundle(&["--prune"]).succeeds();
    assert_eq!(place.layers(), 0);
}
