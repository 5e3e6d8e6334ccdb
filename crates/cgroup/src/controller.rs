//! Controllers, and sets of them.

use core::fmt::{self, Display, Formatter};

/// What a version 2 cgroup can be limited in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Controller {
    /// Time of processors.
    Cpu,
    /// Which processors and memory nodes.
    Cpuset,
    /// Huge pages.
    Hugetlb,
    /// Block devices.
    Io,
    /// Memory and swap.
    Memory,
    /// What drivers count.
    Misc,
    /// The number of processes.
    Pids,
    /// Remote direct memory access.
    Rdma,
}

impl Controller {
    /// Each, in the order of their names.
    pub const ALL: &[Self] =
        &[Self::Cpu, Self::Cpuset, Self::Hugetlb, Self::Io, Self::Memory, Self::Misc, Self::Pids, Self::Rdma];

    /// As the kernel spells it.
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

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|controller| controller.name() == name)
    }

    /// The one that a file belongs to: `memory` of `memory.max`.
    #[must_use]
    pub fn of_file(file: &str) -> Option<Self> {
        file.split_once('.').and_then(|(name, _)| Self::named(name))
    }
}

/// A set of controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers(u16);

impl Controllers {
    /// None.
    pub const EMPTY: Self = Self(0);
    /// Those that statistics are read from: in force for every cgroup, where they can be.
    pub const ACCOUNTING: Self =
        Self::of(&[Controller::Cpu, Controller::Io, Controller::Memory, Controller::Pids]);
    /// Those that cannot be among threads (cgroup-v2.rst, "Threads").
    pub const DOMAIN: Self = Self::of(&[
        Controller::Hugetlb,
        Controller::Io,
        Controller::Memory,
        Controller::Misc,
        Controller::Rdma,
    ]);

    /// These.
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

    /// Those of a list with spaces; what is unknown is left out.
    #[must_use]
    pub fn parse(list: &str) -> Self {
        let known = list.split_whitespace().filter_map(Controller::named);
        known.fold(Self::EMPTY, |set, controller| set.with(controller))
    }

    /// These and that one.
    #[must_use]
    pub const fn with(self, controller: Controller) -> Self {
        Self(self.0 | 1 << controller as u8)
    }

    /// Those of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether that one is among these.
    #[must_use]
    pub const fn contains(self, controller: Controller) -> bool {
        self.0 & 1 << controller as u8 != 0
    }

    /// Each of them.
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
    fn a_list_reads_as_it_prints() {
        let set = Controllers::parse("pids memory dmem cpu\n");
        assert_eq!(set.to_string(), "cpu memory pids");
        assert_eq!(set.without(Controllers::ACCOUNTING), Controllers::EMPTY);
        assert_eq!(Controllers::EMPTY.to_string(), "none");
        assert_eq!(Controller::of_file("hugetlb.2MB.max"), Some(Controller::Hugetlb));
    }
}
