//! Runs hooks in the namespaces of the runtime: those before the root is changed, after the program has begun, and
//! after the container is gone. The others are steps of the plan.
//!
//! A hook reads the container's state from a file in memory and writes its output to another. So husk waits only for
//! the hook's end, and not for processes that the hook leaves behind.

use crate::error::Error;
use crate::interrupt::{Interrupt, WaitOutcome};
use crate::store::record::{Record, RecordedHook};
use husk_bundle::container::{self, Container};
use husk_bundle::{CRUN_PREFIX, Field, Warning};
use husk_listing::Cause;
use husk_plan::{Origin, hooks};
use husk_script::report::MOST_WORDS;
use husk_script::sys::Errno;
use husk_script::sys::file::OFlags;
use husk_spawn::{Child, Command, Signal};
use log::debug;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

impl RecordedHook {
    /// Converts a configuration's list of hooks.
    pub(crate) fn list(hooks: &[container::Hook]) -> Vec<Self> {
        // The strings come from JSON, so they are valid UTF-8.
        let text = |strings: &[std::ffi::CString]| {
            strings.iter().map(|string| string.to_string_lossy().into_owned()).collect()
        };
        let hook = |hook: &container::Hook| Self {
            path: hook.path.clone(),
            args: text(&hook.args),
            env: hook.env.as_deref().map(text),
            timeout_seconds: hook.timeout_seconds,
        };
        hooks.iter().map(hook).collect()
    }
}

/// Runs the hooks for a container that is being created, whose process waits meanwhile.
pub(crate) fn before_pivot(
    container: &Container,
    record: &Record,
    pid: u32,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let hooks = &container.hooks;
    let state = state(record, "creating", Some(pid));
    all("prestart", &RecordedHook::list(&hooks.prestart), record, &state, Some(interrupt))?;
    all("createRuntime", &RecordedHook::list(&hooks.create_runtime), record, &state, Some(interrupt))
}

/// Runs the hooks for a program that has begun. Without an `interrupt` no signal is blocked, and one that ends this
/// process ends the hooks too.
pub(crate) fn poststart(
    record: &Record,
    status: &str,
    pid: Option<u32>,
    interrupt: Option<&Interrupt>,
) -> Result<(), Error> {
    all("poststart", &record.poststart, record, &state(record, status, pid), interrupt)
}

/// Runs the hooks for a container that is gone. "If any `poststop` hook fails, the runtime MUST log a warning, but the
/// remaining hooks and lifecycle continue as if the hook had succeeded" (runtime.md, "Lifecycle").
pub(crate) fn poststop(record: &Record, mut warn: impl FnMut(&[Warning])) {
    let state = state(record, "stopped", None);
    for (index, hook) in record.poststop.iter().enumerate() {
        if let Err(failure) = run(hook, Death::ItsOwn, &state, record, None) {
            let field = Field::new("hooks").key("poststop").index(index);
            let text = format!("error running poststop hook #{index}: {}", failure.words());
            warn(&[Warning::new(field, text)]);
        }
    }
}

/// Runs hooks in order, until one fails.
fn all(
    kind: &'static str,
    hooks: &[RecordedHook],
    record: &Record,
    state: &[u8],
    interrupt: Option<&Interrupt>,
) -> Result<(), Error> {
    for (index, hook) in hooks.iter().enumerate() {
        let ran = run(hook, Death::WithUs, state, record, interrupt);
        ran.map_err(|failure| match failure {
            HookFailure::Of(error @ Error::Interrupted(_)) => error,
            failure => Error::step(Origin::hook(kind, index), failure.words()),
        })?;
    }
    Ok(())
}

enum HookFailure {
    /// The hook failed: which one, and why.
    Hook(String),
    /// An error of husk, which has ended the hook.
    Of(Error),
}

impl HookFailure {
    fn words(self) -> String {
        match self {
            Self::Hook(words) => words,
            Self::Of(error) => error.to_string(),
        }
    }
}

/// Returns the container's state as hooks read it.
fn state(record: &Record, status: &str, pid: Option<u32>) -> Vec<u8> {
    let (before, after) = hooks::state(&record.id, status, &record.bundle, &record.annotations);
    let pid = pid.map(|pid| format!(",\"pid\":{pid}"));
    [before, pid.unwrap_or_default(), after].concat().into_bytes()
}

/// Whether a running hook is killed when husk dies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    /// The hook is killed, because nothing needs its work any more.
    WithUs,
    /// The hook is not killed, because no other process does its cleanup.
    ItsOwn,
}

/// Runs a hook to its end. Kills it with its process group if it takes too long or a signal arrives.
fn run(
    hook: &RecordedHook,
    death: Death,
    state: &[u8],
    record: &Record,
    interrupt: Option<&Interrupt>,
) -> Result<(), HookFailure> {
    let act = format!("hook {}", hook.path.display());
    let said = |reason: &dyn std::fmt::Display| format!("{act}: {reason}");
    let failed = |error: io::Error| HookFailure::Hook(said(&Cause::from(error)));
    let mut input = memory().map_err(failed)?;
    input.write_all(state).and_then(|()| input.rewind()).map_err(failed)?;
    let mut output = memory().map_err(failed)?;
    let stream = |name: &str| match record.annotations.get(&format!("{CRUN_PREFIX}hooks.{name}")) {
        None => output.try_clone().map_err(failed),
        Some(path) => append(Path::new(path))
            .map_err(|error| HookFailure::Hook(said(&format!("{name} {path}: {}", Cause::from(error))))),
    };
    let (stdout, stderr) = (stream("stdout")?, stream("stderr")?);

    let mut command = Command::new(&hook.path);
    if let Some((name, rest)) = hook.args.split_first() {
        command.arg0(name).args(rest);
    }
    if let Some(variables) = &hook.env {
        command.env_clear();
        command.envs(variables.iter().filter_map(|variable| variable.split_once('=')));
    }
    // The hook runs in the bundle, as in runc while it creates a container, and as in crun always. A missing bundle
    // does not keep it from cleaning up.
    let bundle = &record.bundle;
    command.current_dir(if bundle.is_dir() { bundle } else { Path::new("/") });
    // A process group of its own, so that it can be killed with all processes that it has started.
    command.stdin(input).stdout(stdout).stderr(stderr).kill_on_drop().process_group(0);
    if death == Death::WithUs {
        command.parent_death_signal(Signal::KILL);
    }
    let end = command.spawn().map_err(Error::Spawn).and_then(|mut child| {
        let waited = until_end(&child, hook.timeout_seconds, interrupt);
        if !matches!(waited, Ok(WaitOutcome::Came)) {
            // Until it is waited for, its pid cannot be that of another group.
            child.kill_group()?;
        }
        let status = child.wait()?;
        Ok((waited?, status))
    });
    match end {
        Ok((WaitOutcome::Came, status)) if status.success() => {
            debug!("{act}: exit status 0");
            Ok(())
        }
        Ok((WaitOutcome::Came, status)) => {
            Err(HookFailure::Hook(with_words(said(&ending(status)), &last_words(&mut output))))
        }
        Ok((WaitOutcome::TooLong, _)) => {
            let failure = said(&"timed out and was killed");
            Err(HookFailure::Hook(with_words(failure, &last_words(&mut output))))
        }
        Err(error @ Error::Spawn(_)) => {
            Err(HookFailure::Hook(with_words(error.to_string(), &last_words(&mut output))))
        }
        Err(error) => Err(HookFailure::Of(error)),
    }
}

fn ending(status: ExitStatus) -> String {
    match status.signal() {
        // A seccomp filter sends SIGSYS for a system call that it does not allow.
        Some(31) => "killed by signal 31: bad system call".to_owned(),
        Some(signal) => format!("killed by signal {signal}"),
        None => format!("exit status {}", status.code().unwrap_or_default()),
    }
}

/// Waits until the hook ends or its timeout passes.
fn until_end(
    child: &Child,
    seconds: Option<u64>,
    interrupt: Option<&Interrupt>,
) -> Result<WaitOutcome, Error> {
    // A timeout too long to represent counts as none.
    let deadline = seconds.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    if let Some(interrupt) = interrupt {
        return interrupt.wait(child.as_fd(), PollFlags::IN, deadline);
    }
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(child, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Ok(WaitOutcome::TooLong),
            Ok(_) => return Ok(WaitOutcome::Came),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::kernel("wait for a hook", errno)),
        }
    }
}

/// Opens a file to append to, and creates it if it does not exist. Does not wait for a reader of a FIFO.
fn append(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOCTTY | OFlags::NONBLOCK;
    File::options().append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed()).open(path)
}

/// Makes a file in memory, accessible only through its descriptor.
fn memory() -> io::Result<File> {
    let file = match memfd_create(c"hook", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not support `MFD_NOEXEC_SEAL`.
        Err(Errno::INVAL) => memfd_create(c"hook", MemfdFlags::CLOEXEC)?,
        made => made?,
    };
    Ok(file.into())
}

/// Reads the end of a hook's output.
fn last_words(output: &mut File) -> Vec<u8> {
    let mut words = Vec::new();
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let read = output
        .seek(SeekFrom::Start(length.saturating_sub(MOST_WORDS as u64)))
        .and_then(|_| output.take(MOST_WORDS as u64).read_to_end(&mut words));
    // Tolerated: the failure is known without the output.
    read.unwrap_or(0);
    words
}

/// Adds the output of a failed program to its failure. Lines after the first are indented, so that none can pass for
/// one of husk's.
pub(crate) fn with_words(failure: String, words: &[u8]) -> String {
    match String::from_utf8_lossy(words).trim() {
        "" => failure,
        words => format!("{failure}: {}", words.replace('\n', "\n    ")),
    }
}
