//! Pipelines: commands whose output is the next one's input.

use crate::child::output::{Ends, transfer_all};
use crate::command::stdio::{Connected, Unset};
use crate::error::{Error, Reason};
use crate::launch::{Until, launch_connected};
use crate::{Child, Command};
use husk_script::sys::signal::Signal;
use husk_script::sys::tolerate;
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Commands that are connected by pipes, as `a | b | c` in a shell.
///
/// All processes run at the same time. No process but the two neighbours holds an end of the pipe between them. So a
/// program sees the end of its input when the one before it ends, and one that writes to a program that has ended gets
/// SIGPIPE.
///
/// ```
/// # fn main() -> Result<(), husk_spawn::Error> {
/// use husk_spawn::{Command, Pipeline};
///
/// let output = Pipeline::new(Command::new("printf").arg("b\na\nb\n"))
///     .pipe(&Command::new("sort"))
///     .pipe(Command::new("uniq").arg("-c"))
///     .output()?;
/// assert!(output.success());
/// assert_eq!(String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>(), ["1", "a", "2", "b"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is started before `spawn` or `output`"]
pub struct Pipeline<'a> {
    commands: Vec<&'a Command>,
}

/// The exit statuses of a pipeline's processes, and their output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineOutput {
    /// The exit status of each process, in the order of the commands.
    pub statuses: Vec<ExitStatus>,
    /// The bytes that the last process wrote to standard output; empty if that was not captured.
    pub stdout: Vec<u8>,
    /// The bytes that each process wrote to standard error, in the order of the commands; empty if not captured.
    pub stderr: Vec<Vec<u8>>,
}

impl PipelineOutput {
    /// Whether every process was successful. A process that SIGPIPE killed was not.
    #[must_use]
    pub fn success(&self) -> bool {
        self.statuses.iter().all(ExitStatus::success)
    }
}

/// The running processes of a pipeline.
///
/// Dropping it is like dropping each [`Child`].
#[derive(Debug)]
pub struct PipelineChildren {
    /// The processes, in the order of the commands. The first one's `stdin`, the last one's `stdout`, and each one's
    /// `stderr` are there if they are [`Stdio::piped`](crate::Stdio::piped).
    pub children: Vec<Child>,
}

impl<'a> Pipeline<'a> {
    /// Creates a pipeline of one command. Its standard input is that of the pipeline.
    pub fn new(first: &'a Command) -> Self {
        Self { commands: vec![first] }
    }

    /// Adds a command whose standard input is the output of the one before it.
    pub fn pipe(mut self, next: &'a Command) -> Self {
        self.commands.push(next);
        self
    }

    /// Starts all processes, and returns when each of them has execed.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn_and_exec`], for any of the commands, and if a command sets a stream that the pipeline
    /// connects. The processes that were started have then been killed and waited for.
    pub fn spawn(&self) -> Result<PipelineChildren, Error> {
        self.start(Unset::Inherit)
    }

    /// Runs the pipeline and returns all exit statuses.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn status(&self) -> Result<Vec<ExitStatus>, Error> {
        self.spawn()?.wait()
    }

    /// Runs the pipeline, and returns all exit statuses, what the last process wrote to standard output, and what all
    /// of them wrote to standard error. Standard input is `/dev/null`. Other settings of streams are kept.
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn), and if reading fails.
    pub fn output(&self) -> Result<PipelineOutput, Error> {
        self.start(Unset::Capture)?.output(&[])
    }

    /// Like [`output`](Self::output), with `input` for the first process, whatever its
    /// [`stdin`](Command::stdin) says. It is not an error if that does not read all of it.
    ///
    /// # Errors
    ///
    /// As [`output`](Self::output).
    pub fn output_with_input(&self, input: &[u8]) -> Result<PipelineOutput, Error> {
        self.start(Unset::FeedAndCapture)?.output(input)
    }

    fn start(&self, unset: Unset) -> Result<PipelineChildren, Error> {
        self.check()?;
        let mut started = PipelineChildren { children: Vec::with_capacity(self.commands.len()) };
        match self.start_all(unset, &mut started.children) {
            Ok(()) => Ok(started),
            Err(error) => {
                started.give_up();
                Err(error)
            }
        }
    }

    fn start_all(&self, unset: Unset, children: &mut Vec<Child>) -> Result<(), Error> {
        let mut input = None;
        for (index, command) in self.commands.iter().enumerate() {
            let mut connected = Connected::default();
            connected[0] = input.take();
            if index + 1 < self.commands.len() {
                let ends = pipe_with(PipeFlags::CLOEXEC).map_err(|errno| Error::new("pipe", errno))?;
                (input, connected[1]) = (Some(ends.0), Some(ends.1));
            }
            // They exec at the same time.
            children.push(launch_connected(command, unset, Until::Cloned, connected)?);
        }
        children.iter_mut().try_for_each(Child::wait_for_exec)
    }

    /// Rejects commands that use a stream for something else.
    fn check(&self) -> Result<(), Error> {
        let is_set = |command: &&Command, stream: usize| command.streams[stream].is_some();
        let act = |command: &Command| format!("pipeline with {command:?}");
        let (firsts, lasts) = (self.commands.iter().skip(1), self.commands.iter().rev().skip(1));
        for (mut commands, stream, why) in [
            (Box::new(firsts) as Box<dyn Iterator<Item = _>>, 0, "its input is that of the pipeline"),
            (Box::new(lasts), 1, "its output goes to the next command"),
        ] {
            if let Some(command) = commands.find(|command| is_set(command, stream)) {
                return Err(Error::new(act(command), Reason::Conflict(why)));
            }
        }
        Ok(())
    }
}

impl PipelineChildren {
    /// Waits until all processes have ended, and returns their exit statuses. Closes the pipeline's standard input
    /// first.
    ///
    /// # Errors
    ///
    /// As [`Child::wait`]. All processes have been waited for nevertheless.
    pub fn wait(&mut self) -> Result<Vec<ExitStatus>, Error> {
        self.close_input();
        let waited: Vec<_> = self.children.iter_mut().map(Child::wait).collect();
        waited.into_iter().collect()
    }

    /// Like [`wait`](Self::wait), but at most for `timeout`. Returns `None` if a process still runs then.
    ///
    /// # Errors
    ///
    /// As [`Child::wait`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> Result<Option<Vec<ExitStatus>>, Error> {
        self.close_input();
        let deadline = Instant::now().checked_add(timeout);
        self.children.iter_mut().map(|child| child.wait_until(deadline)).collect()
    }

    /// Sends SIGKILL to every process. Descendants are not reached; see [`Child::kill_group`].
    ///
    /// # Errors
    ///
    /// As [`Child::signal`]. All other processes have been sent the signal nevertheless.
    pub fn kill(&self) -> Result<(), Error> {
        self.signal(Signal::KILL)
    }

    /// Sends a signal to every process.
    ///
    /// # Errors
    ///
    /// As [`kill`](Self::kill).
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let sent: Vec<_> = self.children.iter().map(|child| child.signal(signal)).collect();
        sent.into_iter().collect()
    }

    fn close_input(&mut self) {
        if let Some(first) = self.children.first_mut() {
            drop(first.stdin.take());
        }
    }

    fn output(mut self, input: &[u8]) -> Result<PipelineOutput, Error> {
        let mut stdin = None;
        // Standard output of the last process, and then standard error of all.
        let mut ends: Vec<Option<OwnedFd>> = vec![None];
        for child in &mut self.children {
            let Ends { stdin: to_child, outputs: [stdout, stderr] } = Ends::of(child);
            stdin = stdin.or(to_child);
            if stdout.is_some() {
                ends[0] = stdout;
            }
            ends.push(stderr);
        }
        let mut captured = vec![Vec::new(); ends.len()];
        transfer_all(stdin, &mut ends, &mut captured, input)?;
        let stderr = captured.split_off(1);
        Ok(PipelineOutput { statuses: self.wait()?, stdout: captured.pop().unwrap_or_default(), stderr })
    }

    /// Ends what was started of a pipeline that cannot be started.
    fn give_up(&mut self) {
        self.close_input();
        for child in &mut self.children {
            // A process that cannot be killed may never end.
            if child.kill().is_ok() {
                tolerate(child.wait(), "the error that is returned came first");
            }
        }
    }
}
