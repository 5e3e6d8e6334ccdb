//! `test --explain`: each hint is followed literally, and works.

use crate::hermetic::{Project, has_sandboxes};
use crate::hermetic_libtest::{Binary, has_rustc};
use crate::hostile::watched::{self, Verdict};
use crate::util::{Seen, is_root, need};
use husk_spawn::sys::process::SockFilter;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the lines of husk's about a program.
fn hints(seen: &Seen) -> Vec<String> {
    let said = String::from_utf8(seen.0.stderr.clone()).unwrap();
    said.lines().filter_map(|line| line.strip_prefix("husk: ")).map(str::to_owned).collect()
}

/// Returns the first option between quotes in a hint that contains this text.
fn quoted_option(hints: &[String], text: &str) -> String {
    let hint = hints.iter().find(|hint| hint.contains(text)).unwrap_or_else(|| panic!("{hints:?}"));
    hint.split('\'').nth(1).unwrap_or_else(|| panic!("{hint}")).to_owned()
}

/// Runs a script with this option, as typed in a shell.
fn follow(place: &Project, option: &str, script: &str, variables: &[(&str, &str)]) -> Seen {
    let husk = place.command(&[], &["sh", "-c", script]);
    let words = husk.get_args().map(|word| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''")));
    let words: Vec<_> = words.collect();
    let line = format!("exec {} test {option} {}", env!("CARGO_BIN_EXE_husk"), words[1..].join(" "));
    let mut shell = Command::new("bash");
    shell.args(["-c", &line]).envs(husk.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.envs(variables.iter().copied()).current_dir(husk.get_current_dir().unwrap());
    Seen(shell.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn hidden_file_is_explained_and_the_hint_works() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::write(place.path("home/x"), "found").unwrap();
    let script = "cat ~/x";
    let hints = hints(&place.sh(&[], script));
    let x = place.path("home/x");
    let golden =
        [format!("passes with: husk test --read {x}"), format!("{x} is hidden; show it with '--read {x}'")];
    assert_eq!(hints, golden);
    follow(&place, &quoted_option(&hints, "is hidden"), script, &[]).prints("found");
    follow(&place, hints[0].split_once("husk test ").unwrap().1, script, &[]).prints("found");
}

#[test]
fn refused_write_is_explained_and_the_hint_works() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let (here, script) =
        (place.path("here"), "mkdir made && echo x > made/a && echo x > made/b && cat made/b");
    let hints = hints(&place.sh(&[], script));
    let golden = [
        format!("passes with: husk test --overlay {here}"),
        format!(
            "cannot write to {here}/made; allow it with '--overlay {here}', or keep the changes with \
             '--write {here}'"
        ),
    ];
    assert_eq!(hints, golden);
    follow(&place, &quoted_option(&hints, "cannot write"), script, &[]).prints("x");
    assert!(!fs::exists(place.path("here/made")).unwrap());
    let write = hints[1].split('\'').nth(3).unwrap();
    follow(&place, write, script, &[]).prints("x");
    assert!(fs::exists(place.path("here/made/b")).unwrap());
}

#[test]
fn removed_variable_in_the_output_is_explained_and_the_hint_works() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let script = "echo CITY=$CITY; test -n \"$CITY\"";
    let mut command = place.command(&[], &["sh", "-c", script]);
    let hints = hints(&Seen(command.env("CITY", "Ulm").output().unwrap()));
    let golden = [
        "passes with: husk test -e CITY",
        "the output mentions CITY, which is not passed on; pass it with '-e CITY'",
    ];
    assert_eq!(hints, golden);
    follow(&place, &quoted_option(&hints, "mentions CITY"), script, &[("CITY", "Ulm")]).prints("CITY=Ulm");
}

#[test]
fn unreachable_network_is_explained_and_the_hint_works() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    // Sends nothing: it only selects the address that this machine would use.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).map(|own| own.ip());
    need!(own.as_ref().is_ok_and(|own| !own.is_loopback()), "needs a network");
    let listener = TcpListener::bind((own.unwrap(), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let script = format!("exec 3<>/dev/tcp/{}/{}", address.ip(), address.port());
    let seen = place.test(&[], &["bash", "-c", &script]);
    let hints = hints(&seen);
    assert_eq!(hints, [format!("cannot reach {address}; allow it with '--net host'")]);
    let script = format!("exec bash -c '{script}'");
    follow(&place, &quoted_option(&hints, "cannot reach"), &script, &[]).succeeds();
}

/// A message carries its address in a structure of its own.
#[test]
fn address_of_a_message_is_explained() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(Command::new("/usr/bin/python3").arg("-V").output().is_ok(), "needs Python");
    let place = Project::new();
    let script = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
                  s.sendmsg([b'x'], [], 0, ('192.0.2.1', 9))";
    let hints = hints(&place.test(&[], &["/usr/bin/python3", "-I", "-c", script]));
    assert_eq!(hints, ["cannot reach 192.0.2.1:9; allow it with '--net host'"]);
}

#[test]
fn service_of_the_host_is_explained_and_the_hint_works() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script = format!("exec bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}'", address.port());
    let hints = hints(&place.sh(&[], &script));
    assert_eq!(hints, [format!("cannot reach {address}; allow it with '--net host'")]);
    follow(&place, &quoted_option(&hints, "cannot reach"), &script, &[]).succeeds();
    drop(listener);
    let seen = place.sh(&[], &script);
    assert!(!String::from_utf8(seen.0.stderr).unwrap().contains("--net host"));
}

#[test]
fn name_lookup_is_explained() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let seen = place.sh(&[], "bash -c 'exec 3<>/dev/udp/192.0.2.53/53'; cat /etc/resolv.conf; exit 1");
    assert_eq!(hints(&seen), ["cannot look up names of machines; allow it with '--net host'"]);
}

#[test]
fn reached_limit_is_explained_and_the_hint_works() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    for (option, script, hint) in [
        (
            ["--disk", "64k"],
            "head -c 100000 /dev/zero > /tmp/own",
            "the private directories are full; raise the limit with '--disk 128k'",
        ),
        (
            ["--file-size", "4k"],
            "exec head -c 6000 /dev/zero > /tmp/own",
            "file size limit of 4096 bytes reached; raise it with '--file-size 8k'",
        ),
        (
            ["--files", "7"],
            "exec 3<file 4<file 5<file 6<file 7<file",
            "too many open files; raise the limit with '--files 14'",
        ),
        (
            ["--pids", "700"],
            // Without a cgroup, root may have this number and the first 300.
            "exec perl -e 'for (1..1100) { my $child = fork; defined $child or die; $child or sleep 1000 }'",
            "too many processes and threads; raise the limit with '--pids 1400'",
        ),
    ] {
        let hints = hints(&place.sh(&option, script));
        assert!(hints.iter().any(|line| line == hint), "{hints:?}");
        follow(&place, &quoted_option(&hints, "raise"), script, &[]).succeeds();
    }
}

#[test]
fn nested_mount_is_explained_and_the_hint_works() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let script = "unshare -rm mount -t tmpfs none /mnt";
    need!(place.sh(&["--nested"], script).0.status.success(), "needs nested user namespaces");
    let hints = hints(&place.sh(&[], script));
    let denied = match is_root() {
        true => "root cannot be root of another user namespace",
        false => "the system call mount is refused",
    };
    assert_eq!(hints, [format!("{denied}; allow it with '--nested'")]);
    follow(&place, &quoted_option(&hints, denied), script, &[]).succeeds();
}

#[test]
fn harmless_misses_are_not_explained() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::create_dir(place.path("home/bin")).unwrap();
    fs::write(place.path("home/bin/cat"), "").unwrap();
    let script = "cat /no/such ~/neither /run/systemd/no; getent passwd nobody; : > ~/own; exit 1";
    let mut command = place.command(&[], &["sh", "-c", script]);
    let path = format!("{}:/usr/bin:/bin", place.path("home/bin"));
    let seen = Seen(command.env("PATH", path).output().unwrap());
    assert_eq!(hints(&seen), <[&str; 0]>::default());
}

#[test]
fn explanation_can_be_turned_off_or_on() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::write(place.path("home/x"), "found").unwrap();
    let script = "cat ~/x";
    assert_eq!(hints(&place.sh(&["--explain", "off"], script)), <[&str; 0]>::default());
    fs::write(place.path("here/husk.toml"), "explain = \"off\"").unwrap();
    let said = hints(&place.sh(&[], script));
    assert!(said.iter().all(|line| line.starts_with("options from ")), "{said:?}");
    let script = "cat ~/x; true";
    assert!(!hints(&place.sh(&["--explain", "auto"], script)).iter().any(|line| line.contains("hidden")));
    let always = place.sh(&["--explain", "always"], script);
    always.succeeds();
    assert!(hints(&always).iter().any(|line| line.contains("is hidden")));
}

/// A second run would not get the signal, and would wait for it.
#[test]
fn program_that_was_signalled_is_not_run_again() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let left = place.path("here/left");
    fs::write(&left, "").unwrap();
    let script = "echo x >> left; trap 'exit 5' USR1; echo begun; while :; do sleep 0.01; done";
    let mut command = place.command(&["--write", &left], &["sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(fs::read_to_string(&left).unwrap(), "x\n");
}

/// The program decides what is suggested, so it could ask for a secret.
#[test]
fn secret_is_named_but_not_shown_for_a_trial() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let (secret, left) = (place.path("home/secret"), place.path("here/left"));
    fs::write(&left, "").unwrap();
    let script = "cat ~/secret >> left";
    let hints = hints(&place.sh(&["--write", &left], script));
    assert_eq!(hints, [format!("{secret} is hidden; show it with '--read {secret}'")]);
    assert_eq!(fs::read_to_string(&left).unwrap(), "");
}

/// A FIFO, control characters in a name, processes that end while their calls are looked at, and more calls than are
/// kept.
#[test]
fn hostile_program_neither_stops_nor_fools_the_observer() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::create_dir(place.path("home/\u{1b}[2J")).unwrap();
    let fifo = place.path("home/fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let script = "cat ~/fifo ~/$(printf '\\033[2J'); i=0; while [ $i -lt 300 ]; do (exec 3<~/no$i) & i=$((i+1)); \
                  done; for p in 1 2 3 4; do (i=0; while [ $i -lt 3000 ]; do [ -e ~/$p$i ]; i=$((i+1)); done) & done; \
                  wait; exit 1";
    let seen = place.sh(&[], script);
    let said = String::from_utf8(seen.0.stderr.clone()).unwrap();
    let own: Vec<_> = said.lines().filter(|line| line.starts_with("husk: ")).collect();
    assert!(own.iter().any(|line| line.contains(&fifo)), "{own:?}");
    assert!(own.iter().any(|line| line.contains("\\x1b[2J")), "{own:?}");
    assert!(own.iter().all(|line| !line.contains('\u{1b}')), "{own:?}");
    // With a FIFO, the program could talk to another one.
    assert!(own.iter().all(|line| !line.contains("passes with")), "{own:?}");
}

/// A process can have only one listener.
#[test]
fn program_that_is_observed_already_is_not_explained() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let command = place.command(&[], &["sh", "-c", "exit 3"]);
    let filter: &[SockFilter] = &[SockFilter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 }];
    let seen = watched::run(&command, filter, |_| Verdict::GoOn);
    assert_eq!(seen.0.status.code(), Some(3));
    assert_eq!(hints(&seen), ["cannot explain the failure: another program already observes this one"]);
}

const TESTS: &str = r#"
#[test] fn passes() {}
#[test] fn reads() { std::fs::read(std::env::var("CARGO_READ").unwrap()).unwrap(); }
#[test] fn fails_once() {
    let path = std::env::var("CARGO_LEFT").unwrap();
    if std::fs::read(&path).unwrap().is_empty() { std::fs::write(&path, "x").unwrap(); panic!("once") }
}
"#;

#[test]
fn runner_explains_each_failed_test() {
    need!(has_sandboxes() && has_rustc(), "needs user namespaces and a compiler");
    let Binary { place, path } = Binary::of(TESTS);
    let (x, left, json, junit) =
        (place.path("home/x"), place.path("here/left"), place.path("json"), place.path("junit"));
    fs::write(&x, "found").unwrap();
    fs::write(&left, "").unwrap();
    let options = ["--runner", "--write", &left, "--json", &json, "--junit", &junit];
    let mut command = place.command(&options, &[path.to_str().unwrap()]);
    let seen = command.env("CARGO_READ", &x).env("CARGO_LEFT", &left).output().unwrap();
    assert_eq!(seen.status.code(), Some(101));
    let said = String::from_utf8(seen.stdout).unwrap();
    let hints =
        [format!("passes with: husk test --read {x}"), format!("{x} is hidden; show it with '--read {x}'")];
    let lines: Vec<_> = hints.iter().map(|hint| format!("husk: {hint}\n")).collect();
    assert!(said.contains(&lines.concat()), "{said}");
    assert!(said.contains("FAILED (flaky: passed when it was run again to explain its failure)"), "{said}");
    assert!(said.contains("\nflaky:\n    fails_once\n"), "{said}");
    assert!(said.contains("1 passed; 2 failed"), "{said}");
    let results = fs::read_to_string(&json).unwrap();
    let results = results.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    for result in results {
        let denied = serde_json::json!([{ "what": "hidden", "path": x, "option": format!("--read {x}") }]);
        let (verdict, denied, passes, is_flaky) = match result["test"].as_str().unwrap() {
            "passes" => ("passed", serde_json::Value::Null, None, false),
            "reads" => ("failed", denied, Some(format!("--read {x}")), false),
            _ => ("failed", serde_json::json!([]), None, true),
        };
        assert_eq!(result["verdict"], verdict, "{result}");
        assert_eq!(result["denied"], denied, "{result}");
        assert_eq!(result["passes_with"].as_str(), passes.as_deref(), "{result}");
        assert_eq!(result["flaky_when_observed"], is_flaky, "{result}");
    }
    let document = fs::read_to_string(&junit).unwrap();
    let escaped = lines.concat().replace('\'', "&apos;");
    assert!(document.contains(&escaped) || document.contains(&lines.concat()), "{document}");
    assert!(follow_runner(&place, &path, &x, &left, &hints[1]));
}

/// Runs the failed test with the option that its hint names.
fn follow_runner(place: &Project, binary: &Path, x: &str, left: &str, hint: &str) -> bool {
    let option = hint.split('\'').nth(1).unwrap();
    let options: Vec<_> = ["--runner", "--write", left].into_iter().chain(option.split(' ')).collect();
    let mut command = place.command(&options, &[binary.to_str().unwrap(), "reads"]);
    command.env("CARGO_READ", x).output().unwrap().status.success()
}
