//! The daemon's side: starts the process of a verb and reads its outcome.

use super::{ARGUMENT, DESCRIPTOR, Outcome, PROGRAM, Verb, VerbRequest};
use crate::failure::{Code, Failure};
use husk_runtime::Environment;
use husk_spawn::{Command, Signal, Stdio};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The standard streams of the verb's process, which a container without a terminal inherits. `None` is /dev/null.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
}

/// The process of a verb.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its pid. The caller reaps it.
    pub(crate) pid: u32,
    /// The memfd to which it writes the outcome.
    answer: File,
    /// The words that begin the verb's errors.
    failed: &'static str,
}

/// Starts the process of a verb in `directory`, the container's bundle. Returns once it has executed this program.
///
/// The process of `exec` gets only the variables of `environment` that the runtime reads. It joins the container while
/// it is still a copy of this program, so that a process there may be able to read its environment.
///
/// # Errors
///
/// If the process cannot be created.
pub(crate) fn launch(
    request: &VerbRequest,
    streams: Streams,
    directory: &Path,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Running, Failure> {
    let failed = request.verb.failed();
    let memory = offer(request).map_err(|error| unknown(failed, &format!("write the request: {error}")))?;
    let passed =
        memory.try_clone().map_err(|error| unknown(failed, &format!("duplicate the request: {error}")))?;
    let kept = match request.verb {
        Verb::Exec(_) => Environment::OurOwn,
        _ => Environment::Callers,
    };
    let stdio = |stream: Option<OwnedFd>| stream.map_or_else(Stdio::null, Stdio::from);
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(PROGRAM)
        .arg(ARGUMENT)
        .env_clear()
        .envs(environment.into_iter().filter(|(name, _)| kept.keeps(name)))
        .current_dir(directory)
        .stdin(stdio(streams.stdin))
        .stdout(stdio(streams.stdout))
        .stderr(stdio(streams.stderr))
        .fd(DESCRIPTOR, passed);
    if request.verb.ends_with_daemon() {
        command.parent_death_signal(Signal::TERM);
    }
    let child = command.spawn_and_exec().map_err(|error| unknown(failed, &error.to_string()))?;
    let pid = child.id();
    child.let_go();
    Ok(Running { pid, answer: memory, failed })
}

/// Writes the request to a memfd.
fn offer(request: &VerbRequest) -> io::Result<File> {
    let memory = File::from(memfd_create("husk-verb", MemfdFlags::CLOEXEC)?);
    memory.write_all_at(&serde_json::to_vec(request)?, 0)?;
    Ok(memory)
}

impl Running {
    /// Returns what the process has reported. Must be called after the process was reaped. `signal` is the signal that
    /// killed it.
    pub(crate) fn outcome(self, signal: Option<i32>) -> Outcome {
        let read = || {
            let mut bytes = vec![0; usize::try_from(self.answer.metadata()?.len()).unwrap_or(usize::MAX)];
            self.answer.read_exact_at(&mut bytes, 0)?;
            Ok::<_, io::Error>(serde_json::from_slice(&bytes)?)
        };
        read().unwrap_or_else(|error| {
            let reason = match signal {
                Some(signal) => format!("its process was killed by signal {signal}"),
                None => format!("its process has reported no outcome: {error}"),
            };
            Outcome { result: Err(unknown(self.failed, &reason)), warnings: Vec::new() }
        })
    }
}

fn unknown(failed: &str, reason: &str) -> Failure {
    Failure::new(Code::Unknown, format!("{failed}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::{Running, offer};
    use crate::failure::Code;
    use crate::verbs::{Outcome, Verb, VerbRequest};
    use std::os::unix::fs::FileExt as _;

    fn running() -> Running {
        let verb = Verb::Start { id: "web-1".into() };
        let failed = verb.failed();
        let request = VerbRequest { root: "/run/root".into(), systemd_cgroup: false, verb };
        Running { pid: 1, answer: offer(&request).unwrap(), failed }
    }

    #[test]
    fn outcome_is_read_whatever_the_position_of_the_file() {
        let running = running();
        let outcome = Outcome { result: Ok(Some(7)), warnings: Vec::new() };
        let bytes = serde_json::to_vec(&outcome).unwrap();
        running.answer.set_len(0).unwrap();
        running.answer.write_all_at(&bytes, 0).unwrap();
        assert_eq!(running.outcome(None), outcome);
    }

    #[test]
    fn process_that_reports_nothing_fails_and_its_signal_is_named() {
        for (bytes, signal, words) in [
            (None, Some(9), "killed by signal 9"),
            (Some(""), None, "reported no outcome"),
            (Some("{\"result\":{\"Ok\":"), Some(11), "killed by signal 11"),
        ] {
            let running = running();
            if let Some(bytes) = bytes {
                running.answer.set_len(0).unwrap();
                running.answer.write_all_at(bytes.as_bytes(), 0).unwrap();
            }
            let failure = running.outcome(signal).result.unwrap_err();
            assert_eq!(failure.code, Code::Unknown);
            assert!(failure.message.starts_with("OCI runtime start failed: "), "{failure:?}");
            assert!(failure.message.contains(words), "{failure:?}");
        }
    }
}
