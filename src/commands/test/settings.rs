//! `husk.toml`: recurring options of `husk test`, for all tests or for some.
//!
//! A key is the name of an option, and its value is the option's value. So every option is defined once. The
//! command line takes precedence over the file, and an override over all that precedes it. A file that another user
//! could have written is ignored unless it is named on the command line.
//!
//! ```toml
//! timeout = "60s"
//! hide = ["secrets"]
//!
//! [[override]]
//! test = "slow::*"
//! timeout = "10m"
//!
//! [[service]]
//! name = "cache"
//! command = ["redis-server"]
//! ready = { port = 6379 }
//! ```

use super::excerpt::Excerpt;
use super::services::{self, ServiceTable};
use super::trusted::{self, TrustedFile};
use crate::output::log::Log;
use crate::output::near;
use anyhow::{Context as _, Result, anyhow};
use clap::builder::ValueParser;
use clap::{ArgAction, Command};
use husk_image::Reference;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file's name.
const NAME: &str = "husk.toml";
const OVERRIDE: &str = "override";
const SERVICE: &str = "service";
/// The keys that say which tests an override or a service applies to.
pub(super) const CONDITIONS: [&str; 3] = ["test", "binary", "package"];
/// Options that concern all tests of a binary together.
const TOGETHER: &[&str] = &[
    "shard",
    "durations",
    "fail-fast",
    "json",
    "junit",
    "html",
    "strict",
    "keep-caches",
    "cache",
    "cache-verify",
];
/// Options that choose what husk does, and so belong on the command line.
const TYPED: &[&str] = &[
    "config",
    "runner",
    "each",
    "tap",
    "merge",
    "job",
    "shards",
    "job-image",
    "plan",
    "shell",
    "keep",
    "keep-services",
    "help",
];

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    all: Vec<SetOption>,
    overrides: Vec<Override>,
    pub(super) services: Vec<ServiceTable>,
}

/// The patterns of each condition; `None` if the condition is not used.
pub(super) type Patterns = [Option<Vec<String>>; 3];

#[derive(Debug, Default)]
struct Override {
    patterns: Patterns,
    said: Vec<SetOption>,
}

/// The arguments that an option stands for.
#[derive(Debug)]
pub(super) struct SetOption {
    pub(super) words: Vec<OsString>,
}

/// The test or program to which overrides may apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'s> {
    pub(crate) test: Option<&'s str>,
    pub(crate) binary: &'s str,
    pub(crate) package: Option<&'s str>,
}

impl Subject<'_> {
    /// Returns whether the conditions apply to it.
    pub(super) fn meets(self, conditions: &Patterns) -> bool {
        let of = [self.test, Some(self.binary), self.package];
        conditions.iter().zip(of).all(|(patterns, name)| match (patterns, name) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(patterns), Some(name)) => patterns.iter().any(|pattern| is_like(name, pattern)),
        })
    }
}

/// Reads the named file, or else the nearest one in `directory` and its ancestors, and reports which was used. A named
/// file may belong to any user.
pub(crate) fn find(named: Option<&Path>, directory: &Path, log: &Log) -> Result<Option<(PathBuf, String)>> {
    if let Some(path) = named {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        return Ok(Some((path.to_owned(), text)));
    }
    let found = trusted::nearest(NAME, directory);
    match found.with_context(|| format!("look for {NAME} from {}", directory.display()))? {
        TrustedFile::File(path, text) => {
            log.note(&format!("options from {}", path.display()));
            Ok(Some((path, text)))
        }
        TrustedFile::Distrusted(path, why) => {
            let path = path.display();
            log.warning(&format!("{path} is ignored: {why} (use it with '--config {path}')"));
            Ok(None)
        }
        TrustedFile::Nothing => Ok(None),
    }
}

impl Settings {
    /// Reads the text of the file at `path`. The command defines the options.
    pub(crate) fn parse(text: &str, path: &Path, command: &Command) -> Result<Self> {
        let reader = SettingsReader { text, path, command };
        let table = DeTable::parse(text)
            .map_err(|error| reader.wrong(error.span().unwrap_or_default(), error.message()))?;
        let mut settings = Self::default();
        for (key, value) in in_order(table.get_ref()) {
            let name = key.get_ref().as_ref();
            if ![OVERRIDE, SERVICE].contains(&name) {
                settings.all.push(reader.option(Table::Top, key, value)?);
                continue;
            }
            let wrong = || reader.wrong(key.span(), format!("{name} must be written as [[{name}]]"));
            for one in value.get_ref().as_array().ok_or_else(wrong)?.iter() {
                let table = one.get_ref().as_table().ok_or_else(wrong)?;
                if name == SERVICE {
                    let service = services::read(&reader, table, one.span(), &settings.services)?;
                    settings.services.push(service);
                } else {
                    settings.overrides.push(reader.one_override(table, one.span())?);
                }
            }
        }
        Ok(settings)
    }

    /// Returns the indices of the overrides that apply.
    pub(crate) fn applying(&self, subject: Subject<'_>) -> Vec<usize> {
        let all = self.overrides.iter().enumerate();
        all.filter(|(_, one)| subject.meets(&one.patterns)).map(|(place, _)| place).collect()
    }

    /// Returns the arguments that the file and these overrides stand for.
    pub(crate) fn words(&self, overrides: &[usize]) -> Vec<OsString> {
        let overrides = overrides.iter().filter_map(|place| self.overrides.get(*place));
        let said = self.all.iter().chain(overrides.flat_map(|one| &one.said));
        said.flat_map(|said| said.words.iter().cloned()).collect()
    }
}

/// Returns the entries in the order of the file, because later ones take precedence.
pub(super) fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Key<'i>, &'t Value<'i>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

pub(super) type Key<'i> = Spanned<std::borrow::Cow<'i, str>>;
pub(super) type Value<'i> = Spanned<DeValue<'i>>;

/// The tables of the file.
#[derive(Clone, Copy)]
pub(super) enum Table {
    Top,
    Override,
    Service,
}

pub(super) struct SettingsReader<'r> {
    text: &'r str,
    pub(super) path: &'r Path,
    /// The command that defines the options.
    command: &'r Command,
}

impl SettingsReader<'_> {
    pub(super) fn wrong(&self, place: Range<usize>, what: impl std::fmt::Display) -> anyhow::Error {
        let excerpt = Excerpt::new(self.text, place);
        let Excerpt { line, column, .. } = excerpt;
        anyhow!("{}:{line}:{column}: {what}\n{excerpt}", self.path.display())
    }

    fn one_override(&self, table: &DeTable<'_>, place: Range<usize>) -> Result<Override> {
        let mut one = Override::default();
        for (key, value) in in_order(table) {
            let name = key.get_ref().as_ref();
            let condition =
                CONDITIONS.iter().zip(&mut one.patterns).find(|(condition, _)| **condition == name);
            if let Some((_, patterns)) = condition {
                *patterns = Some(self.patterns(name, value)?);
            } else if TOGETHER.contains(&name) {
                let what = format!("{name} applies to all tests; move it above the first [[{OVERRIDE}]]");
                return Err(self.wrong(key.span(), what));
            } else {
                one.said.push(self.option(Table::Override, key, value)?);
            }
        }
        if one.patterns.iter().all(Option::is_none) {
            let what = format!("has no condition; add {}", CONDITIONS.join(" or "));
            return Err(self.wrong(place, format!("this [[{OVERRIDE}]] {what}")));
        }
        Ok(one)
    }

    /// Returns the patterns of a condition. Without any, or with an empty one, it would never apply.
    pub(super) fn patterns(&self, name: &str, value: &Value<'_>) -> Result<Vec<String>> {
        let patterns = self.texts(name, value)?;
        if patterns.is_empty() || patterns.iter().any(String::is_empty) {
            return Err(self.wrong(value.span(), format!("{name} is empty; use '*' for all")));
        }
        Ok(patterns)
    }

    /// Explains a key that is not an option of this table.
    pub(super) fn unknown(
        &self,
        table: Table,
        key: &Key<'_>,
        options: impl Iterator<Item = String>,
    ) -> anyhow::Error {
        let name = key.get_ref().as_ref();
        let all: Vec<String> = match table {
            Table::Top => options.chain([OVERRIDE, SERVICE].map(str::to_owned)).collect(),
            Table::Service => services::keys().chain(CONDITIONS).map(str::to_owned).collect(),
            Table::Override => options
                .filter(|option| !TOGETHER.contains(&&**option))
                .chain(CONDITIONS.map(str::to_owned))
                .collect(),
        };
        let is_option = self.command.get_arguments().any(|option| option.get_long() == Some(name));
        let what = if matches!(table, Table::Service) && is_option {
            format!("{name} is not an option of a service")
        } else if TYPED.contains(&name) {
            format!("{name} belongs on the command line")
        } else if CONDITIONS.contains(&name) {
            format!("{name} says which tests an [[{OVERRIDE}]] applies to; move it below one")
        } else {
            let question = near::question(name, all.iter().map(String::as_str));
            let hint = question.map(|question| format!("; {question}")).unwrap_or_default();
            format!("unknown option '{name}'{hint}")
        };
        self.wrong(key.span(), what)
    }

    /// Converts an entry to arguments.
    pub(super) fn option(&self, table: Table, key: &Key<'_>, value: &Value<'_>) -> Result<SetOption> {
        let name = key.get_ref().as_ref();
        let options = || self.command.get_arguments().filter(|option| !option.is_global_set());
        let known =
            |option: &clap::Arg| option.get_long().filter(|long| !TYPED.contains(long)).map(str::to_owned);
        let option = options().find(|option| known(option).as_deref() == Some(name));
        let Some(option) = option else {
            return Err(self.unknown(table, key, options().filter_map(known)));
        };
        let is_switch = matches!(option.get_action(), ArgAction::SetTrue);
        let words = match (value.get_ref(), is_switch) {
            (DeValue::Boolean(true), true) => vec![format!("--{name}").into()],
            (DeValue::Boolean(false), true) => Vec::new(),
            (_, true) => return Err(self.wrong(value.span(), format!("{name} must be true or false"))),
            (DeValue::Array(_), false) if !matches!(option.get_action(), ArgAction::Append) => {
                return Err(self.wrong(value.span(), format!("{name} takes one value, not an array")));
            }
            (_, false) => {
                let is_path = option.get_value_parser().type_id() == ValueParser::path_buf().type_id();
                let typed = |text: String| {
                    let mut word = OsString::from(format!("--{name}="));
                    let is_stream = ["json", "junit", "html"].contains(&name) && text == "-";
                    // A relative path is relative to the file's directory.
                    let base = self.path.parent().filter(|_| is_path && !is_stream).unwrap_or(Path::new(""));
                    match name {
                        "image" => word.push(Reference::below(self.path.parent(), &text)),
                        _ => word.push(base.join(text)),
                    }
                    word
                };
                self.texts(name, value)?.into_iter().map(typed).collect()
            }
        };
        // Checks each entry separately, so that the error can point at it.
        let runner: &[&str] = if matches!(table, Table::Service) { &[] } else { &["--runner"] };
        let end = runner.iter().chain(&["--", "program"]).map(OsString::from);
        let alone = words.iter().cloned().chain(end);
        let read = self.command.clone().try_get_matches_from(alone);
        read.map_err(|error| self.wrong(value.span(), crate::options::message(&error)))?;
        Ok(SetOption { words })
    }

    /// Returns the value, or the values of an array, as strings.
    fn texts(&self, name: &str, value: &Value<'_>) -> Result<Vec<String>> {
        let values = match value.get_ref() {
            DeValue::Array(values) => values.iter().collect(),
            _ => vec![value],
        };
        let text = |value: &Value<'_>| match value.get_ref() {
            DeValue::String(text) => Ok(text.clone().into_owned()),
            DeValue::Integer(number) => Ok(number.to_string()),
            DeValue::Float(number) => Ok(number.to_string()),
            _ => Err(self.wrong(value.span(), format!("{name} must be a string or a number"))),
        };
        values.into_iter().map(text).collect()
    }
}

/// Whether a name matches a pattern, in which `*` matches any text.
fn is_like(name: &str, pattern: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(begin) else { return false };
    let places = name.char_indices().map(|(place, _)| place).chain([name.len()]);
    places.filter_map(|place| name.get(place..)).any(|name| is_like(name, rest))
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn star_matches_anything() {
        for (name, pattern, is) in [
            ("a::b", "a::*", true),
            ("a", "a*", true),
            ("xay", "*a*", true),
            ("b", "a*", false),
            ("ab", "a", false),
        ] {
            assert_eq!(is_like(name, pattern), is, "{name} {pattern}");
        }
    }
}
