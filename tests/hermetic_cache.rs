//! `test --inputs` and `--cache`: a test with declared inputs sees nothing else of the host, and its result is remembered
//! until something that it can see changes.

use crate::hermetic::{Project, has_sandboxes};
use crate::hermetic_libtest::{Binary, has_rustc};
use crate::util::{Seen, is_root, need};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// The note on a run that was not repeated.
const CACHED: &str = "husk: cached\n";

/// A project with an input, a program and a store.
fn project() -> Project {
    let place = Project::new();
    fs::create_dir(place.path("here/data")).unwrap();
    fs::write(place.path("here/data/a"), "one").unwrap();
    program(&place, "cat data/a");
    place
}

fn program(place: &Project, script: &str) {
    fs::write(place.path("here/check"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(place.path("here/check"), Permissions::from_mode(0o755)).unwrap();
}

/// Returns the command that runs the program of a project, or another one.
fn command(place: &Project, options: &[&str], program: &[&str]) -> Command {
    let store = place.path("store");
    let options = [&["--cache", &store, "--inputs", "data/**", "--explain", "off"], options].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
    command.arg("test").args(options).arg("--").args(program);
    command.current_dir(place.path("here")).env("HOME", place.path("home")).stdin(Stdio::null());
    with_index(&mut command);
    command
}

/// All tests share the digests of the system's files.
pub(crate) fn with_index(command: &mut Command) {
    for variable in ["LLVM_PROFILE_FILE", "GCOV_PREFIX", "GOCOVERDIR", "COVERAGE_FILE"] {
        command.env_remove(variable);
    }
    command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("digests"));
}

fn run(place: &Project, options: &[&str], program: &[&str]) -> Seen {
    Seen(command(place, options, program).output().unwrap())
}

/// Runs the program of a project. Returns whether its result was remembered.
#[track_caller]
fn is_cached(place: &Project, options: &[&str]) -> bool {
    was_cached(&run(place, options, &["./check"]))
}

#[track_caller]
fn was_cached(seen: &Seen) -> bool {
    seen.succeeds();
    String::from_utf8_lossy(&seen.0.stderr).contains(CACHED)
}

#[test]
fn test_that_passed_is_not_run_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    program(&place, "cat data/a; echo warned >&2");
    let first = run(&place, &[], &["./check"]);
    assert!(!was_cached(&first));
    first.prints("one");
    let second = run(&place, &[], &["./check"]);
    assert!(was_cached(&second));
    // Its output is remembered too.
    second.prints("one");
    second.says("warned\n");
    // Without a store, nothing is remembered.
    let place_without = place.test(&["--inputs", "data/**"], &["./check"]);
    assert!(!was_cached(&place_without));
    // A store in a directory among the inputs is not an input.
    let inside = place.path("here/data/store");
    let inside = ["--cache", &inside];
    assert!(!is_cached(&place, &inside));
    assert!(is_cached(&place, &inside));
}

#[test]
fn change_of_anything_that_a_test_sees_runs_it_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    let (here, library) = (place.path("here"), place.path("lib"));
    fs::create_dir(&library).unwrap();
    fs::write(place.path("lib/libx.so.1"), "one").unwrap();
    let file = place.path("here/data/a");
    let times = || {
        let found = fs::metadata(&file).unwrap();
        FileTimes::new().set_modified(found.modified().unwrap())
    };
    let base = |change: &dyn Fn(&mut Command)| {
        let mut command = command(&place, &["--read", "file"], &["./check"]);
        command.env("LD_LIBRARY_PATH", &library);
        change(&mut command);
        Seen(command.output().unwrap())
    };
    let is_cached = || was_cached(&base(&|_| ()));
    assert!(!is_cached());
    assert!(is_cached());

    // Of what the caller passes on, each change makes another key, and the first stays known.
    let in_shell = |script: &str| {
        let mut inner = command(&place, &["--read", "file"], &["./check"]);
        inner.env("LD_LIBRARY_PATH", &library);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{script}; exec \"$@\""), "sh"]).arg(inner.get_program());
        shell.args(inner.get_args()).current_dir(&here).stdin(Stdio::null());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Seen(shell.output().unwrap())
    };
    for (what, seen) in [
        ("argument", run(&place, &["--read", "file"], &["./check", "x"])),
        (
            "variable of the caller",
            base(&|command| {
                command.env("RUST_LOG", "x");
            }),
        ),
        ("variable in an option", run(&place, &["--read", "file", "--env", "A=1"], &["./check"])),
        ("limit", run(&place, &["--read", "file", "--timeout", "77s"], &["./check"])),
        ("network", run(&place, &["--read", "file", "--net", "none"], &["./check"])),
        ("path", run(&place, &["--read", "file"], &[&format!("{here}/check")])),
        ("fewer inputs", run(&place, &[], &["./check"])),
        ("inherited limit", in_shell("ulimit -n 77")),
        ("ignored signal", in_shell("trap '' USR1")),
    ] {
        assert!(!was_cached(&seen), "{what}");
        assert!(is_cached(), "{what}");
    }

    // Of files, each change makes another key until it is undone.
    type Act<'a> = &'a dyn Fn();
    let changes: [(&str, Act<'_>, Act<'_>); 8] = [
        (
            "content with the same size and time",
            &|| {
                let times = times();
                fs::write(&file, "two").unwrap();
                File::options().write(true).open(&file).unwrap().set_times(times).unwrap();
            },
            &|| fs::write(&file, "one").unwrap(),
        ),
        ("permission", &|| fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap(), &|| {
            fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap()
        }),
        ("new file", &|| fs::write(place.path("here/data/b"), "").unwrap(), &|| {
            fs::remove_file(place.path("here/data/b")).unwrap()
        }),
        ("new empty directory", &|| fs::create_dir(place.path("here/data/b")).unwrap(), &|| {
            fs::remove_dir(place.path("here/data/b")).unwrap()
        }),
        ("symlink that leads nowhere", &|| symlink("none", place.path("here/data/b")).unwrap(), &|| {
            fs::remove_file(place.path("here/data/b")).unwrap()
        }),
        ("library", &|| fs::write(place.path("lib/libx.so.1"), "two").unwrap(), &|| {
            fs::write(place.path("lib/libx.so.1"), "one").unwrap()
        }),
        ("path of --read", &|| fs::write(place.path("here/file"), "changed").unwrap(), &|| {
            fs::write(place.path("here/file"), "file").unwrap()
        }),
        ("program", &|| program(&place, "true"), &|| program(&place, "cat data/a")),
    ];
    for (what, change, undo) in changes {
        change();
        assert!(!is_cached(), "{what}");
        undo();
        assert!(is_cached(), "{what}, undone");
    }
    // The target of a symlink is its content.
    symlink("a", place.path("here/data/link")).unwrap();
    assert!(!is_cached());
    fs::remove_file(place.path("here/data/link")).unwrap();
    symlink("b", place.path("here/data/link")).unwrap();
    assert!(!is_cached());
    // Another working directory.
    let elsewhere = base(&|command| {
        command.current_dir(place.path("home"));
    });
    elsewhere.fails(125, "find file");
}

#[test]
fn change_of_anything_else_does_not_run_a_test_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    program(&place, "cat data/a; echo $NEXTEST_RUN_ID");
    assert!(!is_cached(&place, &[]));
    fs::write(place.path("here/file"), "changed").unwrap();
    fs::write(place.path("here/new"), "").unwrap();
    fs::write(place.path("home/secret"), "changed").unwrap();
    fs::remove_file(place.path("here/data/a")).unwrap();
    fs::write(place.path("here/data/a"), "one").unwrap();
    let mut again = command(&place, &[], &["./check"]);
    again.env("EDITOR", "x").env("TZ", "Asia/Tokyo").env("NEXTEST_RUN_ID", "x");
    again.stdin(File::open("/dev/zero").unwrap());
    assert!(was_cached(&Seen(again.output().unwrap())));
}

#[test]
fn undeclared_files_do_not_exist() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    symlink(place.path("here/file"), place.path("here/data/out")).unwrap();
    let here = place.path("here");
    let paths = [
        "file",
        "data/../file",
        "data/out",
        &format!("{here}/file"),
        &place.path("home/secret"),
        "/proc/self/cwd/file",
        &format!("/proc/self/root{here}/file"),
        &format!("/proc/1/root{here}/file"),
        "/proc/1/cwd/file",
        "/etc/machine-id",
        "/etc/hostname",
        "/etc/resolv.conf",
        "/etc/shadow",
        "/sys/kernel",
        "/sys/class/net/lo",
        "/usr/local/bin",
        "/var/lib",
        "/opt",
        "/root/.bashrc",
        env!("CARGO_BIN_EXE_husk"),
    ];
    let script =
        "for path; do test -e \"$path\" && echo \"$path\"; done; ls; cat; cat <&7 2>&1 | head -c 0; true";
    let words = [&["sh", "-c", script, "sh"], &paths[..]].concat();
    let mut inner = command(&place, &[], &words);
    inner.stdin(File::open(place.path("home/secret")).unwrap());
    Seen(inner.output().unwrap()).prints("data");
    // Neither does a descriptor of the caller lead out.
    let mut shell = Command::new("sh");
    let descriptors = command(&place, &[], &["sh", "-c", "ls -l /proc/self/fd; ls /proc/1/fd"]);
    let secret = place.path("home/secret");
    shell.args(["-c", &format!("exec 7< {secret} 8< /; exec \"$@\""), "sh"]).arg(descriptors.get_program());
    shell.args(descriptors.get_args()).current_dir(&here).env("HOME", place.path("home"));
    with_index(&mut shell);
    let seen = Seen(shell.output().unwrap());
    let text = String::from_utf8_lossy(&seen.0.stdout).into_owned();
    assert!(!text.contains("secret") && !text.contains(" 7 ") && !text.contains(" 8 "), "{text}");
    // The files that are there cannot be written to.
    let script = "for path in data data/a / /etc /usr/bin /etc/hosts; do touch $path/x 2> /dev/null && echo $path; \
                  done; echo >> data/a 2> /dev/null; cat data/a; touch /tmp/own ~/x /dev/shm/x";
    run(&place, &[], &["sh", "-c", script]).prints("one");
}

#[test]
fn programs_of_the_system_work_with_inputs_alone() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    let script = "id -un > /dev/null; getent hosts localhost | head -n 1; awk 'BEGIN { print \"awk\" }'; date +%Z; \
                  pwd; ls -d ~; echo x > /tmp/own; cat /tmp/own; test -c /dev/null && cat /proc/self/comm";
    let seen = run(&place, &[], &["sh", "-c", script]).succeeds();
    for wanted in ["localhost", "awk", "UTC", &place.path("here"), &place.path("home"), "x", "cat"] {
        assert!(seen.contains(wanted), "{seen}");
    }
    // Symlinks on the way to the program and to an input are there too.
    symlink("here", place.path("to")).unwrap();
    let (program, input) = (place.path("to/check"), place.path("to/data"));
    let seen = place.test(&["--inputs", &input], &[&program]);
    seen.prints("one");
}

#[test]
fn run_that_is_no_clear_pass_is_not_remembered() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    for (script, code) in [("exit 3", 3), ("kill -TERM $$", -1), ("sleep 1000 & exit 0", 0)] {
        for _ in 0..2 {
            let seen = run(&place, &[], &["sh", "-c", script]);
            assert_eq!(seen.0.status.code().unwrap_or(-1), code, "{script}");
            assert!(!String::from_utf8_lossy(&seen.0.stderr).contains(CACHED), "{script}");
        }
    }
    // A flaky program, sooner or later.
    let script = "test $(od -An -N1 -tu1 /dev/urandom) -ge 128";
    let flaky = (0..)
        .map(|number| ["sh", "-c", script, "sh"].map(str::to_owned).into_iter().chain([format!("{number}")]));
    for words in flaky.map(Iterator::collect::<Vec<_>>) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let attempt = || String::from_utf8(run(&place, &["--retries", "20"], &words).0.stderr).unwrap();
        if attempt().contains("flaky: passed at attempt") {
            assert!(!attempt().contains(CACHED));
            break;
        }
    }
    // More output than an entry holds.
    let large = ["sh", "-c", "head -c 2000000 /dev/zero"];
    assert!(!was_cached(&run(&place, &[], &large)));
    assert!(!was_cached(&run(&place, &[], &large)));
}

#[test]
fn option_that_shows_more_prevents_remembering_and_says_why() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    fs::create_dir(place.path("kept")).unwrap();
    let socket = place.path("here/data/socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let (data, store) = (place.path("here/data"), place.path("store"));
    for (options, why) in [
        (&["--net", "host"] as &[&str], "--net host shows the machine's network"),
        (&["--nested"], "--nested allows mounts that show more of the machine"),
        (&["--write", &data], "data is writable"),
        (&["--overlay", &data], "data is shown with everything in it"),
        (&["--keep", &place.path("kept/new")], "--keep needs the files of a run"),
        (&["--read", &socket], "socket is not a file or directory"),
        (&["--env", "COVERAGE_FILE=/tmp/own"], "COVERAGE_FILE is set"),
    ] {
        for _ in 0..2 {
            let seen = run(&place, options, &["./check"]);
            seen.says("not cached: ");
            seen.says(why);
            assert!(!was_cached(&seen), "{why}");
        }
    }
    // The options do what they do without inputs.
    let write = ["sh", "-c", "echo two > data/a; cat data/a; test ! -e file"];
    run(&place, &["--overlay", &data], &write).prints("two");
    assert_eq!(fs::read_to_string(place.path("here/data/a")).unwrap(), "one");
    run(&place, &["--write", &data], &write).prints("two");
    assert_eq!(fs::read_to_string(place.path("here/data/a")).unwrap(), "two\n");
    run(&place, &["--hide", &data], &["sh", "-c", "ls data 2> /dev/null; true"]).prints("");
    let seen = place.test(&["--cache", &store], &["true"]);
    seen.says("not cached: no inputs are declared (--inputs)");
    run(&place, &["--write", &store], &["./check"]).fails(125, "where a test could change it");
}

#[test]
fn input_that_changes_during_a_run_prevents_remembering() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    let marker = format!("marker-{}", std::process::id());
    let script = format!(": {marker}; until grep -q go data/a; do :; done");
    let child = command(&place, &[], &["sh", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
    // The program runs as soon as a process has its arguments and not those of husk.
    let is_program = |entry: fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&words).into_owned();
        text.starts_with("sh\0") && text.contains(&marker)
    };
    while !fs::read_dir("/proc").unwrap().flatten().any(is_program) {
        std::thread::yield_now();
    }
    fs::write(place.path("here/data/a"), "go").unwrap();
    let seen = Seen(child.wait_with_output().unwrap());
    seen.succeeds();
    seen.says("here/data/a changed during the run");
    // Neither for the old content nor for the new.
    assert!(!was_cached(&run(&place, &[], &["sh", "-c", &script])));
    assert!(was_cached(&run(&place, &[], &["sh", "-c", &script])));
}

/// Returns the id of the process with these words, once it waits for SIGUSR1.
fn listening(marker: &str) -> i32 {
    let is_listening = |pid: &i32| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let words = String::from_utf8_lossy(&read("cmdline")).into_owned();
        let status = String::from_utf8_lossy(&read("status")).into_owned();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap_or("0");
        let caught = u64::from_str_radix(caught, 16).unwrap();
        words.starts_with("sh\0") && words.contains(marker) && caught & 1 << 9 != 0
    };
    loop {
        let pids = fs::read_dir("/proc").unwrap().flatten();
        let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        if let Some(pid) = pids.find(is_listening) {
            return pid;
        }
        std::thread::yield_now();
    }
}

#[test]
fn input_that_is_replaced_and_put_back_prevents_remembering() {
    need!(has_sandboxes(), "needs user namespaces");
    for (name, copy) in [("here/data", "here/copy"), ("here/data/a", "here/data/copy")] {
        let place = project();
        let marker = format!("marker-{}-{}", std::process::id(), name.len());
        let script = format!(": {marker}; trap 'exit 0' USR1; while :; do :; done");
        let child = command(&place, &[], &["sh", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
        let program = listening(&marker);
        let (path, away) = (place.path(name), place.path("away"));
        Seen(Command::new("cp").args(["-r", &path, &place.path(copy)]).output().unwrap()).succeeds();
        fs::rename(&path, &away).unwrap();
        fs::rename(place.path(copy), &path).unwrap();
        fs::rename(&path, place.path(copy)).unwrap();
        fs::rename(&away, &path).unwrap();
        kill_process(Pid::from_raw(program).unwrap(), Signal::USR1).unwrap();
        let seen = Seen(child.wait_with_output().unwrap());
        seen.succeeds();
        seen.says("changed during the run");
        assert!(!Path::new(&place.path("store/v1")).read_dir().unwrap().any(|_| true));
    }
}

#[test]
fn full_disk_costs_only_the_memory_of_a_result() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root to mount a small file system");
    let place = project();
    program(&place, "head -c 100000 /dev/zero | tr '\\0' x; echo");
    let store = place.path("store");
    fs::create_dir(&store).unwrap();
    let words = command(&place, &[], &["./check"]);
    let words: Vec<_> = words.get_args().map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let run = format!("{} {}", env!("CARGO_BIN_EXE_husk"), words.join(" "));
    let inner = format!(
        "mount -t tmpfs -o size=64k,mode=755 none {store}; {run} > /dev/null; echo $?; \
         find {store} -type f | wc -l; mount -o remount,size=1m {store}; {run} > /dev/null; {run} > /dev/null"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &inner]).current_dir(place.path("here")).env("HOME", place.path("home"));
    with_index(&mut command);
    let seen = Seen(command.output().unwrap());
    seen.prints("0\n0\n");
    seen.says("not cached: No space left on device");
    seen.says(CACHED.trim_end());
}

#[test]
fn comparison_finds_a_result_that_depends_on_more_than_the_inputs() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    // The times of files are not part of the key.
    program(&place, "test data/a -nt data/b");
    let (a, b) = (place.path("here/data/a"), place.path("here/data/b"));
    fs::write(&b, "").unwrap();
    let age = |path: &str, seconds| {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    age(&b, 500);
    assert!(!is_cached(&place, &[]));
    assert!(!is_cached(&place, &["--cache-verify"]));
    age(&a, 1000);
    assert!(is_cached(&place, &[]));
    let contradicted = "cached as passed; the result depends on more than the inputs";
    run(&place, &["--cache-verify"], &["./check"]).fails(1, contradicted);
    // The wrong result is forgotten.
    assert!(!run(&place, &[], &["./check"]).0.status.success());
}

#[test]
fn store_that_cannot_be_trusted_or_used_is_refused_or_ignored() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = project();
    let store = place.path("store");
    fs::write(&store, "").unwrap();
    run(&place, &[], &["./check"]).fails(125, "open the cache");
    fs::remove_file(&store).unwrap();
    fs::create_dir(&store).unwrap();
    fs::set_permissions(&store, Permissions::from_mode(0o777)).unwrap();
    run(&place, &[], &["./check"]).fails(125, "is writable by all users");
    fs::set_permissions(&store, Permissions::from_mode(0o755)).unwrap();
    assert!(!is_cached(&place, &[]));
    assert!(is_cached(&place, &[]));
    let version = fs::read_dir(format!("{store}/v1")).unwrap();
    let entries = version.flat_map(|directory| fs::read_dir(directory.unwrap().path()).unwrap());
    let entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1);
    fs::write(&entries[0], "husk-cache 1\n").unwrap();
    assert!(!is_cached(&place, &[]));
    assert!(is_cached(&place, &[]));
}

/// Tests of which one fails and one is ignored.
const TESTS: &str = r#"
#[test] fn one() { println!("heard") }
#[test] #[should_panic] fn two() { panic!("on purpose") }
#[test] fn reads() { std::fs::read_to_string("data/a").unwrap(); }
#[test] fn fails() { std::fs::read_to_string("file").unwrap(); }
#[test] #[ignore = "later"] fn three() {}
"#;

fn binary() -> Binary {
    let binary = Binary::of(TESTS);
    fs::create_dir(binary.place.path("here/data")).unwrap();
    fs::write(binary.place.path("here/data/a"), "one").unwrap();
    binary
}

fn tests(binary: &Binary, options: &[&str]) -> String {
    let store = binary.place.path("store");
    let options = [&["--runner", "--cache", &store, "--explain", "off"], options].concat();
    let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
    command.arg("test").args(options).arg("--").arg(&binary.path).current_dir(binary.place.path("here"));
    command.env("HOME", binary.place.path("home")).env_remove("CARGO_PKG_NAME").stdin(Stdio::null());
    command.env("CARGO_MANIFEST_DIR", binary.place.path("here"));
    with_index(&mut command);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(101), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

#[test]
fn remembered_tests_of_a_binary_are_said_to_be_cached_in_every_output() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let binary = binary();
    let report = |name: &str| binary.place.path(name);
    let (json, junit, html) = (report("lines"), report("junit.xml"), report("page.html"));
    let inputs = ["--inputs", "data/**"];
    let first = tests(&binary, &inputs);
    assert!(!first.contains("cached") && first.contains("3 passed; 1 failed; 1 ignored"), "{first}");
    let options = [&inputs[..], &["--json", &json, "--junit", &junit, "--html", &html]].concat();
    let second = tests(&binary, &options);
    for line in [
        "test one ... ok (cached)\n",
        "test two - should panic ... ok (cached)\n",
        "test reads ... ok (cached)\n",
        "test fails ... FAILED\n",
        "test three ... ignored, later\n",
        "3 passed; 1 failed; 1 ignored",
        "husk: 3 of 3 passed tests were cached, and not run\n",
    ] {
        assert!(second.contains(line), "{line}: {second}");
    }
    let lines = fs::read_to_string(&json).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut cached: Vec<_> = lines
        .filter(|line| line["cached"] == true)
        .map(|line| (line["test"].as_str().unwrap().to_owned(), line["verdict"].clone()))
        .collect();
    cached.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(cached, ["one", "reads", "two"].map(|name| (name.to_owned(), "passed".into())));
    let text = fs::read_to_string(&junit).unwrap();
    assert_eq!(text.matches("<property name=\"husk.cached\" value=\"true\"/>").count(), 3, "{text}");
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("<h2>Cached</h2>"), "{page}");
    // A comparison runs everything.
    let compared = tests(&binary, &[&inputs[..], &["--cache-verify"]].concat());
    assert!(!compared.contains("cached"), "{compared}");
    // Another input.
    fs::write(binary.place.path("here/data/a"), "two").unwrap();
    assert!(!tests(&binary, &inputs).contains("cached"));
}

#[test]
fn only_tests_whose_inputs_a_settings_file_declares_are_remembered() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let binary = binary();
    let settings = "[[override]]\ntest = [\"t*\", \"reads\"]\ninputs = [\"here/data/**\"]\n";
    fs::write(binary.place.path("husk.toml"), settings).unwrap();
    let first = tests_that_pass(&binary);
    assert!(first.contains("4 passed") && !first.contains("(cached)"), "{first}");
    let second = tests_that_pass(&binary);
    assert!(second.contains("not cached: no inputs are declared"), "{second}");
    assert!(second.contains("test one ... ok\n") && second.contains("test fails ... ok\n"), "{second}");
    assert!(second.contains("reads ... ok (cached)") && second.contains("panic ... ok (cached)"), "{second}");
    let refused = "[[override]]\ntest = \"*\"\ncache = \"store\"\n";
    fs::write(binary.place.path("husk.toml"), refused).unwrap();
    binary.place.sh(&[], "true").fails(125, "cache applies to all tests");
}

/// Runs the binary, all of whose tests pass if they see the whole project.
fn tests_that_pass(binary: &Binary) -> String {
    let store = binary.place.path("store");
    let output = binary.with_husk(&["--cache", &store], &[]);
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}
