//! Test reports: lines of JSON and JUnit XML for other programs, and a page for a browser. Cargo runs one binary after
//! another, each with its own husk, and all of them add to the same files. nextest runs many husks at a time, one for
//! each test.

use super::directory::Directory;
use crate::output::{Unwritten, escape};
use anyhow::{Context as _, Result};
use husk_hermetic::html::{Group, Run};
use husk_hermetic::junit::{Foreign, Suite};
use husk_hermetic::record::{self, Begin, End};
use husk_hermetic::{Attempt, Event, Explanation, Listed, Profile, Tested};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use serde_json::Value;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub(crate) struct Report {
    binary: String,
    suite: String,
    /// Microseconds since 1970.
    began: u64,
    /// The name and the identifier of the program as a single test.
    test: String,
    id: String,
    lines: Option<File>,
    since: Instant,
    /// The shard, if this is the report of one.
    shard: Option<Shard>,
    /// The first error. After it, no more lines are written.
    written: Result<()>,
    junit: Option<(Document, Suite)>,
    html: Option<(Document, Run)>,
}

/// The lines of a shard in the JSON report.
struct Shard {
    begin: Begin,
    is_listed: bool,
    /// The number of results.
    results: usize,
}

/// The names of a program in its reports.
pub(crate) struct Named {
    binary: String,
    /// The name of the program as a single test.
    test: String,
    test_id: String,
    pub(crate) suite: String,
    id: String,
    /// The identifier that all shards have.
    common_id: String,
    shard: Option<(usize, usize)>,
    /// The digest of the durations that divide the tests.
    pub(crate) durations: Option<u64>,
}

/// Returns a line with its end. It is written at once, so that concurrent writers do not mix lines.
pub(crate) fn in_one_line(value: &Value) -> String {
    escape::json(value.to_string()) + "\n"
}

impl Named {
    /// Returns the names of a test binary, or of one shard of its tests.
    pub(crate) fn binary(profile: &Profile, shard: Option<(usize, usize)>) -> Self {
        let path = profile.args.first().map(PathBuf::from).unwrap_or_default();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let target = file.rsplit_once('-').map_or(&*file, |(name, _hash)| name);
        let suite = match env::var("CARGO_PKG_NAME") {
            Ok(package) if package.replace('-', "_") != target => format!("{package}::{target}"),
            Ok(package) => package,
            Err(_) => target.to_owned(),
        };
        let id = shard.map_or(file.to_string(), |(part, parts)| format!("{file} {part}/{parts}"));
        let binary = path.to_string_lossy().into_owned();
        let words = profile.args.iter().skip(1).map(|word| word.to_string_lossy());
        let words: Vec<_> = words.filter(|word| !word.starts_with('-')).collect();
        let test = if words.is_empty() { binary.clone() } else { words.join(" ") };
        let (test_id, common_id) = (format!("{id} {test}"), file.to_string());
        Self { binary, test_id, test, suite, id, common_id, shard, durations: None }
    }

    /// Returns the names of any other program, or of one shard of its tests. As a test, it is named by its command line,
    /// which may be shortened.
    pub(crate) fn command(profile: &Profile, shard: Option<(usize, usize)>) -> Self {
        let path = profile.args.first().map(PathBuf::from).unwrap_or_default();
        let file = path.file_name().unwrap_or_default();
        let words = [file].into_iter().chain(profile.args.iter().skip(1).map(OsString::as_os_str));
        let test = shortened(words.map(husk_hermetic::quoted).collect::<Vec<_>>().join(" "));
        let suite = file.to_string_lossy().into_owned();
        let id = shard.map_or(test.clone(), |(part, parts)| format!("{test} {part}/{parts}"));
        let (binary, test_id) = (path.to_string_lossy().into_owned(), test.clone());
        Self { binary, test_id, suite, id, common_id: test.clone(), test, shard, durations: None }
    }
}

impl Named {
    /// Returns the names of several programs that print TAP.
    pub(crate) fn programs(profile: &Profile, shard: Option<(usize, usize)>) -> Self {
        Self { binary: "tap".to_owned(), suite: "tap".to_owned(), ..Self::command(profile, shard) }
    }
}

/// Shortens a name to a length that fits on a line.
fn shortened(name: String) -> String {
    const MOST: usize = 100;
    let name = name.replace(char::is_control, " ");
    match name.char_indices().nth(MOST) {
        Some((place, _)) => name.split_at(place).0.to_owned() + "…",
        None => name,
    }
}

/// The destinations of the reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destinations<'p> {
    pub(crate) json: Option<&'p Path>,
    pub(crate) junit: Option<&'p Path>,
    pub(crate) html: Option<&'p Path>,
}

/// The destination of a report that is written at the end.
pub(crate) enum Document {
    /// A file. Its directory is opened before tests run, so that they cannot redirect the path.
    File { path: PathBuf, directory: Directory, name: OsString },
    /// A descriptor from the caller, which receives a separate document.
    Stream(File),
}

/// Returns the open descriptor that a path names; `-` is standard output. The report is written to that
/// descriptor and the path is not opened. A socket could not be opened by its path, and a file would get a
/// separate position.
pub(crate) fn descriptor(path: &Path) -> Option<i32> {
    let number = match path.to_str()? {
        "-" | "/dev/stdout" => "1",
        "/dev/stderr" => "2",
        path => path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"))?,
    };
    number.parse().ok().filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the descriptor that a path names, if it names one.
fn stream(path: &Path) -> Result<Option<File>> {
    let stream = descriptor(path).map(duplicate).transpose();
    stream.with_context(|| format!("write to {}", path.display()))
}

/// Duplicates a descriptor of this process.
fn duplicate(number: i32) -> io::Result<File> {
    let duplicate = match number {
        0 => io::stdin().as_fd().try_clone_to_owned()?,
        1 => io::stdout().as_fd().try_clone_to_owned()?,
        2 => io::stderr().as_fd().try_clone_to_owned()?,
        // The owner of the number is unknown here, so no safe function can borrow it. In a container, an
        // engine's seccomp profile may forbid this call.
        _ => pidfd_getfd(pidfd_open(getpid(), PidfdFlags::empty())?, number, PidfdGetfdFlags::empty())?,
    };
    Ok(duplicate.into())
}

impl Report {
    /// Opens the reports.
    pub(crate) fn begin(
        Named { binary, test, test_id, suite: name, id, common_id, shard, durations }: Named,
        Destinations { json, junit, html }: Destinations<'_>,
    ) -> Result<Self> {
        let open = |path: &Path| {
            if let Some(stream) = stream(path)? {
                return Ok(stream);
            }
            let file = Directory::of(path).and_then(|(directory, name)| directory.append(&name));
            file.with_context(|| format!("open {}", path.display()))
        };
        let now = husk_runtime::now();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        let junit = junit.map(Document::open).transpose()?;
        let html = html.map(Document::open).transpose()?;
        let shard = shard.map(|shard| Shard {
            begin: Begin {
                run: format!("{:016x}", RandomState::new().hash_one(began)),
                suite: name.clone(),
                id: common_id,
                shard,
                began,
                timestamp: now.clone(),
                durations,
                listed: Listed { names: Vec::new(), all: 0, digest: 0 },
            },
            is_listed: false,
            results: 0,
        });
        Ok(Self {
            lines: json.map(open).transpose()?,
            written: Ok(()),
            began,
            since: Instant::now(),
            shard,
            suite: name.clone(),
            html: html.map(|html| (html, Run::new(name.clone(), id.clone(), now.clone()))),
            junit: junit.map(|junit| (junit, Suite::new(name, id, now))),
            binary,
            test,
            id: test_id,
        })
    }

    /// Returns the name of the suite.
    pub(crate) fn suite(&self) -> &str {
        &self.suite
    }

    /// Adds what a run of tests reports.
    pub(crate) fn record(&mut self, event: Event<'_>) {
        match event {
            Event::Listed(listed) => self.list(listed.clone()),
            Event::Tested(tested) => self.add(tested),
        }
    }

    /// Adds the list of the tests in this shard.
    fn list(&mut self, listed: Listed) {
        let Some(shard) = &mut self.shard else { return };
        shard.begin.listed = listed;
        shard.is_listed = true;
        let line = shard.begin.line();
        self.write_line(&line);
    }

    /// Adds the result of a test.
    fn add(&mut self, tested: &Tested) {
        if let Some((_, suite)) = &mut self.junit {
            suite.add(tested);
        }
        if let Some((_, run)) = &mut self.html {
            run.add(tested);
        }
        if self.lines.is_none() {
            return;
        }
        let shard = self.shard.as_mut().filter(|shard| shard.is_listed);
        let run = shard.map(|shard| {
            shard.results += 1;
            shard.begin.run.as_str()
        });
        let line = record::test_line(&self.binary, &self.suite, run, tested);
        self.write_line(&line);
    }

    fn write_line(&mut self, line: &Value) {
        let Some(file) = self.lines.as_mut().filter(|_| self.written.is_ok()) else { return };
        self.written = write(file, &in_one_line(line)).context(Unwritten("JSON"));
    }

    /// Lists a program that is a single test. It is in the first shard, so the lists of the others are empty.
    pub(crate) fn list_program(&mut self) {
        let is_here = self.shard.as_ref().is_some_and(|shard| shard.begin.shard.0 == 1);
        let names = if is_here { vec![self.test.clone()] } else { Vec::new() };
        let digest = husk_hermetic::digest([self.test.as_str()].into_iter());
        self.list(Listed { names, all: 1, digest });
    }

    /// Adds the result of a program that is a single test, or that must run all of its tests itself.
    pub(crate) fn add_program(&mut self, attempts: Vec<Attempt>, explained: Option<Explanation>) {
        let name = self.test.clone();
        if let Some((_, suite)) = &mut self.junit {
            suite.id.clone_from(&self.id);
        }
        if let Some((_, run)) = &mut self.html {
            match env::var("NEXTEST_RUN_ID") {
                Ok(name) => run.group = Some(Group { name, began: self.began }),
                Err(_) => run.id.clone_from(&self.id),
            }
        }
        self.add(&Tested { name, mode: None, attempts, ignored: None, explained, unit: None });
    }

    /// Writes the reports that need all results, and how many tests and which units were not begun. Returns the first
    /// error, including those of JSON lines.
    pub(crate) fn finish(mut self, not_run: usize, not_begun: Vec<String>) -> Result<()> {
        if let Some(Shard { begin, results, .. }) = self.shard.take().filter(|shard| shard.is_listed) {
            let wall = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
            let end = End { results, not_run, not_begun, wall };
            self.write_line(&end.line(&begin.run));
        }
        let Self { written, junit, html, .. } = self;
        let junit = junit.map_or(Ok(()), |(document, suite)| {
            document.write("JUnit", |before| suite.into_document(before))
        });
        let html = html.map_or(Ok(()), |(document, mut run)| {
            run.not_run = not_run;
            document.write("HTML", |before| run.into_page(before))
        });
        written.and(junit).and(html)
    }
}

impl Document {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if let Some(stream) = stream(path)? {
            return Ok(Self::Stream(stream));
        }
        let (directory, name) =
            Directory::of(path).with_context(|| format!("open the directory of {}", path.display()))?;
        Ok(Self::File { path: path.to_owned(), directory, name })
    }

    /// Writes a report. `with` adds this run to the previous content.
    pub(crate) fn write(
        self,
        what: &'static str,
        with: impl FnOnce(&str) -> Result<String, Foreign>,
    ) -> Result<()> {
        match self {
            Self::Stream(mut stream) => write(&mut stream, &with("")?).context(Unwritten(what)),
            Self::File { path, directory, name } => {
                replace(&directory, &name, what, with).with_context(|| path.display().to_string())
            }
        }
    }
}

/// Writes all of `text`. It is not an error if the reader of a pipe has closed its end.
fn write(file: &mut File, text: &str) -> io::Result<()> {
    match file.write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Replaces a document. Readers see it either with or without this run.
fn replace(
    directory: &Directory,
    name: &OsStr,
    what: &'static str,
    with: impl FnOnce(&str) -> Result<String, Foreign>,
) -> Result<()> {
    // Locks the directory, because the file is replaced. Closing the directory releases the lock.
    flock(directory, FlockOperation::LockExclusive).context("lock its directory")?;
    let before = directory.read(name).context("read")?.unwrap_or_default();
    let document = with(&before)?;
    directory.replace(name, &document).context(Unwritten(what))
}
