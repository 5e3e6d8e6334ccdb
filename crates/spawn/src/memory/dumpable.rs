//! Keeps memory undumpable while a child with fewer privileges than this process shares it.
//!
//! `ptrace_may_access` (kernel/ptrace.c) compares users, capabilities and user namespaces of two *processes*.
//! Until exec, however, the child's memory is also this process's. Once the child has fewer privileges, any
//! process with equally few may open `/proc/PID/mem` of the child and read this process's memory. Undumpable
//! memory can be opened only with CAP_SYS_PTRACE in the user namespace in which this program was started. So
//! it is made undumpable before such a child is cloned.
//!
//! It becomes dumpable again when the last such child has execed or exited. Otherwise `/proc/self` would
//! belong to root forever, and users could not debug their own process.

use husk_script::Step;
use husk_script::sys::Errno;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::process::{Dumpable, prctl_get_dumpable, prctl_set_dumpable};
use rustix::fs::stat;
use rustix::process::geteuid;
use rustix::thread::capabilities;
use std::sync::{Mutex, PoisonError};

/// The children that now share the memory and have, or will have, fewer privileges than this process.
static SHARERS: Mutex<Option<Sharers>> = Mutex::new(None);

struct Sharers {
    children: usize,
    /// Whether the memory was dumpable before the first of them.
    before: Dumpable,
}

/// Keeps the memory undumpable from before the clone until the child is released. Dropping the last guard restores
/// the state.
pub(crate) struct Guard(());

impl Guard {
    /// Returns a guard if a child that performs `steps` and is created in `namespaces` will have fewer
    /// privileges than this process.
    ///
    /// From then on the memory of root, or of a user with capabilities, is undumpable. The memory of a user
    /// without capabilities stays dumpable until the list or the kernel (kernel/cred.c, `commit_creds`) makes
    /// it undumpable. The reason is that `/proc` files of an undumpable process belong to root, and the
    /// child's id maps are written to such files.
    ///
    /// A child of such a user loses privileges only in a user namespace. A new one has no other process
    /// before the program runs; before the child joins an existing one, its list makes the memory undumpable.
    /// Processes of the same user outside may trace this process anyway.
    pub(crate) fn of_child(steps: &[Step<'_>], namespaces: Namespaces) -> Result<Option<Self>, Errno> {
        let makes_users = namespaces.contains(Namespaces::USER) || steps.iter().any(makes_users);
        if !makes_users && !steps.iter().any(weakens) {
            return Ok(None);
        }
        let mut sharers = SHARERS.lock().unwrap_or_else(PoisonError::into_inner);
        let (children, before) = match &*sharers {
            Some(Sharers { children, before }) => (*children, *before),
            None => (0, prctl_get_dumpable()?),
        };
        if before == Dumpable::Yes && has_privileges(makes_users)? {
            prctl_set_dumpable(Dumpable::No)?;
            // With other children it stays undumpable, because processes with fewer privileges may already
            // trace them.
            if makes_users && children == 0 && !owns_its_files()? {
                prctl_set_dumpable(Dumpable::Yes)?;
            }
        }
        *sharers = Some(Sharers { children: children + 1, before });
        Ok(Some(Self(())))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut sharers = SHARERS.lock().unwrap_or_else(PoisonError::into_inner);
        *sharers = match sharers.take() {
            Some(Sharers { children: 1, before }) => {
                // Only `Yes` is restored: prctl cannot set "root only", and no child can have made the memory
                // more readable.
                if before == Dumpable::Yes {
                    // The kernel always allows this on a process's own memory.
                    let restored = prctl_set_dumpable(before);
                    debug_assert!(restored.is_ok());
                }
                None
            }
            Some(Sharers { children, before }) => Some(Sharers { children: children - 1, before }),
            None => None,
        };
    }
}

/// Whether this process has privileges that a child could lose. A process that is not root's cannot map the
/// ids of a new user namespace while its memory is undumpable, whatever capabilities it has.
fn has_privileges(makes_users: bool) -> Result<bool, Errno> {
    let holds = || Ok(!capabilities(None)?.permitted.is_empty());
    if geteuid().is_root() {
        Ok(true)
    } else if makes_users {
        Ok(false)
    } else {
        holds()
    }
}

/// Whether this process, which is undumpable, owns its files in `/proc`. They belong to root of the user
/// namespace in which the program was started, and the program may have entered another one since. If it does
/// not own them, it cannot map a child's ids either.
fn owns_its_files() -> Result<bool, Errno> {
    Ok(stat("/proc/self/uid_map")?.st_uid == geteuid().as_raw())
}

/// Whether this step creates a user namespace.
fn makes_users(step: &Step<'_>) -> bool {
    matches!(step, Step::Unshare { namespaces } if namespaces.contains(Namespaces::USER))
}

/// Whether a child may have fewer privileges than its parent after this step, or becomes undumpable by it.
fn weakens(step: &Step<'_>) -> bool {
    match step {
        Step::Setresuid { .. } | Step::Setresgid { .. } | Step::Capset { .. } | Step::Undumpable => true,
        Step::Setns { namespaces, .. } => namespaces.contains(Namespaces::USER),
        _ => false,
    }
}
