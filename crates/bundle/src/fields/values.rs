//! Values that several fields have: text, ids, paths, and lists of CPUs.

use crate::container::CpuList;
use crate::error::{Error, Field, Kind};
use std::ffi::CString;
use std::path::Path;

/// Strings as the kernel wants them.
pub(crate) fn strings(values: &[String], field: &Field) -> Result<Vec<CString>, Error> {
    let values = values.iter().enumerate();
    values.map(|(index, value)| string(value, &field.index(index))).collect()
}

pub(crate) fn string(value: &str, field: &Field) -> Result<CString, Error> {
    CString::new(value).map_err(|_| field.error(Kind::Nul))
}

/// The id of a user or a group. The highest number is none: it tells the kernel to leave the id as it
/// is, which would be root's (setresuid(2)).
pub(crate) fn id(id: u32, field: &Field) -> Result<u32, Error> {
    if id == u32::MAX { Err(field.error(Kind::Range(id.into()))) } else { Ok(id) }
}

pub(crate) fn absolute(path: &Path, field: &Field) -> Result<(), Error> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(field.error(Kind::Relative(path.display().to_string())))
}

/// The kernel's own limit on CPU numbers is far below; this one bounds a mask.
const MOST_CPUS: usize = 1 << 16;

/// A list like `0-3,7`.
pub(crate) fn cpu_list(list: &str, field: &Field) -> Result<CpuList, Error> {
    let unknown = || field.error(Kind::Unknown(list.to_owned()));
    let mut cpus = Vec::new();
    for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number =
            |text: &str| text.trim().parse::<usize>().ok().filter(|cpu| *cpu < MOST_CPUS).ok_or_else(unknown);
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(unknown());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus)
}
