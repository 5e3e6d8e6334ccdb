//! Compiles an OCI seccomp profile to a BPF program, with libseccomp's semantics and without libseccomp.
//!
//! ```
//! use husk_seccomp::{Abi, Action, Machine, Profile, Rule, Table};
//!
//! let profile = Profile {
//!     default_action: Action::Errno(1),
//!     rules: vec![Rule { names: vec!["read".to_owned()], action: Action::Allow, conditions: vec![] }],
//!     ..Profile::default()
//! };
//! let (table, warnings) = Table::new(&profile, &Machine::new(Abi::X86_64))?;
//! assert!(warnings.is_empty());
//! assert!(table.to_string().contains("0  allow              read\n"));
//! let program = table.program()?;
//! assert_eq!(program.instructions.len(), 10);
//! # Ok::<(), husk_seccomp::Error>(())
//! ```
//!
//! There are three stages, each with a type. A [`Profile`] holds a configuration's rules. A [`Table`] holds
//! their meaning for every number of every architecture, and can be printed. A [`Program`] is the filter for
//! the kernel. All decisions are made between the first two.
//!
//! The crate makes no system call and reads no file. A profile and a [`Machine`] always give the same program,
//! so nothing has to be cached. `rules.rs` and `table.rs` define the meaning; `emit.rs` generates the code.
//!
//! # The tree
//!
//! When a filter is installed, the kernel compiles it to machine code. Then it runs the filter once for every
//! number, with interrupts off, to find the calls that are always allowed. Those calls never run the filter
//! again. So both the program's length and the instructions executed for each number matter. Neighbouring
//! numbers with the same decision are merged to ranges (66 of x86-64 in Docker's profile), and the program
//! bisects them:
//!
//! ```text
//! the architecture     the native one first
//!   the number         is it at least N? ... about six such steps
//!     up to three single numbers that differ from those around them
//!       the answer, or tests of arguments; calls with the same conditions share them
//! ```
//!
//! libseccomp's program for Docker's profile (x86-64, x86 and x32) is nearly four times as long.
//!
//! # What a profile means
//!
//! The meaning is that of libseccomp 2.5 as runc and crun use it; `tests/libseccomp.rs` compares.
//!
//! - The native architecture is always in a filter. A call of an architecture that is not listed kills the
//!   thread. So does an x32 number if x32 is not listed, except for -1, which tracers set to skip a call.
//! - A rule with the default action is ignored. So is a name that is not a system call, with a warning.
//! - If two conditions of a rule are on the same argument, each of its conditions becomes a rule of its own.
//! - On 32-bit architectures, including x32, only the lower halves of arguments and values are compared. A mask
//!   without bits in the compared half is not a condition.
//! - On x86, a rule for a call that `socketcall` or `ipc` can make also applies to that multiplexer. The
//!   selector replaces any condition on the first argument. The other conditions stay, although these arguments
//!   have another meaning there.
//! - A rule without conditions overrides rules with conditions, in any order. Of several, the first applies.
//! - A rule is redundant if it has all conditions of another rule with the same action, and more.
//! - Conditions are sorted by argument. A rule whose conditions begin with all those of an earlier rule has no
//!   effect. A rule whose conditions are the beginning of an earlier rule's is an error. So are the same
//!   conditions with another action.
//! - Otherwise rules are tried until one matches. A higher argument comes first. Then `==`, `!=` and masks come
//!   before `<` and `<=`, and those before `>` and `>=`. Then a higher value comes first (for `<` and `<=` a
//!   lower one), then the earlier rule. Rules that begin with the same condition stay together, and their
//!   remaining conditions are sorted in the same way.
//! - Like runc, but not crun, a call newer than all calls in the profile gets `ENOSYS`. C libraries then fall
//!   back to an older call. This does not apply if the default action lets calls pass. The
//!   separate number ranges of x32 and ARM do not make a profile newer; in runc they do.
//!
//! libseccomp deviates from these rules in the following cases (2.5.4; 2.6.1 has the same code). This crate
//! follows the rules. No engine's profile contains such a case.
//!
//! - It compares halves, and rules that begin alike share comparisons of the upper half. If a condition before
//!   a rule's last is for order or inequality, the last may be tried for the other rule too. For example,
//!   `a0 > 5 and a1 == 1` with `a0 > 10 and a1 == 2` allows a0 of 7 with a1 of 2. Or the later rule is lost,
//!   or rejected.
//! - It may confuse a condition with its opposite when it looks for redundant rules. On 32-bit architectures,
//!   `a0 == 1 and a4 > 9` is lost next to `a4 <= 9`.
//! - It may forget that it has loaded a lower half when it continues with the next test of an upper half. With
//!   `a0 <= 0xffff_fffe` and `a0 <= 0x8000_0000_8000_0000`, neither matches 0xffff_ffff.
//! - It never loads the call's number if three things coincide. x32 is listed, all x86-64 calls in the profile
//!   have conditions, and a call of another architecture has none.
//! - It sorts by upper halves first. So of a mask and another comparison, or of masks that differ in the upper
//!   half, the earlier comes first. Two `!=` may come in either order.
//! - It rejects conflicting rules for a call that no listed architecture has, and architectures of the other
//!   byte order. It sometimes misses that a rule is redundant, and then rejects it.
//!
//! # Why not seccompiler
//!
//! seccompiler's filters have one action besides the default and support one architecture. They check the
//! architecture themselves, and kill the process if it is another. Each call takes five instructions, one call
//! after the other: Docker's profile for three architectures exceeds the kernel's limit. Its conditions can
//! only be used inside such a filter. The only reusable part is the type of an instruction, whose four fields
//! `program.rs` defines itself. The tests use seccompiler as a second opinion on comparisons.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arch;
mod emit;
mod error;
pub mod interpret;
mod print;
mod profile;
mod program;
mod rules;
mod syscalls;
mod table;

pub use arch::{Abi, Arch, Machine, Width};
pub use error::{Error, Warning};
pub use profile::{Action, Argument, BadAction, Comparison, Condition, Flags, Profile, Rule};
pub use program::{Instruction, MAX_INSTRUCTIONS, Program, code};
pub use rules::{ArgumentTest, Then};
pub use syscalls::call_number;
pub use table::{Decision, Presence, Range, Section, Table};
