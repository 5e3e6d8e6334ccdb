//! Landlock (landlock(7)) as a second barrier that restricts what a program can write to.
//!
//! The first barrier is the mounts: everything is read-only except the program's own directories and the paths that
//! `--write` names. Mounts stop changes of a file system and nothing more. A FIFO or a socket of the host can still be
//! written to. `/proc/self/fd/0` reopens the file behind standard input for writing, on the caller's mount.
//!
//! Landlock allows writing only below the directories that are listed here, however the program reached the file.
//! Abstract sockets and processes outside are out of reach even if a namespace were shared.
//!
//! Rules belong to inodes and also apply to what is mounted below them. So if a read-only tree is shown below a
//! directory of the program's own, the mount is the only barrier. An example is a project below its home directory.
//!
//! A restricted process cannot mount anything, even in its own namespaces (security/landlock/fs.c, `hook_sb_mount`).
//! [`Profile::nested`] does without Landlock for that reason.

use super::layers::Streams;
use crate::host::{Host, Landlock};
use crate::profile::{Net, Profile};
use husk_plan::{Builder, Error};
use husk_script::sys::mount::MountAttributes;
use husk_script::sys::{Errno, Fd, landlock};
use husk_script::{Handle, Reg, Step};

/// `LANDLOCK_ACCESS_FS_*`, with the version of Landlock's interface that introduced them.
const RIGHTS: [(u32, u64); 5] = [
    // WRITE_FILE, REMOVE_DIR, REMOVE_FILE, and `MAKE_*` for each kind of file.
    (1, 0x1ff2),
    // REFER: to move a file to another directory.
    (2, 1 << 13),
    // TRUNCATE.
    (3, 1 << 14),
    // IOCTL_DEV.
    (5, 1 << 15),
    // RESOLVE_UNIX: to connect to a socket by its path.
    (9, RESOLVE_UNIX),
];
const RESOLVE_UNIX: u64 = 1 << 16;
/// `LANDLOCK_SCOPE_*`, in the same form: abstract sockets and signals.
const SCOPES: [(u32, u64); 2] = [(6, ABSTRACT_SOCKETS), (6, 0x2)];
const ABSTRACT_SOCKETS: u64 = 0x1;

impl Landlock {
    /// Returns the support of the running kernel.
    pub(crate) fn probe() -> Option<Self> {
        landlock::abi().ok().and_then(Self::of_version)
    }

    /// Returns the support of a version of the interface. The first (Linux 5.13 to 5.18) is not used: it forbids all
    /// moves to another directory, which programs need.
    #[must_use]
    pub fn of_version(abi: u32) -> Option<Self> {
        let known = |table: &[(u32, u64)]| {
            table.iter().filter(|(since, _)| *since <= abi).fold(0, |all, (_, bits)| all | bits)
        };
        (abi >= 2).then(|| Self { rights: known(&RIGHTS), scopes: known(&SCOPES) })
    }
}

/// The ruleset of a plan; empty if Landlock is not used.
pub(crate) struct LandlockRules {
    ruleset: Option<(Reg, Landlock)>,
}

impl LandlockRules {
    /// Creates a ruleset that allows nothing.
    pub(crate) fn new(profile: &Profile, host: &Host, plan: &mut Builder<'_>) -> Result<Self, Error> {
        let Some(landlock) = host.landlock.filter(|_| !profile.nested) else {
            return Ok(Self { ruleset: None });
        };
        let out = plan.at("landlock").register()?;
        let Landlock { rights: handled, scopes } = landlock;
        // Abstract sockets are part of the network, so they stay in reach if the profile has the host's.
        let scoped = if profile.net == Net::Host { scopes & !ABSTRACT_SOCKETS } else { scopes };
        plan.push(Step::LandlockRuleset { handled, scoped, out });
        Ok(Self { ruleset: Some((out, landlock)) })
    }

    /// Allows writing to a file or below a directory.
    pub(crate) fn allow(&self, beneath: impl Into<Handle>, plan: &mut Builder<'_>) {
        if let Some((ruleset, landlock)) = self.ruleset {
            let (ruleset, beneath, rights) = (ruleset.into(), beneath.into(), landlock.rights);
            plan.push(Step::LandlockAllow { ruleset, beneath, rights, tolerate: None });
        }
    }

    /// Like `allow`, for a mount with these attributes, unless it is read-only.
    pub(crate) fn allow_mount(&self, mount: Reg, attributes: MountAttributes, plan: &mut Builder<'_>) {
        if !attributes.contains(MountAttributes::RDONLY) {
            self.allow(mount, plan);
        }
    }

    /// Allows connecting to the sockets of a tree that the profile names.
    pub(crate) fn allow_sockets(&self, beneath: Reg, plan: &mut Builder<'_>) {
        if let Some((ruleset, landlock)) = self.ruleset
            && landlock.rights & RESOLVE_UNIX != 0
        {
            let (ruleset, beneath, rights) = (ruleset.into(), beneath.into(), RESOLVE_UNIX);
            plan.push(Step::LandlockAllow { ruleset, beneath, rights, tolerate: None });
        }
    }

    /// Restricts the first process and thereby the program. Those of the caller's streams that are open for writing may
    /// be reopened for writing, as programs do with `/dev/stderr`.
    pub(crate) fn raise(self, host: &Host, streams: Streams, plan: &mut Builder<'_>) {
        let Some((ruleset, Landlock { rights, .. })) = self.ruleset else { return };
        plan.at("landlock");
        let callers = match streams {
            Streams::Callers | Streams::Terminal | Streams::ForegroundTerminal => [true; 3],
            Streams::Captured { .. } => [false; 3],
            Streams::Heard(_) => [true, false, true],
        };
        let numbers = [Fd::STDIN, Fd::STDOUT, Fd::STDERR].into_iter().zip(callers).zip(host.written);
        for ((number, _), _) in numbers.filter(|((_, is_callers), is_written)| *is_callers && *is_written) {
            // A pipe, a socket or a memfd has no path and needs no rule.
            let (ruleset, beneath, tolerate) = (ruleset.into(), number.into(), Some(Errno::BADFD));
            plan.push(Step::LandlockAllow { ruleset, beneath, rights, tolerate });
        }
        plan.push(Step::LandlockRestrict { ruleset: ruleset.into() });
        plan.release(ruleset);
    }
}

#[cfg(test)]
mod tests {
    use super::Landlock;

    #[test]
    fn each_landlock_version_offers_more_rights() {
        let of = |abi| Landlock::of_version(abi).map(|landlock| (landlock.rights, landlock.scopes));
        assert_eq!((of(0), of(1)), (None, None));
        assert_eq!(of(2), Some((0x3ff2, 0)));
        assert_eq!(of(4), Some((0x7ff2, 0)));
        assert_eq!(of(7), Some((0xfff2, 3)));
        assert_eq!((of(9), of(10)), (Some((0x1_fff2, 3)), Some((0x1_fff2, 3))));
    }

    #[test]
    fn running_kernel_accepts_the_rights_it_offers() {
        let Some(Landlock { rights, scopes }) = Landlock::probe() else { return };
        husk_script::sys::landlock::create_ruleset(rights, scopes).unwrap();
    }
}
