//! Adapters to other test tools: how to list their tests, how to run some of them alone, and how to read the results.
//!
//! ```text
//!            lists                            a sandbox for each            reads
//!  pytest    collects with a plugin           file, or test                 what the plugin writes
//!  go test   builds and copies each binary,   test, or package              the marked lines of -test.v=test2json
//!            then asks each for its tests
//!  TAP       nothing                          program                       standard output
//! ```
//!
//! An adapter starts no programs. It describes [units](Unit), the [runner](crate::runner) runs
//! each in a sandbox, and the adapter reads the output. Tests run in the same process as the plugin or the marked lines,
//! so a hostile test can forge its result, as it can outside of a sandbox.

pub(crate) mod go;
pub(crate) mod pytest;
pub(crate) mod tap;

use crate::profile::{OwnFile, Profile, Show, Variable};
use crate::sandbox::ended::Ended;
use std::env;
use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;
use std::time::Duration;

/// The directory of a unit's own files in the sandbox.
pub(crate) const OWN: &str = "/run/husk";

/// Lists tests and reads their results.
pub(crate) trait Adapter {
    /// Returns the name of the format that it reads.
    fn format(&self) -> &'static str;

    /// Returns a random text in the variables of its units, by which it recognizes their messages.
    fn token(&self) -> Option<&str> {
        None
    }

    /// Returns the first units to run.
    fn begin(&self) -> Vec<Unit>;

    /// Changes the profile of a unit so that its program prints what people read.
    fn show_to_people(&self, _profile: &mut Profile) {}

    /// Reads the output of a unit. An observed run is read again, so the result depends only on the arguments.
    fn read(&self, unit: &Unit, ended: &Ended, output: &Output) -> Reading;
}

/// The output of a unit's process.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Standard output, and standard error unless the unit [splits](Unit::splits) them.
    pub(crate) out: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

impl Output {
    /// Returns everything, for people.
    pub(crate) fn text(&self) -> String {
        lossy(&self.out) + &lossy(&self.errors)
    }
}

/// The purpose of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// It lists tests. No test starts before all lists are complete.
    List,
    #[default]
    Test,
}

/// Something that runs in a sandbox of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    /// The name of the test, or of the file, package or program that holds several.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) args: Vec<OsString>,
    /// The working directory, if it is not the caller's.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) env: Vec<Variable>,
    pub(crate) files: Vec<OwnFile>,
    pub(crate) shown: Vec<Show>,
    /// Whether standard error is kept apart from standard output.
    pub(crate) splits: bool,
    /// The names of the tests that it is expected to run. A single test may be left out.
    pub(crate) tests: Vec<String>,
}

impl Unit {
    /// Returns the profile of this unit. `profile` is that of the whole command.
    pub(crate) fn profile(&self, profile: &Profile) -> Profile {
        let mut profile = profile.clone();
        profile.args.clone_from(&self.args);
        profile.env.extend(self.env.iter().cloned());
        profile.shown.extend(self.shown.iter().cloned());
        profile.files.extend(self.files.iter().cloned());
        if self.directory.is_some() {
            profile.directory.clone_from(&self.directory);
        }
        profile
    }

    /// Returns how many results are expected.
    pub(crate) fn count(&self) -> usize {
        match self.role {
            Role::List => 0,
            Role::Test => self.tests.len().max(1),
        }
    }
}

/// The results of a unit, or the tests that it has listed.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) parts: Vec<Part>,
    /// Units to run, found by a list.
    pub(crate) found: Vec<Unit>,
    /// The number of tests that it should have run, and did not begin.
    pub(crate) not_run: usize,
}

impl Reading {
    /// Returns whether a unit ended in this way only because its tests passed.
    pub(crate) fn is_clear_pass(&self, role: Role, ended: &Ended) -> bool {
        let is_failed = self.parts.iter().any(|part| part.is_failed(ended));
        let is_skipped = |part: &Part| matches!(part.outcome, Outcome::Skipped(_));
        // Nothing speaks for a unit whose tests were all skipped.
        let has_result = role == Role::List || !self.parts.iter().all(is_skipped);
        ended.status.success() && !is_failed && has_result && self.not_run == 0
    }
}

/// The result of one test of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// libtest's note on the kind of test.
    pub(crate) mode: Option<String>,
    /// Its output.
    pub(crate) said: String,
    /// How long it took, if the tool says so.
    pub(crate) wall: Option<Duration>,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As the exit status says.
    Status,
    Passed,
    Failed,
    /// It was not run, or its failure was expected. The text is the reason.
    Skipped(Option<String>),
}

impl Part {
    pub(crate) fn new(name: String, outcome: Outcome, said: String) -> Self {
        Self { name, outcome, mode: None, said, wall: None }
    }

    /// Returns the result of a test during which the process ended.
    pub(crate) fn unfinished(mut self, ended: &Ended, said: &str) -> Self {
        self.outcome = if ended.status.success() { Outcome::Failed } else { Outcome::Status };
        self.said += said;
        self
    }

    pub(crate) fn is_failed(&self, ended: &Ended) -> bool {
        match self.outcome {
            Outcome::Status => !ended.status.success(),
            Outcome::Failed => true,
            Outcome::Passed | Outcome::Skipped(_) => false,
        }
    }
}

/// Adds a failure of the whole unit if its process failed and none of its tests explains that.
pub(crate) fn with_status(mut parts: Vec<Part>, unit: &Unit, ended: &Ended, output: &Output) -> Vec<Part> {
    if !ended.status.success() && !parts.iter().any(|part| part.is_failed(ended)) {
        // A unit of one test has the same name as its test.
        parts.retain(|part| part.name != unit.name);
        parts.push(Part::new(unit.name.clone(), Outcome::Status, output.text()));
    }
    parts
}

/// The tests that share a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Each {
    /// Those of a file for pytest, of a program for TAP, and none for go.
    Usual,
    Test,
    File,
    Package,
}

/// A command whose tests an adapter can list.
pub struct Suite {
    adapter: Box<dyn Adapter>,
    /// The noun for the units that the heading counts.
    pub(crate) noun: &'static str,
    #[expect(dead_code, reason = "it is removed with the suite")]
    scratch: Option<go::Scratch>,
}

impl Suite {
    /// Returns the suite of a profile's command. TAP is read from the whole command, or with `each` from each of its words
    /// as a program.
    ///
    /// # Errors
    ///
    /// If no adapter fits the command, or the directory for test binaries cannot be created.
    pub fn of(profile: &Profile, each: Option<Each>, is_tap: bool) -> Result<Self, String> {
        let args = &profile.args;
        let suite = |adapter: Box<dyn Adapter>, noun| Self { adapter, noun, scratch: None };
        if is_tap {
            let programs = match each {
                None => vec![args.clone()],
                Some(Each::Usual | Each::File) => {
                    args.iter().map(|program| vec![tap::here(program)]).collect()
                }
                Some(_) => {
                    return Err(
                        "--each with --tap gives each program a sandbox; leave out its value".to_owned()
                    );
                }
            };
            return Ok(suite(Box::new(tap::Tap { programs }), "program"));
        }
        let each = each.unwrap_or(Each::Usual);
        if pytest::is_pytest(args) {
            let each = match each {
                Each::Usual => Each::File,
                Each::Package => {
                    return Err("--each=package is for 'go test'; use --each=file or --each=test".to_owned());
                }
                each => each,
            };
            let (path, plugins) = (value(profile, "PYTHONPATH"), value(profile, "PYTEST_PLUGINS"));
            let token = format!("{:016x}", RandomState::new().build_hasher().finish());
            return Ok(suite(
                Box::new(pytest::Pytest { args: args.clone(), each, token, path, plugins }),
                "test",
            ));
        }
        if go::is_go(args) {
            if profile.image.is_some() {
                return Err(
                    "--each with 'go test' needs the host's files; leave out --rootfs or --image".to_owned()
                );
            }
            if !profile.inputs.is_empty() {
                return Err(
                    "--each with 'go test' needs the toolchain and its caches, which --inputs hides; \
                            leave out --inputs"
                        .to_owned(),
                );
            }
            let each = match each {
                Each::Usual => Each::Test,
                Each::File => {
                    return Err("--each=file is for pytest; use --each=package or --each=test".to_owned());
                }
                each => each,
            };
            let scratch =
                go::Scratch::new().map_err(|error| format!("make a directory for test binaries: {error}"))?;
            let adapter = Box::new(go::Go { args: args.clone(), each, scratch: scratch.0.clone() });
            return Ok(Self { scratch: Some(scratch), ..suite(adapter, "test") });
        }
        Err("--each needs a command that runs pytest or 'go test', or with --tap programs that print TAP"
            .to_owned())
    }

    pub(crate) fn adapter(&self) -> &dyn Adapter {
        &*self.adapter
    }
}

/// Returns the value of a variable in the sandbox.
fn value(profile: &Profile, name: &str) -> OsString {
    let asked = profile.env.iter().rev().find_map(|variable| match variable {
        Variable::Set(known, value) if known == name => Some(value.clone()),
        _ => None,
    });
    asked.or_else(|| env::var_os(name)).unwrap_or_default()
}

/// Replaces control characters, which would disturb lines of results.
pub(crate) fn printable(name: &str) -> String {
    name.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Each, Suite};
    use crate::{Image, Profile};

    #[test]
    fn adapter_follows_from_the_command() {
        let suite = |words: &[&str], each, is_tap| {
            let args = words.iter().map(Into::into).collect();
            Suite::of(&Profile { args, ..Profile::default() }, each, is_tap).map(|suite| suite.noun)
        };
        for words in [
            &["pytest"] as &[_],
            &["/bin/py.test", "-q"],
            &["python3", "-m", "pytest"],
            &["uv", "run", "pytest"],
        ] {
            assert_eq!(suite(words, Some(Each::Usual), false), Ok("test"), "{words:?}");
        }
        assert_eq!(suite(&["go", "test", "./..."], Some(Each::Package), false), Ok("test"));
        assert_eq!(suite(&["./a.t"], None, true), Ok("program"));
        for (words, each) in [
            (&["go", "build"] as &[_], Each::Usual),
            (&["make", "test"], Each::Test),
            (&["pytest-watch"], Each::Usual),
            (&["pytest"], Each::Package),
            (&["go", "test"], Each::File),
        ] {
            assert!(suite(words, Some(each), false).is_err(), "{words:?}");
        }
        assert!(suite(&["./a.t"], Some(Each::Test), true).is_err());
        let (image, args) = (Some(Image::of("/image".into())), vec!["go".into(), "test".into()]);
        let profile = Profile { args, image, ..Profile::default() };
        assert!(Suite::of(&profile, Some(Each::Usual), false).is_err());
    }
}
