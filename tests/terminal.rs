//! Checks terminals, in the foreground and sent to another process.
//!
//! In the foreground the test owns a terminal, as a terminal emulator does. The runtime has it as its standard streams.

use crate::util::{Bundle, Receiver, Runtime, is_husk, is_root, need};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, OutputModes, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr,
    tcsetwinsize,
};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

#[path = "guest/stream.rs"]
mod stream;

/// Large amounts of data.
#[path = "terminal_bytes.rs"]
mod bytes;
/// Terminals of `exec`.
#[path = "terminal_exec.rs"]
mod exec;

/// Returns a bundle whose program has a terminal.
fn with_terminal(words: &str) -> Bundle {
    Bundle::running(words).mounting(devpts()).with("/process/terminal", json!(true))
}

fn devpts() -> Value {
    let options = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
    json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": options })
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A runtime in the foreground of a terminal that the test owns.
struct Foreground {
    master: File,
    /// The terminal's modes before the runtime started.
    before: Termios,
    runtime: Child,
}

impl Foreground {
    fn run(runtime: &Runtime, bundle: &Bundle) -> Self {
        bundle.write();
        let mut command = runtime.command("run");
        command.arg("--bundle").arg(bundle.path()).arg("c");
        Self::of(command)
    }

    /// Starts this command in the foreground of a new terminal.
    fn of(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        unlockpt(&master).unwrap();
        let slave =
            ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
                .unwrap();
        tcsetwinsize(&master, size(31, 97)).unwrap();
        // Without this the terminal would change the program's output.
        let mut modes = tcgetattr(&slave).unwrap();
        modes.output_modes.remove(OutputModes::OPOST);
        tcsetattr(&slave, OptionalActions::Now, &modes).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let stream = || Stdio::from(slave.try_clone().unwrap());
        let runtime = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        Self { master: File::from(master), before, runtime }
    }

    /// Reads what is shown, up to and including these words.
    fn until(&mut self, words: &str) -> String {
        let mut shown = Vec::new();
        let mut byte = [0];
        while !shown.ends_with(words.as_bytes()) {
            if read_terminal(&mut self.master, &mut byte) == 0 {
                panic!("{words:?} was never shown: {}", String::from_utf8_lossy(&shown));
            }
            shown.push(byte[0]);
        }
        String::from_utf8(shown).unwrap()
    }

    /// Reads the rest of what is shown, and returns it with the exit status.
    fn rest(mut self) -> (Vec<u8>, ExitStatus) {
        let shown = read_to_end(&mut self.master);
        (shown, self.runtime.wait().unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.runtime), signal).unwrap();
    }
}

/// Reads from a terminal. EIO means that the other end is closed, and returns 0 as at the end of a file.
fn read_terminal(master: &mut File, buffer: &mut [u8]) -> usize {
    match retry_on_intr(|| rustix::io::read(&*master, &mut *buffer)) {
        Ok(length) => length,
        Err(Errno::IO) => 0,
        Err(errno) => panic!("read the terminal: {errno}"),
    }
}

/// Reads what a terminal shows, until its other end is closed.
struct Screen<'t>(&'t mut File);

impl io::Read for Screen<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(read_terminal(self.0, buffer))
    }
}

fn read_to_end(master: &mut File) -> Vec<u8> {
    let mut shown = Vec::new();
    Screen(master).read_to_end(&mut shown).unwrap();
    shown
}

const OWN: &str = "terminals [true, true, true]\nname /dev/pts/0\nowner 0\ncontrolling true\nconsole true\n";

#[test]
fn program_has_its_own_terminal() {
    need!(is_husk(), "runc needs a controlling terminal");
    let runtime = Runtime::under_test();
    let bundle = with_terminal("tty");
    let (shown, status) = Foreground::run(&runtime, &bundle).rest();
    assert_eq!(String::from_utf8(shown).unwrap(), OWN);
    assert!(status.success());
    assert!(runtime.is_empty());
}

// runc refuses this: it needs a terminal to make raw, whatever stream it copies from.
#[test]
fn program_has_a_terminal_if_the_caller_has_none() {
    need!(is_husk(), "runc needs a controlling terminal");
    Runtime::under_test().run(&with_terminal("tty")).prints(OWN);
}

#[test]
fn program_with_a_terminal_is_refused_if_nothing_can_be_typed() {
    need!(is_husk(), "runc has another message");
    let runtime = Runtime::under_test();
    let bundle = with_terminal("tty");
    let run = runtime.shell("setsid --wait \"$@\" </dev/null", "run", &bundle, &[]);
    runtime.detached(run).fails(1, "there is none here to type in");
    assert!(runtime.is_empty());
}

#[test]
fn piped_input_is_not_echoed() {
    need!(is_husk(), "runc echoes it");
    let runtime = Runtime::under_test();
    let bundle = with_terminal("tty line");
    let run = runtime.shell("echo typed | \"$@\"", "run", &bundle, &[]);
    runtime.detached(run).prints("read typed");
}

#[test]
fn terminal_belongs_to_the_programs_user() {
    need!(is_root(), "needs root to become another user");
    need!(is_husk(), "runc needs a controlling terminal");
    let bundle = with_terminal("tty").with("/process/user", json!({ "uid": 1000, "gid": 1001 }));
    Runtime::under_test().run(&bundle).prints(&OWN.replace("owner 0", "owner 1000"));
}

#[test]
fn callers_terminal_is_raw_during_run_and_then_restored() {
    need!(is_husk(), "runc needs a controlling terminal");
    let runtime = Runtime::under_test();
    let bundle = with_terminal("until HUP");
    let mut run = Foreground::run(&runtime, &bundle);
    run.until("begun\n");
    let raw = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
    assert!(run.before.local_modes.contains(raw));
    assert!(!tcgetattr(&run.master).unwrap().local_modes.intersects(raw));
    run.signal(Signal::HUP);
    let (master, before) = (run.master.try_clone().unwrap(), run.before.clone());
    assert_eq!(run.rest().1.code(), Some(42));
    let after = tcgetattr(&master).unwrap();
    assert_eq!(
        (after.local_modes, after.input_modes, after.output_modes, after.control_modes),
        (before.local_modes, before.input_modes, before.output_modes, before.control_modes)
    );
}

#[test]
fn callers_terminal_is_restored_if_create_fails() {
    let runtime = Runtime::under_test();
    // The program is looked up after the terminal exists.
    let bundle = with_terminal("").with("/process/args", json!(["/missing"]));
    let run = Foreground::run(&runtime, &bundle);
    let (master, before) = (run.master.try_clone().unwrap(), run.before.clone());
    let (shown, status) = run.rest();
    assert!(String::from_utf8_lossy(&shown).contains("/missing"), "{}", String::from_utf8_lossy(&shown));
    assert!(!status.success());
    assert_eq!(tcgetattr(&master).unwrap().local_modes, before.local_modes);
    assert!(runtime.is_empty());
}

#[test]
fn interrupt_key_interrupts_the_program() {
    need!(is_husk(), "runc does not forward the signal to the program");
    let runtime = Runtime::under_test();
    let bundle = with_terminal("until INT");
    let mut run = Foreground::run(&runtime, &bundle);
    run.until("begun\n");
    run.master.write_all(b"\x03").unwrap();
    assert_eq!(run.rest().1.code(), Some(42));
}

#[test]
fn job_control_signals_are_forwarded() {
    need!(is_husk(), "runc needs a controlling terminal");
    for (name, signal) in [("TSTP", Signal::TSTP), ("TTIN", Signal::TTIN)] {
        passed_on(name, signal);
    }
}

#[test]
fn fatal_signals_are_forwarded_and_the_terminal_is_restored() {
    need!(is_husk(), "runc needs a controlling terminal");
    let ends =
        [("TERM", Signal::TERM), ("QUIT", Signal::QUIT), ("ABRT", Signal::ABORT), ("USR1", Signal::USR1)];
    ends.into_iter().for_each(|(name, signal)| passed_on(name, signal));
}

/// Asserts that a signal to the runtime reaches the program, and that the caller's terminal is restored afterwards.
fn passed_on(name: &str, signal: Signal) {
    let runtime = Runtime::under_test();
    let bundle = with_terminal(&format!("until {name}"));
    let mut run = Foreground::run(&runtime, &bundle);
    run.until("begun\n");
    run.signal(signal);
    let (master, before) = (run.master.try_clone().unwrap(), run.before.clone());
    assert_eq!(run.rest().1.code(), Some(42), "{name}");
    assert_eq!(tcgetattr(&master).unwrap().local_modes, before.local_modes, "{name}");
    assert!(runtime.is_empty(), "{name}");
}

#[test]
fn callers_terminal_is_restored_after_a_kill() {
    need!(is_husk(), "runc needs a controlling terminal");
    let runtime = Runtime::under_test();
    let bundle = with_terminal("until HUP");
    let mut run = Foreground::run(&runtime, &bundle);
    run.until("begun\n");
    runtime.call("kill", &["c", "KILL"]).succeeds();
    let (master, before) = (run.master.try_clone().unwrap(), run.before.clone());
    assert_eq!(run.rest().1.code(), Some(128 + 9));
    assert_eq!(tcgetattr(&master).unwrap().local_modes, before.local_modes);
    assert!(runtime.is_empty());
}

#[test]
fn terminal_size_follows_the_callers() {
    need!(is_husk(), "runc needs a controlling terminal");
    let runtime = Runtime::under_test();
    // The size in the configuration applies only without a terminal of the caller's.
    let bundle =
        with_terminal("tty resized").with("/process/consoleSize", json!({ "height": 5, "width": 6 }));
    let mut run = Foreground::run(&runtime, &bundle);
    run.until("31 97\n");
    tcsetwinsize(&run.master, size(12, 40)).unwrap();
    run.signal(Signal::WINCH);
    assert_eq!(String::from_utf8(run.rest().0).unwrap(), "12 40\n");
}

#[test]
fn piped_input_arrives_and_its_end_does_not_close_the_terminal() {
    const LENGTH: u64 = 1 << 20;
    let runtime = Runtime::under_test();
    let bundle = with_terminal(&format!("tty consume {LENGTH}"));
    let mut run = runtime.running_with(&bundle, &[], [Stdio::piped(), Stdio::piped(), Stdio::inherit()]);
    let mut out = run.stdout.take().unwrap();
    let mut ready = [0; 6];
    out.read_exact(&mut ready).unwrap();
    stream::produce(&mut run.stdin.take().unwrap(), LENGTH).unwrap();
    assert_eq!(io::read_to_string(out).unwrap(), "the same");
    assert!(run.wait().unwrap().success());
}

#[test]
fn signals_arrive_while_output_is_unread() {
    let runtime = Runtime::under_test();
    let bundle = with_terminal("tty flood HUP");
    let mut run = runtime.running_with(&bundle, &[], [Stdio::piped(), Stdio::piped(), Stdio::inherit()]);
    let mut out = run.stdout.take().unwrap();
    let mut begun = [0; 6];
    out.read_exact(&mut begun).unwrap();
    kill_process(Pid::from_child(&run), Signal::HUP).unwrap();
    io::copy(&mut out, &mut io::sink()).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(42));
    assert!(runtime.is_empty());
}

#[test]
fn terminal_that_the_program_closed_can_be_reopened() {
    need!(is_husk(), "runc needs a controlling terminal");
    let runtime = Runtime::under_test();
    let (shown, status) = Foreground::run(&runtime, &with_terminal("tty reopen")).rest();
    assert_eq!(String::from_utf8(shown).unwrap(), "before\nafter\n");
    assert!(status.success());
}

#[test]
fn terminal_without_a_reader_is_hung_up() {
    need!(is_husk(), "runc needs a controlling terminal");
    let runtime = Runtime::under_test();
    let bundle = with_terminal("tty flood INT");
    let mut run = runtime.running_with(&bundle, &[], [Stdio::piped(), Stdio::piped(), Stdio::inherit()]);
    let mut begun = [0; 6];
    run.stdout.take().unwrap().read_exact(&mut begun).unwrap();
    // The reader is gone, and the program's terminal hangs up: writing fails. On a busy machine, SIGHUP has been seen to end
    // the program first.
    assert!(matches!(run.wait().unwrap().code(), Some(43 | 129)));
    assert!(runtime.is_empty());
}

#[test]
fn terminal_is_sent_to_the_console_socket() {
    let runtime = Runtime::under_test();
    let receiver = Receiver::new();
    let bundle = with_terminal("tty");
    runtime.create_with(&bundle, &["--console-socket", &receiver.path()]).succeeds();
    let (terminal, name) = receiver.received();
    let mut terminal = File::from(terminal);
    assert_eq!(name, "/dev/pts/ptmx");
    runtime.call("start", &["c"]).succeeds();
    // A new terminal ends a line with two characters.
    let shown = String::from_utf8(read_to_end(&mut terminal)).unwrap();
    assert_eq!(shown, OWN.replace('\n', "\r\n"));
}

#[test]
fn detached_run_sends_the_terminal() {
    let runtime = Runtime::under_test();
    let receiver = Receiver::new();
    let bundle = with_terminal("tty size").with("/process/consoleSize", json!({ "height": 5, "width": 6 }));
    runtime.run_detached(&bundle, &["--detach", "--console-socket", &receiver.path()]).succeeds();
    let mut terminal = File::from(receiver.received().0);
    let found = tcgetwinsize(&terminal).unwrap();
    assert_eq!((found.ws_row, found.ws_col), (5, 6));
    assert_eq!(String::from_utf8(read_to_end(&mut terminal)).unwrap(), "5 6\r\n");
}

#[test]
fn detached_terminal_needs_a_console_socket() {
    need!(is_husk(), "the message is husk's");
    let runtime = Runtime::under_test();
    let receiver = Receiver::new();
    let socket = receiver.path();
    let bundle = with_terminal("tty");
    let wanted = "cannot allocate tty if husk will detach without setting console socket";
    runtime.create(&bundle).fails(1, wanted);
    runtime.run_detached(&bundle, &["--detach"]).fails(1, wanted);
    let wanted = "cannot use console socket if husk will not detach or allocate tty";
    runtime.run_detached(&bundle, &["--console-socket", &socket]).fails(1, wanted);
    runtime.create_with(&Bundle::running("exit 0"), &["--console-socket", &socket]).fails(1, wanted);
    let nobody = "--console-socket: connect /no/socket: no such file or directory";
    runtime.create_with(&bundle, &["--console-socket", "/no/socket"]).fails(1, nobody);
    assert!(runtime.is_empty());
}

#[test]
fn terminals_come_from_the_containers_devpts() {
    let runtime = Runtime::under_test();
    let bundle = Bundle::running("tty").with("/process/terminal", json!(true));
    runtime.run(&bundle).fails(1, "process.terminal: needs a mount of type devpts at /dev/pts");
    // A file that an image or a volume has put there is not opened.
    let volume = tempfile::tempdir().unwrap();
    fs::write(volume.path().join("ptmx"), "untouched").unwrap();
    let mount = |path: &Path| json!({ "destination": "/dev/pts", "type": "bind", "source": path, "options": ["bind"] });
    let bundle = Bundle::running("tty").with("/process/terminal", json!(true)).mounting(mount(volume.path()));
    runtime.run(&bundle).fails(1, "open-pty dev/pts: no such device");
    assert_eq!(fs::read_to_string(volume.path().join("ptmx")).unwrap(), "untouched");
    assert!(runtime.is_empty());
}

// CVE-2025-52565 and similar: husk mounts the terminal on a path that the image controls.
#[test]
fn symlink_at_dev_console_is_not_followed() {
    need!(is_husk(), "runc needs a controlling terminal");
    let runtime = Runtime::under_test();
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("file"), "untouched").unwrap();
    fs::set_permissions(host.path().join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    for target in [host.path().join("file"), host.path().join("missing"), Path::new("/guest").to_owned()] {
        let proc = json!([{ "destination": "/proc", "type": "proc", "source": "proc" }]);
        let bundle = with_terminal("tty").with("/mounts", proc).mounting(devpts());
        fs::create_dir(bundle.rootfs().join("dev")).unwrap();
        symlink(&target, bundle.rootfs().join("dev/console")).unwrap();
        runtime.run(&bundle).fails(1, "-> dev/console: too many levels of symbolic links");
    }
    assert_eq!(fs::read_to_string(host.path().join("file")).unwrap(), "untouched");
    assert_eq!(fs::read_dir(host.path()).unwrap().count(), 1, "something was created on the host");
    let mode = fs::metadata(host.path().join("file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o640);
    assert!(runtime.is_empty());
}

#[test]
fn symlink_at_dev_ptmx_is_not_followed() {
    need!(is_husk(), "runc needs a controlling terminal");
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("file"), "untouched").unwrap();
    let proc = json!([{ "destination": "/proc", "type": "proc", "source": "proc" }]);
    let bundle = with_terminal("tty").with("/mounts", proc).mounting(devpts());
    fs::create_dir(bundle.rootfs().join("dev")).unwrap();
    symlink(host.path().join("file"), bundle.rootfs().join("dev/ptmx")).unwrap();
    Runtime::under_test().run(&bundle).prints(OWN);
    assert_eq!(fs::read_to_string(host.path().join("file")).unwrap(), "untouched");
}
