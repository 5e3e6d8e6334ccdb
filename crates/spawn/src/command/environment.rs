//! The environment of the program: inherited, changed, or built from nothing.

use crate::Error;
use crate::memory::writer::Writer;
use husk_script::sys::{CArray, CPtr};
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, OsString};
use std::fmt::{self, Formatter};
use std::os::unix::ffi::OsStrExt;

/// The changes that a command makes to the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// Whether the program inherits no variables.
    cleared: bool,
    /// Variables to set; `None` removes one.
    changes: BTreeMap<OsString, Option<OsString>>,
}

impl Environment {
    pub(crate) fn set(&mut self, name: &OsStr, value: &OsStr) {
        self.changes.insert(name.to_owned(), Some(value.to_owned()));
    }

    pub(crate) fn remove(&mut self, name: &OsStr) {
        if self.cleared {
            self.changes.remove(name);
        } else {
            self.changes.insert(name.to_owned(), None);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.cleared = true;
        self.changes.clear();
    }

    /// Whether the program's variables differ from those of this process.
    pub(crate) fn is_changed(&self) -> bool {
        self.cleared || !self.changes.is_empty()
    }

    /// Formats the changes as a shell would make them, in front of a program.
    pub(crate) fn line(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let removed = || self.changes.iter().filter(|(_, value)| value.is_none());
        if self.cleared || removed().next().is_some() {
            f.write_str(if self.cleared { "env -i " } else { "env " })?;
        }
        for (name, _) in removed() {
            write!(f, "-u {} ", name.display())?;
        }
        for (name, value) in &self.changes {
            if let Some(value) = value {
                write!(f, "{}={value:?} ", name.display())?;
            }
        }
        Ok(())
    }

    /// Returns the PATH that the program will have.
    pub(crate) fn path(&self) -> Option<OsString> {
        match self.changes.get(OsStr::new("PATH")) {
            Some(change) => change.clone(),
            None if self.cleared => None,
            None => std::env::var_os("PATH"),
        }
    }

    /// Writes the whole environment as the array that exec takes.
    pub(crate) fn write<'b>(&self, writer: &Writer<'b>) -> Result<CArray<'b>, Error> {
        let inherited = if self.cleared { None } else { Some(writer.environment()) };
        if let Some(inherited) = inherited
            && self.changes.is_empty()
        {
            return Ok(inherited.array());
        }
        let variables = inherited.map_or(&[][..], |inherited| inherited.variables());
        let mut pointers = writer.pointers(variables.len() + self.changes.len() + 1);
        let kept = variables.iter().filter(|variable| !self.changes.contains_key(name_of(variable)));
        pointers.extend(kept.map(|variable| CPtr::from(*variable)));
        for (name, value) in &self.changes {
            let Some(value) = value else { continue };
            let mut variable = OsString::with_capacity(name.len() + 1 + value.len());
            variable.extend([name.as_os_str(), OsStr::new("="), value.as_os_str()]);
            pointers.push(writer.text(&variable)?.into());
        }
        pointers.push(CPtr::NULL);
        Ok(CArray::new(pointers.into_bump_slice()).expect("ends with the only null pointer"))
    }
}

/// Returns the name of a variable: all before the first `=` that is not the first byte, as in std.
fn name_of(variable: &CStr) -> &OsStr {
    let bytes = variable.to_bytes();
    let end = bytes.iter().skip(1).position(|byte| *byte == b'=').map_or(bytes.len(), |index| index + 1);
    OsStr::from_bytes(&bytes[..end])
}
