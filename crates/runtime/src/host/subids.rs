//! The ids that an administrator has given a user for user namespaces: subuid(5) and subgid(5).

use crate::host::users::Users;
use husk_spawn::{IdMap, find_program};
use rustix::process::{getegid, geteuid};
use std::fs;
use std::path::Path;

/// The maps of a user namespace in which the caller is root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootlessMaps {
    pub uids: Vec<IdMap>,
    pub gids: Vec<IdMap>,
}

impl RootlessMaps {
    /// Returns maps of the caller's own ids to root's and of all subordinate ids to those that follow. Without subordinate
    /// ids of both kinds, or without the programs that map them, the caller's own ids are alone.
    #[must_use]
    pub fn of_caller() -> Self {
        let [uids, gids] = ranges(geteuid().as_raw());
        let is_usable = !uids.is_empty()
            && !gids.is_empty()
            && ["newuidmap", "newgidmap"].iter().all(|name| find_program(name).is_some());
        let [uids, gids] = if is_usable { [uids, gids] } else { [Vec::new(), Vec::new()] };
        Self { uids: maps(geteuid().as_raw(), &uids), gids: maps(getegid().as_raw(), &gids) }
    }
}

fn maps(own: u32, ranges: &[[u32; 2]]) -> Vec<IdMap> {
    let mut maps = vec![IdMap { inside: 0, outside: own, count: 1 }];
    let mut inside = 1_u32;
    for &[outside, count] in ranges {
        // Ids of the last ranges that no namespace can have are left out.
        let Some(next) = inside.checked_add(count).filter(|_| count > 0) else { break };
        maps.push(IdMap { inside, outside, count });
        inside = next;
    }
    maps
}

/// Returns a user's ranges of user and group ids, each as first id and count.
pub(crate) fn ranges(uid: u32) -> [Vec<[u32; 2]>; 2] {
    let name = Users::below(Path::new("/")).name(uid);
    ["/etc/subuid", "/etc/subgid"].map(|file| listed(Path::new(file), uid, name.as_deref()))
}

fn listed(file: &Path, uid: u32, name: Option<&str>) -> Vec<[u32; 2]> {
    let list = fs::read_to_string(file).unwrap_or_default();
    let uid = uid.to_string();
    let range = |line: &str| {
        let mut fields = line.split(':');
        let who = fields.next()?;
        let range = [fields.next()?.trim().parse().ok()?, fields.next()?.trim().parse().ok()?];
        (who == uid || Some(who) == name).then_some(range)
    };
    list.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subid_ranges_are_found_by_name_and_by_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "who:100000:65536\nother:1:2\n1000:300000:10\nwho:broken:1\n").unwrap();
        assert_eq!(listed(file.path(), 1000, Some("who")), [[100000, 65536], [300000, 10]]);
        assert_eq!(listed(file.path(), 7, None), [[0; 2]; 0]);
    }

    #[test]
    fn ranges_follow_each_other_after_the_callers_id() {
        let map = |inside, outside, count| IdMap { inside, outside, count };
        assert_eq!(maps(7, &[]), [map(0, 7, 1)]);
        let two = maps(7, &[[100000, 10], [300000, 5], [1, u32::MAX]]);
        assert_eq!(two, [map(0, 7, 1), map(1, 100000, 10), map(11, 300000, 5)]);
    }
}
