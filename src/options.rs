//! The program's global options, and the wording of clap's errors.

use crate::exit::Exit;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args as _, Command, ValueEnum};
use husk_runtime::CgroupManager;
use std::path::PathBuf;

/// The options of the program itself, whatever the verb. What they are by default is not clap's to say: it would read
/// those values too, each time husk starts.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Global {
    /// Where containers are known [default: /run/husk, or $XDG_RUNTIME_DIR/husk for a user]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) root: Option<PathBuf>,
    /// Write errors there too, warnings only there; syslog:NAME and journald:NAME are logs too
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// How to write them there: text, or json for engines [default: text]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) log_format: Option<LogFormat>,
    /// What to write: error, warning too, or debug for all that is being done [default: warning]
    #[arg(long, value_name = "LEVEL", hide_possible_values = true)]
    pub(crate) log_level: Option<LogLevel>,
    /// The same as --log-level debug
    #[arg(long)]
    pub(crate) debug: bool,
    /// Have systemd make the cgroups
    #[arg(long)]
    pub(crate) systemd_cgroup: bool,
    /// Who makes the cgroups: cgroupfs, systemd, or disabled for nobody [default: cgroupfs]
    #[arg(long, value_name = "WHO", hide_possible_values = true, value_parser = cgroup_manager())]
    pub(crate) cgroup_manager: Option<CgroupManager>,
    /// Accepted for runc's callers; husk finds out for itself [default: auto]
    #[arg(long, value_name = "BOOL", hide_possible_values = true)]
    pub(crate) rootless: Option<Rootless>,
    /// Print the version
    #[arg(short, long)]
    pub(crate) version: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Log levels; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    #[default]
    Warning,
    Debug,
}

fn cgroup_manager() -> impl TypedValueParser<Value = CgroupManager> {
    let names = PossibleValuesParser::new(CgroupManager::NAMES.map(|(name, _)| name));
    names.map(|given| {
        let manager = CgroupManager::NAMES.into_iter().find(|(name, _)| *name == given);
        manager.map(|(_, manager)| manager).unwrap_or_default()
    })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rootless {
    #[default]
    Auto,
    True,
    False,
}

/// Arguments that could not be parsed.
pub(crate) struct Misuse {
    /// The error, on one line.
    pub(crate) message: String,
    /// What to type instead.
    pub(crate) hint: String,
    /// The global options that could be parsed; they say where to log.
    pub(crate) global: Global,
    /// The exit code.
    pub(crate) exit: Exit,
}

/// Returns a clap command with the global options.
pub(crate) fn program() -> Command {
    Global::augment_args(Command::new("husk"))
        .no_binary_name(true)
        // As for all options: the last occurrence counts.
        .args_override_self(true)
}

/// Returns clap's message on one line, without its advice.
pub(crate) fn message(error: &clap::Error) -> String {
    // podman tests for an option by omitting its value, and looks for these words.
    if let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
        && value.is_empty()
        && matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::WrongNumberOfValues)
    {
        let option = option.split(' ').next().unwrap_or_default();
        return format!("flag needs an argument: {option}");
    }
    if let (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    {
        let missing = missing.join(", ");
        return format!("{} is missing", missing.replace(['<', '>'], ""));
    }
    let text = error.to_string();
    let lines = text.trim_start_matches("error: ").lines().map(str::trim);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
