//! Colours and the pager, for those who read husk's output on a terminal.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::process::Stdio;

/// Runs husk on a terminal with this many rows, and returns what it shows.
fn on_terminal(runtime: &Runtime, rows: u16, words: &[&str], variables: &[(&str, &str)]) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: rows, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let end = File::options().read(true).write(true).open(path).unwrap();
    let stream = || Stdio::from(end.as_fd().try_clone_to_owned().unwrap());
    let mut command = runtime.command(words[0]);
    command.args(&words[1..]);
    command.env_remove("PAGER").env_remove("NO_COLOR").env("TERM", "xterm").envs(variables.iter().copied());
    let mut child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
    drop((command, end));
    let (mut terminal, mut seen) = (File::from(terminal), Vec::new());
    let mut bytes = [0; 4096];
    // Fails with EIO when nobody has the other end open.
    while let Ok(count @ 1..) = terminal.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..count]);
    }
    child.wait().unwrap();
    String::from_utf8(seen).unwrap().replace('\r', "")
}

#[test]
fn plan_is_coloured_and_paged_on_a_terminal_only() {
    need!(is_husk(), "runc has no plan");
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let plan = ["plan", bundle.path().to_str().unwrap()];
    let plain = Runtime::under_test().typed(&plan).succeeds();
    assert!(!plain.contains('\x1b') && plain.lines().count() > 30, "{plain}");
    // On a terminal that is high enough, nothing else is started.
    let long = on_terminal(&Runtime::under_test(), 1000, &plan, &[("PAGER", "sed s/^/paged:/")]);
    assert!(long.contains("\x1b[36m") && !long.contains("paged:"), "{long}");
    let uncoloured: String =
        ["\x1b[36m", "\x1b[90m", "\x1b[0m"].iter().fold(long, |text, code| text.replace(code, ""));
    assert_eq!(uncoloured.trim_end(), plain.trim_end());
    let paged =
        on_terminal(&Runtime::under_test(), 24, &plan, &[("PAGER", "sed s/^/paged:/"), ("NO_COLOR", "1")]);
    let expected: String = plain.lines().map(|line| format!("paged:{line}\n")).collect();
    assert_eq!(paged, expected);
}

#[test]
fn unusual_pagers_lose_no_line() {
    need!(is_husk(), "runc has no plan");
    let bundle = Bundle::running("exit 0");
    bundle.write();
    let plan = ["plan", bundle.path().to_str().unwrap()];
    let plain = Runtime::under_test().typed(&plan).succeeds();
    for variables in [
        &[("PAGER", "")] as &[(&str, &str)],
        &[("PAGER", "cat")],
        // Without less, husk prints directly.
        &[("PATH", "/nonexistent")],
    ] {
        let seen = on_terminal(&Runtime::under_test(), 24, &plan, &[&[("TERM", "dumb")], variables].concat());
        assert_eq!(seen.trim_end(), plain.trim_end(), "{variables:?}");
    }
    // A pager that leaves early.
    let seen = on_terminal(&Runtime::under_test(), 24, &plan, &[("PAGER", "head -n 1"), ("TERM", "dumb")]);
    assert_eq!(seen.trim_end(), plain.lines().next().unwrap().trim_end());
}

#[test]
fn statistics_are_words_on_a_terminal_and_json_elsewhere() {
    need!(is_husk(), "runc always prints JSON");
    need!(is_root(), "needs a cgroup");
    let bundle = Bundle::running("wait");
    let runtime = Runtime::started(&bundle);
    let words = on_terminal(&runtime, 24, &["events", "--stats", "c"], &[]);
    assert!(words.contains("\nprocesses  1") && words.contains("\nmemory     "), "{words}");
    assert_eq!(
        runtime.call("events", &["--stats", "--format", "text", "c"]).succeeds().lines().count(),
        words.lines().count()
    );
    let json = on_terminal(&runtime, 24, &["events", "--stats", "--format", "json", "c"], &[]);
    for text in [json, runtime.call("events", &["--stats", "c"]).succeeds()] {
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["data"]["pids"]["current"], 1, "{text}");
    }
}
