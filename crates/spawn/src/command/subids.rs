//! The ids that an administrator has given a user for user namespaces (subuid(5), subgid(5)).

use super::idmap::{IdMap, IdMaps};
use crate::error::{Error, Reason};
use rustix::process::getuid;
use std::fs;
use std::path::Path;

/// Most extents that the kernel accepts in a map (`UID_GID_MAP_MAX_EXTENTS`).
const MOST_EXTENTS: usize = 340;

/// Adds the caller's subordinate ids, from 1 on, to maps of root alone.
pub(crate) fn with_subordinates(mut maps: IdMaps) -> Result<IdMaps, Error> {
    // newuidmap(1) judges by the real user.
    let uid = getuid().as_raw();
    let users = fs::read("/etc/passwd").unwrap_or_default();
    let name = name_of(&users, uid);
    for (file, maps) in [("/etc/subuid", &mut maps.uids), ("/etc/subgid", &mut maps.gids)] {
        let list = fs::read(Path::new(file)).map_err(|error| Error::from_io(file, &error))?;
        let ranges = ranges(&list, uid, name);
        if ranges.is_empty() {
            let act = format!("{file} for user {uid}");
            return Err(Error::new(act, Reason::Conflict("has no range: add one with usermod(8)")));
        }
        append(maps, &ranges);
    }
    Ok(maps)
}

/// Returns the name of a user in `/etc/passwd`.
fn name_of(users: &[u8], uid: u32) -> Option<&[u8]> {
    lines(users).find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next()?;
        (number(fields.nth(1)?)? == uid).then_some(name)
    })
}

/// Returns a user's ranges, each as first id and count. Lines that are not valid count for nothing, as in newuidmap.
fn ranges(list: &[u8], uid: u32, name: Option<&[u8]>) -> Vec<[u32; 2]> {
    let range = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b':');
        let owner = fields.next()?;
        if Some(owner) != name && number(owner) != Some(uid) {
            return None;
        }
        let [first, count] = [number(fields.next()?)?, number(fields.next()?)?];
        // The highest id is reserved (`(uid_t) -1`).
        let end = first.checked_add(count)?;
        (count > 0 && end < u32::MAX && fields.next().is_none()).then_some([first, count])
    };
    lines(list).filter_map(range).collect()
}

/// Appends ranges that follow each other inside, as many as the kernel accepts.
fn append(maps: &mut Vec<IdMap>, ranges: &[[u32; 2]]) {
    let mut inside = 1_u32;
    for &[outside, count] in ranges {
        let Some(next) = inside.checked_add(count).filter(|_| maps.len() < MOST_EXTENTS) else { return };
        // The kernel rejects maps that overlap (kernel/user_namespace.c, `mappings_overlap`).
        let overlaps = |map: &IdMap| {
            let (end, others) = (outside.saturating_add(count), map.outside.saturating_add(map.count));
            outside < others && map.outside < end
        };
        if maps.iter().any(overlaps) {
            continue;
        }
        maps.push(IdMap { inside, outside, count });
        inside = next;
    }
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii)
}

fn number(text: &[u8]) -> Option<u32> {
    // `parse` would accept a sign.
    text.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(text).ok()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_and_by_number() {
        let list =
            b"who:100000:65536\nother:1:2\n7:300000:10\ncaf\xe9:5:5\nwho:1:2:3\nwho:+1:2\nwho:9:0\nwho:x:1\n\
            who:4294967290:10\nwho\n";
        assert_eq!(ranges(list, 7, Some(b"who")), [[100_000, 65536], [300_000, 10]]);
        assert_eq!(ranges(list, 8, None), [[0; 2]; 0]);
        assert_eq!(ranges(list, 8, Some(b"caf\xe9")), [[5, 5]]);
    }

    #[test]
    fn name_of_the_caller_is_that_of_the_number() {
        let users = b"root:x:0:0::/:\nbroken\nwho:x:7:8::/:\n";
        assert_eq!(name_of(users, 7), Some(&b"who"[..]));
        assert_eq!(name_of(users, 8), None);
    }

    #[test]
    fn ranges_follow_each_other_and_do_not_overlap() {
        let map = |inside, outside, count| IdMap { inside, outside, count };
        let mut maps = vec![map(0, 7, 1)];
        append(&mut maps, &[[100, 10], [5, 5], [300, 5], [109, 1], [1000, u32::MAX]]);
        assert_eq!(maps, [map(0, 7, 1), map(1, 100, 10), map(11, 300, 5)]);
    }
}
