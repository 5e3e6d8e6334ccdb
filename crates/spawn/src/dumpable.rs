//! Gives memory back the dumpability that a child took from it.
//!
//! When a child that shares our memory changes its user or group, the kernel makes the memory
//! undumpable (kernel/cred.c, `commit_creds`): it does not know that the memory is not the child's
//! alone. That is right for as long as the child uses it, for otherwise any process of the new user
//! could trace the child and read our memory through it. Afterwards it would only hurt: our own
//! `/proc/self` would belong to root, and nobody could debug us.

use husk_script::sys::Errno;
use husk_script::sys::process::{Dumpable, prctl_get_dumpable, prctl_set_dumpable};
use std::sync::{Mutex, PoisonError};

/// How many children may change it now, and what it was before the first of them.
static CHILDREN: Mutex<Option<(usize, Dumpable)>> = Mutex::new(None);

/// Held from before the clone until the child is released. The last one restores.
pub(crate) struct Guard(());

impl Guard {
    pub(crate) fn new() -> Result<Self, Errno> {
        let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        *children = Some(match *children {
            Some((count, before)) => (count + 1, before),
            None => (1, prctl_get_dumpable()?),
        });
        Ok(Self(()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        *children = match children.take() {
            Some((1, before)) => {
                // What was "root only" cannot be asked for, and no child can have changed it to
                // anything that shows more.
                if before == Dumpable::Yes {
                    // The kernel refuses no process this for its own memory.
                    let restored = prctl_set_dumpable(before);
                    debug_assert!(restored.is_ok());
                }
                None
            }
            Some((count, before)) => Some((count - 1, before)),
            None => None,
        };
    }
}
