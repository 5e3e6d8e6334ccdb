//! What all parts of a plan are made with: attributes of mounts, the program's streams, and layers in its own
//! file system.

use husk_plan::{Builder, Error};
use husk_script::sys::Fd;
use husk_script::sys::file::{Mode, OFlags};
use husk_script::{Reg, Step};
use std::path::Path;

/// `MOUNT_ATTR_RDONLY`, `MOUNT_ATTR_NOSUID`, `MOUNT_ATTR_NODEV`, `MOUNT_ATTR_NOEXEC`.
pub(crate) const RDONLY: u64 = 0x1;
pub(crate) const NOSUID: u64 = 0x2;
pub(crate) const NODEV: u64 = 0x4;
pub(crate) const NOEXEC: u64 = 0x8;

/// A program's standard streams.
#[derive(Clone, Copy)]
pub enum Streams {
    /// The caller's.
    Callers,
    /// The caller's, in whose session the program stays, for they are its terminal.
    Terminal,
    /// The same with the program in front of the terminal.
    ForegroundTerminal,
    /// An empty one to read from, and this one of the caller's to write to.
    Captured(Fd),
    /// The caller's, but for this one of the caller's as standard output.
    Heard(Fd),
}

pub(crate) fn mkdir(path: &Path, mode: u32, plan: &mut Builder<'_>) -> Result<(), Error> {
    let path = plan.text(path)?;
    plan.push(Step::Mkdir { path, mode: Mode::from_raw_mode(mode), tolerate: None });
    Ok(())
}

/// Puts a mount that is nowhere yet onto a directory of the program's own file system.
pub(crate) fn mount_on_own(mount: Reg, name: &str, plan: &mut Builder<'_>) -> Result<(), Error> {
    let (path, place) = (plan.text(name)?, plan.register()?);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    plan.push(Step::Open { path, flags, mode: Mode::empty(), out: place });
    plan.push(Step::MoveMount { mount: mount.into(), target: place.into() });
    plan.release(place);
    Ok(())
}

/// A layer above a directory of the program's own file system, mounted nowhere yet, with a name for what is written.
pub(crate) fn layer(name: &str, lower: &str, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let [upper, work] = ["upper", "work"].map(|kind| format!("{kind}-{name}"));
    mkdir(Path::new(&upper), 0o755, plan)?;
    mkdir(Path::new(&work), 0o755, plan)?;
    let fs = plan.register()?;
    plan.push(Step::Fsopen { fstype: c"overlay", out: fs });
    for (key, value) in [(c"lowerdir", lower), (c"upperdir", &upper), (c"workdir", &work)] {
        let value = plan.text(value)?;
        plan.push(Step::FsconfigString { fs, key, value });
    }
    plan.push(Step::FsconfigFlag { fs, key: c"userxattr" });
    plan.push(Step::Fsmount { fs, attributes: NOSUID | NODEV });
    Ok(fs)
}
