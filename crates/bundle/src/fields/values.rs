//! Converts values that several fields share: strings, ids, paths and CPU lists.

use crate::container::CpuList;
use crate::error::{Error, ErrorKind, Field};
use std::ffi::CString;
use std::path::Path;

/// Converts strings to the NUL-terminated form that the kernel takes.
pub(crate) fn strings(values: &[String], field: &Field) -> Result<Vec<CString>, Error> {
    let values = values.iter().enumerate();
    values.map(|(index, value)| string(value, &field.index(index))).collect()
}

pub(crate) fn string(value: &str, field: &Field) -> Result<CString, Error> {
    CString::new(value).map_err(|_| field.error(ErrorKind::Nul))
}

/// Checks a user or group id. The highest number is not an id: it tells the kernel to keep the current one, which
/// would be root's (setresuid(2)).
pub(crate) fn id(id: u32, field: &Field) -> Result<u32, Error> {
    if id == u32::MAX { Err(field.error(ErrorKind::Range(id.into()))) } else { Ok(id) }
}

pub(crate) fn absolute(path: &Path, field: &Field) -> Result<(), Error> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(field.error(ErrorKind::Relative(path.display().to_string())))
}

/// Bounds the size of a mask. The kernel's own limit on CPU numbers is far lower.
const MOST_CPUS: usize = 1 << 16;

/// Parses a list such as `0-3,7`.
pub(crate) fn cpu_list(list: &str, field: &Field) -> Result<CpuList, Error> {
    let unknown = || field.error(ErrorKind::Unknown(list.to_owned()));
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
