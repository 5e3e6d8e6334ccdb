//! `test --image`: programs and tests in the files of a container image.

use crate::hermetic::has_sandboxes;
use crate::hermetic_libtest::{Binary, has_rustc};
use crate::image::layout::{Archive, How, Layout};
use crate::image::{Place, base, image, oci};
use crate::util::{Seen, guest, need};
use serde_json::json;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Returns the words that run the guest in an image.
fn in_image<'w>(reference: &'w str, options: &[&'w str], words: &[&'w str]) -> Vec<&'w str> {
    [options, &["--image", reference, "--", "/guest"], words].concat()
}

#[test]
fn image_defines_files_and_program() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({
        "Entrypoint": ["/guest"], "Cmd": ["env"], "Env": ["FOO=bar", "TZ=Asia/Tokyo"], "WorkingDir": "/data",
        "Volumes": { "/data": {} }
    }));
    let reference = oci(&layout);
    let env = place.test(&["--image", &reference]).succeeds();
    for line in ["FOO=bar", "TZ=Asia/Tokyo", "HOME=/root", "LANG=C.UTF-8"] {
        assert!(env.lines().any(|found| found == line), "{line}: {env}");
    }
    let guest = |words: &[&str]| place.test(&in_image(&reference, &[], words));
    guest(&["cwd"]).prints("/data");
    guest(&["list", "/"]).prints("data\ndev\netc\nguest\nproc\ntmp\ntree");
    guest(&["list", "/data"]).prints("new\nold");
    guest(&["list", "/tree"]).prints("shown");
    guest(&["status", "Uid"]).prints("0\t0\t0\t0");
    guest(&["status", "CapEff"]).prints("0000000000000000");
    let layout = image(json!({ "User": "app" }));
    place.test(&in_image(&oci(&layout), &[], &["status", "Gid"])).prints("1001\t1001\t1001\t1001");
    place.test(&["--image", &oci(&layout)]).fails(125, "names no program; give one after '--'");
    place
        .test(&["--image", "oci:/no/such", "--", "x"])
        .fails(125, "image oci:/no/such: open /no/such/index.json");
    place.test(&["--image", "dir:/etc", "--", "x"]).fails(125, "is a kind of image that husk does not read");
    let layout = image(json!({ "User": "nobody-here" }));
    place.test(&in_image(&oci(&layout), &[], &[])).fails(125, "nobody-here");
}

#[test]
fn changes_to_an_image_are_discarded() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let archive = base().symlink("link", "/data").symlink("up", "../../../tmp/../data/old");
    let layout = Layout::of(archive.mode(0o755).directory("tmp").file("tmp/covered", b""));
    let reference = oci(&layout);
    for _ in 0..2 {
        place.test(&in_image(&reference, &[], &["cat", "/data/old"])).prints("old");
        place.test(&in_image(&reference, &[], &["write", "/data/old"])).succeeds();
        place.test(&in_image(&reference, &[], &["write", "/data/other"])).succeeds();
    }
    place
        .test(&in_image(&reference, &["--read", "/"], &["write", "/data/old"]))
        .fails(1, "Read-only file system");
    let kept = place.path("kept");
    let keep = ["--keep", kept.to_str().unwrap()];
    place.test(&in_image(&reference, &keep, &["write", "/data/old"])).succeeds();
    assert_eq!(fs::read_to_string(kept.join("data/old")).unwrap(), "written");
    assert!(!kept.join("data/gone").exists(), "the program has not written it");
    for (options, message) in [
        (["--write", "/data"], "no change to the image can be kept"),
        (["--write", "/"], "no change to the image can be kept"),
        (["--read", "/tmp/covered"], "a private directory covers these files of the image"),
        (["--hide", "/none"], "find /none: no such file or directory"),
        (["--rootfs", "/"], "cannot be used with"),
        (["--bundle", "/"], "cannot be used with"),
    ] {
        place.test(&in_image(&reference, &options, &["cwd"])).fails(125, message);
    }
    place.test(&in_image(&reference, &["--hide", "/data"], &["list", "/data"])).prints("");
    // A symlink of the image leads to the image's files.
    place.test(&in_image(&reference, &["--hide", "/link"], &["list", "/data"])).prints("");
    place.test(&in_image(&reference, &["--hide", "/up"], &["cat", "/data/old"])).prints("");
}

/// A second sandbox reads no archive, and needs no write to the layers.
#[test]
fn image_is_unpacked_once() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({}));
    let reference = oci(&layout);
    place.test(&in_image(&reference, &[], &["cwd"])).succeeds();
    assert_eq!(place.layers(), 3);
    (0..3).for_each(|layer| fs::write(layout.blob_of(layer), "damaged").unwrap());
    place.test(&in_image(&reference, &[], &["list", "/data"])).prints("new\nold");
    assert_eq!(place.layers(), 3);
    // A layer that is not in the store is verified.
    place.bundle(&["--prune"]).prints("removed 3 unused layers\n");
    place.test(&in_image(&reference, &[], &["cwd"])).fails(125, "read sha256:");
    assert_eq!(fs::read_dir(place.path("cache/husk/new")).unwrap().count(), 0);
}

#[test]
fn layers_in_use_are_not_pruned() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({}));
    let reference = oci(&layout);
    place.bundle(&[&reference, "web"]).succeeds();
    let bundles = place.layers();
    for option in ["--image", "--bundle"] {
        let what = if option == "--image" { &reference } else { "web" };
        let mut command = place.test_command(&[option, what, "--", "/guest", "list-later", "/data"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "begun");
        if option == "--bundle" {
            fs::remove_dir_all(place.path("web")).unwrap();
        }
        let used = place.layers();
        place.bundle(&["--prune"]).succeeds();
        assert_eq!(place.layers(), used, "{option}");
        drop(child.stdin.take());
        let listed: Vec<_> = lines.map(Result::unwrap).collect();
        assert_eq!(listed, ["new", "old"], "{option}");
        assert!(child.wait().unwrap().success());
        place.bundle(&["--prune"]).succeeds();
        assert_eq!(place.layers(), if option == "--image" { bundles } else { 0 }, "{option}");
    }
    assert_eq!(fs::read_dir(place.path("cache/husk/held")).unwrap().count(), 0);
}

/// Each process that uses layers registers them before another one may remove them.
#[test]
fn pruning_takes_no_layer_from_a_process_that_starts() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({}));
    let reference = oci(&layout);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    place.bundle(&["--prune"]).succeeds();
                }
            });
        }
        // Ends the loops even if a check fails.
        let _end = End(&is_over);
        for round in 0..20 {
            let name = format!("web-{round}");
            place.test(&in_image(&reference, &[], &["list", "/data"])).prints("new\nold");
            place.bundle(&[&reference, &name]).succeeds();
            place.test(&["--bundle", &name, "--", "/guest", "list", "/data"]).prints("new\nold");
            fs::remove_dir_all(place.path(&name)).unwrap();
        }
    });
}

struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn image_works_in_a_sandbox() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({}));
    let (husk, reference) = (env!("CARGO_BIN_EXE_husk"), oci(&layout));
    let read = [Path::new(husk).parent().unwrap(), layout.path()].map(|path| path.to_str().unwrap());
    let outer = ["--nested", "--read", read[0], "--read", read[1], "--", husk, "test", "--image", &reference];
    for (words, printed) in [(&["cat", "/data/new"][..], "new"), (&["write", "/data/new"], "")] {
        place.test(&[&outer[..], &["--", "/guest"], words].concat()).prints(printed);
    }
}

#[test]
fn bundle_of_layers_is_shared_by_tests() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let settings = json!({ "Cmd": ["/guest", "cwd"], "User": "app", "Volumes": { "/data": {} } });
    place.bundle(&[&oci(&image(settings)), "web"]).succeeds();
    let seen = place.test(&["--bundle", "web"]);
    seen.prints("/");
    seen.says("process.user.additionalGids: are ignored: a sandbox has one group");
    for _ in 0..2 {
        place.test(&["--bundle", "web", "--", "/guest", "write", "/tree/shown"]).succeeds();
        place.test(&["--bundle", "web", "--", "/guest", "cat", "/tree/shown"]).prints("shown");
    }
    assert_eq!(fs::read_dir(place.path("web/husk-layers/upper")).unwrap().count(), 0);
}

#[test]
fn names_in_husk_toml_are_relative_to_it() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({ "Env": ["WHICH=layout"] }));
    let copied = Command::new("cp").arg("-r").arg(layout.path()).arg(place.path("layout")).status().unwrap();
    assert!(copied.success());
    fs::create_dir(place.path("below")).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(layout.path()).arg("-cf").arg(place.path("web.tar")).arg(".");
    assert!(tar.status().unwrap().success());
    for name in ["oci:layout:v1", "oci-archive:web.tar", &oci(&layout)] {
        fs::write(place.path("husk.toml"), format!("image = '{name}'\n")).unwrap();
        let mut command = place.test_command(&["--", "/guest", "env"]);
        Seen(command.current_dir(place.path("below")).output().unwrap()).shows("WHICH=layout");
    }
    fs::write(place.path("husk.toml"), "image = 3.5\n").unwrap();
    place.test(&["--", "/guest"]).fails(125, "");
}

/// Tests that run in an image, and one that runs on the host.
const TESTS: &str = r#"
#[test] fn in_the_image() {
    assert!(!std::path::Path::new("/etc/hosts").exists());
    assert_eq!(std::fs::read_to_string("/data/old").unwrap(), "old");
    assert_eq!(std::env::var("FROM_IMAGE").as_deref(), Ok("1"));
    assert_eq!(std::env::var("CARGO_PKG_NAME").as_deref(), Ok("lab"));
    // The project is where it is on the host, read-only.
    assert_eq!(std::fs::read_to_string("file").unwrap(), "file");
    assert!(std::fs::write("file", "").is_err());
    std::fs::write("/data/old", "changed").unwrap();
}
#[test] fn in_the_image_too() { in_the_image() }
#[test] fn on_the_host() { assert!(std::path::Path::new("/usr").exists() && !std::path::Path::new("/tree").exists()) }
"#;

/// Returns an image with the libraries of a program.
fn with_libraries(program: &Path) -> Layout {
    let listed = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    let archive = libraries
        .fold(base().mode(0o755), |archive, library| archive.file(library, &fs::read(library).unwrap()));
    Layout::new().layer(How::Gzip, archive).tagged("v1", json!({ "Env": ["FROM_IMAGE=1"] }))
}

#[test]
fn test_binary_of_the_host_runs_in_an_image() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let (place, binary) = (Place::new(), Binary::of(TESTS));
    let layout = with_libraries(&binary.path);
    let path = binary.path.to_str().unwrap();
    let run = |options: &[&str], words: &[&str]| {
        let mut command = place.test_command(&[&["--runner"], options, &["--", path], words].concat());
        let here = binary.place.path("here");
        command.current_dir(&here).env("CARGO_MANIFEST_DIR", &here).env("CARGO_PKG_NAME", "lab");
        Seen(command.output().unwrap())
    };
    run(&["--image", &oci(&layout)], &["in_the"]).shows("test result: ok. 2 passed; 0 failed");
    // An override of husk.toml gives some tests an image.
    let text = format!("[[override]]\ntest = 'in_the_image*'\nimage = '{}'\n", oci(&layout));
    fs::write(binary.place.path("here/husk.toml"), text).unwrap();
    run(&[], &[]).shows("test result: ok. 3 passed; 0 failed");
    // The kernel only says that the program does not exist.
    fs::remove_file(binary.place.path("here/husk.toml")).unwrap();
    let empty = Layout::of(Archive::new().directory("etc"));
    let seen = run(&["--image", &oci(&empty)], &[]);
    seen.says("which the image lacks; use an image with this loader, or link it statically");
}

/// A shell, the plan and an explanation work as with other files.
#[test]
fn other_options_work_with_an_image() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let shell = base().mode(0o755).file("bin/sh", &fs::read(guest()).unwrap());
    let layout = Layout::of(shell);
    let reference = oci(&layout);
    let plan = place.test(&["--plan", "--image", &reference, "--", "/guest"]).succeeds();
    assert!(plan.contains("lowerdir=0,upperdir=../upper-root,workdir=../work-root,userxattr"), "{plan}");
    let seen = place.test(&["--shell", "--image", &reference, "--", "/guest", "cwd"]);
    seen.says("shell in the sandbox; run: /guest cwd");
    let seen = place.test(&["--image", &reference, "--explain", "always", "--", "/guest", "cat", "/none"]);
    seen.fails(1, "No such file or directory");
}

#[test]
fn service_may_run_in_an_image() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Place::new();
    let layout = image(json!({ "Entrypoint": ["/guest"], "Cmd": ["serve", "7000"] }));
    let config = place.path("husk.toml");
    let service = |keys: &str| format!("[[service]]\nname = \"web\"\n{keys}\nready = {{ port = 7000 }}\n");
    let (config_text, guest) = (config.to_str().unwrap(), guest().to_str().unwrap().to_owned());
    let ask = || place.test(&["--config", config_text, "--", &guest, "ask", "7000", "count"]);
    fs::write(&config, service(&format!("image = {:?}", oci(&layout)))).unwrap();
    ask().prints("1");
    fs::write(&config, service("image = \"oci:/no/such\"")).unwrap();
    ask().fails(125, "service web: image oci:/no/such: open /no/such/index.json");
}
