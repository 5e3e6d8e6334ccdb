//! The public builder.

pub(crate) mod environment;
pub(crate) mod fds;
pub(crate) mod idmap;
pub(crate) mod join;
pub(crate) mod program;
pub(crate) mod stdio;

use crate::error::{Error, Reason};
use crate::memory::writer::{Sharing, Writer};
use environment::Environment;
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

/// What adds steps to a list, anew for every child.
pub(crate) type Steps = Box<dyn for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync>;

/// A process to be started: a builder in the manner of [`std::process::Command`], which says more
/// of the process and starts it faster.
///
/// Nothing happens until [`spawn`](Self::spawn), [`spawn_and_exec`](Self::spawn_and_exec),
/// [`status`](Self::status) or [`output`](Self::output) is called; a command may be started any
/// number of times, from any thread. The settings are made in the order of the chapters below,
/// whatever order they were given in.
///
/// Unlike with std,
/// - the program has standard input, output and error and the descriptors of [`fd`](Self::fd), and
///   no other, whether or not those of the parent are marked close-on-exec;
/// - a program without a slash is looked up before the child exists, in the PATH that the program
///   will have; one with a slash is relative to the program's working directory;
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
    /// The whole list, if it is not made of the settings below.
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
    pub(crate) kill_on_drop: bool,
    pub(crate) notify_release: bool,
    pub(crate) timed: bool,
    pub(crate) sharing: Sharing,
}

/// # What to run
impl Command {
    /// A command that runs `program` with no arguments, the environment, working directory and
    /// standard streams of this process, and nothing else of it.
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
            kill_on_drop: false,
            notify_release: false,
            timed: false,
            sharing: Sharing::Shared,
        }
    }

    /// A process whose list, exec included, is written by `write` alone. Of the other settings only
    /// those have an effect that are no steps: new namespaces, id maps (which the list asks for by
    /// [`Request::IdMaps`](crate::Request)), time namespaces joined, the cgroup, the pids.
    ///
    /// The child has a socket to this process from the beginning; see
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

    /// What the program is told its own name is: the program as given, if not said otherwise.
    pub fn arg0(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.arg0 = Some(name.as_ref().to_owned());
        self
    }

    /// Sets a variable of the environment.
    pub fn env(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment.set(name.as_ref(), value.as_ref());
        self
    }

    /// Sets variables of the environment.
    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Self {
        for (name, value) in variables {
            self.env(name, value);
        }
        self
    }

    /// Removes a variable, set or inherited.
    pub fn env_remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.environment.remove(name.as_ref());
        self
    }

    /// Removes every variable, set or inherited. Those set later count.
    pub fn env_clear(&mut self) -> &mut Self {
        self.environment.clear();
        self
    }

    /// The program's working directory, entered with the program's identity.
    pub fn current_dir(&mut self, directory: impl AsRef<Path>) -> &mut Self {
        self.cwd = Some(directory.as_ref().as_os_str().to_owned());
        self
    }
}

/// # Descriptors
impl Command {
    /// Standard input: inherited if not said otherwise, `/dev/null` for [`output`](Self::output).
    pub fn stdin(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.streams[0] = Some(stdio.into());
        self
    }

    /// Standard output: inherited if not said otherwise, captured by [`output`](Self::output).
    pub fn stdout(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.streams[1] = Some(stdio.into());
        self
    }

    /// Standard error: inherited if not said otherwise, captured by [`output`](Self::output).
    pub fn stderr(&mut self, stdio: impl Into<Stdio>) -> &mut Self {
        self.streams[2] = Some(stdio.into());
        self
    }

    /// Gives the program `fd` as its descriptor `number`, whatever numbers they and others have
    /// here; a later one for the same number replaces an earlier one. 0, 1 and 2 are the standard
    /// streams.
    pub fn fd(&mut self, number: RawFd, fd: impl Into<OwnedFd>) -> &mut Self {
        if let Some(stream) = usize::try_from(number).ok().and_then(|index| self.streams.get_mut(index)) {
            *stream = Some(Stdio::from(fd));
            return self;
        }
        // A number that is none is as far beyond the limit as any, and refused by the kernel.
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

    /// Puts the program into a process group: one of its own for 0, as with std.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.process_group = Some(Pid::from_raw(group));
        self
    }

    /// Makes standard input, a terminal, the controlling terminal of the program's session: of a
    /// [new session](Self::new_session).
    pub fn controlling_terminal(&mut self) -> &mut Self {
        self.controlling_terminal = true;
        self
    }

    /// Makes the program's process group the foreground group of standard input, a terminal.
    pub fn foreground(&mut self) -> &mut Self {
        self.foreground = true;
        self
    }

    /// Has the program begin with `signal` ignored. Others that this process ignores stay ignored,
    /// except SIGPIPE, which Rust ignores in every program.
    pub fn ignore_signal(&mut self, signal: Signal) -> &mut Self {
        self.ignored.push(signal);
        self
    }

    /// The signals that the program begins with blocked: none, if not said otherwise.
    pub fn blocked_signals(&mut self, signals: SignalSet) -> &mut Self {
        self.blocked = signals;
        self
    }

    /// The signal the program gets when the *thread* that started it ends. A parent that is gone
    /// already is an error of the child, which nobody is left to see.
    pub fn parent_death_signal(&mut self, signal: Signal) -> &mut Self {
        self.parent_death_signal = Some(signal);
        self
    }
}

/// # Limits and scheduling
impl Command {
    /// A resource limit; `None` is unlimited.
    pub fn rlimit(&mut self, resource: Resource, soft: Option<u64>, hard: Option<u64>) -> &mut Self {
        self.rlimits.push((resource, Rlimit { current: soft, maximum: hard }));
        self
    }

    /// The nice value, -20 to 19.
    pub fn nice(&mut self, nice: i32) -> &mut Self {
        self.nice = Some(nice);
        self
    }

    /// The scheduling policy with its parameters.
    pub fn scheduler(&mut self, attr: SchedAttr) -> &mut Self {
        self.scheduler = Some(attr);
        self
    }

    /// The I/O priority: class 1 real-time, 2 best-effort or 3 idle; level 0, the highest, to 7.
    pub fn io_priority(&mut self, class: u8, level: u8) -> &mut Self {
        self.io_priority = Some((class, level));
        self
    }

    /// The CPUs the program may run on, by number.
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

    /// The permissions that files the program makes will not have.
    pub fn umask(&mut self, mask: u32) -> &mut Self {
        self.umask = Some(Mode::from_raw_mode(mask));
        self
    }

    /// The cgroup, a directory of a cgroup2 tree, that the program is born in: it is never moved,
    /// which would stall every fork on the host.
    pub fn cgroup(&mut self, directory: impl Into<OwnedFd>) -> &mut Self {
        self.cgroup = Some(directory.into());
        self
    }
}

/// # Identity
///
/// A child that is weaker than this process shares its memory until it execs. The memory of *this* process
/// is undumpable meanwhile, from before the child exists, so that no other process of the new user can open
/// it through the child. Afterwards it is as before. The same holds for children in a
/// [user namespace](Self::new_namespaces) if this process is root's.
impl Command {
    /// The user: real, effective and saved id. If this process is root's and nothing is said of
    /// [groups](Self::groups), the program has no supplementary groups.
    pub fn uid(&mut self, uid: u32) -> &mut Self {
        self.uid = Some(Uid::from_raw(uid));
        self
    }

    /// The group: real, effective and saved id.
    pub fn gid(&mut self, gid: u32) -> &mut Self {
        self.gid = Some(Gid::from_raw(gid));
        self
    }

    /// The supplementary groups, all of them.
    pub fn groups(&mut self, groups: &[u32]) -> &mut Self {
        self.groups = Some(groups.iter().copied().map(Gid::from_raw).collect());
        self
    }

    /// Keeps the program, and all it execs, from gaining privileges.
    pub fn no_new_privs(&mut self) -> &mut Self {
        self.no_new_privs = true;
        self
    }
}

/// # Namespaces
impl Command {
    /// New namespaces for the program. All but a user namespace need CAP_SYS_ADMIN, which the
    /// first process of a new user namespace has.
    pub fn new_namespaces(&mut self, namespaces: Namespaces) -> &mut Self {
        self.namespaces |= namespaces;
        self
    }

    /// Starts the program in namespaces of somebody else: those of `kinds` that `fd`, a pidfd,
    /// is in, or the one that `fd`, a file of `/proc/PID/ns`, is.
    ///
    /// The child joins them itself, a user namespace first; [new ones](Self::new_namespaces) belong to
    /// that. With a user namespace among them no privilege is needed here, otherwise CAP_SYS_ADMIN is.
    ///
    /// # A pid namespace
    ///
    /// Processes that live in it see the program's process, and with CAP_SYS_PTRACE may look into it. So the
    /// child does everything else first, outside, where they do not see it, and starts the program in a
    /// second process. From the moment that process appears,
    /// - it has the program's ids, capabilities, limits and directory;
    /// - it holds no descriptor but the program's, and a socket to this process if there is one;
    /// - its memory is a copy: nothing written to it reaches this process. Only CAP_SYS_PTRACE in the user
    ///   namespace of this process allows to read it. A container that has that capability and no user
    ///   namespace of its own may read what this process holds in memory.
    ///
    /// [Steps](Self::steps) are performed outside; [final steps](Self::final_steps) inside, where
    /// descriptors of this process are closed. The copy costs what fork costs.
    ///
    /// # A time namespace
    ///
    /// It cannot be joined in shared memory. Where the program starts in a second process anyway, that one
    /// joins it. Otherwise the calling thread does, for the moment of the clone, which needs CAP_SYS_ADMIN
    /// here and that this process has no other thread. Such a thread comes back only when no child shares its
    /// memory, so [`spawn`](Self::spawn) then returns no sooner than
    /// [`spawn_and_exec`](Self::spawn_and_exec).
    pub fn join(&mut self, fd: impl Into<OwnedFd>, kinds: Namespaces) -> &mut Self {
        self.joins.push(Join { fd: fd.into(), kinds });
        self
    }

    /// The user ids of a new user namespace. More than one, or another than our own, needs
    /// CAP_SETUID here, or newuidmap(1) in an absolute directory of PATH and a range in /etc/subuid.
    /// The child waits for us to write them.
    pub fn uid_map(&mut self, maps: &[IdMap]) -> &mut Self {
        self.maps.uids = maps.to_vec();
        self
    }

    /// The group ids of a new user namespace. More than one, or another than our own, needs
    /// CAP_SETGID here, or newgidmap(1) in the same way. Our own alone can be mapped by the child itself, at the price that it can
    /// never change its supplementary groups.
    pub fn gid_map(&mut self, maps: &[IdMap]) -> &mut Self {
        self.maps.gids = maps.to_vec();
        self
    }

    /// The host name, of a new UTS namespace.
    pub fn hostname(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.hostname = Some(name.as_ref().to_owned());
        self
    }

    /// The program's pid in its own pid namespace, then in the one above, and so on (clone3(2),
    /// `set_tid`). Needs CAP_CHECKPOINT_RESTORE over each.
    pub fn pids(&mut self, pids: &[i32]) -> &mut Self {
        self.pids = pids.to_vec();
        self
    }
}

/// # Anything else
impl Command {
    /// Has the child perform a step: after namespaces, limits and the rest are set up, before it
    /// takes the program's identity, working directory and descriptors. Descriptors of this
    /// process are known to steps by their numbers here.
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

    /// The same for steps that depend on what is known only when a child is started. `write` is
    /// called in this process, for every child anew.
    pub fn steps(
        &mut self,
        write: impl for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> &mut Self {
        self.steps.push(Box::new(write));
        self
    }

    /// The same for steps just before exec, with the program's identity, working directory and
    /// descriptors: the last thing before signals are unblocked.
    pub fn final_steps(
        &mut self,
        write: impl for<'b> Fn(&mut Writer<'b>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> &mut Self {
        self.final_steps.push(Box::new(write));
        self
    }
}

/// # Starting it
impl Command {
    /// Kills the process and waits for it when its [`Child`](crate::Child) is dropped before it was waited
    /// for.
    pub fn kill_on_drop(&mut self) -> &mut Self {
        self.kill_on_drop = true;
        self
    }

    /// Makes [`Child::release_fd`](crate::Child::release_fd) available: a descriptor that an event loop can
    /// wait on for the exec. It costs a pair of sockets for each child.
    pub fn notify_release(&mut self) -> &mut Self {
        self.notify_release = true;
        self
    }

    /// Starts the child in a copy of this process's memory, as fork does, and not in the memory itself.
    ///
    /// What becomes of the child's memory then concerns this process no more: the OOM killer ends the child
    /// alone, and whoever may trace the child changes nothing here. The copy costs what fork costs. Whoever may
    /// trace the child also reads it, until the program begins or [`Step::ForgetMemory`] has emptied it.
    pub fn own_memory(&mut self) -> &mut Self {
        self.sharing = Sharing::Copied;
        self
    }

    /// Has the child write down when each step begins, for [`Child::times`](crate::Child::times). That
    /// costs it a system call a step.
    pub fn timed(&mut self) -> &mut Self {
        self.timed = true;
        self
    }
}

impl Command {
    /// The file to exec.
    pub(crate) fn resolved_program(&self) -> Result<Cow<'_, OsStr>, Error> {
        if program::is_path(&self.program) {
            return Ok(Cow::Borrowed(&self.program));
        }
        program::find(&self.program, self.environment.path(), self.cwd.as_deref()).map(Cow::Owned)
    }

    /// Whether the program's user namespace will be another than ours.
    pub(crate) fn enters_user_namespace(&self) -> bool {
        self.enters(Namespaces::USER)
    }

    /// Whether the program's pid namespace will be another than ours.
    pub(crate) fn enters_pid_namespace(&self) -> bool {
        self.enters(Namespaces::PID)
    }

    fn enters(&self, kind: Namespaces) -> bool {
        self.namespaces.contains(kind) || self.joins(kind)
    }

    /// Whether the program will be in a namespace of this kind that is somebody else's.
    pub(crate) fn joins(&self, kind: Namespaces) -> bool {
        self.joins.iter().any(|join| join.kinds.contains(kind))
    }

    /// Whether the list goes on in another process. The child has the privilege to join or make some
    /// namespaces only in a user namespace that it joins; a pid namespace holds for its own children, a
    /// time namespace for a process that shares memory with nobody. And no child is born into a pid
    /// namespace of others while it shares our memory.
    pub(crate) fn runs_in_second_process(&self) -> bool {
        let is_made_there = || self.enters_pid_namespace() || self.joins(Namespaces::TIME);
        self.whole.is_none()
            && (self.joins(Namespaces::PID) || self.joins(Namespaces::USER) && is_made_there())
    }

    /// Whether the process that becomes the program is born when everything else is done, because others
    /// live in its pid namespace.
    pub(crate) fn appears_last(&self) -> bool {
        self.whole.is_none() && self.joins(Namespaces::PID)
    }

    /// The namespaces that the child is born in. Those that are to belong to a user namespace of
    /// somebody else are made by the child when it is there.
    pub(crate) fn initial_namespaces(&self) -> Namespaces {
        if self.joins(Namespaces::USER) { Namespaces::EMPTY } else { self.namespaces }
    }

    /// Refuses settings that contradict each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let conflict = |act: &str, why| Err(Error::new(act, Reason::Conflict(why)));
        if self.whole.is_none() && !self.maps.is_empty() && !self.namespaces.contains(Namespaces::USER) {
            return conflict("id maps", "only a new user namespace has its ids mapped");
        }
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
