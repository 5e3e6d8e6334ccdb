//! Checkpoints, and containers that are restored from them.

use crate::client::{Client, INVALID_ARGUMENT, NOT_FOUND, Refusal, Streams, named};
use crate::engine::{Bundle, Engine, is_root, need, program};
use crate::mounts::layered;
use crate::wire::events::TaskCheckpointed;
use crate::wire::options::CheckpointOptions;
use crate::wire::task::{CheckpointRequest, CreateRequest, Status};
use crate::wire::{Any, Empty};
use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Whether CRIU can save a process on this machine.
fn criu_works() -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    let attempt = || -> std::io::Result<bool> {
        let images = tempfile::tempdir()?;
        let null = Stdio::null;
        let mut process =
            Command::new(program()).arg("wait").stdin(null()).stdout(null()).stderr(null()).spawn()?;
        let mut criu = Command::new("criu");
        criu.args(["dump", "--shell-job", "--tree", &process.id().to_string(), "--images-dir"]);
        let saved = criu.arg(images.path()).stdin(null()).stdout(null()).stderr(null()).status();
        process.kill().and_then(|()| process.wait())?;
        Ok(saved?.success())
    };
    *WORKS.get_or_init(|| attempt().unwrap_or(false))
}

/// Returns a bundle whose root file system can be written to.
fn writable(engine: &Engine, id: &str) -> Bundle {
    let mut bundle = layered(engine, id, "wait");
    for directory in ["upper", "work"] {
        fs::create_dir_all(engine.path(directory)).expect("a directory");
        let option = format!("{directory}dir={}", engine.path(directory).display());
        bundle.rootfs[0].options.push(option);
    }
    bundle
}

fn restoring(bundle: &Bundle, images: &str) -> CreateRequest {
    CreateRequest { checkpoint: images.to_owned(), ..bundle.request(Streams::none()) }
}

fn checkpoint(client: &mut Client, path: &str, options: Option<Any>) -> Result<Empty, Refusal> {
    let request = CheckpointRequest { id: "c".to_owned(), path: path.to_owned(), options };
    client.call("Checkpoint", &request)
}

#[test]
fn root_of_a_container_to_restore_is_mounted_before_its_start() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = writable(&engine, "c");
    let mut client = engine.start(&bundle);
    assert_eq!(client.try_create(&restoring(&bundle, "/missing/images")), Ok(0));
    assert_eq!(client.state("c", "").status, i32::from(Status::Created));
    let rootfs = bundle.path.join("rootfs");
    assert_eq!(bundle.mount_points().len(), 2);
    assert_eq!(fs::read_to_string(rootfs.join("data/file")).unwrap(), "on the volume");
    // The restore fails, and the root stays until the container is deleted.
    client.refused("Start", &named("c", ""));
    assert_eq!(bundle.mount_points().len(), 2);
    client.delete("c", "");
    assert_eq!(bundle.mount_points(), [""; 0]);
    // A container that was never started is deleted likewise.
    assert_eq!(client.try_create(&restoring(&bundle, "/missing/images")), Ok(0));
    client.delete("c", "");
    assert_eq!(bundle.mount_points(), [""; 0]);
    client.shutdown();
    engine.until_shims_ended();
    assert!(engine.has_no_container());
}

#[test]
fn root_that_cannot_be_mounted_fails_the_create_of_a_restore() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let mut bundle = writable(&engine, "c");
    bundle.rootfs[1].source = "/missing/volume".to_owned();
    let mut client = engine.start(&bundle);
    let refusal = client.try_create(&restoring(&bundle, "/missing/images")).unwrap_err();
    assert!(refusal.message.contains("failed to mount rootfs component"), "{refusal:?}");
    assert_eq!(bundle.mount_points(), [""; 0]);
    assert_eq!(client.refused("State", &named("c", "")), NOT_FOUND);
}

#[test]
fn restored_container_has_files_that_were_added_after_its_create() {
    need!(is_root(), "needs root");
    need!(criu_works(), "needs a CRIU that works with this kernel");
    let engine = Engine::new();
    let mut bundle = writable(&engine, "c");
    // CRIU refuses the volume, which is not in the configuration.
    bundle.rootfs.truncate(1);
    let images = engine.text("images");
    fs::create_dir(&images).unwrap();
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let other = Any { type_url: "other.Options".to_owned(), value: Vec::new() };
    assert_eq!(checkpoint(&mut client, &images, Some(other)).unwrap_err().code, INVALID_ARGUMENT);
    // Without options the container goes on.
    checkpoint(&mut client, &images, None).unwrap();
    assert_eq!(client.state("c", "").status, i32::from(Status::Running));
    let events = engine.events.expect(&["create", "start", "checkpointed"]);
    let saved = events[2].message::<TaskCheckpointed>("TaskCheckpointed");
    assert_eq!((saved.container_id, &saved.checkpoint), ("c".to_owned(), &images));
    let options = CheckpointOptions { exit: true, ..CheckpointOptions::default() };
    checkpoint(&mut client, &images, Some(Any::new(CheckpointOptions::TYPE, &options))).unwrap();
    client.wait("c", "");
    client.delete("c", "");
    assert_eq!(client.try_create(&restoring(&bundle, &images)), Ok(0));
    fs::write(bundle.path.join("rootfs/added"), "added by the engine").unwrap();
    assert_ne!(client.start("c", ""), 0);
    let (out, mut stdout) = engine.output("out");
    client.exec("c", "e", "read /added", Streams::to(&out));
    client.start("c", "e");
    assert_eq!(stdout.until_end(), "added by the engine");
    client.wait("c", "e");
    client.delete("c", "e");
    client.kill("c", "");
    assert_eq!(client.wait("c", ""), 137);
    client.delete("c", "");
    assert_eq!(bundle.mount_points(), [""; 0]);
}
