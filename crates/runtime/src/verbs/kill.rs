//! `kill`: sends a signal to the container's processes.

use crate::cgroups;
use crate::error::Error;
use crate::store::Store;
use crate::store::process::open;
use husk_cgroup::Cgroup;
use husk_script::sys::signal::pidfd_send_signal;
use husk_script::sys::{Errno, Fd};
use husk_spawn::Signal;
use log::debug;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The processes that receive a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillScope {
    First,
    /// All processes in the container's cgroup. An empty cgroup is not an error.
    All,
}

/// Sends `signal` to the container's first process or to all its processes. Without a pid namespace of its own the
/// container does not end with its first process, so SIGKILL goes to all.
///
/// # Errors
///
/// `container not running` if it has ended.
pub fn kill(store: &Store, id: &str, signal: Signal, whom: KillScope) -> Result<(), Error> {
    let record = store.entry(id)?.read()?;
    let first = record.process.map_or(Ok(None), open)?;
    let cgroup = match whom {
        // Before the container has a process, the cgroup may hold only processes of others.
        KillScope::All if record.process.is_some() => cgroups::find(&record)?,
        // Includes processes that outlive the first one.
        _ if signal == Signal::KILL && record.shares_pids && record.process.is_some() => {
            let cgroup = cgroups::find(&record)?;
            match cgroup {
                Some(cgroup) if !cgroup.pids()?.is_empty() => Some(cgroup),
                _ => None,
            }
        }
        _ => None,
    };
    match (&cgroup, first) {
        (Some(cgroup), _) => {
            if signal == Signal::KILL {
                cgroup.kill()?;
            } else {
                signal_all(cgroup, signal)?;
            }
            debug!("kill: signal {} to every process of the cgroup", signal.number());
        }
        (None, Some(process)) => match pidfd_send_signal(Fd::of(&process), signal) {
            Ok(()) => debug!("kill: signal {} to the container's process", signal.number()),
            Err(Errno::SRCH) if whom == KillScope::All => {}
            Err(Errno::SRCH) => return Err(Error::State("container not running")),
            Err(errno) => return Err(Error::kernel("signal the container's process", errno)),
        },
        (None, None) if whom == KillScope::All => {}
        (None, None) => return Err(Error::State("container not running")),
    }
    if signal == Signal::KILL { cgroups::let_die(&record) } else { Ok(()) }
}

/// Checks that the container has a process to signal, as signal 0 does.
///
/// # Errors
///
/// `container not running` if it has ended.
pub fn check(store: &Store, id: &str) -> Result<(), Error> {
    let process = store.entry(id)?.read()?.process;
    process.map_or(Ok(None), open)?.map(drop).ok_or(Error::State("container not running"))
}

/// Signals each process of the cgroup, skipping those that have ended.
fn signal_all(cgroup: &Cgroup, signal: Signal) -> Result<(), Error> {
    for pid in cgroup.pids()?.into_iter().filter_map(Pid::from_raw) {
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => continue,
            process => {
                process.map_err(|errno| Error::kernel("open one of the container's processes", errno))?
            }
        };
        match pidfd_send_signal(Fd::of(&process), signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(errno) => return Err(Error::kernel("signal the container's processes", errno)),
        }
    }
    Ok(())
}

/// Parses a signal: a number, or a name with or without `SIG`.
#[must_use]
pub fn signal(text: &str) -> Option<Signal> {
    if let Ok(number) = text.parse() {
        return Signal::new(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let known = match name {
        "IOT" => "ABRT",
        "CLD" => "CHLD",
        "POLL" => "IO",
        _ => name,
    };
    let named = Signal::NAMES.iter().find(|(name, _)| *name == known).map(|(_, signal)| *signal);
    named.or_else(|| real_time(name))
}

/// Parses `RTMIN+3` or `RTMAX-1`. libc reserves the first two real-time signals, so `RTMIN` is 34.
fn real_time(name: &str) -> Option<Signal> {
    const FIRST: i32 = 34;
    let rest = |prefix| name.strip_prefix(prefix);
    if let Some(above) = rest("RTMIN") {
        let above: i32 = if above.is_empty() { 0 } else { above.strip_prefix('+')?.parse().ok()? };
        return Signal::new(FIRST.checked_add(above)?);
    }
    let below = rest("RTMAX")?;
    let below: i32 = if below.is_empty() { 0 } else { below.strip_prefix('-')?.parse().ok()? };
    Signal::new(i32::from(Signal::MAX).checked_sub(below)?).filter(|signal| signal.number() >= FIRST)
}

#[cfg(test)]
mod tests {
    use super::signal;

    #[test]
    fn signal_is_parsed_from_name_or_number() {
        let number = |text| signal(text).map(husk_spawn::Signal::number);
        assert_eq!(number("9"), Some(9));
        assert_eq!(number("KILL"), Some(9));
        assert_eq!(number("sigterm"), Some(15));
        assert_eq!(number("SIGIOT"), Some(6));
        assert_eq!([number("CLD"), number("POLL"), number("STKFLT")], [Some(17), Some(29), Some(16)]);
        assert_eq!(number("37"), Some(37));
        assert_eq!(number("RTMIN+3"), Some(37));
        assert_eq!(number("SIGRTMAX"), Some(64));
        for unknown in ["0x9", "", "SIG", "65", "-1", "RTMIN+31", "RTMAX-31", "NONE"] {
            assert_eq!(number(unknown), None, "{unknown}");
        }
    }
}
