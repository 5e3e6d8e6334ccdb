//! Root file systems that the shim mounts.

use crate::client::Streams;
use crate::engine::{Bundle, Engine, install, is_root, need};
use crate::wire::Mount;
use serde_json::json;
use std::fs;

/// Returns a bundle whose root file system is an overlay and a bind mount, as containerd describes it.
pub(crate) fn layered(engine: &Engine, id: &str, words: &str) -> Bundle {
    let layers = engine.path("layers");
    for layer in ["top", "bottom/proc", "bottom/dev", "bottom/data", "volume"] {
        fs::create_dir_all(layers.join(layer)).expect("a layer");
    }
    install(&layers.join("top"));
    fs::write(layers.join("volume/file"), "on the volume").expect("a file");
    let text = |layer: &str| layers.join(layer).to_str().expect("text").to_owned();
    let overlay = Mount {
        r#type: "overlay".to_owned(),
        source: "overlay".to_owned(),
        options: vec![format!("lowerdir={}:{}", text("top"), text("bottom"))],
        ..Mount::default()
    };
    let volume = Mount {
        r#type: "bind".to_owned(),
        source: text("volume"),
        target: "/data".to_owned(),
        options: vec!["rbind".to_owned(), "ro".to_owned()],
    };
    let mut bundle = engine.bundle(id, words);
    bundle.rootfs = vec![overlay, volume];
    bundle
}

#[test]
fn root_is_mounted_for_the_life_of_the_container() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = layered(&engine, "c", "read /data/file");
    let mut client = engine.start(&bundle);
    let (out, mut stdout) = engine.output("out");
    client.create(&bundle, Streams::to(&out));
    let rootfs = bundle.path.join("rootfs").to_str().unwrap().to_owned();
    assert_eq!(bundle.mount_points(), [rootfs.clone(), format!("{rootfs}/data")]);
    client.start("c", "");
    assert_eq!(stdout.until_end(), "on the volume");
    assert_eq!(client.wait("c", ""), 0);
    assert_eq!(bundle.mount_points().len(), 2);
    client.delete("c", "");
    assert_eq!(bundle.mount_points(), [""; 0]);
}

#[test]
fn failed_create_unmounts_the_root() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = layered(&engine, "c", "").with("/process/args", json!(["/missing"]));
    let mut client = engine.start(&bundle);
    let refusal = client.try_create(&bundle.request(Streams::none())).unwrap_err();
    assert!(refusal.message.contains("/missing"), "{refusal:?}");
    assert_eq!(bundle.mount_points(), [""; 0]);
    // The second mount fails, and the first is undone.
    let mut bundle = bundle.with("/process/args", json!(["/inside", "exit", "0"]));
    bundle.rootfs[1].source = "/missing/volume".to_owned();
    let refusal = client.try_create(&bundle.request(Streams::none())).unwrap_err();
    assert!(refusal.message.contains("failed to mount rootfs component"), "{refusal:?}");
    assert_eq!(bundle.mount_points(), [""; 0]);
}
