//! What is told of tests to other programs: lines of JSON and JUnit's XML. Cargo runs a binary after the other, and each
//! has a husk of its own: all of them add to the same files.

use crate::directory::Directory;
use crate::escape;
use crate::output::Unwritten;
use anyhow::{Context as _, Result};
use husk_hermetic::junit::Suite;
use husk_hermetic::{Attempt, Ended, Profile, Tested};
use rustix::fs::{FlockOperation, flock};
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub(crate) struct Report {
    binary: String,
    lines: Option<File>,
    /// The first line that could not be written is the last that was tried.
    written: Result<()>,
    junit: Option<(Document, Suite)>,
}

/// The file of JUnit's XML. Its directory is opened before a test could change the way there.
struct Document {
    path: PathBuf,
    directory: Directory,
    name: OsString,
}

impl Report {
    /// Of the tests of a profile's program, or a part of them.
    pub(crate) fn begin(
        profile: &Profile,
        shard: Option<(usize, usize)>,
        json: Option<&Path>,
        junit: Option<&Path>,
    ) -> Result<Self> {
        let open = |path: &Path| {
            let file = Directory::of(path).and_then(|(directory, name)| directory.append(&name));
            file.with_context(|| format!("open {}", path.display()))
        };
        let document = |path: &Path| {
            let (directory, name) =
                Directory::of(path).with_context(|| format!("open the directory of {}", path.display()))?;
            anyhow::Ok(Document { path: path.to_owned(), directory, name })
        };
        let binary = profile.args.first().map(PathBuf::from).unwrap_or_default();
        let file = binary.file_name().unwrap_or_default().to_string_lossy();
        let target = file.rsplit_once('-').map_or(&*file, |(name, _hash)| name);
        let name = match env::var("CARGO_PKG_NAME") {
            Ok(package) if package.replace('-', "_") != target => format!("{package}::{target}"),
            Ok(package) => package,
            Err(_) => target.to_owned(),
        };
        let id = shard.map_or(file.to_string(), |(part, parts)| format!("{file} {part}/{parts}"));
        let suite = Suite::new(name, id, husk_runtime::now());
        Ok(Self {
            lines: json.map(open).transpose()?,
            written: Ok(()),
            junit: junit.map(document).transpose()?.map(|document| (document, suite)),
            binary: binary.to_string_lossy().into_owned(),
        })
    }

    /// Adds how a test ended.
    pub(crate) fn add(&mut self, tested: &Tested) {
        if let Some((_, suite)) = &mut self.junit {
            suite.add(tested);
        }
        let Some(file) = self.lines.as_mut().filter(|_| self.written.is_ok()) else { return };
        let line = escape::json(line(&self.binary, tested).to_string());
        // At once, so that two that write at the same time do not mix.
        self.written = file.write_all((line + "\n").as_bytes()).context(Unwritten("JSON"));
    }

    /// Adds how a program ended that is one test, or that has to run all of its tests itself.
    pub(crate) fn add_program(&mut self, profile: &Profile, ended: &Ended) {
        let words = profile.args.iter().skip(1).map(|word| word.to_string_lossy());
        let words: Vec<_> = words.filter(|word| !word.starts_with('-')).collect();
        let name = if words.is_empty() { self.binary.clone() } else { words.join(" ") };
        if let Some((_, suite)) = &mut self.junit {
            suite.id = format!("{} {name}", suite.id);
        }
        let attempts = vec![Attempt { ended: ended.clone(), said: String::new() }];
        self.add(&Tested { name, mode: None, attempts, ignored: None });
    }

    /// Writes what is written at the end.
    pub(crate) fn finish(self) -> Result<()> {
        self.written?;
        let Some((document, suite)) = self.junit else { return Ok(()) };
        add_suite(&document, suite).with_context(|| document.path.display().to_string())
    }
}

/// Adds to a document. Whoever reads it meanwhile sees all of it, with the suite or without.
fn add_suite(document: &Document, suite: Suite) -> Result<()> {
    let Document { directory, name, .. } = document;
    // The directory and not the file, which will be another one. It is free again when it is closed.
    flock(directory, FlockOperation::LockExclusive).context("lock its directory")?;
    let before = directory.read(name).context("read it")?.unwrap_or_default();
    let document = suite.into_document(&before)?;
    directory.replace(name, &document).context(Unwritten("JUnit"))
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
    let Ended { status, wall, usage, leftovers, reached, .. } = &last.ended;
    serde_json::json!({
        "binary": binary,
        "test": tested.name,
        "verdict": verdict,
        "attempts": tested.attempts.len(),
        "status": status.to_string(),
        "limit": reached.map(|reached| reached.to_string()),
        "wall_ms": wall.as_secs_f64() * 1000.0,
        "cpu_ms": usage.cpu_micros as f64 / 1000.0,
        "peak_kib": usage.peak_kib,
        "left_running": leftovers.iter().map(|process| &process.command).collect::<Vec<_>>(),
        "output": if last.passed() { None } else { Some(&last.said) },
    })
}
