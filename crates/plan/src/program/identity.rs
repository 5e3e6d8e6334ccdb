//! Plans the identity and the capabilities of the program.

use crate::builder::{Builder, Error};
use crate::host::Host;
use crate::invocation::Invocation;
use crate::namespaces::ids;
use crate::program::process::Cwd;
use crate::program::seccomp::When;
use crate::program::{process, seccomp};
use husk_bundle::Container;
use husk_bundle::container::{Process, Terminal};
use husk_script::sys::process::{Capabilities, KeepCaps};
use husk_script::sys::{Gid, Uid};
use husk_script::{Devices, Step};

/// Takes on the program's ids, working directory and capabilities, and checks that its file exists.
pub(crate) fn assume<'b>(
    container: &Container,
    host: &Host,
    invocation: &Invocation<'_>,
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    bounding(container, plan);
    let cwd = Cwd::enter(container, plan)?;
    become_user(container, host, plan)?;
    if let Some(cwd) = cwd {
        cwd.enter_as_user(plan);
    }
    process::find(container, invocation, plan)?;
    // Loading needs CAP_SYS_ADMIN, which the next line gives up, or no_new_privs. As late as possible, because the
    // filter applies to every later call, and an old profile does not know newer calls.
    seccomp::load(container, host, When::Privileged, plan)?;
    shed(container, plan);
    Ok(())
}

/// Reduces the bounding set while the process still has the privilege for it.
fn bounding(container: &Container, plan: &mut Builder<'_>) {
    if let Some(process) = &container.process {
        plan.at("process.capabilities.bounding");
        plan.push(Step::DropBounding { keep: process.capabilities.bounding });
    }
}

/// The bit of `CAP_SYS_ADMIN`.
const SYS_ADMIN: u64 = 1 << 21;

/// Sets the program's ids and capabilities. Capabilities come last, because each of the other steps needs one. A
/// capability that loading a filter still needs [is shed](shed) after that.
fn become_user(container: &Container, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let Some(process) = &container.process else { return Ok(()) };
    plan.at("process.user").push(Step::KeepCaps { keep: KeepCaps::Yes });
    // Gives the caller's streams to the program's user while the process has the privilege for it.
    let devices = if process.terminal == Terminal::No { Devices::Hosts } else { Devices::Containers };
    plan.push(Step::FchownStreams { uid: Uid::from_raw(process.uid), devices });
    groups(container, process, host, plan)?;
    plan.at("process.user.gid").push(Step::Setresgid { gid: Gid::from_raw(process.gid) });
    plan.at("process.user.uid").push(Step::Setresuid { uid: Uid::from_raw(process.uid) });
    plan.at("process.user").push(Step::KeepCaps { keep: KeepCaps::No });
    plan.at("process.user.umask").push(Step::Umask { mask: crate::builder::mode(process.umask) });
    let more = if seccomp::wanted(container) == Some(When::Privileged) { SYS_ADMIN } else { 0 };
    capabilities(process, more, plan);
    Ok(())
}

/// Leaves the process with exactly the program's capabilities.
fn shed(container: &Container, plan: &mut Builder<'_>) {
    let Some(process) = &container.process else { return };
    if seccomp::wanted(container) == Some(When::Privileged) {
        capabilities(process, 0, plan);
    }
    let ambient = process.capabilities.ambient;
    if ambient != 0 {
        plan.at("process.capabilities.ambient").push(Step::RaiseAmbient { capabilities: ambient });
    }
}

fn capabilities(process: &Process, more: u64, plan: &mut Builder<'_>) {
    let husk_bundle::container::Capabilities { effective, permitted, inheritable, .. } = process.capabilities;
    let (effective, permitted) = (effective | more, permitted | more);
    let capabilities = Capabilities { effective, permitted, inheritable };
    plan.at("process.capabilities").push(Step::Capset { capabilities });
}

fn groups(
    container: &Container,
    process: &Process,
    host: &Host,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    plan.at("process.user.additionalGids");
    // Even then engines list the groups of the image's user in `additionalGids`. crun ignores them too.
    if process.keeps_groups {
        return Ok(());
    }
    if !ids::may_set_groups(container, host) {
        if process.additional_gids.is_empty() {
            // Only groups that cannot be dropped remain.
            return Ok(());
        }
        let phrase = "cannot set any additional groups in a rootless container";
        return Err(plan.error(format!("{phrase}: its user namespace denies setgroups")));
    }
    let groups: Vec<_> = process.additional_gids.iter().copied().map(Gid::from_raw).collect();
    let groups = plan.slice(&groups);
    plan.push(Step::Setgroups { groups });
    Ok(())
}
