//! Shared helpers: temporary cgroups, and processes in them.

use husk_cgroup::{CgroupPaths, Layout, v2};
use husk_spawn::{Child, Command, Stdio};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fmt::Arguments;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, process, thread};

/// Longer than any step of these tests takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Skips the test if the machine lacks something.
macro_rules! need {
    ($found:expr, $($reason:tt)*) => {
        match $found {
            Some(found) => found,
            None => {
                $crate::support::tell_skipped(format_args!($($reason)*));
                return;
            }
        }
    };
}
pub(crate) use need;

/// Writes to the real standard error: the test harness captures the print macros' output.
pub(crate) fn tell_skipped(reason: Arguments<'_>) {
    let test = thread::current();
    let line = format!("skipped: {reason} ({})\n", test.name().unwrap_or("test"));
    std::io::stderr().write_all(line.as_bytes()).expect("standard error");
}

/// Returns a name that no other test uses.
pub(crate) fn name() -> String {
    husk_deadline::watch(&[]);
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("husk-cgroup-test-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A tree of version 2 in which we may create cgroups, and a name in it. Its cgroup is removed on drop.
pub(crate) struct V2 {
    pub(crate) tree: v2::Hierarchy,
    pub(crate) name: String,
}

impl V2 {
    pub(crate) fn new() -> Option<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let tree =
            roots.iter().find_map(|root| v2::Hierarchy::open(Path::new(root)).expect("an open hierarchy"))?;
        let name = name();
        fs::create_dir(tree.mount_point().join(&name)).ok()?;
        fs::remove_dir(tree.mount_point().join(&name)).expect("a removable cgroup");
        Some(Self { tree, name })
    }

    pub(crate) fn path(&self, below: &str) -> String {
        self.tree.mount_point().join(&self.name).join(below).into_os_string().into_string().expect("text")
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).expect(file).trim_end().to_owned()
    }

    /// Returns `Some` if the tree has this controller.
    pub(crate) fn has(&self, controller: &str) -> Option<()> {
        let list = fs::read_to_string(self.tree.mount_point().join("cgroup.controllers")).expect("a list");
        list.split_whitespace().any(|name| name == controller).then_some(())
    }
}

impl Drop for V2 {
    fn drop(&mut self) {
        if let Ok(Some(cgroup)) = self.tree.find(&self.name) {
            cgroup.kill().expect("the process is killable");
        }
        self.tree.remove(&self.name, PATIENCE).expect("the directory is removable");
    }
}

/// Paths in the trees of version 1, whose cgroups are removed on drop.
pub(crate) struct V1 {
    pub(crate) layout: Layout,
    pub(crate) place: CgroupPaths,
}

impl V1 {
    pub(crate) fn new() -> Option<Self> {
        let layout = Layout::detect().ok().filter(|layout| matches!(layout, Layout::V1(_)))?;
        rustix::process::geteuid().is_root().then_some(())?;
        let place = layout.place(Some(&format!("/{}", name())), "unused").expect("a directory");
        Some(Self { layout, place })
    }

    /// Returns `Some` if a tree has this controller.
    pub(crate) fn has(&self, controller: &str) -> Option<()> {
        self.place.path(controller).map(drop)
    }

    pub(crate) fn read(&self, controller: &str, file: &str) -> String {
        let path = self.place.path(controller).expect(controller).join(file);
        fs::read_to_string(path).expect(file).trim_end().to_owned()
    }
}

impl Drop for V1 {
    fn drop(&mut self) {
        if let Ok(Some(cgroup)) = self.layout.find(&self.place) {
            cgroup.kill().expect("the process is killable");
        }
        self.layout.remove(&self.place, PATIENCE).expect("the directory is removable");
        for path in self.place.directories().values() {
            assert!(!path.exists(), "{} is left", path.display());
        }
    }
}

/// A process that reads until its input ends, which is on drop.
pub(crate) struct Reader {
    pub(crate) child: Child,
    _input: OwnedFd,
}

impl Reader {
    pub(crate) fn started_in(cgroup: BorrowedFd<'_>) -> Self {
        Self::start(Some(cgroup))
    }

    pub(crate) fn start(cgroup: Option<BorrowedFd<'_>>) -> Self {
        husk_deadline::watch(&[]);
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let mut command = Command::new("cat");
        command.stdin(read).stdout(Stdio::null()).kill_on_drop();
        if let Some(cgroup) = cgroup {
            command.cgroup(cgroup.try_clone_to_owned().expect("a descriptor"));
        }
        let mut child = command.spawn().expect("cat");
        child.wait_for_exec().expect("exec");
        Self { child, _input: write }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }
}
