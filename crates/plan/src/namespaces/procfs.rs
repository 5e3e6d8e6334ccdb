//! Writes files of procfs for the container.
//!
//! A container that can redirect such a write controls what root writes to the kernel (CVE-2019-16884,
//! CVE-2025-52881). So files are opened below the caller's procfs, which is opened before joining a mount
//! namespace and before any mount of the container. The kernel resolves each path inside that procfs and ignores
//! anything mounted over it.

use crate::builder::{Builder, Error};
use husk_script::sys::file::OFlags;
use husk_script::{Reg, Step};
use std::ffi::CStr;

/// Opens the caller's procfs, if a field of the configuration needs it.
pub(crate) fn open(field: Option<&'static str>, plan: &mut Builder<'_>) -> Result<Option<Reg>, Error> {
    let Some(origin) = field else { return Ok(None) };
    plan.at(origin);
    let proc = plan.register()?;
    plan.push(Step::OpenProc { out: proc });
    Ok(Some(proc))
}

/// Opens and writes a file of the procfs that [`open`] opened. The namespaces of the opening process decide which
/// file a name means, so it is opened only now.
pub(crate) fn write<'b>(
    proc: Option<Reg>,
    path: &'b CStr,
    bytes: &'b [u8],
    plan: &mut Builder<'b>,
) -> Result<(), Error> {
    let Some(proc) = proc else { return Err(plan.error("procfs is not open")) };
    let file = open_file(proc, path, plan)?;
    write_file(file, bytes, plan);
    Ok(())
}

/// Opens a file to be written with [`write_file`].
pub(crate) fn open_file<'b>(proc: Reg, path: &'b CStr, plan: &mut Builder<'b>) -> Result<Reg, Error> {
    let file = plan.register()?;
    plan.push(Step::OpenInProc { proc: proc.into(), path, flags: OFlags::WRONLY, out: file });
    Ok(file)
}

/// Writes the file that [`open_file`] opened, and closes it.
pub(crate) fn write_file<'b>(file: Reg, bytes: &'b [u8], plan: &mut Builder<'b>) {
    plan.push(Step::Write { fd: file.into(), bytes });
    plan.push(Step::Close { fd: file.into() });
    plan.release(file);
}

/// Closes procfs after the last file has been opened through it.
pub(crate) fn close(proc: Option<Reg>, plan: &mut Builder<'_>) {
    if let Some(proc) = proc {
        plan.push(Step::Close { fd: proc.into() });
        plan.release(proc);
    }
}
