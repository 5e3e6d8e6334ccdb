//! The ends of processes.
//!
//! An end is told after the start of the same process, even where the process ends first, and the end of a container's
//! first process after those of all others.

use crate::daemon::Daemon;
use crate::service::task::{Exit, Key, Stage};
use crate::streams::Kept;
use crate::streams::pump::Carries;
use crate::wire::Timestamp;
use crate::wire::events::TaskExit;
use husk_runtime::{KillScope, Signal, tolerate};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, wait, waitid};

impl Daemon {
    /// Reaps every child that has ended: verbs, processes of containers and their orphans, and logging programs.
    pub(crate) fn reap(&mut self) {
        // `wait` fails with ECHILD if there are no children.
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let (code, signal) = (status.exit_status(), status.terminating_signal());
            let pid = pid.as_raw_pid().unsigned_abs();
            if let Some(job) = self.jobs.remove(&pid) {
                self.finish(job, signal);
                continue;
            }
            let status = code.unwrap_or_else(|| 128 + signal.unwrap_or_default()).unsigned_abs();
            let exit = Exit { status, at: Some(Timestamp::now()) };
            if let Some(key) = self.pids.remove(&pid) {
                self.ended(&key, exit);
            } else if !self.replace_logger(pid) && self.expects_processes() {
                self.early.insert(pid, exit);
            }
        }
        if !self.expects_processes() {
            self.early.clear();
        }
    }

    /// Tells the end of a process that ended before the verb that made it.
    pub(super) fn tell_early_exit(&mut self, pid: u32) {
        // A pid that belongs to a child again was reused: the end was that of an orphan.
        let flags = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let child = Pid::from_raw(pid.cast_signed());
        let is_reused = child.is_some_and(|child| waitid(WaitId::Pid(child), flags).is_ok());
        if let Some(exit) = self.early.remove(&pid)
            && !is_reused
            && let Some(key) = self.pids.remove(&pid)
        {
            self.ended(&key, exit);
        }
    }

    /// Tells the end of a process, unless it is held back.
    pub(super) fn ended(&mut self, key: &Key, exit: Exit) {
        let Some(task) = self.tasks.get_mut(&key.task) else { return };
        if key.exec.is_empty() && task.first.stage != Stage::Starting {
            // Without a pid namespace of its own the container's other processes have survived.
            let survivors = husk_runtime::kill(&task.store(), &key.task, Signal::KILL, KillScope::First);
            tolerate(survivors, "usually there is nothing left to kill");
            // Version 1 does not announce every kill, so this looks before the cgroup is removed.
            if let Some(number) = task.memory {
                self.memory_ready(number);
            }
        }
        let Some(task) = self.tasks.get_mut(&key.task) else { return };
        let waits = key.exec.is_empty() && task.has_running_exec();
        let Some(process) = task.process_mut(&key.exec) else { return };
        if process.stage == Stage::Starting || waits {
            process.held = Some(exit);
            return;
        }
        process.stage = match process.stage {
            Stage::Deleting(_) => Stage::Deleting(exit),
            _ => Stage::Stopped(exit),
        };
        process.kept.stdin = None;
        let (pid, waiters) = (process.pid, std::mem::take(&mut process.waiters));
        let pumps = process.kept.pumps.clone();
        let event = TaskExit {
            container_id: key.task.clone(),
            id: if key.exec.is_empty() { &key.task } else { &key.exec }.clone(),
            pid,
            exit_status: exit.status,
            exited_at: exit.at,
        };
        self.publisher.publish("/tasks/exit", "TaskExit", &event);
        self.finish_pumps(&pumps);
        self.tell_waiters(waiters, exit);
        if !key.exec.is_empty() {
            self.release_container(&key.task);
        }
    }

    /// Tells the end of a container's first process if it was held back and no other process runs.
    pub(super) fn release_container(&mut self, id: &str) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        if task.first.stage == Stage::Starting || task.has_running_exec() {
            return;
        }
        if let Some(exit) = task.first.held.take() {
            self.ended(&Key::first(id), exit);
        }
    }

    /// Whether output of the process is still being copied.
    pub(super) fn is_pumping(&self, kept: &Kept) -> bool {
        let mut pumps = kept.pumps.iter().filter_map(|number| self.pumps.get(number));
        pumps.any(|pump| pump.carries() == Carries::Output)
    }

    /// Performs the deletions that have waited for the rest of the output.
    pub(crate) fn delete_waiting(&mut self) {
        let now = std::time::Instant::now();
        let mut ready = Vec::new();
        for (id, task) in &self.tasks {
            let execs = task.execs.iter().map(|(exec, process)| (&**exec, process));
            for (exec, process) in execs.chain([("", &task.first)]) {
                if let Some((call, until)) = process.draining
                    && (until <= now || !self.is_pumping(&process.kept))
                {
                    ready.push((call, id.clone(), exec.to_owned()));
                }
            }
        }
        for (call, id, exec) in ready {
            if let Ok(process) = self.process_mut(&id, &exec) {
                process.draining = None;
            }
            let served = self.delete_drained(call, &id, &exec);
            self.answer(call, served);
        }
    }

    /// Closes all that was kept for a process.
    pub(super) fn drop_streams(&mut self, kept: Kept) {
        for number in &kept.pumps {
            self.stop_pump(*number);
        }
    }

    /// Reads a container's output in place of a logging program that has died. Returns false if `pid` is not one's.
    pub(super) fn replace_logger(&mut self, pid: u32) -> bool {
        let tasks = self.tasks.values_mut();
        let mut processes =
            tasks.flat_map(|task| task.execs.values_mut().chain(std::iter::once(&mut task.first)));
        let is_it = |kept: &Kept| kept.logger.as_ref().is_some_and(|logger| logger.pid == pid);
        let Some(logger) =
            processes.find(|process| is_it(&process.kept)).and_then(|process| process.kept.logger.take())
        else {
            return false;
        };
        drop(processes);
        self.log.write("warning", "the logging program has ended; output is lost from here on");
        for pump in logger.replaced().unwrap_or_default() {
            tolerate(self.pump(pump), "without a pump the program waits for room in the pipe");
        }
        true
    }
}
