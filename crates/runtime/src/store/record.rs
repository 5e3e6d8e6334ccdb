//! The record of a container, for later commands.

use crate::store::process::ProcessId;
use husk_cgroup::CgroupPaths;
use husk_plan::{Origin, Part};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the records that this husk writes. It grows when an older husk must not act on a record. A field that
/// an older husk may ignore does not change it.
pub(crate) const VERSION: u32 = 2;

/// The version of a record. Those of husk 0.1 do not have the field.
#[derive(Deserialize)]
pub(crate) struct RecordVersion {
    #[serde(default = "of_husk_0_1")]
    pub(crate) version: u32,
}

fn of_husk_0_1() -> u32 {
    1
}

/// Facts that later commands cannot find out themselves. The status is not stored but computed, so it cannot be stale.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    #[serde(default = "of_husk_0_1")]
    pub(crate) version: u32,
    pub id: String,
    /// The path of its bundle.
    pub bundle: PathBuf,
    /// The path of its configuration, if it is not the bundle's config.json.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<PathBuf>,
    /// The path of its root file system.
    pub rootfs: PathBuf,
    /// The time of creation, in RFC 3339 format.
    pub created: String,
    /// The user ID of its creator.
    pub owner: u32,
    pub annotations: BTreeMap<String, String>,
    /// The kinds of namespaces that it does not share with its creator, in the bits of clone(2).
    pub namespaces: u32,
    /// Whether its processes keep the session keyring of the process that starts them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) callers_keyring: bool,
    /// Its first process, once there is one.
    pub process: Option<ProcessId>,
    /// The process that will become the first one. Recorded while hooks, a seccomp agent or the receiver of a terminal
    /// may delay it. If the creator is killed meanwhile, a deleter finds the process by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) creating: Option<ProcessId>,
    /// The wait(2) status of `process`, if husk waited for it and the container was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<RecordedCgroup>,
    /// Whether its processes may outlive its first one, because it has no new pid namespace.
    #[serde(default)]
    pub shares_pids: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resctrl: Option<Membership>,
    /// The standard streams that it was given, as links of /proc/PID/fd. Empty if it has a terminal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) streams: Vec<String>,
    /// The steps that it performs after `start`, which runs in another process than `create` and does not have the
    /// plan.
    pub after_start: Vec<RecordedStep>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poststart: Vec<RecordedHook>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poststop: Vec<RecordedHook>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecordedCgroup {
    /// Its paths, by controller.
    #[serde(rename = "directories")]
    pub(crate) place: CgroupPaths,
    /// The unit, if systemd manages the cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<RecordedUnit>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecordedUnit {
    pub(crate) cgroups_path: Option<String>,
    pub(crate) id: String,
    /// Whether the user's systemd manages it, instead of the system's.
    pub(crate) user: bool,
}

/// The resctrl groups of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    /// The group that its processes are in.
    pub(crate) group: PathBuf,
    /// The monitoring group that counts them, if that is another one.
    pub(crate) monitoring: Option<PathBuf>,
    /// The groups that were made for it, and are removed with it.
    pub(crate) made: Vec<PathBuf>,
}

/// A step of the child, stored for later commands. The first records of husk 0.1 have an array of the first three
/// fields, with the subject in the same string as the field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStep {
    /// Its index in the plan.
    pub(crate) step: u32,
    /// The field of config.json that it comes from.
    pub(crate) field: String,
    /// Its line in a listing.
    pub(crate) line: String,
    /// The field's value, if the plan shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// The index of the `startContainer` hook that the step runs, if it runs one. The child runs no other hooks after
    /// `start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hook: Option<usize>,
}

impl RecordedStep {
    pub(crate) fn new(step: u32, origin: &Origin, line: String) -> Self {
        let hook = match origin.part() {
            Part::Hook { index, .. } => Some(index),
            Part::Mount | Part::Other => None,
        };
        let subject = origin.subject().map(str::to_owned);
        Self { step, field: origin.field().to_owned(), line, subject, hook }
    }

    pub(crate) fn origin(&self) -> Origin {
        match (self.hook, &self.subject) {
            (Some(index), _) => Origin::hook("startContainer", index),
            (None, Some(subject)) => Origin::with_subject(self.field.clone(), subject),
            (None, None) => self.field.clone().into(),
        }
    }
}

/// A hook, stored for later commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedHook {
    pub path: PathBuf,
    /// The arguments, beginning with the program's name.
    pub args: Vec<String>,
    /// The environment, or `None` for the caller's.
    pub env: Option<Vec<String>>,
    pub timeout_seconds: Option<u64>,
}

/// Returns the current time in UTC, to the nanosecond, in RFC 3339 format.
#[must_use]
pub fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:09}Z", now.subsec_nanos())
}

/// Converts days since 1970 to a civil date. The calendar's cycle of 400 years begins in March here, so the leap day is
/// its last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::{RecordedStep, date};
    use husk_plan::Origin;

    #[test]
    fn a_step_keeps_its_origin() {
        let origins =
            [Origin::hook("startContainer", 1), Origin::with_subject("linux.sysctl", "a"), "process".into()];
        for origin in origins {
            let step = RecordedStep::new(7, &origin, "line".to_owned());
            let text = serde_json::to_string(&step).unwrap();
            let read: RecordedStep = serde_json::from_str(&text).unwrap();
            assert_eq!((&read, read.origin()), (&step, origin), "{text}");
        }
    }

    #[test]
    fn steps_of_older_versions_are_read() {
        let step: RecordedStep = serde_json::from_str(r#"[9,"process.args","exec /a"]"#).unwrap();
        assert_eq!(step, RecordedStep::new(9, &"process.args".into(), "exec /a".to_owned()));
    }

    #[test]
    fn days_convert_to_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(20_777), (2026, 11, 20));
    }
}
