//! What is written down of a container, for commands that come later.

use crate::store::process::ProcessId;
use husk_cgroup::CgroupPaths;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// What later commands cannot find out themselves. The status is not among it: it is computed, and
/// what is not stored cannot be stale.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The container's name.
    pub id: String,
    /// Its bundle.
    pub bundle: PathBuf,
    /// Its configuration, if that is not its bundle's config.json.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) config: Option<PathBuf>,
    /// Its root file system.
    pub rootfs: PathBuf,
    /// When it was created, as RFC 3339 has it.
    pub created: String,
    /// Who created it.
    pub owner: u32,
    /// The annotations of its configuration.
    pub annotations: BTreeMap<String, String>,
    /// The kinds of namespaces that it does not share with who created it, in the bits of clone(2).
    pub namespaces: u32,
    /// Whether its processes are left in the session keyring of who starts them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) callers_keyring: bool,
    /// Its first process, once there is one.
    pub process: Option<ProcessId>,
    /// The process that is on its way to be the first one. It is written down where others than the creator may keep it
    /// waiting: hooks, a seccomp agent, the receiver of a terminal. If its creator is killed meanwhile it is known by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) creating: Option<ProcessId>,
    /// How that ended, if it was waited for by one of us and the container kept, in the bits of wait(2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<i32>,
    /// Its cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cgroup: Option<RecordedCgroup>,
    /// Whether its processes may outlive its first one: it has no new pid namespace.
    #[serde(default)]
    pub shares_pids: bool,
    /// What it has of resctrl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resctrl: Option<Membership>,
    /// What its standard streams were in the beginning, if they were given to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) streams: Vec<String>,
    /// The steps that it performs after `start`, each with its index, the field it comes from and its
    /// text: `start` is another process than `create` and cannot see the plan.
    pub after_start: Vec<(u32, String, String)>,
    /// `hooks.poststart`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poststart: Vec<RecordedHook>,
    /// `hooks.poststop`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub poststop: Vec<RecordedHook>,
}

/// The cgroup of a container, as it is written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecordedCgroup {
    /// Where it is, by controller.
    #[serde(rename = "directories")]
    pub(crate) place: CgroupPaths,
    /// The unit, if it is systemd's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<RecordedUnit>,
}

/// What names a unit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecordedUnit {
    pub(crate) cgroups_path: Option<String>,
    pub(crate) id: String,
    /// Whether it is the user's systemd that has it.
    pub(crate) user: bool,
}

/// What a container has of resctrl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    /// The group that its processes are in.
    pub(crate) group: PathBuf,
    /// The group that they are counted in beside.
    pub(crate) monitoring: Option<PathBuf>,
    /// Which of these was made for it, and goes with it.
    pub(crate) made: Vec<PathBuf>,
}

/// A program to run, as it is written down for commands that come later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedHook {
    /// `path`.
    pub path: PathBuf,
    /// `args`, its name first.
    pub args: Vec<String>,
    /// `env`, or what the caller has if nothing is said.
    pub env: Option<Vec<String>>,
    /// `timeout` in seconds.
    pub timeout_seconds: Option<u64>,
}

/// The time, to the nanosecond, as RFC 3339 has it, in UTC.
#[must_use]
pub fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (now.as_secs() / 86_400, now.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:09}Z", now.subsec_nanos())
}

/// The civil date of a day since 1970, by the calendar's cycle of 400 years, which begins in March so
/// that the leap day is its last.
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
    use super::date;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(20_777), (2026, 11, 20));
    }
}
