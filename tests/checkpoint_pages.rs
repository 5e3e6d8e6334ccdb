//! Checkpoints whose memory is fetched after the restore.

use crate::checkpoint::{Images, NEEDS_CRIU, criu_works, pipe, text};
use crate::util::{Bundle, Runtime, is_root, need};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Whether CRIU's page server can make a pipe as long as it needs (criu/page-pipe.c, `PIPE_MAX_SIZE`).
fn has_long_pipes() -> bool {
    let (_reader, writer) = pipe();
    rustix::pipe::fcntl_setpipe_size(&writer, 819 * 4096).is_ok()
}

/// A process that serves pages. It ends with the test, even if that fails.
struct Server(Child);

impl Server {
    /// Starts it, and waits until it is ready.
    fn start(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut server, mut byte) = (Self(child), [1]);
        server.0.stdout.take().unwrap().read_exact(&mut byte).unwrap();
        assert_eq!(byte, [0]);
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.0.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
            self.0.wait().unwrap();
        }
    }
}

#[test]
fn lazy_pages_come_from_the_source_after_the_restore() {
    need!(is_root(), "needs root, because CRIU's page server does");
    need!(criu_works(), NEEDS_CRIU);
    need!(has_long_pipes(), "needs CAP_SYS_RESOURCE, or 4194304 in /proc/sys/fs/pipe-max-size");
    let (runtime, bundle, images) = (Runtime::under_test(), Bundle::running("echo"), Images::new());
    let (stdin, mut input) = pipe();
    let (output, stdout) = pipe();
    let streams = [stdin.into(), stdout.into(), Stdio::null()];
    assert!(runtime.running_with(&bundle, &["--detach"], streams).wait().unwrap().success());
    writeln!(input, "one").unwrap();
    assert_eq!(BufReader::new(output).lines().next().unwrap().unwrap(), "0 one");

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut save = runtime.command("checkpoint");
    save.args(["--lazy-pages", "--page-server", &format!("127.0.0.1:{port}"), "--status-fd", "1"]);
    let mut source = Server::start(save.args(["--image-path", images.text(), "c"]));
    let work = TempDir::new().unwrap();
    let mut daemon = Command::new("criu");
    daemon.args(["lazy-pages", "--page-server", "--address", "127.0.0.1", "--port", &port]);
    daemon.args(["--status-fd", "1", "--images-dir", images.text(), "--work-dir", text(work.path())]);
    let mut daemon = Server::start(&mut daemon);

    // Both containers exist at the same time, so the new one has a cgroup of its own.
    let (there, bundle) = (Runtime::under_test(), Bundle::running("echo"));
    bundle.write();
    let (stdin, mut input) = pipe();
    let (output, stdout) = pipe();
    let mut restore = there.command("restore");
    restore.args(["--lazy-pages", "--image-path", images.text(), "--work-path", text(work.path())]);
    restore.arg("--bundle").arg(bundle.path()).arg("c");
    let mut restored = restore.stdin(stdin).stdout(stdout).stderr(Stdio::null()).spawn().unwrap();
    drop(restore);
    writeln!(input, "two").unwrap();
    assert_eq!(BufReader::new(output).lines().next().unwrap().unwrap(), "1 two");
    assert!(source.0.wait().unwrap().success() && daemon.0.wait().unwrap().success());
    assert!(runtime.is_empty());
    drop(input);
    assert_eq!(restored.wait().unwrap().code(), Some(42));
}
