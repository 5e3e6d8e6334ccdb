//! Prints the decision table. `husk plan --seccomp` shows this text, and golden tests compare it.
//!
//! ```text
//! x86_64
//!          0-55  allow              read .. getsockopt (56 calls)
//!            56  test               clone
//!                  a0 & 0x7e020000 == 0x0: allow
//!                  otherwise errno 1 (EPERM)
//!        57-100  allow              fork .. times (44 calls)
//! ```

use crate::arch::{Abi, X32_BIT};
use crate::profile::{Action, Comparison, Condition, Flags};
use crate::rules::{ArgumentTest, Then};
use crate::syscalls;
use crate::table::{Decision, ENOSYS, Presence, Range, Section, Table};
use core::fmt::{self, Display, Formatter};

/// The width of the column of numbers.
const NUMBERS: usize = 13;

/// The width of the column of actions.
const ACTIONS: usize = 17;

/// The largest number of calls in a range that are all named.
const NAMED: usize = 4;

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "default {}", self.default_action)?;
        writeln!(f, "flags   {}", self.flags)?;
        for section in &self.sections {
            match section.presence {
                Presence::Listed => writeln!(f, "{}", section.abi.name())?,
                Presence::Unlisted => writeln!(f, "{} (not in the profile)", section.abi.name())?,
                Presence::NotRun => writeln!(f, "{} (not run by this kernel)", section.abi.name())?,
            }
            let names = syscalls::by_number(section.abi);
            for range in &section.ranges {
                self.range(f, section, *range, &names)?;
            }
        }
        writeln!(f, "other architectures {}", Action::KillThread)
    }
}

impl Table {
    fn range(
        &self,
        f: &mut Formatter<'_>,
        section: &Section,
        range: Range,
        names: &[(u32, &'static str)],
    ) -> fmt::Result {
        let numbers = Numbers(section.abi, range).to_string();
        let decision = self.decision(range);
        let action = match decision {
            Decision::Action(action) => action.to_string(),
            Decision::Tests { .. } => "test".to_owned(),
        };
        let newer = section.newest.is_some_and(|newest| range.first > newest)
            && *decision == Decision::Action(Action::Errno(ENOSYS));
        let from = names.partition_point(|(number, _)| *number < range.first);
        let to = names.partition_point(|(number, _)| *number <= range.last);
        let calls = Calls { names: &names[from..to], newer };
        writeln!(f, "{}", format!("{numbers:>NUMBERS$}  {action:<ACTIONS$}  {calls}").trim_end())?;
        if let Decision::Tests { tests, .. } = decision {
            print_tests(f, tests, &mut Vec::new())?;
            writeln!(f, "{:NUMBERS$}    otherwise {}", "", self.default_action)?;
        }
        Ok(())
    }
}

/// Prints one line for each path through the tests that ends in an action.
fn print_tests(f: &mut Formatter<'_>, tests: &[ArgumentTest], before: &mut Vec<Condition>) -> fmt::Result {
    for ArgumentTest { condition, then } in tests {
        before.push(*condition);
        match then {
            Then::Tests(tests) => print_tests(f, tests, before)?,
            Then::Action(action) => {
                let conditions: Vec<_> = before.iter().map(ToString::to_string).collect();
                writeln!(f, "{:NUMBERS$}    {}: {action}", "", conditions.join(" and "))?;
            }
        }
        before.pop();
    }
    Ok(())
}

/// The numbers of a range, without x32's bit.
struct Numbers(Abi, Range);

impl Display for Numbers {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(abi, Range { first, last, .. }) = *self;
        let bit = if abi == Abi::X32 { X32_BIT } else { 0 };
        let (first, last) = (first - bit, last - bit);
        if first == last {
            write!(f, "{}", Number(first))
        } else if last == abi.numbers().1 - bit {
            write!(f, "{} and up", Number(first))
        } else {
            write!(f, "{}-{}", Number(first), Number(last))
        }
    }
}

/// A number, in decimal if it is small and hexadecimal otherwise.
struct Number(u32);

impl Display for Number {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0 < 0x1_0000 { write!(f, "{}", self.0) } else { write!(f, "{:#x}", self.0) }
    }
}

/// The names of the calls in a range.
struct Calls<'a> {
    names: &'a [(u32, &'static str)],
    /// Whether the range is newer than all calls in the profile.
    newer: bool,
}

impl Display for Calls<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.names {
            _ if self.newer => f.write_str("newer than the profile"),
            [] => Ok(()),
            names if names.len() <= NAMED => {
                f.write_str(&names.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(" "))
            }
            [(_, first), .., (_, last)] => write!(f, "{first} .. {last} ({} calls)", self.names.len()),
            [_] => unreachable!("one call is named"),
        }
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillThread => f.write_str("kill thread"),
            Self::KillProcess => f.write_str("kill process"),
            Self::Trap => f.write_str("trap"),
            Self::Errno(number) => match ERRNOS.iter().find(|(known, _)| known == number) {
                Some((_, name)) => write!(f, "errno {number} ({name})"),
                None => write!(f, "errno {number}"),
            },
            Self::Trace(data) => write!(f, "trace {data}"),
            Self::Log => f.write_str("log"),
            Self::Allow => f.write_str("allow"),
            Self::Notify => f.write_str("notify"),
        }
    }
}

/// The names of the error numbers that profiles use. For others see errno(1).
const ERRNOS: &[(u16, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (13, "EACCES"),
    (16, "EBUSY"),
    (22, "EINVAL"),
    (38, "ENOSYS"),
    (95, "EOPNOTSUPP"),
];

impl Display for Condition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "a{}", self.argument.index())?;
        match self.comparison {
            Comparison::NotEqual(value) => write!(f, " != {value:#x}"),
            Comparison::Less(value) => write!(f, " < {value:#x}"),
            Comparison::LessOrEqual(value) => write!(f, " <= {value:#x}"),
            Comparison::Equal(value) => write!(f, " == {value:#x}"),
            Comparison::GreaterOrEqual(value) => write!(f, " >= {value:#x}"),
            Comparison::Greater(value) => write!(f, " > {value:#x}"),
            Comparison::MaskedEqual { mask, value } => write!(f, " & {mask:#x} == {value:#x}"),
        }
    }
}

impl Display for Flags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::LOG, "log"),
            (Self::SPEC_ALLOW, "spec-allow"),
            (Self::NEW_LISTENER, "new-listener"),
            (Self::WAIT_KILLABLE_RECV, "wait-killable-recv"),
        ];
        let set: Vec<_> =
            names.into_iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| name).collect();
        f.write_str(if set.is_empty() { "none" } else { "" })?;
        f.write_str(&set.join(","))
    }
}
