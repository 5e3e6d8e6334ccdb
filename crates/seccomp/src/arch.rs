//! The architectures that a configuration may list, and those that the kernel runs.

/// An architecture that a configuration may list: those of runtime-spec 1.3, and libseccomp's `NATIVE`.
///
/// An architecture that the kernel cannot run is not an error and adds no instructions. (libseccomp rejects
/// architectures of the other byte order.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Arch {
    Native,
    X86,
    X86_64,
    X32,
    Arm,
    Aarch64,
    Loongarch64,
    M68k,
    Mips,
    Mips64,
    Mips64n32,
    Mipsel,
    Mipsel64,
    Mipsel64n32,
    Ppc,
    Ppc64,
    Ppc64le,
    S390,
    S390x,
    Sh,
    Sheb,
    Parisc,
    Parisc64,
    Riscv64,
}

impl Arch {
    /// All architectures with their names in a configuration.
    pub const NAMES: [(&'static str, Self); 24] = [
        ("SCMP_ARCH_NATIVE", Self::Native),
        ("SCMP_ARCH_X86", Self::X86),
        ("SCMP_ARCH_X86_64", Self::X86_64),
        ("SCMP_ARCH_X32", Self::X32),
        ("SCMP_ARCH_ARM", Self::Arm),
        ("SCMP_ARCH_AARCH64", Self::Aarch64),
        ("SCMP_ARCH_LOONGARCH64", Self::Loongarch64),
        ("SCMP_ARCH_M68K", Self::M68k),
        ("SCMP_ARCH_MIPS", Self::Mips),
        ("SCMP_ARCH_MIPS64", Self::Mips64),
        ("SCMP_ARCH_MIPS64N32", Self::Mips64n32),
        ("SCMP_ARCH_MIPSEL", Self::Mipsel),
        ("SCMP_ARCH_MIPSEL64", Self::Mipsel64),
        ("SCMP_ARCH_MIPSEL64N32", Self::Mipsel64n32),
        ("SCMP_ARCH_PPC", Self::Ppc),
        ("SCMP_ARCH_PPC64", Self::Ppc64),
        ("SCMP_ARCH_PPC64LE", Self::Ppc64le),
        ("SCMP_ARCH_S390", Self::S390),
        ("SCMP_ARCH_S390X", Self::S390x),
        ("SCMP_ARCH_SH", Self::Sh),
        ("SCMP_ARCH_SHEB", Self::Sheb),
        ("SCMP_ARCH_PARISC", Self::Parisc),
        ("SCMP_ARCH_PARISC64", Self::Parisc64),
        ("SCMP_ARCH_RISCV64", Self::Riscv64),
    ];

    /// Returns the architecture with this name in a configuration.
    #[must_use]
    pub fn from_oci(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, arch)| *arch)
    }

    /// Returns the ABI of this architecture, if husk knows its system call numbers.
    pub(crate) fn abi(self, machine: &Machine) -> Option<Abi> {
        match self {
            Self::Native => Some(machine.native),
            Self::X86_64 => Some(Abi::X86_64),
            Self::X86 => Some(Abi::X86),
            Self::X32 => Some(Abi::X32),
            Self::Aarch64 => Some(Abi::Aarch64),
            Self::Arm => Some(Abi::Arm),
            _ => None,
        }
    }
}

/// A system call ABI whose numbers this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// 64-bit x86.
    X86_64,
    /// 32-bit x86.
    X86,
    /// x86-64 with 32-bit pointers. The kernel reports `AUDIT_ARCH_X86_64` for it and sets bit 30 of the
    /// number.
    X32,
    /// 64-bit ARM.
    Aarch64,
    /// 32-bit ARM with the embedded ABI.
    Arm,
}

/// The bit that marks x32 system call numbers (`__X32_SYSCALL_BIT`).
pub(crate) const X32_BIT: u32 = 0x4000_0000;

/// How many bits of an argument are compared.
///
/// The kernel shows 64-bit arguments on every architecture, but a 32-bit program cannot set the upper half.
/// There libseccomp compares only the lower half, on x32 too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The lower 32 bits.
    Word32,
    /// All 64 bits.
    Word64,
}

impl Abi {
    /// Returns the kernel's value in `seccomp_data.arch` (`AUDIT_ARCH_*` of `<linux/audit.h>`).
    #[must_use]
    pub const fn audit_arch(self) -> u32 {
        match self {
            Self::X86_64 | Self::X32 => 0xc000_003e,
            Self::X86 => 0x4000_0003,
            Self::Aarch64 => 0xc000_00b7,
            Self::Arm => 0x4000_0028,
        }
    }

    /// Returns how many bits of an argument are compared.
    #[must_use]
    pub const fn width(self) -> Width {
        match self {
            Self::X86_64 | Self::Aarch64 => Width::Word64,
            Self::X86 | Self::X32 | Self::Arm => Width::Word32,
        }
    }

    /// Returns the name in a decision table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::X86 => "x86",
            Self::X32 => "x32",
            Self::Aarch64 => "aarch64",
            Self::Arm => "arm",
        }
    }

    /// Returns the lowest and the highest number that the ABI's calls may have.
    pub(crate) const fn numbers(self) -> (u32, u32) {
        match self {
            Self::X86_64 => (0, X32_BIT - 1),
            Self::X32 => (X32_BIT, u32::MAX),
            Self::X86 | Self::Aarch64 | Self::Arm => (0, u32::MAX),
        }
    }

    /// Returns the number below which Linux adds new calls. Numbers above do not show how new a profile is:
    /// they are ARM's private calls (`__ARM_NR_BASE`) and x32's separate ones
    /// (arch/x86/entry/syscalls/syscall_64.tbl).
    pub(crate) const fn growth_limit(self) -> u32 {
        match self {
            Self::Arm => 0x000f_0000,
            Self::X32 => X32_BIT + 512,
            Self::X86_64 | Self::X86 | Self::Aarch64 => self.numbers().1,
        }
    }
}

/// The ABIs that the kernel runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The ABI of the calling program. A profile always applies to it, listed or not.
    pub native: Abi,
    /// The other ABIs that the kernel may run. Kernels can be built without them; [`Machine::without`] removes
    /// one that is known to be missing.
    pub others: Vec<Abi>,
}

impl Machine {
    /// Creates a machine with the native ABI and all others that its kernel may run.
    #[must_use]
    pub fn new(native: Abi) -> Self {
        let others = match native {
            Abi::X86_64 => vec![Abi::X86, Abi::X32],
            Abi::Aarch64 => vec![Abi::Arm],
            Abi::X86 | Abi::X32 | Abi::Arm => Vec::new(),
        };
        Self { native, others }
    }

    /// Removes an ABI that the kernel does not run.
    #[must_use]
    pub fn without(mut self, abi: Abi) -> Self {
        self.others.retain(|other| *other != abi);
        self
    }
}
