//! `test`: tools in the home directory are there without an option, and secrets beside them are not. The tools are
//! scripts in a made-up home directory that is laid out as rustup, pyenv, nvm and others do it.

use crate::hermetic::{Project, has_sandboxes};
use crate::hermetic_libtest::{Binary, has_rustc};
use crate::hostile::watched::{self, Verdict};
use crate::util::{Seen, is_root, need};
use husk_spawn::sys::process::SockFilter;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

/// A caller with tools.
struct Tools {
    place: Project,
    path: String,
}

impl Tools {
    /// Returns a caller whose `PATH` has these directories of the home directory.
    fn new(path: &[&str]) -> Self {
        let place = Project::new();
        let path = path.iter().map(|directory| place.path(&format!("home/{directory}")) + ":");
        let path = path.collect::<String>() + "/usr/bin:/bin";
        Self { place, path }
    }

    fn home(&self, name: &str) -> String {
        self.place.path(&format!("home/{name}"))
    }

    /// Writes a file of the home directory.
    fn file(&self, name: &str, text: &str) -> &Self {
        let path = self.home(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Writes an executable file of the home directory. `HOME` in its text is the home directory.
    fn script(&self, name: &str, text: &str) -> &Self {
        self.file(name, &text.replace("HOME", &self.place.path("home")));
        fs::set_permissions(self.home(name), fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    fn link(&self, target: &str, name: &str) -> &Self {
        let path = self.home(name);
        fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        symlink(target.replace("HOME", &self.place.path("home")), path).unwrap();
        self
    }

    fn command(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = self.place.command(options, program);
        command.env("PATH", &self.path);
        for name in [
            "CARGO_HOME",
            "RUSTUP_HOME",
            "GOCACHE",
            "GOPATH",
            "NVM_DIR",
            "VIRTUAL_ENV",
            "PYENV_ROOT",
            "XDG_CACHE_HOME",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn test(&self, options: &[&str], program: &[&str]) -> Seen {
        Seen(self.command(options, program).output().unwrap())
    }

    fn sh(&self, options: &[&str], script: &str) -> Seen {
        self.test(options, &["sh", "-c", script])
    }
}

#[test]
fn rustup_and_cargo_are_found() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&[".cargo/bin"]);
    tools.script(".cargo/bin/rustup", "#!/bin/sh\nexec HOME/.rustup/toolchains/stable/bin/cargo \"$@\"");
    tools.link("rustup", ".cargo/bin/cargo").file(".rustup/settings.toml", "");
    tools
        .script(".rustup/toolchains/stable/bin/cargo", "#!/bin/sh\ncat HOME/.cargo/config.toml; echo \"$@\"");
    tools.file(".cargo/config.toml", "config\n").file(".cargo/registry/index", "");
    tools.test(&[], &["cargo", "test"]).prints("config\ntest\n");
    tools.test(&[], &["sh", "-c", "cargo test"]).prints("config\ntest\n");
    let plan = tools.test(&["--plan"], &["cargo"]).succeeds();
    let (rustup, cargo) = (tools.home(".rustup"), tools.home(".cargo"));
    assert!(plan.starts_with(&format!("tools: rustup ({rustup}), cargo ({cargo})\n")), "{plan}");
    // Installations are read-only.
    tools.sh(&[], "true > ~/.rustup/settings.toml").fails(2, "Read-only file system");
}

#[test]
fn virtual_environment_and_its_base_are_found() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&["env/bin"]);
    tools.script("py/3.14/bin/python3.14", "#!/bin/sh\ncat HOME/py/3.14/lib/data HOME/env/lib/data");
    tools.link("python3.14", "py/3.14/bin/python3").link("HOME/py/3.14/bin/python3", "env/bin/python");
    tools.file("env/pyvenv.cfg", &format!("home = {}\nversion = 3.14\n", tools.home("py/3.14/bin")));
    tools.file("py/3.14/lib/data", "base\n").file("env/lib/data", "env\n");
    tools.script("env/bin/pytest", "#!HOME/env/bin/python\n");
    for program in ["python", "pytest", &tools.home("env/bin/python")] {
        tools.test(&[], &[program]).prints("base\nenv\n");
    }
    tools.sh(&[], "python").prints("base\nenv\n");
}

#[test]
fn virtual_environment_in_the_project_finds_its_base() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&[]);
    tools.script("py/bin/python3", "#!/bin/sh\ncat HOME/py/lib/data").file("py/lib/data", "base\n");
    tools.link("HOME/py/bin/python3", "../here/.venv/bin/python");
    tools.test(&[], &[".venv/bin/python"]).prints("base\n");
    tools.file("../here/.venv/pyvenv.cfg", &format!("home = {}\n", tools.home("py/bin")));
    let mut command = tools.command(&[], &["sh", "-c", ".venv/bin/python"]);
    command.env("VIRTUAL_ENV", tools.home("../here/.venv"));
    Seen(command.output().unwrap()).prints("base\n");
}

#[test]
fn node_of_a_version_manager_is_found() {
    need!(has_sandboxes(), "needs user namespaces");
    // fnm names the version by a symlink in a directory of the session.
    let tools = Tools::new(&["session/123/bin"]);
    let version = "share/fnm/node-versions/v24/installation";
    tools.link(&format!("HOME/{version}"), "session/123");
    tools.script(
        &format!("{version}/bin/node"),
        "#!/bin/sh\ncat \"$1\"; echo \"in $NODE_PATH $npm_config_update_notifier\"",
    );
    tools.script(&format!("{version}/lib/node_modules/npm/cli.js"), "#!/usr/bin/env node\n");
    tools.link("../lib/node_modules/npm/cli.js", &format!("{version}/bin/npm"));
    let mut npm = tools.command(&[], &["npm"]);
    npm.env("NODE_PATH", "/modules").env("NODE_AUTH_TOKEN", "token");
    Seen(npm.output().unwrap()).prints("#!/usr/bin/env node\nin /modules false\n");
}

#[test]
fn caches_can_be_written_and_changes_are_discarded() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&[]);
    tools.file(".cache/go-build/one", "1").file("go/pkg/mod/m", "").file(".cargo/registry/r", "");
    let script = "cat ~/.cache/go-build/one; rm ~/.cache/go-build/one; \
                  echo 2 > ~/.cache/go-build/two; echo 2 > ~/go/pkg/mod/two; echo 2 > ~/.cargo/registry/two";
    tools.sh(&[], script).prints("1");
    assert!(!fs::exists(tools.home(".cache/go-build/two")).unwrap());
    assert!(fs::exists(tools.home(".cache/go-build/one")).unwrap());
    // A compiled program that is not known to build gets no caches, but may ask for them.
    let one = tools.home(".cache/go-build/one");
    tools.test(&[], &["cat", &one]).fails(1, "No such file");
    tools.test(&["--keep-caches"], &["cat", &one]).prints("1");
    tools.sh(&["--keep-caches"], script).prints("1");
    for name in [".cache/go-build/two", "go/pkg/mod/two", ".cargo/registry/two"] {
        assert!(fs::exists(tools.home(name)).unwrap(), "{name}");
    }
    assert!(!fs::exists(tools.home(".cache/go-build/one")).unwrap());
    fs::write(tools.place.path("here/husk.toml"), "keep-caches = true\n").unwrap();
    tools.sh(&[], "rm ~/.cache/go-build/two").succeeds();
    assert!(!fs::exists(tools.home(".cache/go-build/two")).unwrap());
}

#[test]
fn cache_elsewhere_is_named_to_the_tool() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&[]);
    tools.file("elsewhere/go-build/one", "1");
    let mut command = tools.command(&[], &["sh", "-c", "cat $GOCACHE/one"]);
    Seen(command.env("XDG_CACHE_HOME", tools.home("elsewhere")).output().unwrap()).prints("1");
    let mut command = tools.command(&["--env", "GOCACHE=mine"], &["sh", "-c", "echo $GOCACHE"]);
    Seen(command.env("XDG_CACHE_HOME", tools.home("elsewhere")).output().unwrap()).prints("mine\n");
}

#[test]
fn options_take_precedence_over_tools() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&[".cargo/bin"]);
    tools.script(".cargo/bin/tool", "#!/bin/sh\n").file(".cargo/registry/file", "1");
    let (cargo, registry) = (tools.home(".cargo"), tools.home(".cargo/registry"));
    tools.sh(&["--hide", &cargo], "ls ~/.cargo 2>&1 | wc -l; tool").fails(127, "tool: not found");
    tools.sh(&["--read", &registry], "echo 2 > ~/.cargo/registry/file").fails(2, "Read-only file system");
    tools.sh(&["--write", &registry], "echo 2 > ~/.cargo/registry/file").succeeds();
    assert_eq!(fs::read_to_string(tools.home(".cargo/registry/file")).unwrap(), "2\n");
}

/// Files that are never shown for a tool.
const SECRETS: &[&str] = &[
    ".ssh/id",
    ".aws/credentials",
    ".gnupg/key",
    ".netrc",
    ".config/token",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".npmrc",
    ".pypirc",
    ".m2/settings.xml",
    ".gradle/gradle.properties",
    ".docker/config.json",
    ".local/share/keyrings/login",
    "document",
];

/// Returns the script that prints every secret that can be read.
fn read_secrets() -> String {
    let files = SECRETS.iter().map(|name| format!("~/{name} "));
    format!("cat {} 2>/dev/null; cat ~/*/*.secret 2>/dev/null; true", files.collect::<String>())
}

impl Tools {
    fn with_secrets(&self) -> &Self {
        for name in SECRETS {
            self.file(name, name);
        }
        // Files of tools beside the secrets.
        for name in
            [".cargo/bin/a", ".cargo/registry/a", ".m2/repository/a", ".gradle/caches/a", ".local/lib/a"]
        {
            self.file(name, "a");
        }
        self
    }
}

#[test]
fn secrets_beside_tools_stay_hidden() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&[".cargo/bin", ".local/bin", "bin"]);
    tools.with_secrets().script(".local/bin/a", "").script("bin/a", "").file("lib/a", "");
    tools.sh(&[], &read_secrets()).prints("");
    tools.sh(&["--keep-caches"], &read_secrets()).prints("");
    tools
        .sh(&[], "cat ~/.cargo/bin/a ~/.cargo/registry/a ~/.m2/repository/a ~/.gradle/caches/a")
        .prints("aaaa");
}

#[test]
fn path_to_secrets_does_not_show_them() {
    need!(has_sandboxes(), "needs user namespaces");
    let places = [
        ".",
        ".ssh",
        ".config",
        ".aws/bin",
        ".cargo",
        ".m2",
        ".gradle",
        ".local",
        "links/ssh",
        "links/home",
        "../home",
    ];
    let tools = Tools::new(&places);
    tools.with_secrets().script(".aws/bin/a", "").file("dotfiles/gnupg/key", "key");
    tools.link("HOME/.ssh", "links/ssh").link("HOME", "links/home").script(".local/bin/a", "");
    tools.sh(&[], &read_secrets()).prints("");
    let plan = tools.test(&["--plan"], &["true"]).succeeds();
    assert!(
        plan.contains(&format!("hidden: {} ({} must stay hidden)\n", tools.home(".ssh"), tools.home(".ssh"))),
        "{plan}"
    );
    assert!(
        plan.contains(&format!(
            "hidden: {} (it holds more than tools)\n",
            tools.home("").trim_end_matches('/')
        )),
        "{plan}"
    );
    // A secret may itself be a symlink.
    fs::remove_dir_all(tools.home(".gnupg")).unwrap();
    tools.link("HOME/dotfiles/gnupg", ".gnupg");
    let mut command =
        tools.command(&[], &["sh", "-c", "cat ~/dotfiles/gnupg/key ~/.gnupg/key 2>/dev/null; true"]);
    Seen(command.env("PATH", format!("{}:/usr/bin:/bin", tools.home("dotfiles/gnupg"))).output().unwrap())
        .prints("");
}

#[test]
fn variables_of_tools_do_not_show_secrets() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&[]);
    tools.with_secrets();
    for place in ["", ".ssh", ".config", ".cargo", ".m2", ".gradle", ".local/share", ".local/.."] {
        let mut command = tools.command(&[], &["sh", "-c", &read_secrets()]);
        for name in ["RUSTUP_HOME", "VIRTUAL_ENV", "JAVA_HOME", "GOCACHE", "GOPATH", "NVM_DIR"] {
            command.env(name, tools.home(place));
        }
        Seen(command.output().unwrap()).prints("");
    }
}

#[test]
fn directory_that_others_can_change_is_not_shown() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&["open/bin", "by/link"]);
    tools.script("open/bin/a", "").file("mine/file", "secret").link("HOME/mine", "open/link");
    tools.link("HOME/open/link", "by/link");
    let open = tools.home("open");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    tools.sh(&[], "cat ~/mine/file ~/by/link/file 2>/dev/null; ls ~/open/bin 2>/dev/null; true").prints("");
    let plan = tools.test(&["--plan"], &["true"]).succeeds();
    assert!(plan.contains(&format!("{open} is writable by all users")), "{plan}");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    tools.sh(&[], "cat ~/by/link/file; ls ~/open/bin").prints("secreta\n");
    need!(is_root(), "only root can give a file to another user");
    chown(&open, Some(1), None).unwrap();
    tools.sh(&[], "cat ~/mine/file ~/by/link/file 2>/dev/null; ls ~/open/bin 2>/dev/null; true").prints("");
}

#[test]
fn program_that_builds_may_write_to_the_project() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&["bin"]);
    let script = "#!/bin/sh\nmkdir -p target && echo x > target/out && echo x > file && cat file";
    for name in ["make", "python3", "other"] {
        tools.script(&format!("bin/{name}"), script);
    }
    tools.test(&[], &["make"]).prints("x\n");
    tools.test(&[], &["python3", "-m", "pytest"]).prints("x\n");
    assert_eq!(fs::read_to_string(tools.place.path("here/file")).unwrap(), "file");
    assert!(!fs::exists(tools.place.path("here/target")).unwrap());
    // Other programs may not, and neither if the caller says so.
    tools.test(&[], &["other"]).fails(1, "Read-only file system");
    tools.test(&[], &["python3", "-m", "other"]).fails(1, "Read-only file system");
    tools.test(&["--read", "."], &["make"]).fails(1, "Read-only file system");
    fs::create_dir(tools.place.path("here/target")).unwrap();
    tools.test(&["--write", "target"], &["make"]).prints("x\n");
    assert!(fs::exists(tools.place.path("here/target/out")).unwrap());
    assert_eq!(fs::read_to_string(tools.place.path("here/file")).unwrap(), "file");
    tools.test(&["--write", "."], &["make"]).prints("x\n");
    assert_eq!(fs::read_to_string(tools.place.path("here/file")).unwrap(), "x\n");
}

#[test]
fn project_that_cannot_be_overlaid_is_read_only() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "only root can stack overlays here");
    let tools = Tools::new(&["bin"]);
    tools.script("bin/make", "#!/bin/sh\ncat file; true 2> /dev/null > file || echo read-only");
    // Linux stacks two overlays at most (fs/stack.c, `FILESYSTEM_MAX_STACK_DEPTH`).
    let script = "set -e; mount -t tmpfs tmpfs ../home/stack; cd ../home/stack; mkdir a b ua wa ub wb
                  mount -t overlay -o lowerdir=../../here,upperdir=ua,workdir=wa overlay a
                  mount -t overlay -o lowerdir=a,upperdir=ub,workdir=wb overlay b
                  cd b; exec \"$0\" test -- make";
    fs::create_dir(tools.home("stack")).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_husk")])
        .current_dir(tools.place.path("here"));
    command.env("HOME", tools.place.path("home")).env("PATH", format!("{}:/usr/sbin:/sbin", tools.path));
    let seen = Seen(command.output().unwrap());
    seen.prints("fileread-only\n");
    seen.says("the project and the tools' caches are read-only");
}

#[test]
fn failed_download_names_the_command_to_run_first() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&["bin"]);
    tools.script("bin/cargo", "#!/bin/sh\nexit ${1:-0}").script("bin/go", "#!/bin/sh\nexit 1");
    tools.script("bin/npm", "#!/bin/sh\nexit 1").file("../here/package.json", "{}");
    let package = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry+https://x\"\n";
    tools.file("../here/Cargo.lock", package).file("../here/go.sum", "example.org/M v1.0.0 h1:x=\n");
    tools.test(&[], &["cargo", "101"]).fails(101, "no network; run 'cargo fetch' first, or use --net host");
    tools.test(&[], &["go"]).fails(1, "run 'go mod download' first");
    tools.test(&[], &["npm"]).fails(1, "run 'npm ci' first");
    let is_silent = |seen: Seen| assert!(!String::from_utf8_lossy(&seen.0.stderr).contains("no network"));
    is_silent(tools.test(&[], &["cargo"]));
    is_silent(tools.test(&["--net", "host"], &["cargo", "101"]));
    tools.file(".cargo/registry/cache/x/a-1.0.0.crate", "");
    tools.file("go/pkg/mod/cache/download/example.org/!m/@v/v1.0.0.zip", "");
    is_silent(tools.test(&[], &["cargo", "101"]));
    is_silent(tools.test(&[], &["go"]));
}

#[test]
fn hint_names_every_hidden_directory_once() {
    need!(has_sandboxes(), "needs user namespaces");
    let tools = Tools::new(&["bin"]);
    tools.script("open/a/tool", "#!HOME/open/b/run\n").link("HOME/open/a/tool", "bin/tool");
    tools.script("open/b/run", "#!/bin/sh\necho runs");
    for name in ["open/a", "open/b"] {
        fs::set_permissions(tools.home(name), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let (a, b) = (tools.home("open/a"), tools.home("open/b"));
    let message = format!("hidden file; show it with '--read {a} --read {b}')");
    tools.test(&[], &["tool"]).fails(127, &message);
    tools.test(&["--read", &a, "--read", &b], &["tool"]).prints("runs\n");
    tools.test(&["--read", &a], &["tool"]).fails(127, &format!("'--read {b}'"));
}

/// Looking for tools takes about a hundred calls, which must not be made again for each test.
#[test]
fn tools_are_looked_for_once_in_a_run() {
    need!(has_sandboxes() && has_rustc(), "needs user namespaces and a compiler");
    need!(cfg!(target_arch = "x86_64"), "knows the call numbers of x86-64 only");
    let tests: String = (0..40).map(|number| format!("#[test] fn t{number}() {{}}\n")).collect();
    let binary = Binary::of(&tests);
    // Notifies of newfstatat(2).
    let filter: &[SockFilter] = &[
        SockFilter { code: 0x20, jt: 0, jf: 0, k: 0 },
        SockFilter { code: 0x15, jt: 0, jf: 1, k: 262 },
        SockFilter { code: 0x06, jt: 0, jf: 0, k: 0x7fc0_0000 },
        SockFilter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 },
    ];
    let lookups = |words: &[&str]| {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&calls);
        let mut command =
            binary.place.command(&["--runner"], &[&[binary.path.to_str().unwrap()], words].concat());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        watched::run(&command, filter, move |call| {
            noted.lock().unwrap().push(call.process);
            Verdict::GoOn
        })
        .succeeds();
        let calls = calls.lock().unwrap();
        // The first calls are husk's own.
        calls.iter().filter(|process| **process == calls[0]).count()
    };
    let (one, all) = (lookups(&["--exact", "t7"]), lookups(&[]));
    assert!(one > 20, "{one}");
    assert!(all < one + 20, "{one} calls for one test, {all} for 40");
}
