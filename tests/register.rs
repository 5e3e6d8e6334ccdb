//! Checks the registration of husk with engines.

use crate::util::{Runtime, is_husk, is_root, need};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn every_engine_can_be_registered_once_and_unregistered() {
    need!(is_husk(), "other runtimes have no register command");
    let runtime = Runtime::under_test();
    for engine in ["podman", "containerd", "docker", "cri-o"] {
        let etc = TempDir::new().unwrap();
        let call = |more: &str| {
            let place = etc.path().to_str().unwrap();
            runtime.typed(&["register", engine, "--program", "/opt/husk", "--etc", place, more]).succeeds()
        };
        let shown = call("--print");
        assert!(shown.contains("/opt/husk"), "{shown}");
        assert_eq!(call("--dry-run"), shown);
        assert_eq!(files(etc.path()), [] as [PathBuf; 0], "{engine}: shown, not written");
        let done = call("--default");
        let [file] = &files(etc.path())[..] else { panic!("{engine}: one file: {done}") };
        let restart = if is_root() { "next: systemctl re" } else { "next: systemctl --user re" };
        assert!(done.contains(restart) || engine == "podman", "{done}");
        assert!(done.starts_with(&format!("{}: written\n", file.display())), "{done}");
        let text = fs::read_to_string(file).unwrap();
        assert!(
            text.contains("/opt/husk") && text.contains("default") || text.contains("runtime = \"husk\""),
            "{text}"
        );
        assert!(call("--default").ends_with(": already up to date\n"));
        assert!(call("--undo").contains(": removed\n"));
        assert_eq!(files(etc.path()), [] as [PathBuf; 0], "{engine}");
        // A directory in which others have put a file is kept.
        call("--default");
        let other = file.with_file_name("other");
        fs::write(&other, "").unwrap();
        call("--undo");
        assert_eq!(files(etc.path()), [other], "{engine}");
    }
}

#[test]
fn shim_is_found_beside_husk_or_in_path() {
    need!(is_husk(), "other runtimes have no register command");
    const SHIM: &str = "containerd-shim-husk-v1";
    let (beside, path, etc) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
    let husk = beside.path().join("husk");
    fs::copy(Runtime::under_test().command("register").get_program(), &husk).unwrap();
    let call = |more: &[&str]| {
        let mut command = Command::new(&husk);
        command.args(["register", "docker", "--shim", "--print"]).args(more);
        command.env("PATH", path.path()).arg("--etc").arg(etc.path());
        let output = command.output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let missing = call(&[]);
    assert!(missing.contains(&format!("{SHIM} is neither beside {}", husk.display())), "{missing}");
    assert!(call(&["--undo"]).contains("does not exist"));
    for directory in [&path, &beside] {
        let shim = directory.path().join(SHIM);
        fs::write(&shim, "").unwrap();
        let said = call(&[]);
        assert!(said.contains(&format!("\"runtimeType\": \"{}\"", shim.display())), "{said}");
    }
    let given = "/opt/containerd-shim-husk-v1";
    assert!(call(&["--program", given]).contains(&format!("\"runtimeType\": \"{given}\"")));
}
