//! Writes a plan: each step is stored together with the field it comes from, so that the two cannot drift apart.

use crate::origin::Origin;
use crate::words;
use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;
use core::fmt::{self, Display, Formatter};
use husk_listing::Line;
use husk_script::sys::CPtr;
use husk_script::sys::Errno;
use husk_script::sys::file::Mode;
use husk_script::sys::namespace::Namespaces;
use husk_script::{MountPoint, PathInRoot, Reg, Step};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::rc::Rc;

/// The policy `SCHED_DEADLINE` of linux/sched.h.
const SCHED_DEADLINE: u32 = 6;

/// The fsconfig(2) key that adds one layer to an overlay, since Linux 6.8.
pub(crate) const LAYER: &CStr = c"lowerdir+";

/// A list of steps, and for each step the field of config.json that it comes from.
pub struct Plan<'b> {
    /// The steps, in the order in which the child performs them.
    pub steps: &'b [Step<'b>],
    /// The namespaces that the clone of the child creates.
    pub namespaces: Namespaces,
    /// For each step, the field that it comes from.
    origins: Vec<Rc<Origin>>,
    /// The program as config.json names it.
    program: String,
}

/// The text that describes a failed step.
#[derive(Debug)]
pub enum FailureMeaning {
    /// Replaces the description of the step and the kernel's error.
    Whole(String),
    /// Follows the description of the step and the kernel's error.
    Added(&'static str),
}

impl Plan<'_> {
    /// Returns the field of config.json that a step comes from.
    #[must_use]
    pub fn origin(&self, step: usize) -> &Origin {
        self.origins.get(step).map_or(Origin::NONE, |origin| origin)
    }

    /// Whether the child must start in a copy of the runtime's memory.
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

    /// Explains the failure of a step, if the kernel's error does not explain it.
    #[must_use]
    pub fn meaning(&self, step: usize, errno: Errno) -> Option<FailureMeaning> {
        Some(FailureMeaning::Added(match (self.steps.get(step)?, errno) {
            // sched_setattr(2): a deadline thread must be allowed to run on every processor.
            (Step::SchedSetattr { attr }, Errno::PERM) if attr.policy == SCHED_DEADLINE => {
                "SCHED_DEADLINE needs CAP_SYS_NICE, and process scheduler can't be used together with AllowedCPUs"
            }
            // An older kernel may accept any parameter and refuse it only when the file system is made.
            (Step::FsconfigString { .. } | Step::Fsmount { .. }, Errno::INVAL) if self.adds_layers(step) => {
                "options longer than 4095 bytes with lowerdir need Linux 6.8"
            }
            (Step::Mount { fstype, .. }, Errno::BUSY) if *fstype == c"overlay" => {
                "another container of this bundle is running; `husk bundle` makes a second bundle, which shares the layers"
            }
            (Step::Mount { fstype, .. }, Errno::STALE) if *fstype == c"overlay" => {
                "the bundle was copied, or its layers were unpacked again; make it again with `husk bundle`"
            }
            (Step::CheckExecutable { .. }, errno) => {
                return words::not_found(&self.program, errno).map(FailureMeaning::Whole);
            }
            (Step::ExecveFirst { .. }, errno) => words::not_begun(errno)?,
            (Step::Enter { path, .. }, errno) => {
                return words::not_entered(path, errno).map(FailureMeaning::Whole);
            }
            (Step::Attach { place: MountPoint::Ordinary, .. }, Errno::NOTDIR) => {
                "must be mounted on ordinary directory"
            }
            (Step::Attach { place: MountPoint::ProcfsKind, .. }, Errno::XDEV) => {
                "cannot be mounted because it is not of type proc"
            }
            (Step::OpenInProc { .. }, Errno::XDEV) => {
                "something is mounted over it in the runtime's /proc, and husk writes it only to procfs itself"
            }
            (Step::Attach { .. }, Errno::XDEV) => "cannot be mounted because it is inside /proc",
            _ => return None,
        }))
    }
}

impl Display for Plan<'_> {
    /// Prints one line for each step.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let width = self.origins.iter().map(|origin| origin.to_string().len()).max().unwrap_or(0);
        for (index, (step, origin)) in self.steps.iter().zip(&self.origins).enumerate() {
            writeln!(f, "{index:3}  {origin:width$}  {}", Line(step))?;
        }
        Ok(())
    }
}

/// Says why a container cannot be planned.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {reason}")]
pub struct Error {
    origin: Box<Origin>,
    reason: String,
}

impl Error {
    pub(crate) fn new(origin: Origin, reason: String) -> Self {
        Self { origin: Box::new(origin), reason }
    }

    /// Returns the field of config.json that the error is about.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns what is wrong with it.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// A plan that is being written, for a container or for any other list of steps.
pub struct Builder<'b> {
    memory: &'b Bump,
    steps: BumpVec<'b, Step<'b>>,
    origins: Vec<Rc<Origin>>,
    origin: Rc<Origin>,
    free: Vec<Reg>,
    /// The lowest register that has never been used; all higher ones are unused too.
    most_used: u8,
    /// The pid namespace that a procfs shows, if it is not that of the process that mounts it.
    pub(crate) pid_namespace: Option<Reg>,
    /// The program as config.json names it.
    pub(crate) program: String,
}

impl<'b> Builder<'b> {
    /// Starts an empty plan in this memory.
    #[must_use]
    pub fn new(memory: &'b Bump) -> Self {
        // The lowest free register is taken first, which keeps listings easy to follow.
        let free = (0..Reg::COUNT).rev().filter_map(Reg::new).collect();
        let steps = BumpVec::with_capacity_in(96, memory);
        Self {
            memory,
            steps,
            origins: Vec::new(),
            origin: Rc::default(),
            free,
            most_used: 0,
            pid_namespace: None,
            program: String::new(),
        }
    }

    /// Sets the field that the following steps come from.
    pub fn at(&mut self, origin: impl Into<Origin>) -> &mut Self {
        self.origin = Rc::new(origin.into());
        self
    }

    /// Returns the field that the next step comes from.
    pub(crate) fn origin(&self) -> Origin {
        Origin::clone(&self.origin)
    }

    /// Adds a step that comes from the current field.
    pub fn push(&mut self, step: Step<'b>) {
        self.steps.push(step);
        self.origins.push(self.origin.clone());
    }

    /// Returns an error about the current field.
    #[must_use]
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::new(self.origin(), reason.into())
    }

    /// Returns the plan. The clone of the child creates `namespaces`.
    #[must_use]
    pub fn finish(self, namespaces: Namespaces) -> Plan<'b> {
        let Self { steps, origins, program, .. } = self;
        Plan { steps: steps.into_bump_slice(), namespaces, origins, program }
    }

    /// Takes a register that no step uses.
    ///
    /// # Errors
    ///
    /// Fails if all [`Reg::COUNT`] registers are taken.
    pub fn register(&mut self) -> Result<Reg, Error> {
        let register =
            self.free.pop().ok_or_else(|| self.error("too many descriptors are open at the same time"))?;
        self.most_used = self.most_used.max(register.index() + 1);
        Ok(register)
    }

    /// Takes a register that no step has ever used, for a step that checks whether it is empty.
    ///
    /// # Errors
    ///
    /// Fails if every register has been used.
    pub fn fresh_register(&mut self) -> Result<Reg, Error> {
        let used = |register: &Reg| register.index() < self.most_used;
        let fresh = self.free.iter().rposition(|register| !used(register));
        match fresh {
            Some(index) => {
                let register = self.free.remove(index);
                self.most_used = register.index() + 1;
                Ok(register)
            }
            None => Err(self.error("too many descriptors are open at the same time")),
        }
    }

    /// Frees a register that no later step needs. Its descriptor is closed by the next step that uses the
    /// register, or before the program starts.
    pub fn release(&mut self, register: Reg) {
        self.free.push(register);
    }

    /// Copies a string for a step.
    ///
    /// # Errors
    ///
    /// Fails if the string contains a NUL byte.
    pub fn text(&self, string: impl AsRef<Path>) -> Result<&'b CStr, Error> {
        let bytes = string.as_ref().as_os_str().as_bytes();
        let copy = self.memory.alloc_slice_fill_copy(bytes.len() + 1, 0);
        copy[..bytes.len()].copy_from_slice(bytes);
        CStr::from_bytes_with_nul(copy).map_err(|_| self.error("contains a NUL byte"))
    }

    /// Copies bytes, numbers or ids for a step.
    #[must_use]
    pub fn slice<T: Copy>(&self, values: &[T]) -> &'b [T] {
        self.memory.alloc_slice_copy(values)
    }

    pub(crate) fn value<T: Copy>(&self, value: T) -> &'b T {
        self.memory.alloc(value)
    }

    /// Copies pointers to strings for exec, followed by a null pointer.
    #[must_use]
    pub fn array(&self, strings: impl IntoIterator<Item = &'b CStr>) -> husk_script::sys::CArray<'b> {
        let pointers = strings.into_iter().map(CPtr::from).chain([CPtr::NULL]);
        let pointers = BumpVec::from_iter_in(pointers, self.memory).into_bump_slice();
        husk_script::sys::CArray::new(pointers).expect("ends with the only null pointer")
    }

    /// Normalises a path below a root: `//dev/./pts/` becomes `dev/pts`.
    ///
    /// # Errors
    ///
    /// Fails if the path contains a NUL byte.
    pub fn target(&self, path: &Path) -> Result<PathInRoot<'b>, Error> {
        let mut plain = std::path::PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => plain.push(name),
                // The parent of a root is the root itself.
                Component::ParentDir => {
                    plain.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        let path = if plain.as_os_str().is_empty() { c"." } else { self.text(&plain)? };
        Ok(PathInRoot { path })
    }
}

/// Converts permission bits to the type that steps use.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}
