//! Explains why a program fails in a sandbox though it may succeed outside.
//!
//! A failed program is run once more in an equal sandbox, in which a seccomp listener is notified of its calls
//! ([`observe`]). The observer lets every call go on that the sandbox allows, and notes the paths that the program did
//! not find or could not change. The notes become denials, each with the option that allows it ([`judge`]). With all
//! harmless ones of these options the program is run a third time, to see whether it then passes.
//!
//! The first run is not observed, so a program that succeeds is not slower.

pub(crate) mod answers;
pub(crate) mod calls;
pub(crate) mod confirm;
pub(crate) mod judge;
pub(crate) mod observe;
mod sight;
pub(crate) mod words;

use crate::error::Error;
use crate::host::Host;
use crate::plan::{FIRST_PID, environment, view};
use crate::profile::{Limits, PathAccess, Profile};
use crate::runner::output::CapturedOutput;
use crate::sandbox::ended::Ended;
use crate::sandbox::{Isolation, Machine};
use husk_script::sys::{Errno, Fd};
use husk_spawn::Reason;
use judge::{Denied, Facts, Grant};
use observe::{ProcessLimit, Sandboxed};
use std::env;
use std::ffi::OsStr;
use std::time::Duration;

/// When denials are explained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Explain {
    /// Never.
    #[default]
    Off,
    /// After a failure.
    Auto,
    Always,
}

/// Why a program may have failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Everything that it was denied, most likely reason first.
    pub denied: Vec<Denied>,
    /// Whether it succeeded when it was observed; `None` if that run was not comparable with the first one.
    pub passed: Option<bool>,
    /// Options with which it succeeds.
    pub passes_with: Option<Vec<Grant>>,
    /// The reason that nothing could be observed.
    pub unavailable: Option<String>,
}

/// The observed run may take this much longer than twice the first one, because each notification costs time.
const PATIENCE: Duration = Duration::from_secs(10);

impl Explain {
    /// Returns whether a run is to be explained. Without the signal that a program was sent, it would run differently.
    #[must_use]
    pub fn is_due(self, ended: &Ended) -> bool {
        self.is_due_after(!ended.status.success(), ended)
    }

    /// Like `is_due`, for a program that has failed or passed whatever its exit status.
    pub(crate) fn is_due_after(self, is_failed: bool, ended: &Ended) -> bool {
        match self {
            Self::Off => false,
            Self::Auto => is_failed && !ended.was_signalled && ended.not_run.is_none(),
            Self::Always => !ended.was_signalled && ended.not_run.is_none(),
        }
    }
}

impl Explanation {
    pub(crate) fn unavailable(error: &Error) -> Self {
        let is_busy = |error: &husk_spawn::Error| error.reason() == Reason::Errno(Errno::BUSY);
        let why = match error {
            Error::Step { error, .. } if is_busy(error) => {
                "another program already observes this one".to_owned()
            }
            error => error.to_string(),
        };
        Self { unavailable: Some(why), ..Self::default() }
    }

    /// Returns the lines for people: at most five, most likely first.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        words::lines(self)
    }

    /// Returns the lines for other programs, without a limit.
    pub(crate) fn all_lines(&self) -> Vec<String> {
        words::all(self)
    }

    /// Returns the options with which the program passes, as they are typed.
    #[must_use]
    pub fn passing_options(&self) -> Option<String> {
        self.passes_with.as_deref().map(words::options)
    }

    /// Returns whether it names the limit of the private directories.
    #[must_use]
    pub fn names_disk(&self) -> bool {
        self.denied.iter().any(|denied| denied.what == judge::Denial::Disk)
    }

    /// Returns whether a program failed, and succeeded when it was observed.
    #[must_use]
    pub fn is_flaky(&self, first: &Ended) -> bool {
        !first.status.success() && self.passed == Some(true)
    }
}

/// Returns the profile of the observed run. It ends in finite time even if the first run, which took this long, had no
/// time limit.
pub(crate) fn observed(profile: &Profile, first: Duration) -> Profile {
    let patience = first.saturating_mul(2).saturating_add(PATIENCE);
    let wall = Some(profile.limits.wall.map_or(patience, |wall| wall.min(patience)));
    let limits = Limits { wall, ..profile.limits.clone() };
    Profile { observed: true, keeps_files: false, limits, ..profile.clone() }
}

/// Returns the facts that the observer needs.
pub(crate) fn sandboxed(profile: &Profile, host: &Host) -> Sandboxed {
    Sandboxed {
        hidden: hidden(profile, host),
        files: profile.limits.files,
        processes: process_limit(profile, host),
        has_host_paths: profile.image.is_none(),
    }
}

/// A cgroup counts neither the first process nor those outside, and root's limit is the highest number.
fn process_limit(profile: &Profile, host: &Host) -> ProcessLimit {
    let most = profile.limits.most_processes();
    let first = match (host.cgroup, host.limits_pids()) {
        (true, _) => 2,
        (false, true) => FIRST_PID,
        (false, false) => 1,
    };
    ProcessLimit { most, first }
}

fn hidden(profile: &Profile, host: &Host) -> Vec<std::path::PathBuf> {
    let shown = profile.shown.iter().zip(&host.found);
    shown.filter(|(show, _)| show.access == PathAccess::Hide).map(|(_, found)| found.path.clone()).collect()
}

/// Returns the facts about a failed run that the judge needs.
pub(crate) fn facts(profile: &Profile, host: &Host, first: &Ended, output: &str) -> Facts {
    let passed_on = environment::variables(profile, host);
    let removed = host
        .environment
        .iter()
        .map(|(name, _)| name)
        .filter(|name| !passed_on.contains_key(name.as_os_str()));
    let directories = |name: &str| {
        let listed = passed_on.get(OsStr::new(name));
        listed.map(|listed| env::split_paths(listed).collect::<Vec<_>>()).unwrap_or_default()
    };
    Facts {
        covers: match host.view {
            // Everything that is not in the view is hidden.
            Some(_) => vec!["/".into()],
            None => view::covers(host).into_iter().map(|cover| cover.path.into()).collect(),
        },
        hidden: hidden(profile, host),
        path: directories("PATH"),
        libraries: directories("LD_LIBRARY_PATH"),
        removed: removed.cloned().collect(),
        output: output.to_owned(),
        reached: first.reached,
        is_full: first.full.is_some(),
        net: profile.net,
        is_nested: profile.nested,
        is_root: host.program.0 == 0,
        limits: profile.limits.clone(),
    }
}

/// Returns whether the end of an observed run is comparable with a run that has other limits.
pub(crate) fn is_comparable(profile: &Profile, again: &Ended) -> bool {
    again.reached.is_none() || profile.limits.wall.is_some()
}

/// Runs a program that has ended like `first` again, and explains that.
#[must_use]
pub fn explain(profile: &Profile, first: &Ended, how: Isolation) -> Explanation {
    look(profile, first, how).unwrap_or_else(|error| Explanation::unavailable(&error))
}

fn look(profile: &Profile, first: &Ended, how: Isolation) -> Result<Explanation, Error> {
    let observed = observed(profile, first.wall);
    let mut machine = Machine::of(&observed, how)?;
    let output = CapturedOutput::captured()?;
    let (again, noted) = machine.run_observed(&observed, output.streams())?;
    let output = output.finish()?;
    let facts = facts(profile, &machine.host, first, &output.text());
    let denied = judge::judge(&noted, &facts);
    // With another standard input it may have succeeded for that reason.
    let has_input = !machine.host.null_streams.contains(&Fd::STDIN);
    let passed = is_comparable(profile, &again).then(|| again.status.success());
    let passed = passed.filter(|passed| !(*passed && has_input));
    let passes_with = match confirm::granted(profile, first.wall, &denied) {
        Some((profile, grants))
            if !first.status.success() && !again.status.success() && !again.was_signalled =>
        {
            let output = CapturedOutput::captured()?;
            let ended =
                Machine::of(&profile, how).and_then(|mut machine| machine.run(&profile, output.streams()));
            ended.is_ok_and(|ended| ended.status.success()).then_some(grants)
        }
        _ => None,
    };
    Ok(Explanation { denied, passed, passes_with, unavailable: None })
}
