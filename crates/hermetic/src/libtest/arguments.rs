//! The arguments of a libtest binary.

use std::ffi::OsString;
use std::num::NonZero;
use std::{env, thread};

/// The arguments of a test binary, as far as they apply to each test alone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestArguments {
    /// Arguments that select tests: names, `--exact`, `--skip`.
    choice: Vec<OsString>,
    /// Arguments that select ignored tests: `--ignored`, `--include-ignored`.
    ignored: Vec<OsString>,
    pub(crate) is_quiet: bool,
    /// Whether output of tests is shown at once.
    pub(crate) is_uncaptured: bool,
    /// Whether output of tests is shown even if they pass.
    pub(crate) shows_output: bool,
    /// Whether to use colour; `None` if unspecified.
    pub(crate) color: Option<bool>,
    threads: Option<usize>,
}

impl TestArguments {
    /// Parses arguments. Returns `None` if one of them is unknown, invalid or concerns all tests together.
    pub(crate) fn read(arguments: &[OsString]) -> Option<Self> {
        let mut request = Self { is_uncaptured: is_set("RUST_TEST_NOCAPTURE"), ..Self::default() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_str()?;
            let (name, value) =
                text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
            let mut value = || match value {
                Some(value) => Some(value.to_owned()),
                None => Some(arguments.next()?.to_str()?.to_owned()),
            };
            match name {
                "--test" | "--force-run-in-process" => {}
                "--exact" => request.choice.push(argument.clone()),
                "--skip" => request.choice.push(format!("--skip={}", value()?).into()),
                "--ignored" | "--include-ignored" => request.ignored.push(argument.clone()),
                "--nocapture" | "--no-capture" => request.is_uncaptured = true,
                "--show-output" => request.shows_output = true,
                "--color" => {
                    request.color = match value()?.as_str() {
                        "auto" => None,
                        "always" => Some(true),
                        "never" => Some(false),
                        _ => return None,
                    }
                }
                "--test-threads" => {
                    request.threads = Some(value()?.parse().ok().filter(|&threads| threads > 0)?)
                }
                "-q" | "--quiet" => request.is_quiet = true,
                "--format" => match value()?.as_str() {
                    "pretty" => {}
                    "terse" => request.is_quiet = true,
                    _ => return None,
                },
                _ if name.starts_with('-') => return None,
                _ => request.choice.push(argument.clone()),
            }
        }
        Some(request)
    }

    /// Returns the arguments that list the selected tests.
    pub(crate) fn to_list(&self) -> Vec<OsString> {
        self.choice.iter().chain(&self.ignored).cloned().chain(LIST.map(OsString::from)).collect()
    }

    /// Returns the arguments that list the tests to skip as ignored, if there can be any.
    pub(crate) fn to_list_ignored(&self) -> Option<Vec<OsString>> {
        let with = |mut arguments: Vec<OsString>| {
            arguments.push("--ignored".into());
            arguments
        };
        self.ignored.is_empty().then(|| with(self.to_list()))
    }

    /// Returns the arguments that list all tests, or `None` if the selection includes all.
    pub(crate) fn to_list_all(&self) -> Option<Vec<OsString>> {
        let is_all = self.choice.is_empty() && !self.ignored.iter().any(|argument| argument == "--ignored");
        (!is_all).then(|| LIST.map(OsString::from).into())
    }

    /// Returns the arguments that make libtest print why tests are ignored.
    pub(crate) fn to_ignore<'n>(names: impl Iterator<Item = &'n String>) -> Vec<OsString> {
        ["--exact", "--test-threads=1"]
            .map(OsString::from)
            .into_iter()
            .chain(names.map(OsString::from))
            .collect()
    }

    /// Returns the arguments that run one test.
    pub(crate) fn to_run(&self, name: &str) -> Vec<OsString> {
        let only = [name, "--exact", "--test-threads=1"].map(OsString::from);
        let asked = [(self.is_uncaptured, "--nocapture"), (self.shows_output, "--show-output")];
        let asked = asked.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, argument)| argument.into());
        only.into_iter().chain(self.ignored.iter().cloned()).chain(asked).collect()
    }

    /// Returns how many tests run at a time.
    pub(crate) fn threads(&self) -> usize {
        let variable = || env::var("RUST_TEST_THREADS").ok()?.parse().ok().filter(|&threads| threads > 0);
        let processors = || thread::available_parallelism().map_or(1, NonZero::get);
        self.threads.or_else(variable).unwrap_or_else(processors)
    }
}

const LIST: [&str; 2] = ["--list", "--format=terse"];

/// Returns whether a variable is set, by libtest's rule: `0` means unset.
fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value != "0")
}

#[cfg(test)]
mod tests {
    use super::TestArguments;
    use std::ffi::OsString;

    fn read(arguments: &[&str]) -> Option<TestArguments> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        TestArguments::read(&arguments)
    }

    #[test]
    fn each_test_gets_only_the_arguments_for_it() {
        let words = [
            "a::",
            "--skip",
            "b",
            "-q",
            "--nocapture",
            "--test-threads",
            "7",
            "--ignored",
            "--color",
            "always",
        ];
        let request = read(&words).unwrap();
        assert_eq!(request.to_list(), ["a::", "--skip=b", "--ignored", "--list", "--format=terse"]);
        assert_eq!(request.to_list_ignored(), None);
        assert_eq!(request.to_list_all().unwrap(), ["--list", "--format=terse"]);
        assert_eq!(
            request.to_run("a::c"),
            ["a::c", "--exact", "--test-threads=1", "--ignored", "--nocapture"]
        );
        assert_eq!((request.threads(), request.color), (7, Some(true)));
        assert_eq!(read(&["--include-ignored"]).unwrap().to_list_all(), None);
        assert_eq!(read(&["--shuffle"]), None);
        assert_eq!(read(&["--test-threads", "none"]), None);
        assert_eq!(read(&["--skip"]), None);
    }
}
