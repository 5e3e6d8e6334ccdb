//! Keeps memory undumpable while a child that is weaker than this process shares it.
//!
//! `ptrace_may_access` (kernel/ptrace.c) compares users, capabilities and user namespaces of two
//! *processes*, but the memory of a child that has not execed is ours. As soon as the child holds less than
//! we do, a process that holds as little may open `/proc/PID/mem` of the child, and that is our memory.
//! Undumpable memory is open only to CAP_SYS_PTRACE in the user namespace that this program was
//! started in, so it is made undumpable before such a child is cloned.
//!
//! It becomes dumpable again when the last of these children has execed or exited. Otherwise our own
//! `/proc/self` would belong to root for good, and nobody could debug us.

use husk_script::Step;
use husk_script::sys::Errno;
use husk_script::sys::namespace::Namespaces;
use husk_script::sys::process::{Dumpable, prctl_get_dumpable, prctl_set_dumpable};
use rustix::fs::stat;
use rustix::process::geteuid;
use rustix::thread::capabilities;
use std::sync::{Mutex, PoisonError};

/// The children that share the memory now and are, or become, weaker than we are.
static SHARERS: Mutex<Option<Sharers>> = Mutex::new(None);

struct Sharers {
    children: usize,
    /// What the memory was before the first of them.
    before: Dumpable,
}

/// Held from before the clone until the child is released. The last one restores.
pub(crate) struct Guard(());

impl Guard {
    /// A guard for a child that performs `steps` and is born in `namespaces`, if it becomes weaker than we
    /// are.
    ///
    /// Root's memory is undumpable from then on, and so is that of another user with capabilities. That of a
    /// user without stays dumpable until the list says otherwise or the kernel does (kernel/cred.c,
    /// `commit_creds`): the files in `/proc` of an undumpable process belong to root, and the child's id maps
    /// are written to such files. The child of such a user is weaker only in a user namespace. In a new one
    /// there is nobody else before the program runs; before it joins one of others, its list makes the memory
    /// undumpable. Processes of the same user outside may trace this process anyway.
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
            // With others it stays undumpable: they may be in the hands of somebody weaker already.
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
                // What was "root only" cannot be asked for, and no child can have changed it to
                // anything that shows more.
                if before == Dumpable::Yes {
                    // The kernel refuses no process this for its own memory.
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

/// Whether we hold what a child could lose. Somebody who is not root cannot map the ids of a new user namespace
/// while memory is undumpable, capabilities or not.
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

/// Whether the files in `/proc` of this process, which is undumpable, are its own. They belong to root of the
/// user namespace that the program was started in, and a program may have entered another since. If not, it
/// can map no ids of a child either.
fn owns_its_files() -> Result<bool, Errno> {
    Ok(stat("/proc/self/uid_map")?.st_uid == geteuid().as_raw())
}

/// Whether this step makes a user namespace.
fn makes_users(step: &Step<'_>) -> bool {
    matches!(step, Step::Unshare { namespaces } if namespaces.contains(Namespaces::USER))
}

/// Whether a child may hold less than its parent after this step, or asks for undumpable memory itself.
fn weakens(step: &Step<'_>) -> bool {
    match step {
        Step::Setresuid { .. } | Step::Setresgid { .. } | Step::Capset { .. } | Step::Undumpable => true,
        Step::Setns { namespaces, .. } => namespaces.contains(Namespaces::USER),
        _ => false,
    }
}
