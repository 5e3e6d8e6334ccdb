//! A sysfs of the program's own network namespace.
//!
//! The host's sysfs would show the host's network devices. The new one lies over it and hides the file systems that the
//! host has mounted there, such as its cgroups. The host's stays mounted below: without it, a user namespace could not
//! mount another (fs/namespace.c, `mount_too_revealing`).

use crate::host::{Host, Sysfs};
use crate::profile::{Net, Profile};
use husk_plan::Builder;
use husk_script::Step;
use husk_script::sys::mount::MountFlags;

/// The origin of the step that mounts a sysfs.
pub(crate) const SYS: &str = "sys";

/// Mounts a read-only sysfs. An image gets one only from its bundle, and a program
/// with declared inputs gets none. A profile that names a path in `/sys`, or works
/// there, means the host's.
pub(super) fn mount(profile: &Profile, host: &Host, plan: &mut Builder<'_>) {
    let is_named =
        host.found.iter().map(|found| &found.path).chain([&host.cwd]).any(|path| path.starts_with("/sys"));
    if profile.net == Net::Host
        || profile.image.is_some()
        || host.view.is_some()
        || host.sysfs == Sysfs::Callers
        || is_named
    {
        return;
    }
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    plan.at(SYS).push(Step::Mount { source: c"sysfs", target: c"/sys", fstype: c"sysfs", flags, data: c"" });
}
