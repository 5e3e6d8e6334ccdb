//! Reads arbitrary bytes as a container's record. `state` must not crash, and must still report another container.

#![no_main]

use husk_runtime::{Store, list, state};
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

const NEIGHBOUR: &[u8] = include_bytes!("../corpus/state/created.json");

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    let root = std::env::temp_dir().join(format!("husk-fuzz-{}", std::process::id()));
    fs::create_dir_all(root.join("good")).unwrap();
    fs::create_dir_all(root.join("bad")).unwrap();
    fs::write(root.join("good/state.json"), NEIGHBOUR).unwrap();
    root
});

fuzz_target!(|bytes: &[u8]| {
    fs::write(ROOT.join("bad/state.json"), bytes).unwrap();
    let store = Store::new(ROOT.clone());
    // Tolerated: an invalid record is an error.
    drop(state(&store, "bad"));
    assert!(state(&store, "good").is_ok());
    assert_eq!(list(&store).unwrap().len(), 2);
});
