//! A sysfs of the program's own network namespace.
//!
//! The host's sysfs would show the host's network devices. The new one lies over it and hides the file systems that the
//! host has mounted there, such as its cgroups. The host's stays mounted below: without it, a user namespace could not
//! mount another (fs/namespace.c, `mount_too_revealing`).

use super::image;
use crate::bundle::ALWAYS;
use crate::host::{Host, Sysfs};
use crate::profile::{Net, Profile};
use husk_plan::{Builder, Error};
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::mount::{MountAttributes, MountFlags};
use husk_script::sys::namespace::Namespaces;
use husk_script::{Reg, Step};

/// The origin of the step that mounts a sysfs.
pub(crate) const SYS: &str = "sys";

/// Mounts a read-only sysfs. If the program has joined a network, `sysfs` has been created before.
pub(super) fn mount(
    profile: &Profile,
    host: &Host,
    sysfs: Option<Reg>,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    if !is_wanted(profile, host) {
        return Ok(());
    }
    plan.at(SYS);
    if host.network.is_none() {
        let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        plan.push(Step::Mount { source: c"sysfs", target: c"/sys", fstype: c"sysfs", flags, data: c"" });
    }
    let Some(sysfs) = sysfs else { return Ok(()) };
    let (place, flags) = (plan.register()?, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW);
    plan.push(Step::Open { path: c"/sys", flags, mode: Mode::empty(), out: place });
    plan.push(Step::MoveMount { mount: sysfs.into(), target: place.into() });
    plan.release(place);
    plan.release(sysfs);
    Ok(())
}

/// Returns whether the program gets a new sysfs. An image gets one only from its bundle, and a program with declared
/// inputs gets none. A profile that names a path in `/sys`, or works there, means the host's.
fn is_wanted(profile: &Profile, host: &Host) -> bool {
    let is_named =
        host.found.iter().map(|found| &found.path).chain([&host.cwd]).any(|path| path.starts_with("/sys"));
    profile.net != Net::Host
        && profile.image.is_none()
        && host.view.is_none()
        && host.sysfs == Sysfs::Own
        && !is_named
}

/// Creates a detached sysfs for the program or its image, if they want one. Only a process with privileges over the
/// network namespace may create it (net/core/net-sysfs.c, `net_current_may_mount`).
pub(super) fn create(profile: &Profile, host: &Host, plan: &mut Builder<'_>) -> Result<Option<Reg>, Error> {
    let of_image = profile.image.iter().flat_map(image::mounts).map(|(_, mount)| mount);
    let attributes = match of_image.filter(|mount| image::is_sysfs(mount)).last() {
        Some(mount) => mount.attributes.set | ALWAYS,
        None if is_wanted(profile, host) => ALWAYS | MountAttributes::RDONLY | MountAttributes::NOEXEC,
        None => return Ok(None),
    };
    let fs = plan.at(SYS).register()?;
    // The kernel counts it as a mount of this namespace, in which the process must be privileged too.
    plan.push(Step::Unshare { namespaces: Namespaces::MOUNT });
    plan.push(Step::Fsopen { fstype: c"sysfs", out: fs });
    plan.push(Step::Fsmount { fs, attributes });
    Ok(Some(fs))
}
