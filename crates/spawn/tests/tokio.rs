//! Processes on a Tokio runtime.

mod support;

use husk_spawn::{Command, Signal, Stdio};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::future::Future;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::task::Poll;
use support::{Dir, program};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    support::watch();
    Builder::new_current_thread().enable_io().build().unwrap()
}

/// Polls a future once.
async fn is_ready(future: impl Future) -> bool {
    let mut future = pin!(future);
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// Returns a command whose program writes a byte, and ends when its input does.
fn holds(dir: &Dir, name: &str) -> Command {
    let mut command = Command::new(dir.program(name, program::holds(7)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

#[test]
fn streams_and_exit_are_awaited() {
    runtime().block_on(async {
        let mut cat = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn_async().unwrap();
        let mut text = [0; 7];
        let stdout = cat.stdout.as_mut().unwrap();
        assert!(!is_ready(stdout.read(&mut text)).await);
        cat.stdin.as_mut().unwrap().write_all(b"through").await.unwrap();
        stdout.read_exact(&mut text).await.unwrap();
        assert_eq!(&text, b"through");
        assert!(cat.try_wait().unwrap().is_none());
        assert!(cat.wait().await.unwrap().success());
        assert!(cat.wait().await.unwrap().success(), "the status is returned again");
        cat.signal(Signal::TERM).unwrap();
    });
}

#[test]
fn output_and_status_are_like_those_without_a_runtime() {
    runtime().block_on(async {
        let input: Vec<u8> = (0..4 << 20_u32).map(|index: u32| index.to_le_bytes()[1]).collect();
        let output = Command::new("tee").arg("/dev/stderr").output_with_input_async(&input).await.unwrap();
        assert!(output.status.success() && output.stdout == input && output.stderr == input);
        let unread = Command::new("true").output_with_input_async(&input).await.unwrap();
        assert!(unread.status.success());
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", "cat; echo out; echo err >&2; exit 3"]).output_async().await.unwrap();
        assert_eq!(
            (output.status.code(), &*output.stdout, &*output.stderr),
            (Some(3), &b"out\n"[..], &b"err\n"[..])
        );
        let absent = Command::new("/no/such").status_async().await.unwrap_err().to_string();
        assert_eq!(absent, "exec /no/such: No such file or directory (os error 2)");
    });
}

#[test]
fn several_children_are_awaited_at_once() {
    runtime().block_on(async {
        let dir = Dir::new();
        let mut first = holds(&dir, "first").spawn_async().unwrap();
        let (input, mut second) = (first.stdin.take(), holds(&dir, "second").spawn_async().unwrap());
        // The second ends, because its input is closed.
        tokio::select! {
            _ = first.wait() => panic!("it runs"),
            status = second.wait() => assert_eq!(status.unwrap().code(), Some(7)),
        }
        // The future that was dropped has lost nothing.
        drop(input);
        assert_eq!(first.wait().await.unwrap().code(), Some(7));
    });
}

#[test]
fn child_is_killed_with_its_group() {
    runtime().block_on(async {
        let dir = Dir::new();
        let mut child = holds(&dir, "alone").spawn_async().unwrap();
        assert_eq!(child.kill().await.unwrap().signal(), Some(9));

        let mut command = Command::new("sh");
        command.args(["-c", "sleep 1000 & echo; wait"]).process_group(0).stdout(Stdio::piped());
        let mut child = command.spawn_async().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).await.unwrap();
        child.kill_group().unwrap();
        assert_eq!(stdout.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(child.wait().await.unwrap().signal(), Some(9));
    });
}

/// Returns a descriptor of the child that stays open when the child is dropped.
fn pidfd(child: &husk_spawn::tokio::Child) -> OwnedFd {
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap()
}

/// Waits until the process has been waited for by a task of the runtime.
async fn until_reaped(pidfd: &OwnedFd) {
    #[expect(deprecated, reason = "the descriptor is borrowed")]
    let ended = AsyncFd::with_interest(pidfd.as_fd(), Interest::READABLE).unwrap();
    drop(ended.readable().await.unwrap());
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while waitid(WaitId::PidFd(pidfd.as_fd()), options).is_ok() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn dropped_child_continues_and_is_reaped_when_it_ends() {
    runtime().block_on(async {
        let dir = Dir::new();
        let mut child = holds(&dir, "holds").spawn_async().unwrap();
        let (stdin, mut stdout, pidfd) = (child.stdin.take(), child.stdout.take().unwrap(), pidfd(&child));
        drop(child);
        stdout.read_exact(&mut [0]).await.unwrap();
        assert!(!is_ready(stdout.read(&mut [0])).await, "it runs");
        drop(stdin);
        until_reaped(&pidfd).await;
    });
}

#[test]
fn dropped_child_with_kill_on_drop_is_killed_and_reaped() {
    runtime().block_on(async {
        let dir = Dir::new();
        let mut child = holds(&dir, "holds").kill_on_drop().spawn_async().unwrap();
        let (_stdin, mut stdout, pidfd) = (child.stdin.take(), child.stdout.take().unwrap(), pidfd(&child));
        stdout.read_exact(&mut [0]).await.unwrap();
        drop(child);
        assert_eq!(stdout.read(&mut [0]).await.unwrap(), 0, "it has been killed");
        until_reaped(&pidfd).await;

        // So is one whose future is dropped.
        let (mut reader, writer) = tokio::net::unix::pipe::pipe().map(|(w, r)| (r, w)).unwrap();
        let mut command = Command::new(dir.program("again", program::holds(0)));
        let (input, _open) = std::io::pipe().unwrap();
        command.stdin(input).stdout(writer.into_blocking_fd().unwrap()).kill_on_drop();
        {
            let mut status = pin!(command.status_async());
            assert!(!is_ready(status.as_mut()).await);
            reader.read_exact(&mut [0]).await.unwrap();
        }
        drop(command);
        assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
    });
}

#[test]
fn child_may_outlive_its_runtime() {
    let runtime = runtime();
    let dir = Dir::new();
    let (child, pidfd) = runtime.block_on(async {
        let child = holds(&dir, "holds").kill_on_drop().spawn_async().unwrap();
        let pidfd = pidfd(&child);
        (child, pidfd)
    });
    drop(runtime);
    drop(child);
    let waited = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
    assert_eq!(waited.unwrap_err(), Errno::CHILD, "it was killed and waited for");
}

#[test]
fn start_outside_of_a_runtime_is_an_error() {
    let error = Command::new("true").spawn_async().unwrap_err();
    assert_eq!(error.to_string(), "spawn: must be called in a Tokio runtime");
}
