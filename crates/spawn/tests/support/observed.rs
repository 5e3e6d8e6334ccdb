//! A process that is held just after exec, and what the kernel says of it.

use super::{Dir, program};
use husk_spawn::{Child, Command, Stdio};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;

/// See the top of this file. Killed when dropped.
pub(crate) struct Observed {
    pub(crate) child: Child,
    dir: Dir,
}

/// Starts a program with the settings that `set` makes, and waits until it runs.
///
/// It has a pipe for its standard input and output, unless `set` says otherwise of the former.
pub(crate) fn observe(set: impl FnOnce(&mut Command) -> &mut Command) -> Observed {
    super::watch();
    let dir = Dir::new();
    let mut command = Command::new(dir.program("held", program::holds(0)));
    set(command.stdin(Stdio::piped())).stdout(Stdio::piped()).kill_on_drop();
    let mut child = command.spawn_and_exec().expect("a program that is held");
    // The child is released within exec, before the kernel closes descriptors and takes the new
    // credentials (fs/exec.c, `begin_new_exec`). The first byte is after all that.
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("its first byte");
    Observed { child, dir }
}

impl Observed {
    /// The signal that ends it, while its input does not: that of a parent that dies may come a little later than
    /// others see the parent's end.
    pub(crate) fn ended_by(mut self) -> Option<i32> {
        let _input = self.child.stdin.take();
        self.child.wait().expect("its end").signal()
    }

    /// The file that it is.
    pub(crate) fn program(&self) -> PathBuf {
        self.dir.join("held")
    }

    /// A file of its directory in `/proc`.
    pub(crate) fn file(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).expect("text")
    }

    /// The same where it need not be text.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A symbolic link of its directory in `/proc`.
    pub(crate) fn link(&self, name: &str) -> PathBuf {
        fs::read_link(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// A line of `status`, its words separated by one blank.
    pub(crate) fn status(&self, field: &str) -> String {
        let status = self.file("status");
        let found = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let words: Vec<_> = found.expect("a line of status").split_whitespace().collect();
        words.join(" ")
    }

    /// A field of `stat`, counted as in proc_pid_stat(5).
    pub(crate) fn stat(&self, field: usize) -> i64 {
        let stat = self.file("stat");
        // The second field, the name, is in brackets and may hold anything.
        let (_, rest) = stat.rsplit_once(") ").expect("a name in brackets");
        rest.split(' ').nth(field - 3).expect("a field of stat").trim().parse().expect("a number")
    }

    /// A line of `limits`: soft and hard.
    pub(crate) fn limit(&self, name: &str) -> (String, String) {
        let limits = self.file("limits");
        let found = limits.lines().find_map(|line| line.strip_prefix(name));
        let mut words = found.expect("a line of limits").split_whitespace().map(str::to_owned);
        (words.next().expect("a soft limit"), words.next().expect("a hard limit"))
    }

    /// Its descriptors, and what they are.
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
