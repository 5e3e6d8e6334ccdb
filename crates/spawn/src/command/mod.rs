//! [`Command`], the public builder.

mod debug;
pub(crate) mod environment;
pub(crate) mod fds;
pub(crate) mod filter;
pub(crate) mod idmap;
pub(crate) mod join;
pub(crate) mod program;
pub(crate) mod stdio;
mod subids;

use crate::error::{Error, Reason};
use crate::memory::writer::{Sharing, Writer};
use environment::Environment;
use filter::Filters;
use husk_script::Step;
use husk_script::sys::file::Mode;
use husk_script::sys::limits::{Resource, Rlimit, SchedAttr};
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::signal::{Signal, SignalSet};
use husk_script::sys::{Fd, Gid, Pid, Uid};
use idmap::{IdMap, IdMaps};
use join::Join;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::fd::{OwnedFd, RawFd};
use std::path::Path;
use stdio::Stdio;

/// A closure that adds steps to a list; called for every child.
pub(crate) type Steps = Box<dyn for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync>;

/// Builds and starts a process, like [`std::process::Command`], with more attributes and at a lower cost.
///
/// No process is started until [`spawn`](Self::spawn), [`spawn_and_exec`](Self::spawn_and_exec),
/// [`status`](Self::status) or [`output`](Self::output) is called. A command may be started any number of
/// times, from any thread. Settings are applied in the order of the sections below, whatever order they were
/// given in.
///
/// Unlike with std,
/// - the program receives only the standard streams and the descriptors of [`fd`](Self::fd), even if the
///   parent has others that are not close-on-exec;
/// - a program without a slash is looked up before the child exists, in the PATH that the program will have.
///   One with a slash is relative to the program's working directory;
/// - an error names the step that failed.
///
/// ```
/// # fn main() -> Result<(), husk_spawn::Error> {
/// use husk_spawn::Command;
///
/// let output = Command::new("printf").arg("%s").arg("hello").output()?;
/// assert_eq!(output.stdout, b"hello");
/// # Ok(())
/// # }
/// ```
pub struct Command {
    /// Writes the whole list, for [`of_steps`](Self::of_steps); `None` if the settings below define it.
    pub(crate) whole: Option<Steps>,
    pub(crate) program: OsString,
    pub(crate) arg0: Option<OsString>,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: Environment,
    pub(crate) cwd: Option<OsString>,
    pub(crate) streams: [Option<Stdio>; 3],
    pub(crate) fds: Vec<(Fd, OwnedFd)>,
    pub(crate) new_session: bool,
    pub(crate) process_group: Option<Option<Pid>>,
    pub(crate) controlling_terminal: bool,
    pub(crate) foreground: bool,
    pub(crate) ignored: Vec<Signal>,
    pub(crate) blocked: SignalSet,
    pub(crate) parent_death_signal: Option<Signal>,
    pub(crate) rlimits: Vec<(Resource, Rlimit)>,
    pub(crate) nice: Option<i32>,
    pub(crate) scheduler: Option<SchedAttr>,
    pub(crate) io_priority: Option<(u8, u8)>,
    pub(crate) affinity: Option<Vec<u64>>,
    pub(crate) umask: Option<Mode>,
    pub(crate) groups: Option<Vec<Gid>>,
    pub(crate) gid: Option<Gid>,
    pub(crate) uid: Option<Uid>,
    pub(crate) no_new_privs: bool,
    pub(crate) namespaces: Namespaces,
    pub(crate) joins: Vec<Join>,
    pub(crate) maps: IdMaps,
    pub(crate) hostname: Option<OsString>,
    pub(crate) cgroup: Option<OwnedFd>,
    pub(crate) pids: Vec<i32>,
    pub(crate) steps: Vec<Steps>,
    pub(crate) final_steps: Vec<Steps>,
    pub(crate) filters: Filters,
    pub(crate) kill_on_drop: bool,
    pub(crate) notify_release: bool,
    pub(crate) timed: bool,
    pub(crate) sharing: Sharing,
}

/// # Program
impl Command {
    /// Creates a command that runs `program` without arguments. It inherits the environment, working
    /// directory and standard streams of this process, and nothing else.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            whole: None,
            program: program.as_ref().to_owned(),
            arg0: None,
            args: Vec::new(),
            environment: Environment::default(),
            cwd: None,
            streams: [None, None, None],
            fds: Vec::new(),
            new_session: false,
            process_group: None,
            controlling_terminal: false,
            foreground: false,
            ignored: Vec::new(),
            blocked: SignalSet::EMPTY,
            parent_death_signal: None,
            rlimits: Vec::new(),
            nice: None,
            scheduler: None,
            io_priority: None,
            affinity: None,
            umask: None,
            groups: None,
            gid: None,
            uid: None,
            no_new_privs: false,
            namespaces: Namespaces::EMPTY,
            joins: Vec::new(),
            maps: IdMaps::default(),
            hostname: None,
            cgroup: None,
            pids: Vec::new(),
            steps: Vec::new(),
            final_steps: Vec::new(),
            filters: Ok(Vec::new()),
            kill_on_drop: false,
            notify_release: false,
            timed: false,
            sharing: Sharing::Shared,
        }
    }

    /// Creates a command whose list, including exec, is written by `write` alone.
    ///
    /// Settings that would become steps have no effect. The others do: new namespaces, time namespaces to join,
    /// the cgroup, the pids, and id maps. The list requests the id maps with
    /// [`Request::IdMaps`](crate::Request).
    ///
    /// The child always has a socket to this process; see
    /// [`Child::next_request`](crate::Child::next_request).
    pub fn of_steps(
        write: impl for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self { whole: Some(Box::new(write)), ..Self::new("") }
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl AsRef<OsStr>) -> &mut Self {
        self.args.push(argument.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.args.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// Sets `argv[0]`. The default is the program as given.
    pub fn arg0(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.arg0 = Some(name.as_ref().to_owned());
        self
    }

    /// Sets an environment variable.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment.set(name.as_ref(), value.as_ref());
        self
    }

    /// Sets environment variables.
    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Self {
        for (name, value) in variables {
            self.env(name, value);
        }
        self
    }

    /// Removes an environment variable, whether set or inherited.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.environment.remove(name.as_ref());
        self
    }

    /// Removes every environment variable, set or inherited. Later settings still apply.
    pub fn env_clear(&mut self) -> &mut Self {
        self.environment.clear();
        self
    }

    /// Sets the program's working directory. The child enters it after taking the program's identity.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.cwd = Some(directory.as_ref().as_os_str().to_owned());
        self
    }
}

/// # Descriptors
impl Command {
    /// Sets standard input. Inherited by default; `/dev/null` for [`output`](Self::output).
    pub fn stdin(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.streams[0] = Some(stdio.into());
        self
    }

    /// Sets standard output. Inherited by default; captured by [`output`](Self::output).
    pub fn stdout(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.streams[1] = Some(stdio.into());
        self
    }

    /// Sets standard error. Inherited by default; captured by [`output`](Self::output).
    pub fn stderr(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.streams[2] = Some(stdio.into());
        self
    }

    /// Gives the program `fd` as its descriptor `number`, whatever numbers are in use in this process. A
    /// later call for the same number replaces an earlier one. 0, 1 and 2 are the standard streams.
    pub fn fd(&mut self, number: RawFd, fd: impl Into<OwnedFd>) -> &mut Self {
        if let Some(stream) = usize::try_from(number).ok().and_then(|index| self.streams.get_mut(index)) {
            *stream = Some(Stdio::from(fd));
            return self;
        }
        // A negative number becomes `Fd::MAX`, which the kernel rejects as beyond the limit.
        let to = Fd::new(number).unwrap_or(Fd::MAX);
        self.fds.retain(|(other, _)| *other != to);
        self.fds.push((to, fd.into()));
        self
    }
}

/// # Session, terminal, signals
impl Command {
    /// Makes the program the leader of a new session, without a terminal.
    pub fn new_session(&mut self) -> &mut Self {
        self.new_session = true;
        self
    }

    /// Puts the program into process group `group`; 0 creates a group of its own, as with std.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.process_group = Some(Pid::from_raw(group));
        self
    }

    /// Makes standard input, a terminal, the controlling terminal of the program's session. Requires a [new
    /// session](Self::new_session).
    pub fn controlling_terminal(&mut self) -> &mut Self {
        self.controlling_terminal = true;
        self
    }

    /// Makes the program's process group the foreground group of the terminal on standard input.
    pub fn foreground(&mut self) -> &mut Self {
        self.foreground = true;
        self
    }

    /// Starts the program with `signal` ignored. Signals that this process ignores stay ignored, except
    /// SIGPIPE, which Rust's runtime ignores in every program.
    pub fn ignore_signal(&mut self, signal: Signal) -> &mut Self {
        self.ignored.push(signal);
        self
    }

    /// Sets the signals that are blocked when the program starts; none by default.
    pub fn blocked_signals(&mut self, signals: SignalSet) -> &mut Self {
        self.blocked = signals;
        self
    }

    /// Sets the signal that the program receives when the *thread* that started it ends. If the parent is
    /// already dead, the child fails, and the error is lost with the parent.
    pub fn parent_death_signal(&mut self, signal: Signal) -> &mut Self {
        self.parent_death_signal = Some(signal);
        self
    }
}

/// # Limits and scheduling
impl Command {
    /// Sets a resource limit; `None` means unlimited.
    pub fn rlimit(&mut self, resource: Resource, soft: Option<u64>, hard: Option<u64>) -> &mut Self {
        self.rlimits.push((resource, Rlimit { current: soft, maximum: hard }));
        self
    }

    /// Sets the nice value, -20 to 19.
    pub fn nice(&mut self, nice: i32) -> &mut Self {
        self.nice = Some(nice);
        self
    }

    /// Sets the scheduling policy and its parameters.
    pub fn scheduler(&mut self, attr: SchedAttr) -> &mut Self {
        self.scheduler = Some(attr);
        self
    }

    /// Sets the I/O priority: class 1 (real-time), 2 (best-effort) or 3 (idle); level 0 (highest) to 7.
    pub fn io_priority(&mut self, class: u8, level: u8) -> &mut Self {
        self.io_priority = Some((class, level));
        self
    }

    /// Sets the CPUs that the program may run on, by number.
    pub fn affinity(&mut self, cpus: impl IntoIterator<Item = usize>) -> &mut Self {
        let mut mask = Vec::new();
        for cpu in cpus {
            if mask.len() <= cpu / 64 {
                mask.resize(cpu / 64 + 1, 0);
            }
            mask[cpu / 64] |= 1 << (cpu % 64);
        }
        self.affinity = Some(mask);
        self
    }

    /// Sets the umask: the permission bits that new files of the program do not get.
    pub fn umask(&mut self, mask: u32) -> &mut Self {
        self.umask = Some(Mode::from_raw_mode(mask));
        self
    }

    /// Creates the program in the cgroup whose directory (in a cgroup2 tree) this is. The program is never
    /// moved between cgroups, which would stall every fork on the host.
    pub fn cgroup(&mut self, directory: impl Into<OwnedFd>) -> &mut Self {
        self.cgroup = Some(directory.into());
        self
    }
}

/// # Identity
///
/// A child with fewer privileges than this process shares its memory until exec. Meanwhile *this* process is
/// undumpable, from before the child exists, so that no process of the new user can open its memory through
/// the child. Afterwards the previous state is restored. If this process runs as root, this also applies to
/// children in a [user namespace](Self::new_namespaces).
impl Command {
    /// Sets the user: real, effective and saved id. If this process runs as root and [groups](Self::groups)
    /// is not called, the program has no supplementary groups.
    pub fn uid(&mut self, uid: u32) -> &mut Self {
        self.uid = Some(Uid::from_raw(uid));
        self
    }

    /// Sets the group: real, effective and saved id.
    pub fn gid(&mut self, gid: u32) -> &mut Self {
        self.gid = Some(Gid::from_raw(gid));
        self
    }

    /// Sets the complete list of supplementary groups.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Self {
        self.groups = Some(groups.iter().copied().map(Gid::from_raw).collect());
        self
    }

    /// Prevents the program, and every program it execs, from gaining privileges.
    pub fn no_new_privs(&mut self) -> &mut Self {
        self.no_new_privs = true;
        self
    }
}

/// # Namespaces
impl Command {
    /// Creates new namespaces for the program. Every kind except a user namespace needs CAP_SYS_ADMIN, which
    /// the first process of a new user namespace has.
    pub fn new_namespaces(&mut self, namespaces: Namespaces) -> &mut Self {
        self.namespaces |= namespaces;
        self
    }

    /// Starts the program in existing namespaces. `fd` is either a pidfd, whose namespaces of `kinds` are
    /// joined, or a file of `/proc/PID/ns`.
    ///
    /// The child joins them itself, a user namespace first. [New namespaces](Self::new_namespaces) belong to
    /// that user namespace. CAP_SYS_ADMIN is needed here unless a user namespace is among those joined.
    ///
    /// # Pid namespaces
    ///
    /// Processes in the joined pid namespace see the program's process and, with CAP_SYS_PTRACE, may inspect
    /// it. So the child does everything else first, outside the namespace, where they do not see it. It then
    /// starts the program in a second process. From the moment that this process appears,
    /// - it has the program's ids, capabilities, limits and directory;
    /// - it holds only the program's descriptors and, if there is one, a socket to this process;
    /// - its memory is a copy, so nothing written to it reaches this process. Reading it requires
    ///   CAP_SYS_PTRACE in the user namespace of this process. A container that has this capability and no
    ///   user namespace of its own may read what this process holds in memory.
    ///
    /// [Steps](Self::steps) are performed outside the pid namespace. [Final steps](Self::final_steps) are
    /// performed inside, where descriptors of this process are closed. The copy costs as much as fork.
    ///
    /// # Time namespaces
    ///
    /// A process cannot join a time namespace while its memory is shared. If the program starts in a second
    /// process, that process joins it. Otherwise the calling thread joins it during the clone. This needs
    /// CAP_SYS_ADMIN here and a process with no other thread. The thread can return only when no child shares
    /// its memory, so [`spawn`](Self::spawn) then returns no sooner than
    /// [`spawn_and_exec`](Self::spawn_and_exec).
    pub fn join(&mut self, fd: impl Into<OwnedFd>, kinds: Namespaces) -> &mut Self {
        self.joins.push(Join { fd: fd.into(), kinds });
        self
    }

    /// Creates a new user namespace with these maps. See [`IdMaps`] for the usual ones.
    pub fn id_maps(&mut self, maps: &IdMaps) -> &mut Self {
        self.maps = maps.clone();
        self.new_namespaces(Namespaces::USER)
    }

    /// Sets the user ids of a new user namespace. To map anything other than its own id, this process needs
    /// CAP_SETUID or newuidmap(1). The latter must be in an absolute directory of PATH, and /etc/subuid must
    /// have a range for the user. This process then writes the maps, and the child waits for it.
    pub fn uid_map(&mut self, maps: &[IdMap]) -> &mut Self {
        self.maps.uids = maps.to_vec();
        self
    }

    /// Sets the group ids of a new user namespace. To map anything other than the caller's own id, this
    /// process needs CAP_SETGID, or newgidmap(1) under the same conditions. The child can map the caller's
    /// own id itself, but can then never change its supplementary groups.
    pub fn gid_map(&mut self, maps: &[IdMap]) -> &mut Self {
        self.maps.gids = maps.to_vec();
        self
    }

    /// Sets the host name. Requires a new or joined UTS namespace.
    pub fn hostname(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.hostname = Some(name.as_ref().to_owned());
        self
    }

    /// Chooses the program's pid in its own pid namespace, then in each ancestor (clone3(2), `set_tid`).
    /// Needs CAP_CHECKPOINT_RESTORE over each of them.
    pub fn pids(&mut self, pids: &[i32]) -> &mut Self {
        self.pids = pids.to_vec();
        self
    }
}

/// # Other steps
impl Command {
    /// Adds a step that the child performs after namespaces, limits and the like are set up. It precedes the
    /// program's identity, working directory and descriptors. Steps refer to descriptors of this process by
    /// their numbers here.
    ///
    /// ```
    /// # fn main() -> Result<(), husk_spawn::Error> {
    /// use husk_spawn::{Command, Step};
    ///
    /// let error = Command::new("true").step(Step::Chroot { path: c"/no/such" }).status().unwrap_err();
    /// assert!(error.to_string().starts_with("chroot /no/such: No such file or directory"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn step(&mut self, step: Step<'static>) -> &mut Self {
        self.steps(move |writer| {
            writer.push(step);
            Ok(())
        })
    }

    /// Like [`step`](Self::step), for steps that depend on facts known only when a child is started. `write`
    /// is called in this process for every child.
    pub fn steps(
        &mut self,
        write: impl for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> &mut Self {
        self.steps.push(Box::new(write));
        self
    }

    /// Like [`steps`](Self::steps), for steps just before exec, with the program's identity, working
    /// directory and descriptors. Only unblocking signals and exec follow.
    pub fn final_steps(
        &mut self,
        write: impl for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> &mut Self {
        self.final_steps.push(Box::new(write));
        self
    }
}

/// # Start options
impl Command {
    /// Kills and reaps the process when its [`Child`](crate::Child) is dropped before it was waited for.
    pub fn kill_on_drop(&mut self) -> &mut Self {
        self.kill_on_drop = true;
        self
    }

    /// Enables [`Child::release_fd`](crate::Child::release_fd), a descriptor on which an event loop can wait
    /// for the exec. Costs a pair of sockets per child.
    pub fn notify_release(&mut self) -> &mut Self {
        self.notify_release = true;
        self
    }

    /// Starts the child in a copy of this process's memory, as fork does, instead of sharing it.
    ///
    /// The OOM killer then kills only the child, and a process that may trace the child cannot change this
    /// process's memory. The copy costs as much as fork. A process that may trace the child can read the copy
    /// until the program starts or [`Step::ForgetMemory`] has emptied it.
    pub fn own_memory(&mut self) -> &mut Self {
        self.sharing = Sharing::Copied;
        self
    }

    /// Records when each step begins, for [`Child::times`](crate::Child::times). Costs the child one system
    /// call per step.
    pub fn timed(&mut self) -> &mut Self {
        self.timed = true;
        self
    }
}

impl Command {
    /// Returns the file to exec.
    pub(crate) fn resolved_program(&self) -> Result<Cow<'_, OsStr>, Error> {
        if program::is_path(&self.program) {
            return Ok(Cow::Borrowed(&self.program));
        }
        program::find(&self.program, self.environment.path(), self.cwd.as_deref()).map(Cow::Owned)
    }

    /// Whether the program's user namespace will differ from this process's.
    pub(crate) fn enters_user_namespace(&self) -> bool {
        self.enters(Namespaces::USER)
    }

    /// Whether the program's pid namespace will differ from this process's.
    pub(crate) fn enters_pid_namespace(&self) -> bool {
        self.enters(Namespaces::PID)
    }

    fn enters(&self, kind: Namespaces) -> bool {
        self.namespaces.contains(kind) || self.joins(kind)
    }

    /// Whether the program joins an existing namespace of this kind.
    pub(crate) fn joins(&self, kind: Namespaces) -> bool {
        self.joins.iter().any(|join| join.kinds.contains(kind))
    }

    /// Whether a second process performs the rest of the list. This is needed for three reasons:
    /// - The child may be privileged to join or create some namespaces only inside the user namespace that it
    ///   joins.
    /// - A joined pid namespace applies only to later children, and a time namespace only to a process whose
    ///   memory is not shared.
    /// - The kernel creates no child in a joined pid namespace while it shares the parent's memory.
    pub(crate) fn runs_in_second_process(&self) -> bool {
        let is_made_there = || self.enters_pid_namespace() || self.joins(Namespaces::TIME);
        self.whole.is_none()
            && (self.joins(Namespaces::PID) || self.joins(Namespaces::USER) && is_made_there())
    }

    /// Whether the process that becomes the program is created after everything else is done, because its pid
    /// namespace already has other processes.
    pub(crate) fn appears_last(&self) -> bool {
        self.whole.is_none() && self.joins(Namespaces::PID)
    }

    /// The namespaces that clone creates with the child. If the child joins a user namespace, it creates the
    /// new namespaces itself, so that they belong to that one.
    pub(crate) fn initial_namespaces(&self) -> Namespaces {
        if self.joins(Namespaces::USER) { Namespaces::EMPTY } else { self.namespaces }
    }

    /// Rejects settings that contradict each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let conflict = |act: &str, why| Err(Error::new(act, Reason::Conflict(why)));
        if self.whole.is_none() && !self.maps.is_empty() && !self.namespaces.contains(Namespaces::USER) {
            return conflict("id maps", "only a new user namespace has its ids mapped");
        }
        self.check_filters()?;
        if self.hostname.is_some() && !self.enters(Namespaces::UTS) {
            return conflict("hostname", "would be set for the whole host, without a UTS namespace");
        }
        if self.controlling_terminal && !self.new_session {
            return conflict("controlling terminal", "only a new session can take one");
        }
        let in_both = |kind| self.joins(kind) && self.namespaces.contains(kind);
        if in_both(Namespaces::PID) || in_both(Namespaces::TIME) {
            return conflict("join", "a pid or time namespace cannot be both joined and new");
        }
        if self.joins(Namespaces::PID) && !self.pids.is_empty() {
            return conflict("pids", "cannot be chosen in a pid namespace that is joined");
        }
        if self.joins(Namespaces::PID) && self.whole.is_some() {
            return conflict("join", "a list that is whole joins a pid namespace by a step of its own");
        }
        Ok(())
    }
}
