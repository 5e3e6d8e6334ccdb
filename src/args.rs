//! Parses the command line.
//!
//! clap defines and parses every option. It does not accept some forms that runc's callers use:
//! - long options with one dash (`-no-subreaper`),
//! - switches with a value (`--debug=false`),
//! - options of the program both before and after the verb.
//!
//! So this module finds the verb first and rewrites the arguments to clap's syntax. One command then parses
//! them, with the options of the program and of this verb. Options of other verbs are never built, which
//! would cost more than the rest of `husk state`.

use crate::exit::Exit;
use crate::help;
use crate::options::{Global, Misuse, message, program};
use crate::output::name::NAME;
use crate::output::near;
use crate::rare;
use crate::verb::{Verb, usage};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, ArgMatches, Command, FromArgMatches as _};
use std::ffi::OsString;
use std::ptr;

/// The parsed command line.
pub(crate) enum Asked {
    /// A text to print: help or the version.
    Text(String),
    /// A verb and its arguments.
    Verb { verb: &'static Verb, global: Global, matches: ArgMatches },
}

/// Parses the arguments, without the program's name.
pub(crate) fn read(
    arguments: impl Iterator<Item = OsString>,
    verbs: &'static [Verb],
) -> Result<Asked, Box<Misuse>> {
    let arguments: Vec<_> = arguments.collect();
    // Engines run this at every start, so it is answered without building the options.
    if arguments == ["--version"] {
        return Ok(Asked::Text(help::version()));
    }
    if let Some(expected) = rare::only_common(&arguments, verbs) {
        rare::leave_out(true);
        match parse(arguments.clone(), verbs) {
            Ok(asked @ Asked::Verb { verb, .. }) if ptr::eq(verb, expected) => return Ok(asked),
            _ => rare::leave_out(false),
        }
    }
    parse(arguments, verbs)
}

fn parse(mut arguments: Vec<OsString>, verbs: &'static [Verb]) -> Result<Asked, Box<Misuse>> {
    let program = program();
    let Some(place) = rewrite(&mut arguments, &program, Stop::AtFirstName) else {
        return without_verb(program, &arguments, verbs);
    };
    let name = arguments.remove(place);
    let is_help = name == "help" || name == "h";
    let name = match arguments.get(place) {
        Some(about) if is_help => about.clone(),
        None if is_help => return Ok(Asked::Text(help::program(verbs))),
        _ => name,
    };
    let Some(verb) = verbs.iter().find(|verb| name == verb.name) else {
        // The word may be the value of an unknown option.
        let before = program.clone().try_get_matches_from(&arguments[..place]);
        if let Err(error) = before
            && error.kind() == ErrorKind::UnknownArgument
        {
            let hint = hint(None, asked_for(&error, &program));
            return Err(misuse(program, &arguments, message(&error), hint, Exit::Failed));
        }
        let wants_help = is_help || arguments.iter().any(|word| word == "-h" || word == "--help");
        let message = if wants_help {
            // runc's wording.
            format!("No help topic for '{}'", name.display())
        } else {
            format!("unknown command {name:?}")
        };
        let names = verbs.iter().map(|verb| verb.name);
        let hint = hint(None, near::question(&name.to_string_lossy(), names));
        return Err(misuse(program, &arguments, message, hint, Exit::UnknownCommand));
    };
    if is_help {
        return Ok(Asked::Text(help::verb(verb)));
    }
    let mut command = (verb.define)(program).override_usage(usage(verb));
    let stop = if takes_rest(&command) { Stop::AtFirstName } else { Stop::Never };
    rewrite(&mut arguments, &command, stop);
    let matches = command.try_get_matches_from_mut(&arguments);
    match matches.and_then(|mut matches| Ok((Global::from_arg_matches_mut(&mut matches)?, matches))) {
        Ok((global, _)) if global.rare.version => Ok(Asked::Text(help::version())),
        Ok((global, matches)) => Ok(Asked::Verb { verb, global, matches }),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Asked::Text(help::verb(verb))),
        Err(error) => {
            let hint = hint(Some(verb.name), asked_for(&error, &command));
            let message = format!("{}: {}", verb.name, message(&error));
            let exit = match verb.failure {
                // runc uses this exit code too.
                Exit::NoProcess => Exit::Failed,
                failure => failure,
            };
            Err(misuse(command, &arguments, message, hint, exit))
        }
    }
}

fn without_verb(mut program: Command, arguments: &[OsString], verbs: &[Verb]) -> Result<Asked, Box<Misuse>> {
    let matches = program.try_get_matches_from_mut(arguments);
    match matches.and_then(|mut matches| Global::from_arg_matches_mut(&mut matches)) {
        Ok(global) if global.rare.version => Ok(Asked::Text(help::version())),
        // Prints the help if there are no arguments, as runc does.
        Ok(_) => Ok(Asked::Text(help::program(verbs))),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Asked::Text(help::program(verbs))),
        Err(error) => {
            let hint = hint(None, asked_for(&error, &program));
            Err(misuse(program, arguments, message(&error), hint, Exit::Failed))
        }
    }
}

/// The point at which the search for options stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// At the first argument that is not an option: a verb, or the container in which the rest is run.
    AtFirstName,
    /// The search ends with the last argument.
    Never,
}

/// Rewrites the arguments to clap's syntax. Returns the index of the first that is not an option.
fn rewrite(arguments: &mut Vec<OsString>, command: &Command, stop: Stop) -> Option<usize> {
    let mut first = None;
    let mut index = 0;
    while let Some(argument) = arguments.get(index) {
        let text = argument.to_str().unwrap_or_default();
        if text == "--" {
            break;
        }
        let Some(dashed) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            first = first.or(Some(index));
            if stop == Stop::AtFirstName {
                break;
            }
            index += 1;
            continue;
        };
        let (name, value) = match dashed.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (dashed, None),
        };
        let name = name.strip_prefix('-').unwrap_or(name);
        let Some(option) = command.get_arguments().find(|option| option.get_long() == Some(name)) else {
            index += if value.is_none() && takes_value_short(command, name) { 2 } else { 1 };
            continue;
        };
        let is_switch = matches!(option.get_action(), ArgAction::SetTrue);
        match value.map(str::to_ascii_lowercase).as_deref() {
            Some("true" | "t" | "1") if is_switch => arguments[index] = format!("--{name}").into(),
            Some("false" | "f" | "0") if is_switch => {
                arguments.remove(index);
                continue;
            }
            Some(_) => arguments[index] = format!("--{}", dashed.trim_start_matches('-')).into(),
            None => {
                arguments[index] = format!("--{name}").into();
                // The next argument is the option's value, whatever it looks like.
                let has_value = option.get_num_args().is_none_or(|number| number.min_values() > 0);
                index += usize::from(!is_switch && has_value);
            }
        }
        index += 1;
    }
    first
}

/// Whether this is the letter of an option that takes a value.
fn takes_value_short(command: &Command, name: &str) -> bool {
    let mut letters = name.chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else { return false };
    let mut options = command.get_arguments();
    options.any(|option| option.get_short() == Some(letter) && option.get_action().takes_values())
}

/// Whether everything after the container's name belongs to another program.
fn takes_rest(command: &Command) -> bool {
    command.get_positionals().any(clap::Arg::is_trailing_var_arg_set)
}

fn hint(verb: Option<&str>, question: Option<String>) -> String {
    let question = question.map(|question| question + "\n").unwrap_or_default();
    let verb = verb.map(|verb| format!(" {verb}")).unwrap_or_default();
    format!("{question}see '{}{verb} --help'", *NAME)
}

/// Returns a question that suggests a known option in place of an unknown one.
fn asked_for(error: &clap::Error, command: &Command) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else { return None };
    let options = command.get_arguments().filter(|option| !option.is_hide_set());
    let names: Vec<_> = options.filter_map(|option| Some(format!("--{}", option.get_long()?))).collect();
    (error.kind() == ErrorKind::UnknownArgument)
        .then(|| near::question(typed, names.iter().map(String::as_str)))
        .flatten()
}

fn misuse(
    command: Command,
    arguments: &[OsString],
    message: String,
    hint: String,
    exit: Exit,
) -> Box<Misuse> {
    // Even if other arguments are wrong, `--log` is respected.
    let matches = command.ignore_errors(true).disable_help_flag(true).try_get_matches_from(arguments);
    let global = matches.map(|matches| Global::of_log(&matches)).unwrap_or_default();
    Box::new(Misuse { message, hint, global, exit })
}
