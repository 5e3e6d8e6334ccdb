//! Keyrings (keyrings(7)).

use crate::{Result, raw};
use core::ffi::CStr;
use core::mem::MaybeUninit;

/// A key or keyring by its serial number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(usize);

impl Key {
    /// The caller's session keyring, whatever its number (`KEY_SPEC_SESSION_KEYRING`).
    pub const SESSION: Self = Self(usize::MAX - 2);
}

/// `keyctl(KEYCTL_JOIN_SESSION_KEYRING)`: the caller's session keyring becomes the one with this name,
/// which is made if the caller can find none.
///
/// # Errors
///
/// `ENOSYS` if the kernel has no keyrings, `EDQUOT` if the user has too many.
pub fn keyctl_join_session_keyring(name: &CStr) -> Result<Key> {
    raw::keyctl_join_session_keyring(name).map(Key)
}

/// `keyctl(KEYCTL_DESCRIBE)`: writes `type;uid;gid;permissions;name` into `room`, the permissions in
/// hexadecimal, and returns that.
///
/// # Errors
///
/// `EMSGSIZE` if there is no room for it; for the rest see keyctl_describe(3).
pub fn keyctl_describe(key: Key, room: &mut [MaybeUninit<u8>]) -> Result<&[u8]> {
    raw::keyctl_describe(key.0, room)
}

/// `keyctl(KEYCTL_SETPERM)`: who may do what with it.
///
/// # Errors
///
/// See keyctl_setperm(3).
pub fn keyctl_setperm(key: Key, permissions: u32) -> Result {
    raw::keyctl_setperm(key.0, permissions)
}
