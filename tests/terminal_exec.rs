//! Checks terminals of processes that join a container.

use super::{Foreground, devpts, read_to_end, size, with_terminal};
use crate::util::{Bundle, Receiver, Runtime, is_husk, is_root, need};
use rustix::process::Signal;
use rustix::termios::{tcgetwinsize, tcsetwinsize};
use serde_json::json;
use std::fs::{self, File};
use std::process::Command;

fn plain() -> Bundle {
    Bundle::running("wait").mounting(devpts())
}

/// Returns an `exec` command with a terminal.
fn exec(runtime: &Runtime, options: &[&str], words: &str) -> Command {
    let mut command = runtime.command("exec");
    command.args(["--tty"]).args(options).args(["c", "/guest"]).args(words.split_whitespace());
    command
}

/// The guest's description of the second terminal of a container whose console exists already.
const SECOND: &str =
    "terminals [true, true, true]\nname /dev/pts/1\nowner 0\ncontrolling true\nconsole false\n";

#[test]
fn exec_has_its_own_terminal_and_the_console_stays_the_containers() {
    need!(is_husk(), "runc needs a controlling terminal");
    let (runtime, receiver) = (Runtime::under_test(), Receiver::new());
    let bundle = with_terminal("wait");
    runtime.create_with(&bundle, &["--console-socket", &receiver.path()]).succeeds();
    let (_console, _) = receiver.received();
    runtime.call("start", &["c"]).succeeds();
    let mut run = Foreground::of(exec(&runtime, &[], "tty"));
    let shown = run.until("console false\n");
    assert_eq!(shown, SECOND);
    assert!(run.rest().1.success());
    if is_root() {
        let run = Foreground::of(exec(&runtime, &["--user", "7"], "tty"));
        let shown = String::from_utf8(run.rest().0).unwrap();
        assert_eq!(shown, SECOND.replace("owner 0", "owner 7"));
    }
    // It is not the console either when it is sent to a socket.
    let options = ["--detach", "--console-socket", &receiver.path()];
    assert!(exec(&runtime, &options, "tty").status().unwrap().success());
    let (terminal, name) = receiver.received();
    let mut terminal = File::from(terminal);
    assert_eq!(name, "/dev/pts/ptmx");
    assert_eq!(String::from_utf8(read_to_end(&mut terminal)).unwrap(), SECOND.replace('\n', "\r\n"));
}

#[test]
fn exec_terminal_follows_the_callers_size_and_the_exit_code_is_returned() {
    need!(is_husk(), "runc needs a controlling terminal");
    let bundle = plain();
    let runtime = Runtime::started(&bundle);
    let mut run = Foreground::of(exec(&runtime, &[], "tty resized"));
    run.until("31 97\n");
    tcsetwinsize(&run.master, size(12, 40)).unwrap();
    run.signal(Signal::WINCH);
    assert_eq!(String::from_utf8(run.rest().0).unwrap(), "12 40\n");
    let (_, status) = Foreground::of(exec(&runtime, &[], "exit 7")).rest();
    assert_eq!(status.code(), Some(7));
}

#[test]
fn size_of_an_exec_terminal_can_be_configured() {
    let (bundle, receiver) = (plain(), Receiver::new());
    let runtime = Runtime::started(&bundle);
    let file = tempfile::NamedTempFile::new().unwrap();
    let process = json!({
        "args": ["/guest", "tty", "size"], "cwd": "/", "user": { "uid": 0, "gid": 0 }, "terminal": true,
        "consoleSize": { "height": 5, "width": 6 }
    });
    fs::write(file.path(), process.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let options = ["--detach", "--console-socket", &receiver.path(), "--process", path, "c"];
    runtime.call("exec", &options).succeeds();
    let mut terminal = File::from(receiver.received().0);
    let found = tcgetwinsize(&terminal).unwrap();
    assert_eq!((found.ws_row, found.ws_col), (5, 6));
    assert_eq!(String::from_utf8(read_to_end(&mut terminal)).unwrap(), "5 6\r\n");
}

#[test]
fn exec_terminal_needs_a_console_socket_and_a_devpts() {
    let bundle = plain();
    let runtime = Runtime::started(&bundle);
    let name = if is_husk() { "husk" } else { "runc" };
    let wanted = format!("cannot allocate tty if {name} will detach without setting console socket");
    runtime.call("exec", &["--tty", "--detach", "c", "/guest", "tty"]).fails(255, &wanted);
    let receiver = Receiver::new();
    let wanted = format!("cannot use console socket if {name} will not detach or allocate tty");
    let socket = receiver.path();
    runtime.call("exec", &["--console-socket", &socket, "c", "/guest", "tty"]).fails(255, &wanted);
    assert_eq!(runtime.status(), "running");
}

// The container decides what is mounted at /dev/pts: its root may mount anything there.
#[test]
fn ptmx_outside_a_devpts_is_not_opened() {
    need!(is_husk(), "runc needs a controlling terminal");
    let volume = tempfile::tempdir().unwrap();
    fs::write(volume.path().join("ptmx"), "untouched").unwrap();
    let mount =
        json!({ "destination": "/dev/pts", "type": "bind", "source": volume.path(), "options": ["bind"] });
    let bundle = Bundle::running("wait").mounting(mount);
    let runtime = Runtime::started(&bundle);
    runtime.call("exec", &["--tty", "c", "/guest", "tty"]).fails(255, "open-pty dev/pts: no such device");
    assert_eq!(fs::read_to_string(volume.path().join("ptmx")).unwrap(), "untouched");
}

// A terminal of the host, which a container can only have been given, does not count as the container's own.
#[test]
fn symlink_in_place_of_devpts_is_not_followed() {
    need!(is_root(), "needs root to unmount the container's devpts");
    need!(is_husk(), "runc needs a controlling terminal");
    let capabilities = json!(["CAP_SYS_ADMIN"]);
    let sets = json!({ "bounding": capabilities, "permitted": capabilities, "effective": capabilities });
    let bundle = plain().with("/process/capabilities", sets);
    fs::create_dir_all(bundle.rootfs().join("elsewhere/pts")).unwrap();
    let runtime = Runtime::started(&bundle);
    runtime.call("exec", &["c", "/guest", "umount", "/dev/pts"]).succeeds();
    runtime.call("exec", &["c", "/guest", "umount", "/dev"]).succeeds();
    // The directory beneath belongs to the image.
    let dev = bundle.rootfs().join("dev");
    fs::remove_dir_all(&dev).unwrap();
    std::os::unix::fs::symlink("/elsewhere", &dev).unwrap();
    let seen = runtime.call("exec", &["--tty", "c", "/guest", "tty"]);
    assert_eq!(seen.0.status.code(), Some(255));
    seen.says("open-pty dev/pts");
}
