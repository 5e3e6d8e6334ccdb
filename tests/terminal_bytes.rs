//! Checks that no byte is lost among many that pass through a terminal. `TERMINAL_BYTES` sets their number and prints
//! the cost. `TERMINALS` sets how many terminals are used at once.

use super::stream::{produce, recognize};
use super::{Foreground, Screen, with_terminal};
use crate::util::{Receiver, Runtime, is_husk, need};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::process::Child;
use std::{env, thread};

fn length() -> u64 {
    env::var("TERMINAL_BYTES").map_or(64 << 20, |bytes| bytes.parse().expect("TERMINAL_BYTES is a number"))
}

/// Prints the CPU time and the waits of a runtime that has ended and is not reaped yet. They reveal needless waits.
fn tell_effort(what: &str, runtime: &Child) {
    if env::var_os("TERMINAL_BYTES").is_none() {
        return;
    }
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(runtime)), options).unwrap();
    let read = |file| fs::read_to_string(format!("/proc/{}/{file}", runtime.id())).unwrap();
    let (stat, status) = (read("stat"), read("status"));
    // utime and stime of proc_pid_stat(5), counted from behind the name, in hundredths of a second.
    let ticks = |field| stat.rsplit(')').next().unwrap().split_whitespace().nth(field).unwrap().to_owned();
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:\t")).unwrap();
    let (user, kernel) = (ticks(11), ticks(12));
    let line =
        format!("{what}: {} bytes, {user} + {kernel} hundredths of a second, {waits} waits\n", length());
    io::stderr().write_all(line.as_bytes()).unwrap();
}

#[test]
fn terminal_in_the_foreground_loses_no_bytes() {
    need!(is_husk(), "runc needs a controlling terminal");
    let runtime = Runtime::under_test();
    let bundle = with_terminal(&format!("tty produce {}", length()));
    let mut run = Foreground::run(&runtime, &bundle);
    assert_eq!(recognize(&mut Screen(&mut run.master)).unwrap(), length());
    tell_effort("from the container", &run.runtime);
    assert!(run.runtime.wait().unwrap().success());

    let bundle = with_terminal(&format!("tty consume {}", length()));
    let mut run = Foreground::run(&runtime, &bundle);
    run.until("ready\n");
    let mut keys = run.master.try_clone().unwrap();
    let typed = thread::spawn(move || produce(&mut keys, length()).unwrap());
    assert_eq!(run.until("the same"), "the same");
    typed.join().unwrap();
    tell_effort("to the container", &run.runtime);
    assert!(run.runtime.wait().unwrap().success());
}

#[test]
fn terminal_on_a_console_socket_loses_no_bytes() {
    let (runtime, receiver) = (Runtime::under_test(), Receiver::new());
    let begin = |words: &str| {
        let bundle = with_terminal(&format!("tty {words} {}", length()));
        runtime.create_with(&bundle, &["--console-socket", &receiver.path()]).succeeds();
        let terminal = receiver.received().0;
        let mut modes = tcgetattr(&terminal).unwrap();
        modes.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &modes).unwrap();
        runtime.call("start", &["c"]).succeeds();
        (File::from(terminal), bundle)
    };
    let (mut terminal, _bundle) = begin("produce");
    assert_eq!(recognize(&mut Screen(&mut terminal)).unwrap(), length());
    runtime.call("delete", &["--force", "c"]).succeeds();

    let (mut terminal, _bundle) = begin("consume");
    let mut said = [0; 6];
    io::Read::read_exact(&mut terminal, &mut said).unwrap();
    assert_eq!(&said, b"ready\n");
    produce(&mut terminal, length()).unwrap();
    assert_eq!(super::read_to_end(&mut terminal), b"the same");
}

#[test]
fn many_terminals_at_once_lose_no_bytes() {
    const LENGTH: u64 = 24_000_000;
    need!(is_husk(), "runc needs a controlling terminal");
    let count = env::var("TERMINALS").map_or(4, |count| count.parse().expect("TERMINALS is a number"));
    let each = || {
        let runtime = Runtime::under_test();
        let bundle = with_terminal(&format!("tty produce {LENGTH}"));
        let mut run = Foreground::run(&runtime, &bundle);
        assert_eq!(recognize(&mut Screen(&mut run.master)).unwrap(), LENGTH);
        assert!(run.runtime.wait().unwrap().success());
        assert!(runtime.is_empty());
    };
    thread::scope(|scope| (0..count).for_each(|_| drop(scope.spawn(each))));
}
