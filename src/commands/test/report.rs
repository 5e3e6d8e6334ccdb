//! Test reports: lines of JSON and JUnit XML for other programs, and a page for a browser. Cargo runs one binary after
//! another, each with its own husk, and all of them add to the same files. nextest runs many husks at a time, one for
//! each test.

use super::directory::Directory;
use crate::output::Unwritten;
use crate::output::escape;
use anyhow::{Context as _, Result};
use husk_hermetic::html::{Group, Run};
use husk_hermetic::junit::{Foreign, Suite};
use husk_hermetic::{Attempt, Denied, Ended, Explanation, Profile, Tested};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) struct Report {
    binary: String,
    /// Microseconds since 1970.
    began: u64,
    /// The name and the identifier of the program as a single test.
    test: String,
    id: String,
    lines: Option<File>,
    /// The first error. After it, no more lines are written.
    written: Result<()>,
    junit: Option<(Document, Suite)>,
    html: Option<(Document, Run)>,
}

/// The names of a program in its reports.
pub(crate) struct Named {
    binary: String,
    /// The name of the program as a single test.
    test: String,
    test_id: String,
    suite: String,
    id: String,
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
        Self { binary, test_id: format!("{id} {test}"), test, suite, id }
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
        Self { binary: path.to_string_lossy().into_owned(), test_id: test.clone(), test, suite, id }
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
enum Document {
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
        Named { binary, test, test_id, suite: name, id }: Named,
        Destinations { json, junit, html }: Destinations<'_>,
    ) -> Result<Self> {
        let stream = |path: &Path| {
            let stream = descriptor(path).map(duplicate).transpose();
            stream.with_context(|| format!("write to {}", path.display()))
        };
        let open = |path: &Path| {
            if let Some(stream) = stream(path)? {
                return Ok(stream);
            }
            let file = Directory::of(path).and_then(|(directory, name)| directory.append(&name));
            file.with_context(|| format!("open {}", path.display()))
        };
        let document = |path: &Path| {
            if let Some(stream) = stream(path)? {
                return Ok(Document::Stream(stream));
            }
            let (directory, name) =
                Directory::of(path).with_context(|| format!("open the directory of {}", path.display()))?;
            anyhow::Ok(Document::File { path: path.to_owned(), directory, name })
        };
        let now = husk_runtime::now();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let junit = junit.map(document).transpose()?;
        let html = html.map(document).transpose()?;
        Ok(Self {
            lines: json.map(open).transpose()?,
            written: Ok(()),
            began: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
            html: html.map(|html| (html, Run::new(name.clone(), id.clone(), now.clone()))),
            junit: junit.map(|junit| (junit, Suite::new(name, id, now))),
            binary,
            test,
            id: test_id,
        })
    }

    /// Adds the result of a test.
    pub(crate) fn add(&mut self, tested: &Tested) {
        if let Some((_, suite)) = &mut self.junit {
            suite.add(tested);
        }
        if let Some((_, run)) = &mut self.html {
            run.add(tested);
        }
        let Some(file) = self.lines.as_mut().filter(|_| self.written.is_ok()) else { return };
        let line = escape::json(line(&self.binary, tested).to_string());
        // Writes each line in one write, so that concurrent writers do not mix lines.
        self.written = write(file, &(line + "\n")).context(Unwritten("JSON"));
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
        self.add(&Tested { name, mode: None, attempts, ignored: None, explained });
    }

    /// Writes the reports that need all results, and how many tests were not begun. Returns the first error, including
    /// those of JSON lines.
    pub(crate) fn finish(self, not_run: usize) -> Result<()> {
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
    /// Writes a report. `with` adds this run to the previous content.
    fn write(self, what: &'static str, with: impl FnOnce(&str) -> Result<String, Foreign>) -> Result<()> {
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

fn line(binary: &str, tested: &Tested) -> serde_json::Value {
    let verdict = tested.verdict().word();
    let Some(last) = tested.attempts.last() else {
        return serde_json::json!({
            "binary": binary,
            "test": tested.name,
            "verdict": verdict,
            "attempts": 0,
            "why": tested.ignored,
        });
    };
    let Ended { status, wall, usage, remaining, .. } = &last.ended;
    let limits = last.ended.limits();
    serde_json::json!({
        "binary": binary,
        "test": tested.name,
        "verdict": verdict,
        "attempts": tested.attempts.len(),
        "cached": last.ended.is_cached(),
        "status": status.to_string(),
        "start_ms": last.start.as_secs_f64() * 1000.0,
        "limit": (!limits.is_empty()).then(|| limits.join("; ")),
        "wall_ms": wall.as_secs_f64() * 1000.0,
        "cpu_ms": usage.cpu_micros as f64 / 1000.0,
        "peak_kib": usage.peak_kib,
        "left_running": remaining.iter().map(|process| &process.command).collect::<Vec<_>>(),
        "denied": tested.explained.as_ref().map(|explained| explained.denied.iter().map(denial).collect::<Vec<_>>()),
        "passes_with": tested.explained.as_ref().and_then(Explanation::passing_options),
        "flaky_when_observed": tested.is_flaky_when_observed(),
        "not_explained": tested.explained.as_ref().and_then(|explained| explained.unavailable.as_ref()),
        "output": if last.passed() { None } else { Some(&last.said) },
    })
}

fn denial(denied: &Denied) -> serde_json::Value {
    let (what, subject) = denied.subject();
    let mut object = serde_json::json!({ "what": what, "option": denied.option() });
    if let Some((name, value)) = subject {
        object[name] = value.into();
    }
    object
}
