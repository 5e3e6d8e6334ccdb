//! `husk completion`: shell completion.
//!
//! Each script is a few lines that call husk, which knows its own options, so no list is kept twice. If
//! husk has no suggestions, shells suggest files.

use crate::commands::{VERBS, find};
use crate::exit::Exit;
use crate::help::about;
use crate::options;
use crate::output::{self, escape};
use crate::session::{Session, absolute};
use crate::verb::{Perform, Verb};
use anyhow::Result;
use clap::{Arg, Command, ValueEnum};
use husk_runtime::{Signal, Status, Store};
use std::path::Path;

pub(crate) const MORE: &str = "
The script completes verbs, options and container IDs. It calls '{husk} completion words', which prints the possible
completions of the last word.

EXAMPLES:
  eval \"$(husk completion bash)\"    enable completion in the current shell
  {husk} completion zsh >/usr/share/zsh/site-functions/_husk
  {husk} completion fish >~/.config/fish/completions/husk.fish
";

/// Print a shell completion script
#[derive(Debug, clap::Args)]
pub(crate) struct Completion {
    /// Shell: bash, zsh or fish
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    what: What,
    /// The words typed so far, without the program's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Bash,
    Zsh,
    Fish,
    Words,
}

impl Perform for Completion {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        output::print(match self.what {
            What::Bash => BASH.to_owned(),
            What::Zsh => ZSH.to_owned(),
            What::Fish => FISH.to_owned(),
            What::Words => {
                let found = candidates(self.words, &session.store).into_iter();
                found.map(|(word, about)| format!("{}\t{about}\n", escape::cell(&word))).collect()
            }
        })?;
        Ok(Exit::Success)
    }
}

const BASH: &str = r#"# bash completion for husk
_husk() {
    local IFS=$'\n'
    COMPREPLY=($(husk completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _husk husk
"#;

const ZSH: &str = r#"#compdef husk
_husk() {
    local -a found
    found=("${(@f)$(husk completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then
        found=("${(@)found//:/\\:}")
        found=("${(@)found/$'\t'/:}")
        # Without a description, which zsh would show as the heading of a group.
        _describe '' found
    else
        _files
    fi
}
if [[ "$funcstack[1]" = _husk ]]; then _husk "$@"; else compdef _husk husk; fi
"#;

const FISH: &str = r#"# fish completion for husk
function __husk
    set -l words (commandline -opc) (commandline -ct)
    set -l found (husk completion words -- $words[2..] 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c husk -f -a '(__husk)'
"#;

/// Returns the possible values of the last word, with their descriptions.
fn candidates(mut words: Vec<String>, store: &Store) -> Vec<(String, String)> {
    let last = words.pop().unwrap_or_default();
    // bash treats `=` as a separate word.
    let last = if last == "=" { String::new() } else { last };
    words.retain(|word| word != "=");
    let typed = Typed::read(&words);
    let found = if let Some(option) = typed.expecting {
        values(&option)
    } else if last.starts_with('-') {
        let options = typed.command.get_arguments().filter(|option| !option.is_hide_set());
        let long = |option: &Arg| Some((format!("--{}", option.get_long()?), help(option)));
        options.filter_map(long).chain([("--help".to_owned(), "Print help".to_owned())]).collect()
    } else if typed.verb.is_some() {
        match typed.command.get_positionals().nth(typed.names) {
            // Every verb names its container argument `id`.
            Some(argument) if argument.get_id() == "id" => {
                let named = typed.root.as_ref();
                let named = named.and_then(|root| Some(Store::new(absolute(Path::new(root)).ok()?)));
                containers(named.as_ref().unwrap_or(store), &typed)
            }
            Some(argument) if argument.get_id() == "signal" => signals(&last),
            Some(argument) => values(argument),
            None => Vec::new(),
        }
    } else {
        VERBS.iter().map(|verb| (verb.name.to_owned(), about(verb))).collect()
    };
    found.into_iter().filter(|(word, _)| word.starts_with(&last)).collect()
}

/// The words before the last, parsed.
struct Typed {
    verb: Option<&'static Verb>,
    /// Has the options of the program and, once known, of the verb.
    command: Command,
    /// The option whose value comes next.
    expecting: Option<Arg>,
    /// The number of the verb's words that are not options.
    names: usize,
    /// Whether `--force` is among them.
    is_forced: bool,
    /// The value of `--root`.
    root: Option<String>,
}

impl Typed {
    fn read(words: &[String]) -> Self {
        let command = options::program();
        let mut typed = Self { verb: None, command, expecting: None, names: 0, is_forced: false, root: None };
        for word in words {
            typed.add(word);
        }
        typed
    }

    fn add(&mut self, word: &str) {
        if let Some(option) = self.expecting.take() {
            if option.get_long() == Some("root") {
                self.root = Some(word.to_owned());
            }
        } else if let Some(name) = word.strip_prefix('-').map(|name| name.trim_start_matches('-')) {
            let (name, value) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let is_meant = |option: &&Arg| {
                option.get_long() == Some(name)
                    || option.get_short().is_some_and(|short| name == short.to_string())
            };
            let option = self.command.get_arguments().find(is_meant);
            self.is_forced |= option.is_some_and(|option| option.get_long() == Some("force"));
            self.expecting = option.filter(|option| option.get_action().takes_values()).cloned();
            if let Some(value) = value {
                self.add(value);
            }
        } else if self.verb.is_some() {
            self.names += 1;
        } else if let Some(verb) = find(word.as_ref()) {
            self.verb = Some(verb);
            self.command = (verb.define)(options::program());
        }
    }
}

fn values(argument: &Arg) -> Vec<(String, String)> {
    let values = argument.get_possible_values().into_iter();
    values.map(|value| (value.get_name().to_owned(), String::new())).collect()
}

/// Returns the containers for which the verb can succeed.
fn containers(store: &Store, typed: &Typed) -> Vec<(String, String)> {
    let verb = typed.verb.map(|verb| verb.name).unwrap_or_default();
    // Tolerated: if the containers cannot be listed, none are suggested.
    let found = husk_runtime::list(store).unwrap_or_default().into_iter().flatten();
    let found = found.filter(|state| is_for(verb, typed.is_forced, state.status));
    found.map(|state| (state.id.clone(), state.status.to_string())).collect()
}

/// Whether a verb can succeed for a container of this status.
fn is_for(verb: &str, is_forced: bool, status: Status) -> bool {
    match verb {
        // Their names are new.
        "create" | "run" | "restore" => false,
        "start" => status == Status::Created,
        "delete" => is_forced || matches!(status, Status::Created | Status::Stopped),
        "pause" => matches!(status, Status::Created | Status::Running),
        "resume" => status == Status::Paused,
        "checkpoint" => status == Status::Running,
        "exec" | "kill" | "update" | "ps" | "events" | "wait" => status != Status::Stopped,
        _ => true,
    }
}

/// Returns the names of signals, with the prefix `SIG` if it was typed.
fn signals(typed: &str) -> Vec<(String, String)> {
    let prefix = if typed.starts_with('S') && !"STOP".starts_with(typed) { "SIG" } else { "" };
    let names = Signal::NAMES.iter();
    names.map(|(name, signal)| (format!("{prefix}{name}"), signal.number().to_string())).collect()
}

fn help(option: &Arg) -> String {
    option.get_help().map(ToString::to_string).unwrap_or_default()
}
