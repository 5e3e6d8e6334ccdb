//! libtest: what its binaries are asked, and what is written in its place.

use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZero;
use std::time::Duration;
use std::{env, thread};

/// What a test binary was asked for, as far as each of its tests can be run alone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// What chooses tests: names, `--exact`, `--skip`.
    choice: Vec<OsString>,
    /// What each test is told too.
    passed: Vec<OsString>,
    /// `--ignored`, `--include-ignored`.
    includes_ignored: bool,
    is_quiet: bool,
    is_uncaptured: bool,
    threads: Option<usize>,
}

impl Request {
    /// Reads arguments. `None` if there is one among them that is about all tests together.
    pub(crate) fn read(arguments: &[OsString]) -> Option<Self> {
        let mut request = Self::default();
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
                "--test" => {}
                "--exact" => request.choice.push(argument.clone()),
                "--skip" => request.choice.push(format!("--skip={}", value()?).into()),
                "--ignored" | "--include-ignored" => {
                    request.includes_ignored = true;
                    request.passed.push(argument.clone());
                }
                "--nocapture" | "--no-capture" => {
                    request.is_uncaptured = true;
                    request.passed.push(argument.clone());
                }
                "--show-output" | "--force-run-in-process" => request.passed.push(argument.clone()),
                "--color" => request.passed.push(format!("--color={}", value()?).into()),
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

    /// The arguments that have the tests listed that are asked for.
    pub(crate) fn to_list(&self) -> Vec<OsString> {
        let ignored = self.passed.iter().filter(|argument| argument.to_string_lossy().ends_with("ignored"));
        let list = ["--list", "--format=terse"].map(OsString::from);
        self.choice.iter().chain(ignored).cloned().chain(list).collect()
    }

    /// The arguments that have those listed that are not to be run, if there may be any.
    pub(crate) fn to_list_ignored(&self) -> Option<Vec<OsString>> {
        let with = |mut arguments: Vec<OsString>| {
            arguments.push("--ignored".into());
            arguments
        };
        (!self.includes_ignored).then(|| with(self.to_list()))
    }

    /// The arguments that have one test run.
    pub(crate) fn to_run(&self, name: &str) -> Vec<OsString> {
        let only = [name, "--exact", "--test-threads=1"].map(OsString::from);
        only.into_iter().chain(self.passed.iter().cloned()).collect()
    }

    /// Whether what tests write is kept until they fail.
    pub(crate) fn captures(&self) -> bool {
        !self.is_uncaptured
    }

    /// How many tests run at a time.
    pub(crate) fn threads(&self) -> usize {
        let variable = || env::var("RUST_TEST_THREADS").ok()?.parse().ok().filter(|&threads| threads > 0);
        let processors = || thread::available_parallelism().map_or(1, NonZero::get);
        self.threads.or_else(variable).unwrap_or_else(processors)
    }
}

/// What became of a test.
pub(crate) enum Outcome {
    Passed { remarks: Vec<String> },
    Ignored,
    Failed { output: String, remarks: Vec<String> },
}

/// The results of a binary, as libtest writes them.
pub(crate) struct Summary {
    is_quiet: bool,
    passed: usize,
    ignored: usize,
    /// Each with what it wrote.
    failed: Vec<(String, String)>,
}

impl Summary {
    pub(crate) fn begin(tests: usize, request: &Request, out: &mut dyn Write) -> io::Result<Self> {
        let plural = if tests == 1 { "" } else { "s" };
        writeln!(out, "\nrunning {tests} test{plural}")?;
        Ok(Self { is_quiet: request.is_quiet, passed: 0, ignored: 0, failed: Vec::new() })
    }

    pub(crate) fn tell(&mut self, name: &str, outcome: Outcome, out: &mut dyn Write) -> io::Result<()> {
        let (word, letter, remarks) = match outcome {
            Outcome::Passed { remarks } => {
                self.passed += 1;
                ("ok", ".", remarks)
            }
            Outcome::Ignored => {
                self.ignored += 1;
                ("ignored", "i", Vec::new())
            }
            Outcome::Failed { output, remarks } => {
                let mut text = said(name, &output).to_owned();
                for remark in &remarks {
                    text.push_str(&format!("husk: {remark}\n"));
                }
                self.failed.push((name.to_owned(), text));
                ("FAILED", "F", remarks)
            }
        };
        if self.is_quiet {
            write!(out, "{letter}")?;
        } else {
            let remarks =
                if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join("; ")) };
            writeln!(out, "test {name} ... {word}{remarks}")?;
        }
        out.flush()
    }

    pub(crate) fn finish(&self, took: Duration, out: &mut dyn Write) -> io::Result<()> {
        if self.is_quiet {
            writeln!(out)?;
        }
        if !self.failed.is_empty() {
            writeln!(out, "\nfailures:\n")?;
            for (name, text) in &self.failed {
                writeln!(out, "---- {name} stdout ----\n{text}\n")?;
            }
            writeln!(out, "\nfailures:")?;
            for (name, _) in &self.failed {
                writeln!(out, "    {name}")?;
            }
        }
        let word = if self.success() { "ok" } else { "FAILED" };
        let (passed, failed, ignored) = (self.passed, self.failed.len(), self.ignored);
        writeln!(
            out,
            "\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; 0 filtered out; \
             finished in {:.2}s\n",
            took.as_secs_f64()
        )?;
        out.flush()
    }

    pub(crate) fn success(&self) -> bool {
        self.failed.is_empty()
    }
}

/// What a test said itself, of all that its process wrote: all of it, if that did not come to its end.
fn said<'o>(name: &str, output: &'o str) -> &'o str {
    let begin = format!("---- {name} stdout ----\n");
    let own = output.split_once(&begin).and_then(|(_, rest)| rest.rsplit_once("\n\nfailures:\n"));
    own.map_or(output, |(said, _)| said)
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Request, Summary, said};
    use std::ffi::OsString;
    use std::time::Duration;

    fn read(arguments: &[&str]) -> Option<Request> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        Request::read(&arguments)
    }

    #[test]
    fn each_test_is_told_what_concerns_it() {
        let request =
            read(&["a::", "--skip", "b", "-q", "--nocapture", "--test-threads", "7", "--ignored"]).unwrap();
        assert_eq!(request.to_list(), ["a::", "--skip=b", "--ignored", "--list", "--format=terse"]);
        assert_eq!(request.to_list_ignored(), None);
        assert_eq!(
            request.to_run("a::c"),
            ["a::c", "--exact", "--test-threads=1", "--nocapture", "--ignored"]
        );
        assert_eq!((request.threads(), request.captures()), (7, false));
        assert_eq!(read(&["--shuffle"]), None);
        assert_eq!(read(&["--test-threads", "none"]), None);
        assert_eq!(read(&["--skip"]), None);
    }

    #[test]
    fn what_a_test_said_is_told_apart() {
        let output = "running 1 test\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\nhello\n\n\nfailures:\n    a\n\n";
        assert_eq!(said("a", output), "hello\n");
        assert_eq!(said("a", "killed on the way"), "killed on the way");
    }

    #[test]
    fn results_are_written_as_libtest_writes_them() {
        let mut out = Vec::new();
        let mut summary = Summary::begin(3, &Request::default(), &mut out).unwrap();
        let remarks = vec!["killed: time".to_owned()];
        summary.tell("a", Outcome::Passed { remarks: Vec::new() }, &mut out).unwrap();
        summary.tell("b", Outcome::Ignored, &mut out).unwrap();
        summary.tell("c", Outcome::Failed { output: "said\n".to_owned(), remarks }, &mut out).unwrap();
        summary.finish(Duration::from_millis(1230), &mut out).unwrap();
        let wanted = "\nrunning 3 tests\ntest a ... ok\ntest b ... ignored\ntest c ... FAILED (killed: time)\n\nfailures:\n
---- c stdout ----\nsaid\nhusk: killed: time\n\n\n\nfailures:\n    c\n
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.23s\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
