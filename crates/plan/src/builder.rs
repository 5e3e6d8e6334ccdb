//! Writing a plan: each step together with the field it comes from, so that the two cannot drift
//! apart.

use crate::words;
use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;
use core::fmt::{self, Display, Formatter};
use husk_listing::Line;
use husk_script::sys::CPtr;
use husk_script::sys::Errno;
use husk_script::sys::file::Mode;
use husk_script::sys::namespace::Namespaces;
use husk_script::{Place, Reg, Step, Target};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::rc::Rc;

/// `SCHED_DEADLINE`.
const SCHED_DEADLINE: u32 = 6;

/// The parameter that adds a layer to an overlay, since Linux 6.8.
pub(crate) const LAYER: &CStr = c"lowerdir+";

/// What will be done.
pub struct Plan<'b> {
    /// The child's list.
    pub steps: &'b [Step<'b>],
    /// The namespaces that the child is born in.
    pub namespaces: Namespaces,
    /// For each step the field it comes from.
    origins: Vec<Rc<str>>,
    /// The program, as it was asked for.
    program: String,
}

/// What is to be said of a step that failed.
#[derive(Debug)]
pub enum Meaning {
    /// This, and nothing of the step.
    Whole(String),
    /// This, after what the step was and the kernel said.
    Added(&'static str),
}

impl Plan<'_> {
    /// The field of config.json that a step comes from: `mounts[3] /dev/shm`.
    #[must_use]
    pub fn origin(&self, step: usize) -> &str {
        self.origins.get(step).map_or("", |origin| origin)
    }

    /// Whether the child has to begin in a copy of the runtime's memory.
    #[must_use]
    pub fn needs_own_memory(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::ForgetMemory))
    }

    /// Whether a step belongs to an overlay whose layers are added one by one.
    fn adds_layers(&self, step: usize) -> bool {
        let mut steps = self.steps.iter().enumerate();
        steps.any(|(other, added)| {
            matches!(added, Step::FsconfigString { key, .. } if *key == LAYER)
                && self.origin(other) == self.origin(step)
        })
    }

    /// What the failure of a step means, where the kernel has no words for it.
    #[must_use]
    pub fn meaning(&self, step: usize, errno: Errno) -> Option<Meaning> {
        Some(Meaning::Added(match (self.steps.get(step)?, errno) {
            // sched_setattr(2): who has a deadline has to be allowed on every processor.
            (Step::SchedSetattr { attr }, Errno::PERM) if attr.policy == SCHED_DEADLINE => {
                "a deadline takes CAP_SYS_NICE, and process scheduler can't be used together with AllowedCPUs"
            }
            // An older kernel may take any parameter and refuse it when the file system is made.
            (Step::FsconfigString { .. } | Step::Fsmount { .. }, Errno::INVAL) if self.adds_layers(step) => {
                "options longer than 4095 bytes with lowerdir need Linux 6.8"
            }
            (Step::CheckExecutable { .. }, errno) => {
                return words::not_found(&self.program, errno).map(Meaning::Whole);
            }
            (Step::ExecveFirst { .. }, errno) => words::not_begun(errno)?,
            (Step::Attach { place: Place::Ordinary, .. }, Errno::NOTDIR) => {
                "must be mounted on ordinary directory"
            }
            (Step::Attach { place: Place::Procfs, .. }, Errno::XDEV) => {
                "cannot be mounted because it is not of type proc"
            }
            (Step::OpenInProc { .. }, Errno::XDEV) => {
                "something is mounted over it in the runtime's own /proc, and it is only written to procfs itself"
            }
            (Step::Attach { .. }, Errno::XDEV) => "cannot be mounted because it is inside /proc",
            _ => return None,
        }))
    }
}

impl Display for Plan<'_> {
    /// A line a step.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let width = self.origins.iter().map(|origin| origin.len()).max().unwrap_or(0);
        for (index, (step, origin)) in self.steps.iter().zip(&self.origins).enumerate() {
            writeln!(f, "{index:3}  {origin:width$}  {}", Line(step))?;
        }
        Ok(())
    }
}

/// A container that cannot be planned.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct Error {
    origin: String,
    reason: String,
}

impl Error {
    pub(crate) fn new(origin: &str, reason: String) -> Self {
        Self { origin: origin.to_owned(), reason }
    }

    /// The field of config.json that it comes from.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// A plan being written: of a container here, or of whatever else is a list of steps.
pub struct Builder<'b> {
    memory: &'b Bump,
    steps: BumpVec<'b, Step<'b>>,
    origins: Vec<Rc<str>>,
    origin: Rc<str>,
    free: Vec<Reg>,
    /// Registers from this one on have never been used.
    most_used: u8,
    /// The pid namespace that a procfs is to show, if it is another than that of who mounts it.
    pub(crate) pid_namespace: Option<Reg>,
    /// The program, as it was asked for.
    pub(crate) program: String,
}

impl<'b> Builder<'b> {
    /// A plan of no steps yet, to lie in this memory.
    #[must_use]
    pub fn new(memory: &'b Bump) -> Self {
        // The lowest is taken first, so that listings are easy to follow.
        let free = (0..Reg::COUNT).rev().filter_map(Reg::new).collect();
        let steps = BumpVec::with_capacity_in(96, memory);
        Self {
            memory,
            steps,
            origins: Vec::new(),
            origin: "".into(),
            free,
            most_used: 0,
            pid_namespace: None,
            program: String::new(),
        }
    }

    /// Says where the steps from here on come from.
    pub fn at(&mut self, origin: impl Into<Rc<str>>) -> &mut Self {
        let origin = origin.into();
        // A path of a configuration may hold anything; a line of a listing is one line.
        self.origin = match origin.contains(char::is_control) {
            true => origin.escape_debug().to_string().into(),
            false => origin,
        };
        self
    }

    /// Where the last steps come from.
    pub(crate) fn origin(&self) -> Rc<str> {
        self.origin.clone()
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step<'b>) {
        self.steps.push(step);
        self.origins.push(self.origin.clone());
    }

    /// An error of where the last steps come from.
    #[must_use]
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error { origin: self.origin.to_string(), reason: reason.into() }
    }

    /// The plan, with the namespaces that the child is to be born in.
    #[must_use]
    pub fn finish(self, namespaces: Namespaces) -> Plan<'b> {
        let Self { steps, origins, program, .. } = self;
        Plan { steps: steps.into_bump_slice(), namespaces, origins, program }
    }

    /// A register that no step uses.
    ///
    /// # Errors
    ///
    /// If all [`Reg::COUNT`] are taken.
    pub fn register(&mut self) -> Result<Reg, Error> {
        let register =
            self.free.pop().ok_or_else(|| self.error("more descriptors at a time than there is room for"))?;
        self.most_used = self.most_used.max(register.index() + 1);
        Ok(register)
    }

    /// A register that no step has used, for a step that looks whether there is anything in it.
    ///
    /// # Errors
    ///
    /// If there is none left.
    pub fn fresh_register(&mut self) -> Result<Reg, Error> {
        let used = |register: &Reg| register.index() < self.most_used;
        let fresh = self.free.iter().rposition(|register| !used(register));
        match fresh {
            Some(index) => {
                let register = self.free.remove(index);
                self.most_used = register.index() + 1;
                Ok(register)
            }
            None => Err(self.error("more descriptors at a time than there is room for")),
        }
    }

    /// Gives a register back that no later step needs. What is in it is closed by the next step that
    /// uses the register, or before the program begins.
    pub fn release(&mut self, register: Reg) {
        self.free.push(register);
    }

    /// A string for a step.
    ///
    /// # Errors
    ///
    /// If there is a NUL byte in it.
    pub fn text(&self, string: impl AsRef<Path>) -> Result<&'b CStr, Error> {
        let bytes = string.as_ref().as_os_str().as_bytes();
        let copy = self.memory.alloc_slice_fill_copy(bytes.len() + 1, 0);
        copy[..bytes.len()].copy_from_slice(bytes);
        CStr::from_bytes_with_nul(copy).map_err(|_| self.error("holds a NUL byte"))
    }

    /// Bytes, numbers or ids for a step.
    #[must_use]
    pub fn slice<T: Copy>(&self, values: &[T]) -> &'b [T] {
        self.memory.alloc_slice_copy(values)
    }

    pub(crate) fn value<T: Copy>(&self, value: T) -> &'b T {
        self.memory.alloc(value)
    }

    /// Strings for exec.
    #[must_use]
    pub fn array(&self, strings: impl IntoIterator<Item = &'b CStr>) -> husk_script::sys::CArray<'b> {
        let pointers = strings.into_iter().map(CPtr::from).chain([CPtr::NULL]);
        let pointers = BumpVec::from_iter_in(pointers, self.memory).into_bump_slice();
        husk_script::sys::CArray::new(pointers).expect("ends with the only null pointer")
    }

    /// A place below a root, whatever way it is written: `//dev/./pts/` is `dev/pts`.
    ///
    /// # Errors
    ///
    /// If there is a NUL byte in it.
    pub fn target(&self, path: &Path) -> Result<Target<'b>, Error> {
        let mut plain = std::path::PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => plain.push(name),
                // As below any root, the parent of the root is the root.
                Component::ParentDir => {
                    plain.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        let path = if plain.as_os_str().is_empty() { c"." } else { self.text(&plain)? };
        Ok(Target { path })
    }
}

/// Permissions as steps have them.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}
