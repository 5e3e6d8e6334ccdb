//! Gives the container its own session keyring, so that the program cannot find its caller's keys.

use crate::builder::{Builder, Error};
use crate::invocation::{Invocation, Keyring};
use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_script::sys::Errno;
use husk_script::sys::file::OFlags;
use husk_script::{Reg, Step};

/// `KEY_USR_SEARCH` and `KEY_OTH_SEARCH` let a process find a keyring that another process created, as a process
/// started by `exec` must. In a user namespace that process is not the keyring's owner.
const OWNER_SEARCHES: u32 = 0x0008_0000;
const OTHERS_SEARCH: u32 = 0x0000_0008;

/// Joins the container's session keyring, and creates it if it does not exist. An SELinux label for it is set
/// through `proc`.
pub(crate) fn join(
    container: &Container,
    invocation: &Invocation<'_>,
    proc: Option<Reg>,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    if invocation.keyring == Keyring::Callers {
        return Ok(());
    }
    let in_user_namespace =
        container.namespaces.iter().any(|namespace| namespace.kind == NamespaceKind::User);
    let permissions = if in_user_namespace { OTHERS_SEARCH } else { OWNER_SEARCHES };
    let label = container.process.as_ref().and_then(|process| process.selinux_label.as_ref());
    plan.at("process.selinuxLabel");
    let create = match (label, proc) {
        (Some(label), Some(proc)) => {
            let (path, flags) = (c"thread-self/attr/keycreate", OFlags::WRONLY);
            let out = plan.register()?;
            plan.push(Step::OpenInProc { proc: proc.into(), path, flags, out });
            let bytes = plan.slice(label.as_bytes());
            plan.push(Step::Write { fd: out.into(), bytes });
            Some(out)
        }
        _ => None,
    };
    plan.at("process");
    let name = plan.text(format!("_ses.{}", invocation.id))?;
    // ENOSYS means that the kernel has no keyrings, so there are no keys to hide.
    plan.push(Step::JoinSessionKeyring { name, permissions, tolerate: Some(Errno::NOSYS) });
    if let Some(create) = create {
        plan.at("process.selinuxLabel").push(Step::Write { fd: create.into(), bytes: b"" });
        plan.push(Step::Close { fd: create.into() });
        plan.release(create);
    }
    Ok(())
}
