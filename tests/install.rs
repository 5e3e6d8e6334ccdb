//! Checks what `make install` installs: the binaries, manual pages and shell completions; and what it builds them for.

use crate::util::{Bundle, Runtime, is_husk, need};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;
use tempfile::TempDir;

/// Runs a target of the Makefile. A file stands in for the shim, which the tests of this package do not build.
fn make(target: &str, root: &TempDir) {
    let shim = root.path().join("shim");
    fs::write(&shim, "the shim").unwrap();
    let mut make = Command::new("make");
    make.current_dir(env!("CARGO_MANIFEST_DIR")).args(["--silent", target, "PREFIX=/usr"]);
    make.arg(format!("DESTDIR={}", root.path().display())).arg(concat!("HUSK=", env!("CARGO_BIN_EXE_husk")));
    make.arg(format!("SHIM={}", shim.display()));
    let output = make.output().unwrap();
    fs::remove_file(shim).unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Runs a script in a shell with husk in its PATH, and returns the lines that it prints. `$SHARE` is the directory of
/// the installed completions.
fn shell(program: &str, script: &str, root: &TempDir, arguments: &[&str]) -> Vec<String> {
    let bin = root.path().join("usr/bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let share = root.path().join("usr/share");
    let mut command = Command::new(program);
    command.env("PATH", path).env("SHARE", share).args(["-c", script]).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn install_adds_and_uninstall_removes_every_file() {
    need!(is_husk(), "husk's Makefile installs only husk");
    let root = TempDir::new().unwrap();
    make("install", &root);
    for name in [
        "bin/husk",
        "share/man/man1/husk.1",
        "share/man/man1/husk-run.1",
        "share/man/man1/husk-man.1",
        "share/bash-completion/completions/husk",
        "share/zsh/site-functions/_husk",
        "share/fish/vendor_completions.d/husk.fish",
    ] {
        assert!(root.path().join("usr").join(name).exists(), "{name}");
    }
    let shim = root.path().join("usr/bin/containerd-shim-husk-v1");
    assert_eq!(fs::read_to_string(&shim).unwrap(), "the shim");
    assert_eq!(fs::metadata(&shim).unwrap().permissions().mode() & 0o777, 0o755);
    let foreign = root.path().join("usr/share/man/man1/other.1");
    fs::write(&foreign, "").unwrap();
    make("uninstall", &root);
    assert_eq!(files(root.path()), slice::from_ref(&foreign));
    assert_eq!(fs::read_dir(root.path().join("usr")).unwrap().count(), 1, "an empty directory is left");
    make("install", &root);
    fs::remove_file(foreign).unwrap();
    make("uninstall", &root);
    assert_eq!(fs::read_dir(root.path().join("usr")).unwrap().count(), 0, "an empty directory is left");
}

#[test]
fn every_man_page_renders() {
    need!(is_husk(), "other runtimes have other manuals");
    need!(is_installed("groff"), "groff(1)");
    let root = TempDir::new().unwrap();
    make("install", &root);
    let pages = files(&root.path().join("usr/share/man"));
    assert!(pages.len() > 15, "{pages:?}");
    for page in pages {
        let output = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]).arg(&page).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", page.display());
    }
}

#[test]
fn bash_completes_verbs_options_values_and_containers() {
    need!(is_husk(), "other runtimes print other messages");
    need!(is_installed("bash"), "bash(1)");
    let root = TempDir::new().unwrap();
    make("install", &root);
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let place = runtime.root().to_str().unwrap();
    let script = r#"source "$SHARE/bash-completion/completions/husk"
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _husk; printf '%s\n' "${COMPREPLY[@]}""#;
    let complete = |words: &[&str]| shell("bash", script, &root, &[&["bash", "husk"], words].concat());
    assert_eq!(complete(&["re"]), ["resume", "restore", "register"]);
    assert_eq!(complete(&["--log-format", ""]), ["text", "json"]);
    assert_eq!(complete(&["--log-format", "=", "j"]), ["json"]);
    assert_eq!(complete(&["list", "--form"]), ["--format"]);
    assert_eq!(complete(&["register", "p"]), ["podman"]);
    assert_eq!(complete(&["--root", place, "kill", ""]), ["c"]);
    assert_eq!(complete(&["--root", "=", place, "kill", "--all", ""]), ["c"]);
    assert_eq!(complete(&["--root", place, "kill", "c", "KI"]), ["KILL"]);
    assert_eq!(
        complete(&["--root", place, "kill", "c", "SIGT"]),
        ["SIGTRAP", "SIGTERM", "SIGTSTP", "SIGTTIN", "SIGTTOU"]
    );
    assert_eq!(complete(&["--root", place, "kill", "c", "ST"]), ["STKFLT", "STOP"]);
    // Only containers for which the verb can succeed are suggested.
    for (verb, is_for) in [
        ("pause", true),
        ("exec", true),
        ("start", false),
        ("resume", false),
        ("run", false),
        ("delete", false),
    ] {
        assert_eq!(complete(&["--root", place, verb, ""]), [if is_for { "c" } else { "" }], "{verb}");
    }
    assert_eq!(complete(&["--root", place, "delete", "--force", ""]), ["c"]);
    // Files complete the value of an option that is a path.
    assert_eq!(complete(&["create", "--bundle", ""]), [""]);
    assert!(complete(&["kill", "-"]).contains(&"--root".to_owned()));
}

#[test]
fn fish_completes_verbs() {
    need!(is_husk(), "other runtimes print other messages");
    need!(is_installed("fish"), "fish(1)");
    let root = TempDir::new().unwrap();
    make("install", &root);
    let script = "source $SHARE/fish/vendor_completions.d/husk.fish; complete -C 'husk re'";
    let found = shell("fish", script, &root, &[]);
    assert!(found.iter().any(|line| line.starts_with("resume\t")), "{found:?}");
}

#[test]
fn zsh_loads_its_script() {
    need!(is_husk(), "other runtimes print other messages");
    need!(is_installed("zsh"), "zsh(1)");
    let root = TempDir::new().unwrap();
    make("install", &root);
    let script = "fpath=($SHARE/zsh/site-functions $fpath); autoload -Uz compinit; compinit -D -u
        autoload +X _husk; print -r -- $_comps[husk]";
    assert_eq!(shell("zsh", script, &root, &[]), ["_husk"]);
    let suggests =
        "fpath=($SHARE/zsh/site-functions $fpath); autoload -Uz compinit; compinit -D -u; autoload +X _husk
        _describe() { print -r -- \"[$1]\" ${found[1]} }; words=(husk resu) CURRENT=2; _husk";
    assert_eq!(shell("zsh", suggests, &root, &[]), ["[] resume:Resume the processes of a paused container"]);
}

/// The machine's own C library is used unless the compiler has everything for musl. A script stands in for the compiler.
#[test]
fn target_is_musl_only_if_the_compiler_has_all_of_it() {
    let place = TempDir::new().unwrap();
    let path = |name: &str| place.path().join(name);
    let here = place.path().display();
    let script = format!(
        "#!/bin/sh\ncase $* in\n-vV) echo host: x86_64-unknown-linux-gnu ;;\n\
         *target-libdir*) echo {here}/${{4%%-*}} ;;\n*) echo {here} ;;\nesac\n"
    );
    fs::create_dir_all(path("lib/rustlib/x86_64-unknown-linux-gnu/bin")).unwrap();
    fs::create_dir(path("x86_64")).unwrap();
    fs::write(path("rustc"), script).unwrap();
    fs::set_permissions(path("rustc"), fs::Permissions::from_mode(0o755)).unwrap();
    let target = |words: &[&str]| {
        let mut command = Command::new("packaging/target.sh");
        command.args(words).current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("CARGO_BUILD_TARGET");
        command.env("PATH", format!("{here}:/usr/bin:/bin"));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let linker = path("lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld");
    assert_eq!(target(&[]), "x86_64-unknown-linux-gnu\n");
    fs::write(path("x86_64/libstd-1.rlib"), "").unwrap();
    assert_eq!(target(&[]), "x86_64-unknown-linux-gnu\n");
    fs::copy(path("rustc"), linker).unwrap();
    assert_eq!(target(&[]), "x86_64-unknown-linux-musl\n");
    assert_eq!(target(&["aarch64"]), "aarch64-unknown-linux-gnu\n");
}
