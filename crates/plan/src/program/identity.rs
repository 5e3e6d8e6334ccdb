//! Who the program is and what it may do.

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

/// Becomes who the program is, in its directory and with its file found, and is left with its capabilities.
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
    // It needs CAP_SYS_ADMIN, which the next line gives up, or no_new_privs. As late as can be: from here on
    // the profile decides which calls may be made, and an old one knows none of the newer.
    seccomp::load(container, host, When::Privileged, plan)?;
    shed(container, plan);
    Ok(())
}

/// The bounding set, while there is still the privilege to reduce it.
fn bounding(container: &Container, plan: &mut Builder<'_>) {
    if let Some(process) = &container.process {
        plan.at("process.capabilities.bounding");
        plan.push(Step::DropBounding { keep: process.capabilities.bounding });
    }
}

/// `CAP_SYS_ADMIN`, by its bit.
const SYS_ADMIN: u64 = 1 << 21;

/// The program's ids and capabilities. Capabilities last: each of the others needs one. One that is still
/// needed to load a filter [is shed](shed) after that.
fn become_user(container: &Container, host: &Host, plan: &mut Builder<'_>) -> Result<(), Error> {
    let Some(process) = &container.process else { return Ok(()) };
    plan.at("process.user").push(Step::KeepCaps { keep: KeepCaps::Yes });
    // While there is the privilege to; they were the caller's.
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

/// Is left with the program's capabilities and no other.
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
    // Engines still name the groups of the image's user in `additionalGids`. crun ignores them too.
    if process.keeps_groups {
        return Ok(());
    }
    if !ids::may_set_groups(container, host) {
        if process.additional_gids.is_empty() {
            // There are no groups to be rid of, but those that nobody can be rid of.
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
