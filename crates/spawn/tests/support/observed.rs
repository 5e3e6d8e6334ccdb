//! Holds a process just after exec, and reads from `/proc` what it is.

use super::{Dir, program};
use husk_spawn::{Child, Command, Stdio};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

/// See the module documentation. Killed when dropped.
pub(crate) struct Observed {
    pub(crate) child: Child,
    dir: Dir,
}

/// Starts a program with the settings that `set` makes, and waits until it runs.
///
/// Its standard input and output are pipes, unless `set` changes the input.
pub(crate) fn observe(set: impl FnOnce(&mut Command) -> &mut Command) -> Observed {
    super::watch();
    let dir = Dir::new();
    let mut command = Command::new(dir.program("held", program::holds(0)));
    set(command.stdin(Stdio::piped())).stdout(Stdio::piped()).kill_on_drop();
    let mut child = command.spawn_and_exec().expect("a stopped program");
    // The kernel releases the child within exec, before it closes descriptors and applies the new credentials
    // (fs/exec.c, `begin_new_exec`). The program writes its first byte after that.
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("first byte");
    Observed { child, dir }
}

impl Observed {
    /// Returns the signal that ends the process while its input is open. The signal for a parent's death may
    /// arrive slightly after other processes see that death.
    pub(crate) fn ended_by(mut self) -> Option<i32> {
        let _input = self.child.stdin.take();
        self.child.wait().expect("exit status").signal()
    }

    /// Returns the path of the held program.
    pub(crate) fn program(&self) -> PathBuf {
        self.dir.join("held")
    }

    /// Returns the content of a file in its directory in `/proc`.
    pub(crate) fn file(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).expect("text")
    }

    /// Like `file`, for content that need not be text.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns the target of a symbolic link in its directory in `/proc`.
    pub(crate) fn link(&self, name: &str) -> PathBuf {
        fs::read_link(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Returns a line of `status`, with single spaces between words.
    pub(crate) fn status(&self, field: &str) -> String {
        let status = self.file("status");
        let found = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let words: Vec<_> = found.expect("a line of status").split_whitespace().collect();
        words.join(" ")
    }

    /// Returns a field of `stat`, numbered as in proc_pid_stat(5).
    pub(crate) fn stat(&self, field: usize) -> i64 {
        let stat = self.file("stat");
        // The second field, the name, is in parentheses and may contain any bytes.
        let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
        rest.split(' ').nth(field - 3).expect("a field of stat").trim().parse().expect("a number")
    }

    /// Returns the soft and hard values of a line of `limits`.
    pub(crate) fn limit(&self, name: &str) -> (String, String) {
        let limits = self.file("limits");
        let found = limits.lines().find_map(|line| line.strip_prefix(name));
        let mut words = found.expect("a line of limits").split_whitespace().map(str::to_owned);
        (words.next().expect("a soft limit"), words.next().expect("a hard limit"))
    }

    /// Returns its descriptors and what they refer to.
    pub(crate) fn fds(&self) -> BTreeMap<i32, PathBuf> {
        let entries = fs::read_dir(self.path("fd")).expect("its descriptors");
        entries
            .map(|entry| {
                let entry = entry.expect("a descriptor");
                let number = entry.file_name().into_string().expect("text").parse().expect("a number");
                (number, fs::read_link(entry.path()).expect("an open file"))
            })
            .collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        ["/proc", &self.child.id().to_string(), name].iter().collect()
    }
}
