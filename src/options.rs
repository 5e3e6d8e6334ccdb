//! The program's global options, and the wording of clap's errors.

use crate::exit::Exit;
use crate::rare::Rare;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args as _, Command, ValueEnum};
use husk_runtime::CgroupManager;
use std::path::PathBuf;

/// Options that every verb takes. clap does not know their defaults, because it would parse them
/// each time husk starts.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Global {
    /// State directory [default: /run/husk, or $XDG_RUNTIME_DIR/husk without root]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) root: Option<PathBuf>,
    /// Log errors and warnings to this file, to syslog:NAME or to journald:NAME
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Format of the log: text or json [default: text]
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    pub(crate) log_format: Option<LogFormat>,
    /// Create cgroups through systemd
    #[arg(long)]
    pub(crate) systemd_cgroup: bool,
    #[command(flatten)]
    pub(crate) rare: Rare<RareGlobal>,
}

/// The options that engines do not use.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RareGlobal {
    /// Least severe messages to log: error, warning or debug [default: warning]
    #[arg(long, value_name = "LEVEL", hide_possible_values = true)]
    pub(crate) log_level: Option<LogLevel>,
    /// Same as --log-level debug
    #[arg(long)]
    pub(crate) debug: bool,
    /// How to create cgroups: cgroupfs, systemd or disabled [default: cgroupfs]
    #[arg(long, value_name = "MANAGER", hide_possible_values = true, value_parser = cgroup_manager())]
    pub(crate) cgroup_manager: Option<CgroupManager>,
    /// Accepted for compatibility with runc; husk detects this itself [default: auto]
    #[arg(long, value_name = "BOOL", hide_possible_values = true)]
    pub(crate) rootless: Option<Rootless>,
    /// Print the version
    #[arg(short, long)]
    pub(crate) version: bool,
}

impl Global {
    /// Returns the options that concern the log. The others of an invalid command line may be missing, even their
    /// defaults.
    pub(crate) fn of_log(matches: &ArgMatches) -> Self {
        fn value<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Option<T> {
            matches.try_get_one(name).ok().flatten().cloned()
        }
        let rare = RareGlobal {
            log_level: value(matches, "log_level"),
            debug: value(matches, "debug").unwrap_or_default(),
            ..RareGlobal::default()
        };
        Self {
            log: value(matches, "log"),
            log_format: value(matches, "log_format"),
            rare: Rare::from(rare),
            ..Self::default()
        }
    }
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
    /// A command line to type instead.
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
        // The last occurrence counts, as for all options.
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
    plain(&lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" "))
}

/// Replaces std's errors about numbers, which describe its parser, by what the user can do.
pub(crate) fn plain(message: &str) -> String {
    let message = message.replace("invalid digit found in string", "not a number");
    message.replace("number too large to fit in target type", "too large")
}
