//! Reads what a mount needs from its mount point, and sets labels and propagation.

use crate::sys::at::{Mode, openat_nofollow, openat2_in_root, permissions};
use crate::sys::clone::InChild;
use crate::sys::file::{self, OFlags, fsetxattr};
use crate::sys::mount::{AttributeChange, Extent, MountPropagationFlags, fsconfig_set_string, mount_setattr};
use crate::sys::{Errno, Fd, Result};
use core::ffi::CStr;

/// Gives the root of a new file system the permissions of the file at `path`, if that exists.
pub(crate) fn fsconfig_mode_of(child: &InChild, fs: Fd, root: Fd, path: &CStr) -> Result {
    let place = match openat2_in_root(root, path) {
        Err(Errno::NOENT) => return Ok(()),
        found => found?,
    };
    let mode = permissions(place);
    file::close(child, place);
    let mut text = [0; 5];
    fsconfig_set_string(fs, c"mode", octal(mode?, &mut text)?)
}

/// Formats permissions as four octal digits, which every file system accepts.
fn octal(mode: Mode, text: &mut [u8; 5]) -> Result<&CStr> {
    for (digit, place) in text.iter_mut().zip([9, 6, 3, 0]) {
        let bits = mode.bits().wrapping_shr(place) & 0o7;
        *digit = b'0'.wrapping_add(u8::try_from(bits).map_err(|_| Errno::INVAL)?);
    }
    CStr::from_bytes_until_nul(text).map_err(|_| Errno::INVAL)
}

/// Labels the root of a mount for SELinux.
pub(crate) fn label(child: &InChild, mount: Fd, label: &[u8]) -> Result {
    let root = openat_nofollow(mount, c".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let labelled = fsetxattr(root, c"security.selinux", label);
    file::close(child, root);
    labelled
}

/// The most parent directories to search.
const HIGHEST: u32 = 4096;

/// Sets the propagation of the mount that contains `directory`.
pub(crate) fn mount_setattr_above(
    child: &InChild,
    directory: Fd,
    propagation: MountPropagationFlags,
) -> Result {
    let mut here = None;
    let mut done = Err(Errno::INVAL);
    for _ in 0..HIGHEST {
        let at = here.unwrap_or(directory);
        // Only the root of a mount has attributes.
        done = mount_setattr(at, Extent::Top, AttributeChange::NONE, propagation);
        if done != Err(Errno::INVAL) {
            break;
        }
        let above = openat_nofollow(at, c"..", OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
        if let Some(before) = here.take() {
            file::close(child, before);
        }
        here = Some(above?);
    }
    if let Some(last) = here {
        file::close(child, last);
    }
    done
}
