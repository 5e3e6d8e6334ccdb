//! Helpers for all parts of a plan: the program's streams, and layers in its own file system.

use crate::bundle::ALWAYS;
use husk_plan::{Builder, Error};
use husk_script::sys::Fd;
use husk_script::sys::file::{Mode, OFlags};
use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes, MountPropagationFlags};
use husk_script::{Reg, Step};
use std::path::Path;

/// A program's standard streams.
#[derive(Clone, Copy)]
pub enum Streams {
    /// The caller's streams.
    Callers,
    /// The caller's, which are its terminal. The program stays in the caller's session.
    Terminal,
    /// Like `Terminal`, with the program in the foreground.
    ForegroundTerminal,
    /// Empty standard input, and these descriptors of the caller for output and errors.
    Captured { output: Fd, errors: Fd },
    /// The caller's, with this descriptor of the caller as standard output.
    Heard(Fd),
}

pub(crate) fn mkdir(path: &Path, mode: u32, plan: &mut Builder<'_>) -> Result<(), Error> {
    let path = plan.text(path)?;
    plan.push(Step::Mkdir { path, mode: Mode::from_raw_mode(mode), tolerate: None });
    Ok(())
}

/// Makes a mount read-only, without the mounts below it.
pub(crate) fn make_read_only(mount: Reg, plan: &mut Builder<'_>) {
    let (mount, change) = (mount.into(), AttributeChange::set(MountAttributes::RDONLY));
    let propagation = MountPropagationFlags::empty();
    plan.push(Step::MountSetattr { mount, extent: Extent::Top, change, propagation });
}

/// Sets attributes of a mount and of all mounts below it, and makes them private.
pub(crate) fn set_all(mount: Reg, attributes: MountAttributes, plan: &mut Builder<'_>) {
    let (mount, change) = (mount.into(), AttributeChange::set(attributes));
    let propagation = MountPropagationFlags::PRIVATE;
    plan.push(Step::MountSetattr { mount, extent: Extent::All, change, propagation });
}

/// Attaches a detached mount to a directory of the program's own file system.
pub(crate) fn mount_on_own(mount: Reg, name: &str, plan: &mut Builder<'_>) -> Result<(), Error> {
    let (path, place) = (plan.text(name)?, plan.register()?);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    plan.push(Step::Open { path, flags, mode: Mode::empty(), out: place });
    plan.push(Step::MoveMount { mount: mount.into(), target: place.into() });
    plan.release(place);
    Ok(())
}

/// Returns a detached overlay above a directory of the program's own file system. `name` distinguishes its upper and
/// work directories from those of other layers. The mode is that of the overlay's root.
pub(crate) fn layer(name: &str, lower: &str, mode: u32, plan: &mut Builder<'_>) -> Result<Reg, Error> {
    let [upper, work] = ["upper", "work"].map(|kind| format!("{kind}-{name}"));
    mkdir(Path::new(&upper), mode, plan)?;
    mkdir(Path::new(&work), 0o755, plan)?;
    let fs = plan.register()?;
    plan.push(Step::Fsopen { fstype: c"overlay", out: fs });
    for (key, value) in [(c"lowerdir", lower), (c"upperdir", &upper), (c"workdir", &work)] {
        let value = plan.text(value)?;
        plan.push(Step::FsconfigString { fs, key, value });
    }
    plan.push(Step::FsconfigFlag { fs, key: c"userxattr" });
    plan.push(Step::Fsmount { fs, attributes: ALWAYS });
    Ok(fs)
}
