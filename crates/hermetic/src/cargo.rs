//! What cargo and nextest run in place of a test binary: a target runner.
//!
//! ```text
//!  cargo test     RUNNER target/debug/deps/NAME-HASH FILTER...     its tests are listed, each has a sandbox
//!  cargo bench    the same with --bench                            one sandbox for all: they are timed
//!  cargo nextest  ... --list, with NEXTEST_TEST_PHASE=list         as it is: only the list may be printed
//!                 ... --exact NAME, with NEXTEST_TEST_PHASE=run    one sandbox: it has one process a test
//!  rustdoc        RUNNER .../rust_out                              one sandbox: it is one test
//!  cargo run      RUNNER target/debug/NAME                         as it is: it is no test
//! ```

use crate::error::Error;
use crate::libtest::{Outcome, Request, Summary};
use crate::plan::Streams;
use crate::profile::{Access, Profile, Show};
use crate::run::{Ended, Loss, Machine, Run, explain};
use crate::sandbox::{Held, Sandbox, watch};
use husk_script::sys::Fd;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::{BTreeSet, VecDeque};
use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write};
use std::path::Path;
use std::time::Instant;

/// What a binary that cargo wants to run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Many tests.
    Tests,
    /// One test, or what has to be together.
    Test,
    /// No test.
    Other,
}

/// What the binary of a profile is.
#[must_use]
pub fn kind(profile: &Profile) -> Kind {
    let phase = env::var_os("NEXTEST_TEST_PHASE");
    kind_of(profile, phase.as_deref())
}

fn kind_of(profile: &Profile, phase: Option<&OsStr>) -> Kind {
    let binary = Path::new(profile.args.first().map_or(OsStr::new(""), |binary| binary));
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    let hash = name.rsplit_once('-').map_or("", |(_, hash)| hash);
    let has_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_dep = binary.parent().and_then(Path::file_name) == Some(OsStr::new("deps")) && has_hash;
    match phase {
        Some(phase) if phase == "list" => Kind::Other,
        Some(_) => Kind::Test,
        None if is_dep && Request::read(profile.args.get(1..).unwrap_or_default()).is_some() => Kind::Tests,
        None if is_dep || name.starts_with("rust_out") => Kind::Test,
        None => Kind::Other,
    }
}

/// What a test binary has to see that is not its working directory: itself, the libraries that it is told of,
/// and the directory that cargo gives to tests, which each of them finds as it was.
pub fn show(profile: &mut Profile) {
    let Some(directory) = profile.args.first().and_then(|binary| Path::new(binary).parent()) else { return };
    let tmp = directory.parent().and_then(Path::parent).map(|target| target.join("tmp"));
    let mut shown = vec![Show { path: directory.to_owned(), access: Access::Read }];
    let libraries = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let libraries = env::split_paths(&libraries).filter(|path| path.is_dir());
    shown.extend(libraries.map(|path| Show { path, access: Access::Read }));
    shown.extend(tmp.filter(|tmp| tmp.is_dir()).map(|path| Show { path, access: Access::Overlay }));
    // What was asked for counts.
    let is_asked = |path: &Path| profile.shown.iter().any(|asked| asked.path == path);
    shown.retain(|show| !is_asked(&show.path));
    profile.shown.extend(shown);
}

/// Which tests of a binary are run, and who hears of each.
pub struct Choice<'a> {
    /// One part of so many: the first is 1. Every test is in one of them.
    pub shard: Option<(usize, usize)>,
    /// Whether the first that fails is the last that is begun.
    pub fails_fast: bool,
    /// Hears how each test ended.
    pub record: &'a mut dyn FnMut(&str, &Ended),
}

/// How all tests of a binary ended.
#[derive(Debug)]
pub struct Tests {
    /// Whether none failed.
    pub success: bool,
    /// Where they were less isolated than is promised.
    pub losses: Vec<Loss>,
}

/// Runs each test of a binary in a sandbox of its own, as many at a time as there are processors, and writes
/// what libtest would write. `None` if the binary is none of libtest's.
///
/// # Errors
///
/// If a sandbox cannot be made, or nothing be written.
pub fn run_tests(
    profile: &Profile,
    how: Run,
    choice: &mut Choice<'_>,
    out: &mut dyn Write,
) -> Result<Option<Tests>, Error> {
    let Some(request) = Request::read(profile.args.get(1..).unwrap_or_default()) else { return Ok(None) };
    let mut machine = Machine::of(profile, how)?;
    let Some(mut names) = list(profile, request.to_list(), &mut machine)? else { return Ok(None) };
    if let Some((part, parts)) = choice.shard {
        let mut place = 0..;
        names.retain(|_| place.next().is_some_and(|place: usize| place % parts == part - 1));
    }
    let ignored: BTreeSet<_> = match request.to_list_ignored() {
        Some(arguments) => list(profile, arguments, &mut machine)?.unwrap_or_default().into_iter().collect(),
        None => BTreeSet::new(),
    };
    let summary = run_each(profile, &request, (names, &ignored), choice, &mut machine, out)?;
    Ok(Some(Tests { success: summary.success(), losses: machine.losses }))
}

/// The names of a binary's tests, if it tells them.
fn list(
    profile: &Profile,
    arguments: Vec<std::ffi::OsString>,
    machine: &mut Machine,
) -> Result<Option<Vec<String>>, Error> {
    let output = Output::new()?;
    let profile = with_arguments(profile, arguments);
    let ended = machine.run(&profile, output.streams())?;
    let text = output.read()?;
    if !ended.status.success() {
        return Ok(None);
    }
    let name = |line: &str| {
        let name = line.strip_suffix(": test").or_else(|| line.strip_suffix(": benchmark"));
        name.map(ToOwned::to_owned)
    };
    Ok(Some(text.lines().filter_map(name).collect()))
}

fn with_arguments(profile: &Profile, arguments: Vec<std::ffi::OsString>) -> Profile {
    let args = profile.args.iter().take(1).cloned().chain(arguments).collect();
    Profile { args, ..profile.clone() }
}

/// One test that runs.
struct Running {
    name: String,
    sandbox: Sandbox,
    output: Output,
}

fn run_each(
    profile: &Profile,
    request: &Request,
    (names, ignored): (Vec<String>, &BTreeSet<String>),
    choice: &mut Choice<'_>,
    machine: &mut Machine,
    out: &mut dyn Write,
) -> Result<Summary, Error> {
    let spawned = |error, plan: &_, host: &_| explain(error, plan, profile, host);
    let written = |reason| Error::Look { act: "write results".to_owned(), reason };
    let started = Instant::now();
    let mut summary = Summary::begin(names.len(), request, out).map_err(written)?;
    let (skipped, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| ignored.contains(name));
    for name in skipped {
        summary.tell(&name, Outcome::Ignored, out).map_err(written)?;
    }
    let mut waiting: VecDeque<_> = names.into();
    let mut running: Vec<Running> = Vec::new();
    // The one that is watched with nobody running is told apart by the loop's end.
    let held = Held::all().map_err(|error| Error::Step { origin: "signals".to_owned(), error })?;
    loop {
        while running.len() < request.threads()
            && !held.is_interrupted()
            && let Some(name) = waiting.pop_front()
        {
            let output = Output::new()?;
            let profile = with_arguments(profile, request.to_run(&name));
            let home = machine.home(&profile.limits)?;
            let streams = if request.captures() { output.streams() } else { Streams::Callers };
            let plan = machine.plan(&profile, streams)?;
            let sandbox = Sandbox::start(plan, &profile.limits, home);
            let sandbox = sandbox.map_err(|failed| spawned(failed.error, &failed.plan, &machine.host))?;
            running.push(Running { name, sandbox, output });
        }
        if running.is_empty() {
            break;
        }
        let watched = watch(running.iter_mut().map(|running| &mut running.sandbox), &held);
        let mut ended = watched.map_err(|error| Error::Step { origin: "tests".to_owned(), error })?;
        // From the last, so that the places of the others stay.
        while let Some((place, ended)) = ended.pop() {
            let Running { name, sandbox, output } = running.remove(place);
            let ended = ended.map_err(|error| spawned(error, sandbox.plan(), &machine.host))?;
            (choice.record)(&name, &ended);
            let outcome = outcome(&ended, output.read()?);
            if choice.fails_fast && matches!(outcome, Outcome::Failed { .. }) {
                waiting.clear();
            }
            summary.tell(&name, outcome, out).map_err(written)?;
        }
    }
    summary.finish(started.elapsed(), out).map_err(written)?;
    Ok(summary)
}

/// What became of a test, in words.
fn outcome(ended: &Ended, output: String) -> Outcome {
    let mut remarks: Vec<_> = ended.reached.iter().map(|reached| format!("killed: {reached}")).collect();
    let leftovers = ended.leftovers.iter();
    remarks.extend(leftovers.map(|process| format!("left running, and ended: {}", process.command)));
    if ended.status.success() {
        return Outcome::Passed { remarks };
    }
    // That a test failed is libtest's to say; how a process ended else is ours.
    if ended.reached.is_none() && ended.status.code() != Some(101) {
        remarks.push(ended.status.to_string());
    }
    Outcome::Failed { output, remarks }
}

/// What a program writes, in memory.
struct Output(File);

impl Output {
    fn new() -> Result<Self, Error> {
        let memory = memfd_create("output", MemfdFlags::CLOEXEC);
        let memory = memory
            .map_err(|errno| Error::Look { act: "make room for output".to_owned(), reason: errno.into() });
        Ok(Self(memory?.into()))
    }

    fn streams(&self) -> Streams {
        Streams::Captured(Fd::of(&self.0))
    }

    fn read(mut self) -> Result<String, Error> {
        let mut bytes = Vec::new();
        let read = self.0.rewind().and_then(|()| self.0.read_to_end(&mut bytes));
        read.map_err(|reason: io::Error| Error::Look { act: "read output".to_owned(), reason })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, kind_of};
    use crate::Profile;

    #[test]
    fn what_is_no_test_is_left_alone() {
        let kind = |args: &[&str], phase: Option<&str>| {
            let args = args.iter().map(Into::into).collect();
            kind_of(&Profile { args, ..Profile::default() }, phase.map(AsRef::as_ref))
        };
        let test = "/p/target/debug/deps/web-0123456789abcdef";
        assert_eq!(kind(&[test], None), Kind::Tests);
        assert_eq!(kind(&[test, "name", "--skip", "other", "--test-threads=3"], None), Kind::Tests);
        assert_eq!(kind(&[test, "--bench"], None), Kind::Test);
        assert_eq!(kind(&[test, "--list"], None), Kind::Test);
        assert_eq!(kind(&[test, "--format", "json"], None), Kind::Test);
        assert_eq!(kind(&[test, "--list", "--format", "terse"], Some("list")), Kind::Other);
        assert_eq!(kind(&[test, "--exact", "name", "--nocapture"], Some("run")), Kind::Test);
        assert_eq!(kind(&["/tmp/rustdoctestA/rust_out"], None), Kind::Test);
        assert_eq!(kind(&["target/debug/web"], None), Kind::Other);
        assert_eq!(kind(&["target/debug/deps/web"], None), Kind::Other);
    }
}
