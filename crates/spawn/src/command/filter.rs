//! Seccomp filters of the program.

use super::Command;
use crate::error::{Error, Reason};
use crate::memory::writer::Writer;
use husk_script::Step;
use husk_script::sys::process::SockFilter;

/// The filters of a command, or why a profile has none.
pub(crate) type Filters = Result<Vec<Compiled>, Problem>;

/// Why a profile has no filter: the act and the reason of an [`Error`].
type Problem = (Box<str>, &'static str);

/// A program for the kernel.
pub(crate) struct Compiled {
    flags: u32,
    program: Vec<SockFilter>,
}

/// # System calls
impl Command {
    /// Installs a seccomp filter as the last act before exec, and sets [`no_new_privs`](Self::no_new_privs), which
    /// needs no privileges. `flags` are `SECCOMP_FILTER_FLAG_*` of seccomp(2). Of several filters, the strictest
    /// decides.
    ///
    /// A filter must allow `execve`; otherwise the child fails with an error that names the exec. With the feature
    /// `seccomp`, `Command::seccomp` takes a profile instead.
    pub fn seccomp_filter(&mut self, flags: u32, program: &[SockFilter]) -> &mut Self {
        self.add_filter(Compiled { flags, program: program.to_vec() })
    }

    /// Compiles a profile with husk-seccomp and installs it like [`seccomp_filter`](Self::seccomp_filter). It is
    /// compiled here and only once, however often the command is started.
    ///
    /// A profile cannot be used if it has a name that is not a system call of any architecture, contradicts itself, or
    /// has an action that needs a supervisor. Starting the command is then an error. To ignore unknown names, compile
    /// the profile with [`seccomp::Table`](crate::seccomp::Table) and use `seccomp_filter`.
    ///
    /// ```
    /// # fn main() -> Result<(), husk_spawn::Error> {
    /// use husk_spawn::Command;
    /// use husk_spawn::seccomp::{Action, Profile, Rule};
    ///
    /// let no_directories = Profile {
    ///     default_action: Action::Allow,
    ///     rules: vec![Rule {
    ///         names: vec!["mkdir".to_owned(), "mkdirat".to_owned()],
    ///         action: Action::Errno(1),
    ///         conditions: vec![],
    ///     }],
    ///     ..Profile::default()
    /// };
    /// let output = Command::new("mkdir").arg("/tmp/new").seccomp(&no_directories).output()?;
    /// assert!(String::from_utf8_lossy(&output.stderr).contains("Operation not permitted"));
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "seccomp")]
    pub fn seccomp(&mut self, profile: &husk_seccomp::Profile) -> &mut Self {
        match compile(profile) {
            Ok(compiled) => self.add_filter(compiled),
            Err(problem) => {
                self.filters = Err(problem);
                self
            }
        }
    }

    fn add_filter(&mut self, filter: Compiled) -> &mut Self {
        self.no_new_privs = true;
        if let Ok(filters) = &mut self.filters {
            filters.push(filter);
        }
        self
    }

    /// Reports a profile that has no filter.
    pub(crate) fn check_filters(&self) -> Result<(), Error> {
        match &self.filters {
            Err((act, why)) => Err(Error::new(act.clone(), Reason::Conflict(why))),
            Ok(_) => Ok(()),
        }
    }

    pub(crate) fn is_filtered(&self) -> bool {
        self.filters.as_ref().is_ok_and(|filters| !filters.is_empty())
    }
}

/// Writes the steps that install the filters.
pub(crate) fn write(command: &Command, list: &mut Writer<'_>) {
    for Compiled { flags, program } in command.filters.iter().flatten() {
        let program = list.slice(program);
        list.push(Step::Seccomp { flags: *flags, program });
    }
}

#[cfg(feature = "seccomp")]
fn compile(profile: &husk_seccomp::Profile) -> Result<Compiled, Problem> {
    use husk_seccomp::{Abi, Action, Error, Machine, Table, Warning};

    let problem = |error: Error| match error {
        Error::Conflict { rule, call, abi } => (
            format!("seccomp rule {rule}, {call} on {}", abi.name()).into(),
            "an earlier rule has another action under these conditions",
        ),
        Error::TooLong { length } => {
            (format!("seccomp filter of {length} instructions").into(), "is longer than the kernel accepts")
        }
        Error::NotifyByDefault | Error::NotifyWrite { .. } => needs_supervisor(),
    };
    let notifies = profile.default_action == Action::Notify
        || profile.rules.iter().any(|rule| rule.action == Action::Notify);
    if notifies {
        return Err(needs_supervisor());
    }
    let native = if cfg!(target_arch = "x86_64") { Abi::X86_64 } else { Abi::Aarch64 };
    let (table, warnings) = Table::new(profile, &Machine::new(native)).map_err(problem)?;
    for warning in warnings {
        if let Warning::UnknownCall { rule, name } = warning {
            let act = format!("seccomp rule {rule}, {name:?}").into();
            return Err((act, "is not a system call of any architecture"));
        }
    }
    let program = table.program().map_err(problem)?;
    let instructions = program.instructions.iter();
    let instructions =
        instructions.map(|from| SockFilter { code: from.code, jt: from.jt, jf: from.jf, k: from.k });
    Ok(Compiled { flags: program.flags.bits(), program: instructions.collect() })
}

#[cfg(feature = "seccomp")]
fn needs_supervisor() -> Problem {
    ("seccomp".into(), "Action::Notify needs a supervisor: use Step::SeccompListener")
}
