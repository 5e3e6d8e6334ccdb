//! Files that other users could have changed.

use rustix::fs::Stat;

/// Returns why a user other than the caller and root could have written a file, or added entries to a directory. `None` if
/// nobody else could. The caller is given by uid and gid.
#[must_use]
pub fn distrust(stat: &Stat, (user, group): (u32, u32)) -> Option<String> {
    // A group with the same id as the user is the user's private one, without other members.
    let is_own_group = stat.st_gid == group && group == user;
    if is_foreign(stat, user) {
        Some(format!("belongs to user {}", stat.st_uid))
    } else if stat.st_mode & 0o002 != 0 {
        Some("is writable by all users".to_owned())
    } else if stat.st_mode & 0o020 != 0 && !is_own_group {
        Some(format!("is writable by group {}", stat.st_gid))
    } else {
        None
    }
}

/// Returns whether a file belongs to a user other than this one and root.
pub(crate) fn is_foreign(stat: &Stat, user: u32) -> bool {
    stat.st_uid != user && stat.st_uid != 0
}
