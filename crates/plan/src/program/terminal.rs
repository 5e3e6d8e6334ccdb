//! Plans `process.terminal`: a terminal from the container's own devpts for its program.
//!
//! The terminal is identified by its two descriptors and never by name, because an image could have prepared the
//! name. One end becomes the program's standard streams, and also `/dev/console` for programs that open it by
//! name. The other end goes to the parent.

use crate::builder::{Builder, Error};
use husk_bundle::Container;
use husk_bundle::container::{Mount, Process, Source, Terminal};
use husk_script::sys::Fd;
use husk_script::sys::mount::Extent;
use husk_script::{MountPoint, Reg, Request, Step};
use std::path::Path;

/// The directory of terminals, relative to the root.
const DEVPTS: &std::ffi::CStr = c"dev/pts";

/// How the terminal appears in the container's file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The terminal is mounted on `/dev/console`.
    AsConsole,
    /// The terminal is not mounted, because the container may already have a console.
    Nowhere,
}

/// Makes a terminal, sends one end to the parent, and makes the other one the standard streams.
pub(crate) fn open(
    container: &Container,
    root: Reg,
    shown: Shown,
    plan: &mut Builder<'_>,
) -> Result<(), Error> {
    let Some(process) = &container.process else { return Ok(()) };
    let Terminal::Yes(size) = process.terminal else { return Ok(()) };
    plan.at("process.terminal");
    if !container.mounts.iter().any(may_have_terminals) {
        return Err(plan.error("needs a mount of type devpts at /dev/pts"));
    }
    let (master, slave) = (plan.register()?, plan.register()?);
    plan.push(Step::OpenPty { root: root.into(), path: DEVPTS, master, slave });
    if let Some((rows, columns)) = size {
        plan.at("process.consoleSize").push(Step::Tiocswinsz { terminal: master.into(), rows, columns });
    }
    plan.at("process.terminal");
    if shown == Shown::AsConsole {
        console(root, slave, plan)?;
    }
    // Sends the terminal last, so that the receiver finds it fully set up.
    plan.push(Step::RequestWith { what: Request::Terminal, fd: master.into() });
    plan.push(Step::Close { fd: master.into() });
    for to in [Fd::STDIN, Fd::STDOUT, Fd::STDERR] {
        plan.push(Step::Dup3 { from: slave.into(), to });
    }
    plan.push(Step::Close { fd: slave.into() });
    plan.release(master);
    plan.release(slave);
    Ok(())
}

/// Makes it the controlling terminal of the session that the program's process leads.
pub(crate) fn control(container: &Container, plan: &mut Builder<'_>) {
    let is_asked = |process: &Process| process.terminal != Terminal::No;
    if container.process.as_ref().is_some_and(is_asked) {
        plan.at("process.terminal").push(Step::Tiocsctty { terminal: Fd::STDIN });
    }
}

/// Shows the terminal also as `/dev/console`.
fn console(root: Reg, slave: Reg, plan: &mut Builder<'_>) -> Result<(), Error> {
    let shown = plan.register()?;
    let target = plan.target(Path::new("/dev/console"))?;
    plan.push(Step::OpenTreeOf { fd: slave.into(), extent: Extent::Top, out: shown });
    plan.push(Step::Attach { mount: shown, root: root.into(), target, place: MountPoint::Entry });
    plan.push(Step::Close { fd: shown.into() });
    plan.release(shown);
    Ok(())
}

/// Whether a mount may contain terminals: a devpts, or a bind mount of a host directory that may have one. The
/// step checks what it really is.
fn may_have_terminals(mount: &Mount) -> bool {
    let is_there = |place: &str| mount.destination == Path::new(place);
    match &mount.source {
        Source::New { fstype, .. } => fstype == "devpts" && is_there("/dev/pts"),
        Source::Bind { .. } => is_there("/dev/pts") || is_there("/dev"),
        Source::Remount { .. } | Source::Cgroup { .. } => false,
    }
}
