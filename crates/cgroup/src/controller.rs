//! Controllers of version 2, and sets of them.

use core::fmt::{self, Display, Formatter};

/// A resource controller of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Controller {
    /// CPU time.
    Cpu,
    /// The CPUs and memory nodes that processes may use.
    Cpuset,
    Hugetlb,
    /// Bandwidth of block devices.
    Io,
    /// Memory and swap.
    Memory,
    /// Scalar resources that drivers register.
    Misc,
    Pids,
    Rdma,
}

impl Controller {
    /// All controllers, sorted by name.
    pub const ALL: &[Self] =
        &[Self::Cpu, Self::Cpuset, Self::Hugetlb, Self::Io, Self::Memory, Self::Misc, Self::Pids, Self::Rdma];

    /// Returns the kernel's name for the controller.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuset => "cpuset",
            Self::Hugetlb => "hugetlb",
            Self::Io => "io",
            Self::Memory => "memory",
            Self::Misc => "misc",
            Self::Pids => "pids",
            Self::Rdma => "rdma",
        }
    }

    /// Returns the controller with this name, if it is known.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|controller| controller.name() == name)
    }

    /// Returns the controller of a file: `memory` for `memory.max`.
    #[must_use]
    pub fn of_file(file: &str) -> Option<Self> {
        file.split_once('.').and_then(|(name, _)| Self::named(name))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers(u16);

impl Controllers {
    pub const EMPTY: Self = Self(0);
    /// The controllers that statistics are read from. They are enabled for every cgroup where possible.
    pub const ACCOUNTING: Self =
        Self::of(&[Controller::Cpu, Controller::Io, Controller::Memory, Controller::Pids]);
    /// The controllers that threaded cgroups cannot have (cgroup-v2.rst, "Threads").
    pub const DOMAIN: Self = Self::of(&[
        Controller::Hugetlb,
        Controller::Io,
        Controller::Memory,
        Controller::Misc,
        Controller::Rdma,
    ]);

    /// Returns the set of `controllers`.
    #[must_use]
    pub const fn of(controllers: &[Controller]) -> Self {
        let mut bits = 0;
        let mut rest = controllers;
        while let [first, after @ ..] = rest {
            bits |= 1 << *first as u8;
            rest = after;
        }
        Self(bits)
    }

    /// Returns the set of the controllers in a space-separated list, without unknown ones.
    #[must_use]
    pub fn parse(list: &str) -> Self {
        let known = list.split_whitespace().filter_map(Controller::named);
        known.fold(Self::EMPTY, |set, controller| set.with(controller))
    }

    /// Returns the set with `controller` added.
    #[must_use]
    pub const fn with(self, controller: Controller) -> Self {
        Self(self.0 | 1 << controller as u8)
    }

    /// Returns the controllers that are in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the controllers that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the controllers that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn contains(self, controller: Controller) -> bool {
        self.0 & 1 << controller as u8 != 0
    }

    /// Iterates over the controllers, sorted by name.
    pub fn iter(self) -> impl Iterator<Item = Controller> {
        Controller::ALL.iter().copied().filter(move |controller| self.contains(*controller))
    }
}

impl Display for Controllers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (index, controller) in self.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { " " }, controller.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_controllers_print_in_a_fixed_order() {
        let set = Controllers::parse("pids memory dmem cpu\n");
        assert_eq!(set.to_string(), "cpu memory pids");
        assert_eq!(set.without(Controllers::ACCOUNTING), Controllers::EMPTY);
        assert_eq!(Controllers::EMPTY.to_string(), "none");
        assert_eq!(Controller::of_file("hugetlb.2MB.max"), Some(Controller::Hugetlb));
    }
}
