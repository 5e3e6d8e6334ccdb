//! Joins, describes and restricts keyrings (keyrings(7)).

use crate::{Result, raw};
use core::ffi::CStr;
use core::mem::MaybeUninit;

/// A key or keyring, by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(usize);

impl Key {
    /// The caller's session keyring, whatever its number (`KEY_SPEC_SESSION_KEYRING`).
    pub const SESSION: Self = Self(usize::MAX - 2);
}

/// Makes the keyring with this name the caller's session keyring, with `keyctl(KEYCTL_JOIN_SESSION_KEYRING)`. It is
/// created if the caller cannot find one.
///
/// # Errors
///
/// `ENOSYS` if the kernel has no keyrings, `EDQUOT` if the user has too many.
pub fn keyctl_join_session_keyring(name: &CStr) -> Result<Key> {
    raw::keyctl_join_session_keyring(name).map(Key)
}

/// Writes `type;uid;gid;permissions;name` into `room`, the permissions in hexadecimal, and returns it, with
/// `keyctl(KEYCTL_DESCRIBE)`.
///
/// # Errors
///
/// `EMSGSIZE` if it does not fit; for the rest see keyctl_describe(3).
pub fn keyctl_describe(key: Key, room: &mut [MaybeUninit<u8>]) -> Result<&[u8]> {
    raw::keyctl_describe(key.0, room)
}

/// Sets the permissions of a key, with `keyctl(KEYCTL_SETPERM)`.
pub fn keyctl_setperm(key: Key, permissions: u32) -> Result {
    raw::keyctl_setperm(key.0, permissions)
}
