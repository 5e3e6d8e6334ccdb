//! `test` at a terminal. The test owns the terminal, as a terminal emulator does, and types into a shell with job
//! control.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::need;
use rustix::io::{Errno, retry_on_intr};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

const SUSPEND: &str = "\x1a";
const INTERRUPT: &str = "\x03";

/// A program that prints "begun", and "again" after each stop.
const STOPPABLE: &str = concat!(
    r#"perl -MPOSIX -e '$| = 1; $SIG{CONT} = sub { print "aga", "in\n" }; "#,
    "sigprocmask(SIG_BLOCK, POSIX::SigSet->new(SIGCONT)); ",
    r#"print "be", "gun\n"; sigsuspend(POSIX::SigSet->new) while 1'"#,
    "\n",
);

/// A shell at a terminal.
struct Shell {
    master: File,
    bash: Child,
    _place: Project,
}

impl Shell {
    fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        let size = Winsize { ws_row: 31, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).unwrap();
        // Without NOFLSH the kernel, which sends the signal first, discards output that the signal causes
        // (drivers/tty/n_tty.c, `isig`).
        let mut modes = tcgetattr(&slave).unwrap();
        modes.local_modes |= LocalModes::NOFLSH;
        tcsetattr(&slave, OptionalActions::Now, &modes).unwrap();
        let place = Project::new();
        // If the tests run in the background, their parent may have made them ignore these signals.
        let mut bash = Command::new("env");
        bash.args([
            "--default-signal=INT,QUIT,TSTP",
            "setsid",
            "--ctty",
            "--wait",
            "bash",
            "--norc",
            "--noprofile",
            "--noediting",
            "-i",
        ]);
        bash.current_dir(place.path("here")).env_remove("HISTFILE").env("PS1", "outer> ").env("TERM", "dumb");
        bash.env("HOME", place.path("home")).env("husk", env!("CARGO_BIN_EXE_husk"));
        let stream = || Stdio::from(slave.try_clone().unwrap());
        let bash = bash.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        let mut shell = Self { master: master.into(), bash, _place: place };
        shell.until("outer> ");
        shell
    }

    fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Returns the output up to and including these words. They must differ from the input, because the terminal echoes
    /// it.
    fn until(&mut self, words: &str) -> String {
        let mut shown = Vec::new();
        let mut byte = [0];
        while !shown.ends_with(words.as_bytes()) {
            match retry_on_intr(|| rustix::io::read(&self.master, &mut byte)) {
                Ok(0) | Err(Errno::IO) => {
                    panic!("{words:?} was never shown: {}", String::from_utf8_lossy(&shown))
                }
                read => read.unwrap(),
            };
            shown.push(byte[0]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Returns the exit code of the last command, as the shell sees it.
    fn code(&mut self) -> String {
        self.types("echo co''de $? .\n");
        self.until("code ");
        self.until(" .").trim_end_matches(" .").to_owned()
    }

    /// Stops a job of the shell in the sandbox, continues it, and interrupts it.
    fn stops_and_interrupts_a_job(&mut self) {
        // The job is a single process: bash would wait for ever for a shell that stopped between vfork and exec. It
        // blocks SIGCONT until it waits, so that it cannot miss the signal.
        self.types(STOPPABLE);
        self.until("begun");
        self.types(SUSPEND);
        self.until("Stopped");
        self.until("inner> ");
        self.types("fg\n");
        // The shell prints the job's name before it gives the terminal to the job.
        self.until("\nagain");
        self.types(INTERRUPT);
        self.until("inner> ");
    }

    fn ends(mut self) {
        self.types("exit 0\n");
        assert!(self.bash.wait().unwrap().success());
    }
}

#[test]
fn shell_in_the_sandbox_has_job_control() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    shell.types("$husk test --env PS1='inner''> ' -- bash --norc --noprofile --noediting -i\n");
    let begun = shell.until("inner> ");
    assert!(!begun.contains("job control"), "{begun}");
    shell.stops_and_interrupts_a_job();
    assert_eq!(shell.code(), "130");
    shell.types("exec 3< /dev/tty && echo op''ened; exit 7\n");
    shell.until("opened");
    shell.until("outer> ");
    assert_eq!(shell.code(), "7");
    shell.ends();
}

#[test]
fn shell_instead_of_a_program_has_job_control() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    shell.types("SHELL=/bin/sh $husk test --env PS1='inner''> ' --shell -- ./check 'a b'\n");
    shell.until("husk: shell in the sandbox; run: ./check 'a b'");
    let begun = shell.until("inner> ");
    assert!(!begun.contains("job control"), "{begun}");
    shell.stops_and_interrupts_a_job();
    shell.types("exit 7\n");
    shell.until("outer> ");
    assert_eq!(shell.code(), "7");
    shell.ends();
}

#[test]
fn typed_keys_reach_the_program_and_the_callers_job() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    shell.types("$husk test -- sh -c 'echo be''gun; exec sleep 1000'\n");
    shell.until("begun");
    shell.types(INTERRUPT);
    shell.until("outer> ");
    assert_eq!(shell.code(), "130");
    // This script does not check the exit codes of its commands. (dash misses a signal that arrives before it has
    // noticed that its child has started.)
    shell.types("bash -c \"$husk test -- sh -c 'echo be''gun; exec sleep 1000'; echo we''nt on\"\n");
    shell.until("begun");
    shell.types(INTERRUPT);
    let shown = shell.until("outer> ");
    assert!(!shown.contains("went on"), "{shown}");
    shell.ends();
}

#[test]
fn program_stops_and_continues_with_the_callers_job() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    shell.types("$husk test -- sh -c 'echo be''gun; read line; echo go''t $line'\n");
    shell.until("begun");
    shell.types(SUSPEND);
    shell.until("Stopped");
    shell.until("outer> ");
    shell.types("fg\n");
    shell.types("this\n");
    shell.until("got this");
    shell.until("outer> ");
    assert_eq!(shell.code(), "0");
    // In the background the program stops when it reads. In the foreground it has the terminal.
    shell.types("$husk test -- sh -c 'read line; echo go''t $line' & wait %1\n");
    shell.until("Stopped");
    shell.until("outer> ");
    shell.types("fg\n");
    shell.until("test --");
    shell.types("that\n");
    shell.until("got that");
    shell.until("outer> ");
    shell.ends();
}

#[test]
fn terminal_size_follows_the_callers() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    let script = "trap \"stty size; exit\" WINCH; stty size; while :; do sleep 0.01; done";
    shell.types(&format!("$husk test -- bash -c '{script}'\n"));
    shell.until("31 200");
    let size = Winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&shell.master, size).unwrap();
    shell.until("40 100");
    shell.until("outer> ");
    shell.ends();
}

#[test]
fn terminal_modes_are_restored() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    let echo = "stty -a | grep -o -- '-*echo ' | head -n 1";
    shell.types(&format!("$husk test -- sh -c \"stty -echo; {echo}\"; {echo}\n"));
    shell.until("\r\n-echo \r\n");
    shell.until("echo \r\n");
    shell.until("outer> ");
    shell.ends();
}

/// A program that shares a terminal could type for others there, if that were permitted.
#[test]
fn program_cannot_type_for_the_caller() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    // TIOCSTI and TIOCLINUX. The kernel ignores the upper 32 bits of a request.
    for request in ["0x5412", "0x541c", "0x100005412"] {
        let script = format!("my $x = \"x\"; ioctl(STDIN, {request}, $x) or die \"refu\" . \"sed: $!\"");
        shell.types(&format!("$husk test -- perl -e '{script}'\n"));
        shell.until("refused: Operation not permitted");
        shell.until("outer> ");
    }
    shell.ends();
}

/// A program whose output is redirected still has the terminal when it reads.
#[test]
fn program_with_redirected_output_can_read_the_terminal() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    shell.types("x=$($husk test -- sh -c 'echo be''gun > /dev/tty; read line; echo $line'); echo go''t $x\n");
    shell.until("begun");
    shell.types("this\n");
    shell.until("got this");
    shell.until("outer> ");
    shell.ends();
}

/// A process that reads the program's output may need the keyboard.
#[test]
fn pager_keeps_the_terminal() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    shell.types("$husk test -- echo thing | sh -c 'cat; read key < /dev/tty; echo go''t $key'\n");
    shell.until("\r\nthing\r\n");
    shell.types("q\n");
    shell.until("got q");
    shell.until("outer> ");
    shell.ends();
}

#[test]
fn shell_is_opened_in_the_sandbox_of_the_test_that_failed() {
    need!(has_sandboxes(), "needs user namespaces");
    let mut shell = Shell::new();
    for (name, points) in [("a.t", "ok 1"), ("b.t", "not ok 1"), ("c.t", "ok 1")] {
        shell.types(&format!(
            "printf '#!/bin/sh\\necho %s; echo 1..1\\n' '{points}' > {name}; chmod +x {name}\n"
        ));
    }
    let words = "--tap --each --shell --explain off --env PS1='inner''> ' -- a.t b.t c.t";
    shell.types(&format!("SHELL=/bin/sh $husk test {words}\n"));
    shell.until("husk: shell in the sandbox of b.t; run: ./b.t");
    shell.until("inner> ");
    // It is in the foreground of the terminal, in a sandbox.
    shell.types("test -t 0 && test ! -e ~/secret && echo hid''den; ./b.t\n");
    shell.until("hidden");
    shell.until("not ok 1");
    shell.until("inner> ");
    shell.stops_and_interrupts_a_job();
    shell.types("exit 3\n");
    shell.until("outer> ");
    assert_eq!(shell.code(), "101");
    shell.types("$husk test --tap --each --shell -- a.t\n");
    shell.until("no test failed, so no shell is opened");
    shell.until("outer> ");
    assert_eq!(shell.code(), "0");
    shell.ends();
}
