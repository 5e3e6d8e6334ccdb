//! The system calls that the observer understands, and which of their arguments it reads.

use crate::plan::filter::NATIVE;
use husk_seccomp::{Abi, Machine, call_number};
use std::collections::BTreeMap;

/// The effect of a call on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    /// Reads or looks at an existing file.
    Read,
    /// Runs a program.
    Execute,
    /// Connects to a socket.
    Connect,
    /// Changes an existing file.
    Change,
    /// Makes a file, and fails if it exists.
    Make,
    /// Opens a file for writing, and makes it if it is missing.
    WriteOrMake,
    /// Removes a file, or moves it away.
    Remove,
}

/// A path among the arguments of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathArgument {
    /// The argument with the directory that a relative path starts at; the working directory if `None`.
    pub(crate) directory: Option<usize>,
    pub(crate) path: usize,
    pub(crate) access: Access,
}

/// How a call's act follows from its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Is(Act),
    /// This argument holds the flags of open(2).
    Flags(usize),
    /// This argument points to `struct open_how`, which begins with the flags.
    How(usize),
}

/// The arguments that the observer reads.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Paths(&'static [PathArgument]),
    /// The call connects to the address at this argument, whose length is in the next one.
    Address(usize),
    /// The call sends to the address in the `struct msghdr` at this argument, or in the first of several.
    Message(usize),
    /// The program can never make this call with success, at most in namespaces of its own.
    Privileged,
    /// The process exits.
    Exit,
}

const fn at(path: usize, access: Access) -> PathArgument {
    PathArgument { directory: None, path, access }
}

const fn below(directory: usize, path: usize, access: Access) -> PathArgument {
    PathArgument { directory: Some(directory), path, access }
}

const READ: Access = Access::Is(Act::Read);
const EXECUTE: Access = Access::Is(Act::Execute);
const CHANGE: Access = Access::Is(Act::Change);
const MAKE: Access = Access::Is(Act::Make);
const WRITE: Access = Access::Is(Act::WriteOrMake);
const REMOVE: Access = Access::Is(Act::Remove);

/// All calls. Calls on descriptors are not among them: they have been opened by one of these.
const CALLS: &[(&str, Shape)] = &[
    ("open", Shape::Paths(&[at(0, Access::Flags(1))])),
    ("openat", Shape::Paths(&[below(0, 1, Access::Flags(2))])),
    ("openat2", Shape::Paths(&[below(0, 1, Access::How(2))])),
    ("creat", Shape::Paths(&[at(0, WRITE)])),
    ("stat", Shape::Paths(&[at(0, READ)])),
    ("stat64", Shape::Paths(&[at(0, READ)])),
    ("lstat", Shape::Paths(&[at(0, READ)])),
    ("lstat64", Shape::Paths(&[at(0, READ)])),
    ("newfstatat", Shape::Paths(&[below(0, 1, READ)])),
    ("fstatat64", Shape::Paths(&[below(0, 1, READ)])),
    ("statx", Shape::Paths(&[below(0, 1, READ)])),
    ("access", Shape::Paths(&[at(0, READ)])),
    ("faccessat", Shape::Paths(&[below(0, 1, READ)])),
    ("faccessat2", Shape::Paths(&[below(0, 1, READ)])),
    ("readlink", Shape::Paths(&[at(0, READ)])),
    ("readlinkat", Shape::Paths(&[below(0, 1, READ)])),
    ("chdir", Shape::Paths(&[at(0, READ)])),
    ("execve", Shape::Paths(&[at(0, EXECUTE)])),
    ("execveat", Shape::Paths(&[below(0, 1, EXECUTE)])),
    ("truncate", Shape::Paths(&[at(0, CHANGE)])),
    ("truncate64", Shape::Paths(&[at(0, CHANGE)])),
    ("chmod", Shape::Paths(&[at(0, CHANGE)])),
    ("fchmodat", Shape::Paths(&[below(0, 1, CHANGE)])),
    ("utime", Shape::Paths(&[at(0, CHANGE)])),
    ("utimes", Shape::Paths(&[at(0, CHANGE)])),
    ("utimensat", Shape::Paths(&[below(0, 1, CHANGE)])),
    ("mkdir", Shape::Paths(&[at(0, MAKE)])),
    ("mkdirat", Shape::Paths(&[below(0, 1, MAKE)])),
    ("mknod", Shape::Paths(&[at(0, MAKE)])),
    ("mknodat", Shape::Paths(&[below(0, 1, MAKE)])),
    ("symlink", Shape::Paths(&[at(1, MAKE)])),
    ("symlinkat", Shape::Paths(&[below(1, 2, MAKE)])),
    ("link", Shape::Paths(&[at(0, READ), at(1, MAKE)])),
    ("linkat", Shape::Paths(&[below(0, 1, READ), below(2, 3, MAKE)])),
    ("unlink", Shape::Paths(&[at(0, REMOVE)])),
    ("rmdir", Shape::Paths(&[at(0, REMOVE)])),
    ("unlinkat", Shape::Paths(&[below(0, 1, REMOVE)])),
    ("rename", Shape::Paths(&[at(0, REMOVE), at(1, WRITE)])),
    ("renameat", Shape::Paths(&[below(0, 1, REMOVE), below(2, 3, WRITE)])),
    ("renameat2", Shape::Paths(&[below(0, 1, REMOVE), below(2, 3, WRITE)])),
    ("connect", Shape::Address(1)),
    ("sendto", Shape::Address(4)),
    ("sendmsg", Shape::Message(1)),
    ("sendmmsg", Shape::Message(1)),
    ("bind", Shape::Address(1)),
    ("mount", Shape::Privileged),
    ("umount2", Shape::Privileged),
    ("pivot_root", Shape::Privileged),
    ("fsopen", Shape::Privileged),
    ("open_tree", Shape::Privileged),
    ("move_mount", Shape::Privileged),
    ("mount_setattr", Shape::Privileged),
    ("exit_group", Shape::Exit),
];

/// Returns the names of all calls.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|(name, _)| *name)
}

/// Calls by `AUDIT_ARCH_*` and number, for every ABI that a program may use.
pub(crate) struct Calls {
    known: BTreeMap<(u32, u32), (&'static str, Option<Shape>)>,
}

impl Calls {
    /// Takes the names of further calls, whose arguments are not read.
    pub(crate) fn new(further: impl Iterator<Item = &'static str>) -> Self {
        let machine = Machine::new(NATIVE.0);
        let abis: Vec<Abi> = machine.others.iter().copied().chain([machine.native]).collect();
        let all =
            CALLS.iter().map(|(name, shape)| (*name, Some(*shape))).chain(further.map(|name| (name, None)));
        let numbered = all.flat_map(|(name, shape)| {
            abis.iter()
                .filter_map(move |abi| Some(((abi.audit_arch(), call_number(name, *abi)?), (name, shape))))
                .collect::<Vec<_>>()
        });
        Self { known: numbered.collect() }
    }

    pub(crate) fn find(&self, arch: u32, number: u32) -> Option<(&'static str, Option<Shape>)> {
        self.known.get(&(arch, number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::{CALLS, Calls, NATIVE};
    use husk_seccomp::call_number;

    #[test]
    fn every_call_exists_on_some_architecture() {
        use husk_seccomp::Abi::{Aarch64, Arm, X86, X86_64};
        for (name, _) in CALLS {
            let exists = [X86_64, X86, Aarch64, Arm].iter().any(|abi| call_number(name, *abi).is_some());
            assert!(exists, "{name}");
        }
    }

    #[test]
    fn call_is_found_by_its_number() {
        let calls = Calls::new(["bpf"].into_iter());
        for name in ["openat", "bpf"] {
            let number = call_number(name, NATIVE.0).unwrap();
            assert_eq!(calls.find(NATIVE.0.audit_arch(), number).unwrap().0, name);
        }
        assert!(calls.find(0, 0).is_none());
    }
}
