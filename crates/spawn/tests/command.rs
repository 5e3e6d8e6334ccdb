//! Uses `Command` and `Child` as a user does. The program gets what was asked for, and errors name what is
//! impossible.

#[path = "command/attributes.rs"]
mod attributes;
#[path = "command/child.rs"]
mod child;
#[path = "command/errors.rs"]
mod errors;
#[path = "command/filter.rs"]
mod filter;
#[path = "command/group.rs"]
mod group;
#[path = "command/namespaces.rs"]
mod namespaces;
#[path = "command/pipeline.rs"]
mod pipeline;
mod support;

use husk_spawn::{Command, Stdio};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use support::{Dir, observe, program};

/// Returns the output of a command that succeeds.
fn printed(command: &Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error message of a command that fails.
fn failure(command: &Command) -> String {
    command.status().unwrap_err().to_string()
}

fn is_readable(fd: impl AsFd, timeout: Option<&Timespec>) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut polled, timeout).unwrap();
    !polled[0].revents().is_empty()
}

// Program.

#[test]
fn arguments_are_passed_byte_for_byte() {
    let given = [b"".as_slice(), b"two words", b"*", b"\xff\n"];
    let given = given.map(OsStr::from_bytes);
    let observed = observe(|command| command.arg("first").args(given).arg("last"));
    let program = observed.program();
    let wanted = [program.as_os_str().as_bytes(), b"\0first\0\0two words\0*\0\xff\n\0last\0"].concat();
    assert_eq!(observed.bytes("cmdline"), wanted);
}

#[test]
fn arg0_replaces_the_programs_name() {
    assert_eq!(observe(|command| command.arg0("-sh").arg("a")).bytes("cmdline"), b"-sh\0a\0");
}

/// Returns the environment of a program and checks that each variable occurs once.
fn environment(set: impl FnOnce(&mut Command) -> &mut Command) -> BTreeSet<String> {
    let environ = observe(set).file("environ");
    let variables: Vec<_> = environ.split_terminator('\0').map(str::to_owned).collect();
    let set: BTreeSet<_> = variables.iter().cloned().collect();
    assert_eq!(set.len(), variables.len(), "{variables:?}");
    set
}

fn variables<const N: usize>(variables: [&str; N]) -> BTreeSet<String> {
    variables.map(str::to_owned).into()
}

#[test]
fn environment_is_inherited_with_changes() {
    let own: BTreeSet<_> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    assert!(own.contains(&path));
    assert_eq!(environment(|command| command), own);

    let mut wanted = own.clone();
    wanted.remove(&path);
    assert_eq!(environment(|command| command.env_remove("PATH")), wanted);
    assert_eq!(environment(|command| command.env("A", "b").env_remove("A").env_remove("PATH")), wanted);
    wanted.extend(variables(["A=", "PATH=/new"]));
    assert_eq!(environment(|command| command.envs([("A", ""), ("PATH", "/new")])), wanted);
}

#[test]
fn env_clear_starts_from_an_empty_environment() {
    assert_eq!(environment(|command| command.env("A", "b").env_clear()), variables([]));
    assert_eq!(environment(|command| command.env_clear().env("A", "b=c")), variables(["A=b=c"]));
    let last = environment(|command| command.env_clear().env("A", "b").env("A", "c"));
    assert_eq!(last, variables(["A=c"]));
    assert_eq!(environment(|command| command.env_clear().env("A", "b").env_remove("A")), variables([]));
}

/// Returns the exit code of `tool`, looked up in this PATH.
fn looked_up(path: &str) -> Result<Option<i32>, String> {
    let status = Command::new("tool").env("PATH", path).status();
    status.map(|status| status.code()).map_err(|error| error.to_string())
}

#[test]
fn program_is_searched_in_the_childs_path() {
    let (first, second, plain, with_dir) = (Dir::new(), Dir::new(), Dir::new(), Dir::new());
    first.program("tool", program::exits(1));
    second.program("tool", program::exits(2));
    fs::write(plain.join("tool"), "").unwrap();
    fs::create_dir(with_dir.join("tool")).unwrap();
    let path = |dirs: &[&Dir]| {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.path().to_str().unwrap()).collect();
        dirs.join(":")
    };

    assert_eq!(looked_up(&path(&[&first, &second])), Ok(Some(1)));
    assert_eq!(looked_up(&path(&[&second, &first])), Ok(Some(2)));
    // Files that are not executable are skipped.
    assert_eq!(looked_up(&path(&[&plain, &with_dir, &second])), Ok(Some(2)));
    assert_eq!(looked_up(&format!("/no/such:{}", path(&[&second]))), Ok(Some(2)));
    // If nothing else is found, the error is about such a file.
    let denied = "exec tool: Permission denied (os error 13)";
    assert_eq!(looked_up(&path(&[&plain, &with_dir])), Err(denied.into()));
    let absent = "exec tool: No such file or directory (os error 2)";
    assert_eq!(looked_up(&path(&[&with_dir])), Err(absent.into()));
    assert_eq!(looked_up("/no/such"), Err(absent.into()));
}

#[test]
fn program_is_searched_in_default_directories_without_a_path() {
    assert!(Command::new("true").env_clear().status().unwrap().success());
    assert!(Command::new("true").env_remove("PATH").status().unwrap().success());
}

#[test]
fn relative_path_entries_start_at_the_childs_directory() {
    let dir = Dir::new();
    fs::create_dir(dir.join("below")).unwrap();
    dir.program("tool", program::exits(1));
    dir.program("below/tool", program::exits(2));
    let status = |path: &str| {
        let status = Command::new("tool").env("PATH", path).current_dir(dir.path()).status();
        status.map(|status| status.code()).map_err(|error| error.to_string())
    };
    assert_eq!(status(""), Ok(Some(1)));
    assert_eq!(status("/no/such:"), Ok(Some(1)));
    assert_eq!(status(":/no/such"), Ok(Some(1)));
    assert_eq!(status("."), Ok(Some(1)));
    assert_eq!(status("below"), Ok(Some(2)));
}

#[test]
fn relative_program_starts_at_the_childs_directory() {
    let dir = Dir::new();
    dir.program("tool", program::exits(3));
    let code = Command::new("./tool").current_dir(dir.path()).status().unwrap().code();
    assert_eq!(code, Some(3));
    assert_eq!(failure(&Command::new("./tool")), "exec ./tool: No such file or directory (os error 2)");
}

#[test]
fn working_directory_is_set_or_inherited() {
    assert_eq!(observe(|command| command.current_dir("/proc")).link("cwd"), Path::new("/proc"));
    let own = std::env::current_dir().unwrap();
    assert_eq!(observe(|command| command).link("cwd"), own);
}

// Descriptors.

/// Creates a file with this content, and returns it and its path.
fn file(dir: &Dir, name: &str) -> (File, PathBuf) {
    let path = dir.join(name);
    fs::write(&path, name).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    (file, path)
}

#[test]
fn standard_streams_are_inherited() {
    let observed = observe(|command| command);
    assert_eq!(observed.link("fd/2"), fs::read_link("/proc/self/fd/2").unwrap());
}

#[test]
fn standard_streams_are_null() {
    let mut command = Command::new("ls");
    command.args(["-l", "/proc/self/fd"]).stdin(Stdio::null()).stderr(Stdio::null());
    let links = printed(&command);
    for number in [0, 2] {
        assert!(links.contains(&format!(" {number} -> /dev/null\n")), "{links}");
    }
    assert!(Command::new("cat").stdin(Stdio::null()).status().unwrap().success());
}

#[test]
fn standard_streams_are_pipes() {
    let mut command = Command::new("tee");
    command.arg("/dev/stderr").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"both").unwrap();
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((stdout.as_str(), stderr.as_str()), ("both", "both"));
    assert!(child.wait().unwrap().success());
}

#[test]
fn standard_streams_are_files() {
    let dir = Dir::new();
    let ((input, _), (out, path)) = (file(&dir, "input"), file(&dir, "out"));
    let mut command = Command::new("cat");
    assert!(command.stdin(input).stdout(out.try_clone().unwrap()).status().unwrap().success());
    assert_eq!(fs::read_to_string(path).unwrap(), "input");
    drop(out);
}

#[test]
fn output_of_one_program_is_the_input_of_another() {
    let mut first = Command::new("echo").arg("through").stdout(Stdio::piped()).spawn().unwrap();
    let mut second = Command::new("cat");
    second.stdin(first.stdout.take().unwrap());
    let output = second.output().unwrap();
    assert_eq!(output.stdout, b"through\n");
    assert!(first.wait().unwrap().success());
}

#[test]
fn wait_closes_the_childs_input() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn descriptors_get_the_requested_numbers() {
    let dir = Dir::new();
    let [(a, path_a), (b, path_b), (c, path_c), (d, path_d)] =
        ["a", "b", "c", "d"].map(|name| file(&dir, name));
    let numbers = [&a, &b, &c].map(|file| file.as_raw_fd());
    // Three that trade numbers, one that keeps its number, and one that occurs twice.
    let again = d.try_clone().unwrap();
    let stays = d.as_raw_fd();
    let observed = observe(|command| {
        command.fd(numbers[1], a).fd(numbers[2], b).fd(numbers[0], c).fd(stays, d).fd(555, again)
    });
    let fds = observed.fds();
    assert_eq!(fds[&numbers[1]], path_a);
    assert_eq!(fds[&numbers[2]], path_b);
    assert_eq!(fds[&numbers[0]], path_c);
    assert_eq!((&fds[&stays], &fds[&555]), (&path_d, &path_d));
    assert_eq!(fds.len(), 3 + 5);
}

#[test]
fn descriptors_and_standard_streams_can_be_swapped() {
    let dir = Dir::new();
    let ((a, path_a), (b, path_b)) = (file(&dir, "a"), file(&dir, "b"));
    let (at_a, at_b) = (a.as_raw_fd(), b.as_raw_fd());
    let observed = observe(|command| {
        let ours = io::stderr().as_fd().try_clone_to_owned().unwrap();
        command.stderr(a).fd(at_a, b).fd(at_b, ours)
    });
    let fds = observed.fds();
    assert_eq!((&fds[&2], &fds[&at_a]), (&path_a, &path_b));
    assert_eq!(fds[&at_b], fs::read_link("/proc/self/fd/2").unwrap());
}

#[test]
fn later_descriptor_replaces_an_earlier_one() {
    let dir = Dir::new();
    let ((a, _), (b, path_b)) = (file(&dir, "a"), file(&dir, "b"));
    let observed = observe(|command| command.fd(9, a).fd(9, b));
    assert_eq!(observed.fds()[&9], path_b);
}

#[test]
fn standard_stream_can_be_given_as_a_descriptor() {
    let observed = observe(|command| command.fd(2, File::open("/dev/zero").unwrap()));
    assert_eq!(observed.fds()[&2], Path::new("/dev/zero"));
}

#[test]
fn negative_descriptor_number_is_refused() {
    let mut command = Command::new("true");
    let failure = failure(command.fd(-1, File::open("/dev/null").unwrap()));
    assert!(failure.ends_with("-> 2147483647: Bad file descriptor (os error 9)"), "{failure}");
}

#[test]
fn other_descriptors_are_not_inherited() {
    // None of these is marked close-on-exec.
    let open = || rustix::fs::open("/dev/zero", OFlags::RDONLY, Mode::empty()).unwrap();
    let many: Vec<OwnedFd> = (0..200).map(|_| open()).collect();
    assert_eq!(observe(|command| command).fds().into_keys().collect::<Vec<_>>(), [0, 1, 2]);
    let one = many[77].try_clone().unwrap();
    let observed = observe(|command| command.fd(many[5].as_raw_fd(), one).notify_release());
    assert_eq!(observed.fds().into_keys().collect::<Vec<_>>(), [0, 1, 2, many[5].as_raw_fd()]);
}

#[test]
fn ten_megabytes_in_both_directions_do_not_block() {
    let input: Vec<u8> = (0..10 << 20_u32).map(|index: u32| index.to_le_bytes()[1]).collect();
    let output = Command::new("tee").arg("/dev/stderr").output_with_input(&input).unwrap();
    assert!(output.status.success());
    assert!(output.stdout == input && output.stderr == input);
}

#[test]
fn program_may_ignore_its_input() {
    let output = Command::new("true").output_with_input(&vec![0; 10 << 20]).unwrap();
    assert!(output.status.success());
}

#[test]
fn output_keeps_configured_streams() {
    let dir = Dir::new();
    let (mut out, _) = file(&dir, "out");
    let mut command = Command::new("sh");
    command.args(["-c", "echo out; echo err >&2; cat; exit 3"]).stdout(out.try_clone().unwrap());
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout, &*output.stderr), (Some(3), &b""[..], &b"err\n"[..]));
    let mut written = String::new();
    out.rewind().unwrap();
    out.read_to_string(&mut written).unwrap();
    assert_eq!(written, "out\n");
}
