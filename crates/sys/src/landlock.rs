//! Takes rights away from a process and its descendants, with Landlock (landlock(7)).
//!
//! A ruleset names the rights that it handles. A process restricted by it has those rights only for the files, and
//! below the directories, that the ruleset allows. Rights are `LANDLOCK_ACCESS_FS_*`, scopes `LANDLOCK_SCOPE_*`.

use crate::clone::InChild;
use crate::{Errno, Fd, Result, raw};

/// Rights that exist only for directories. The kernel refuses them for any other file.
#[rustfmt::skip]
const OF_DIRECTORIES: u64 = {
    use linux_raw_sys::landlock::{
        LANDLOCK_ACCESS_FS_MAKE_BLOCK, LANDLOCK_ACCESS_FS_MAKE_CHAR, LANDLOCK_ACCESS_FS_MAKE_DIR,
        LANDLOCK_ACCESS_FS_MAKE_FIFO, LANDLOCK_ACCESS_FS_MAKE_REG, LANDLOCK_ACCESS_FS_MAKE_SOCK,
        LANDLOCK_ACCESS_FS_MAKE_SYM, LANDLOCK_ACCESS_FS_READ_DIR, LANDLOCK_ACCESS_FS_REFER,
        LANDLOCK_ACCESS_FS_REMOVE_DIR, LANDLOCK_ACCESS_FS_REMOVE_FILE,
    };
    (LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR
        | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK
        | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REFER
        | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE) as u64
};

/// Returns the version of Landlock's interface, from `landlock_create_ruleset(LANDLOCK_CREATE_RULESET_VERSION)`.
///
/// # Errors
///
/// `ENOSYS` if the kernel is built without Landlock, `EOPNOTSUPP` if it was disabled at boot.
pub fn abi() -> Result<u32> {
    raw::landlock_abi().map(|version| u32::try_from(version).unwrap_or(u32::MAX))
}

/// Creates a ruleset that handles these rights and scopes and allows nothing yet, with `landlock_create_ruleset`.
///
/// # Errors
///
/// `EINVAL` for a right that the kernel does not know, `E2BIG` for a scope before version 6.
pub fn create_ruleset(handled: u64, scoped: u64) -> Result<Fd> {
    raw::landlock_create_ruleset(handled, scoped)
}

/// Allows these rights for a file, or for a directory and everything below it, with
/// `landlock_add_rule(LANDLOCK_RULE_PATH_BENEATH)`. For a file it leaves out the rights that only directories have.
///
/// # Errors
///
/// `EBADFD` for a descriptor without a path, such as a pipe.
pub fn allow_beneath(ruleset: Fd, beneath: Fd, rights: u64) -> Result {
    match raw::landlock_allow_beneath(ruleset, beneath, rights) {
        // `beneath` is not a directory (security/landlock/fs.c, `landlock_append_fs_rule`).
        Err(Errno::INVAL) => raw::landlock_allow_beneath(ruleset, beneath, rights & !OF_DIRECTORIES),
        done => done,
    }
}

/// Restricts the process and its descendants to the ruleset, with `landlock_restrict_self`.
///
/// # Errors
///
/// `EPERM` without no-new-privileges and without `CAP_SYS_ADMIN`, `E2BIG` if 16 rulesets already apply.
pub fn restrict_self(_: &InChild, ruleset: Fd) -> Result {
    raw::landlock_restrict_self(ruleset)
}
