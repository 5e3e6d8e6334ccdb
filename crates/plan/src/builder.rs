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
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// The policy `SCHED_DEADLINE` of linux/sched.h.
const SCHED_DEADLINE: u32 = 6;

/// The room for steps. The plan of a usual sandbox has about 130, that of a container 150.
const USUAL_STEPS: usize = 192;

/// The fsconfig(2) key that adds one layer to an overlay, since Linux 6.8.
pub(crate) const LAYER: &CStr = c"lowerdir+";

/// A list of steps, and for each step the field of config.json that it comes from.
pub struct Plan<'b> {
    /// The steps, in the order in which the child performs them.
    pub steps: &'b [Step<'b>],
    /// The namespaces that the clone of the child creates.
    pub namespaces: Namespaces,
    origins: Vec<Origin>,
    /// For each step, the index of the field that it comes from.
    places: Vec<usize>,
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
        self.places.get(step).and_then(|place| self.origins.get(*place)).unwrap_or(Origin::NONE)
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
        let width = |step| self.origin(step).to_string().len();
        let width = (0..self.steps.len()).map(width).max().unwrap_or(0);
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "{index:3}  {:width$}  {}", self.origin(index), Line(step))?;
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
    /// No field, and the fields that were named so far. The last one is that of the next step.
    origins: Vec<Origin>,
    places: Vec<usize>,
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
        let mut origins = Vec::with_capacity(USUAL_STEPS / 2);
        origins.push(Origin::default());
        let mut free = Vec::with_capacity(Reg::COUNT.into());
        free.extend((0..Reg::COUNT).rev().filter_map(Reg::new));
        Self {
            memory,
            steps: BumpVec::with_capacity_in(USUAL_STEPS, memory),
            origins,
            places: Vec::with_capacity(USUAL_STEPS),
            free,
            most_used: 0,
            pid_namespace: None,
            program: String::new(),
        }
    }

    /// Sets the field that the following steps come from.
    pub fn at(&mut self, origin: impl Into<Origin>) -> &mut Self {
        self.origins.push(origin.into());
        self
    }

    /// Returns the field that the next step comes from.
    pub(crate) fn origin(&self) -> Origin {
        self.origins.last().unwrap_or(Origin::NONE).clone()
    }

    /// Adds a step that comes from the current field.
    pub fn push(&mut self, step: Step<'b>) {
        self.steps.push(step);
        self.places.push(self.origins.len() - 1);
    }

    /// Returns an error about the current field.
    #[must_use]
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::new(self.origin(), reason.into())
    }

    /// Returns the plan. The clone of the child creates `namespaces`.
    #[must_use]
    pub fn finish(self, namespaces: Namespaces) -> Plan<'b> {
        let Self { steps, origins, places, program, .. } = self;
        Plan { steps: steps.into_bump_slice(), namespaces, origins, places, program }
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
        self.joined(&[string.as_ref().as_os_str()])
    }

    /// Copies several strings as one.
    ///
    /// # Errors
    ///
    /// Fails if a string contains a NUL byte.
    pub fn joined(&self, strings: &[&OsStr]) -> Result<&'b CStr, Error> {
        let length = strings.iter().map(|string| string.len()).sum::<usize>();
        let mut bytes = BumpVec::with_capacity_in(length + 1, self.memory);
        strings.iter().for_each(|string| bytes.extend_from_slice(string.as_bytes()));
        self.terminated(bytes)
    }

    /// Ends bytes with a NUL byte.
    fn terminated(&self, mut bytes: BumpVec<'b, u8>) -> Result<&'b CStr, Error> {
        bytes.push(0);
        CStr::from_bytes_with_nul(bytes.into_bump_slice()).map_err(|_| self.error("contains a NUL byte"))
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
        let mut plain = BumpVec::with_capacity_in(path.as_os_str().len() + 1, self.memory);
        for component in path.components() {
            match component {
                Component::Normal(name) => {
                    if !plain.is_empty() {
                        plain.push(b'/');
                    }
                    plain.extend_from_slice(name.as_bytes());
                }
                // The parent of a root is the root itself.
                Component::ParentDir => {
                    plain.truncate(plain.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        let path = if plain.is_empty() { c"." } else { self.terminated(plain)? };
        Ok(PathInRoot { path })
    }
}

/// Converts permission bits to the type that steps use.
pub(crate) fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

#[cfg(test)]
mod tests {
    use super::Builder;
    use bumpalo::Bump;
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn target_stays_below_its_root() {
        let memory = Bump::new();
        let target = |path: &str| Builder::new(&memory).target(Path::new(path)).unwrap().path.to_owned();
        assert_eq!(target("//dev/./pts/"), c"dev/pts".to_owned());
        assert_eq!(target("/a/bc/../d"), c"a/d".to_owned());
        assert_eq!(target("../../a/.."), c".".to_owned());
        assert_eq!(target("/../a/../../b"), c"b".to_owned());
    }

    #[test]
    fn strings_contain_no_nul_byte() {
        let memory = Bump::new();
        let plan = Builder::new(&memory);
        let joined = |parts: &[&str]| plan.joined(&parts.iter().map(OsStr::new).collect::<Vec<_>>()).ok();
        assert_eq!(joined(&["A", "=", ""]), Some(c"A="));
        assert_eq!(joined(&["A", "=\0"]), None);
        assert!(plan.target(Path::new("/a\0b")).is_err());
    }

    #[test]
    fn steps_keep_the_field_named_before_them() {
        let memory = Bump::new();
        let mut plan = Builder::new(&memory);
        let step = || husk_script::Step::ForgetMemory;
        plan.push(step());
        plan.at("unused").at("process").push(step());
        plan.push(step());
        plan.at("hostname").push(step());
        let plan = plan.finish(husk_script::sys::namespace::Namespaces::EMPTY);
        let fields: Vec<_> = (0..5).map(|step| plan.origin(step).field()).collect();
        assert_eq!(fields, ["", "process", "process", "hostname", ""]);
    }
}
