//! Formats commands as text.

use super::Command;
use std::fmt::{self, Debug, Formatter};

impl Debug for Command {
    /// Formats the program and its arguments as std does: `"ls" "-l"`, with the working directory and variables
    /// before them. The alternate form (`{:#?}`) shows all that is set. For what a child will do, see
    /// [`listing`](Self::listing).
    ///
    /// The values of variables are shown, which may be secret.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if f.alternate() { self.settings(f) } else { self.line(f) }
    }
}

impl Command {
    fn line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.whole.is_some() {
            return f.write_str("(steps)");
        }
        if let Some(cwd) = &self.cwd {
            write!(f, "cd {cwd:?} && ")?;
        }
        self.environment.line(f)?;
        match &self.arg0 {
            Some(arg0) if *arg0 != self.program => write!(f, "[{:?}] {arg0:?}", self.program)?,
            _ => write!(f, "{:?}", self.program)?,
        }
        self.args.iter().try_for_each(|argument| write!(f, " {argument:?}"))
    }

    fn settings(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Command");
        if self.whole.is_none() {
            all.field("program", &self.program).field("args", &self.args);
        }
        let mut given = |name, value: &dyn Debug, is_set: bool| {
            if is_set {
                all.field(name, value);
            }
        };
        given("arg0", &self.arg0, self.arg0.is_some());
        given("environment", &self.environment, self.environment.is_changed());
        given("cwd", &self.cwd, self.cwd.is_some());
        let [stdin, stdout, stderr] = &self.streams;
        given("stdin", stdin, stdin.is_some());
        given("stdout", stdout, stdout.is_some());
        given("stderr", stderr, stderr.is_some());
        given("fds", &self.fds.iter().map(|(to, _)| to.number()).collect::<Vec<_>>(), !self.fds.is_empty());
        given("new_session", &true, self.new_session);
        let group = self.process_group.map(|group| group.map_or(0, |group| group.as_raw_pid()));
        given("process_group", &group.unwrap_or_default(), group.is_some());
        given("controlling_terminal", &true, self.controlling_terminal);
        given("foreground", &true, self.foreground);
        given("ignored_signals", &numbers(&self.ignored), !self.ignored.is_empty());
        given("blocked_signals", &Hex(self.blocked.bits()), self.blocked.bits() != 0);
        let death = self.parent_death_signal.map(|signal| signal.number());
        given("parent_death_signal", &death.unwrap_or_default(), death.is_some());
        given("rlimits", &self.rlimits, !self.rlimits.is_empty());
        given("nice", &self.nice, self.nice.is_some());
        given("scheduler", &self.scheduler, self.scheduler.is_some());
        given("io_priority", &self.io_priority, self.io_priority.is_some());
        given("affinity", &self.affinity, self.affinity.is_some());
        given("umask", &self.umask, self.umask.is_some());
        given("groups", &self.groups, self.groups.is_some());
        given("gid", &self.gid, self.gid.is_some());
        given("uid", &self.uid, self.uid.is_some());
        given("no_new_privs", &true, self.no_new_privs);
        given("seccomp", &self.filters.as_ref().map(Vec::len), self.is_filtered() || self.filters.is_err());
        given("new_namespaces", &self.namespaces, !self.namespaces.is_empty());
        given("joins", &self.joins, !self.joins.is_empty());
        given("id_maps", &self.maps, !self.maps.is_empty());
        given("hostname", &self.hostname, self.hostname.is_some());
        given("cgroup", &self.cgroup, self.cgroup.is_some());
        given("pids", &self.pids, !self.pids.is_empty());
        given("steps", &self.steps.len(), !self.steps.is_empty());
        given("final_steps", &self.final_steps.len(), !self.final_steps.is_empty());
        given("kill_on_drop", &true, self.kill_on_drop);
        given("notify_release", &true, self.notify_release);
        given("timed", &true, self.timed);
        all.finish_non_exhaustive()
    }
}

fn numbers(signals: &[husk_script::sys::signal::Signal]) -> Vec<i32> {
    signals.iter().map(|signal| signal.number()).collect()
}

/// A set of bits.
struct Hex(u64);

impl Debug for Hex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
