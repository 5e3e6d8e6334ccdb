//! Joins a session keyring.
//!
//! A new keyring hides the caller's keys from the program. The permission bits that are given are added to those of
//! the keyring.

use crate::sys::keyring::{keyctl_describe, keyctl_join_session_keyring, keyctl_setperm};
use crate::sys::{Errno, Result};
use core::ffi::CStr;
use core::mem::MaybeUninit;

/// Room for a keyring's type, owner and permissions, and for a name as long as a file name.
const MOST: usize = 512;

pub(crate) fn join_session_keyring(name: &CStr, permissions: u32) -> Result {
    let keyring = keyctl_join_session_keyring(name)?;
    // Uninitialized, because the compiler would call a library function to zero it.
    let mut room = [MaybeUninit::uninit(); MOST];
    let description = keyctl_describe(keyring, &mut room)?;
    let has = permissions_of(description).ok_or(Errno::PROTO)?;
    keyctl_setperm(keyring, has | permissions)
}

/// Parses the fourth field of `keyring;0;0;3f1b0000;_ses.name`, in hexadecimal.
fn permissions_of(description: &[u8]) -> Option<u32> {
    let field = description.split(|byte| *byte == b';').nth(3)?;
    field.iter().try_fold(0_u32, |all, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte.wrapping_sub(b'0'),
            b'a'..=b'f' => byte.wrapping_sub(b'a').wrapping_add(10),
            _ => return None,
        };
        all.checked_mul(16)?.checked_add(u32::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::permissions_of;

    #[test]
    fn permissions_are_read_from_the_fourth_field() {
        assert_eq!(permissions_of(b"keyring;0;65534;3f1b0000;_ses.a;b\0"), Some(0x3f1b_0000));
        for nonsense in [&b"keyring;0;0"[..], b"keyring;0;0;x;_ses", b"keyring;0;0;123456789;_ses"] {
            assert_eq!(permissions_of(nonsense), None);
        }
    }
}
