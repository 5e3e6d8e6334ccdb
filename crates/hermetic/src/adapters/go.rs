//! `go test`: go itself builds the test binaries and reads its arguments. In place of each binary it starts a script,
//! which copies the binary and notes its arguments. Then each binary lists its tests.
//!
//! ```text
//!  go test -count=1 -exec 'sh /run/husk/go-test' ARGUMENTS...      builds, and vets, as go does
//!  BINARY -test.list=REGEX                                         lists tests, examples and fuzz targets
//!  BINARY -test.v=test2json -test.run=^NAME$ ARGUMENTS...          runs one, in the package's directory
//! ```
//!
//! With `-test.v=test2json` a control character marks go's own lines, so a test's output cannot look like them by
//! accident.

use super::{Adapter, Each, OWN, Outcome, Output, Part, Reading, Role, Unit, lossy, printable, with_status};
use crate::explain::words::quoted;
use crate::profile::{OwnFile, PathAccess, Profile, Show};
use crate::sandbox::ended::Ended;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, open, openat, statat};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, process};

/// The flag that marks go's own lines.
const MARKED: &str = "-test.v=test2json";

/// A `go test`.
pub(crate) struct Go {
    pub(crate) args: Vec<OsString>,
    pub(crate) each: Each,
    /// The directory of the test binaries.
    pub(crate) scratch: PathBuf,
}

/// A directory for the test binaries, which is removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> io::Result<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = env::temp_dir().join(format!("husk-{}-{now}", process::id()));
        // Fails if anything has that name, so nobody else can own it.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(fs::canonicalize(path)?))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        husk_script::sys::tolerate(fs::remove_dir_all(&self.0), "it is temporary");
    }
}

/// Returns whether a command is `go test`.
pub(crate) fn is_go(args: &[OsString]) -> bool {
    let is_go = args.first().is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new("go")));
    is_go && args.get(1).is_some_and(|verb| verb == "test")
}

/// Returns the script that go starts in place of a test binary. Reading the scratch directory back must not depend on
/// what a package prints, so each value has a file of its own.
fn script(scratch: &Path) -> String {
    format!(
        "set -e\n\
         directory=$(mktemp -d {}/XXXXXXXX)\n\
         cp \"$1\" \"$directory/test\"\n\
         go version -m \"$1\" | sed -n 's/^\\tpath\\t//p' | sed 's/\\.test$//' > \"$directory/package\"\n\
         shift\n\
         pwd > \"$directory/directory\"\n\
         for word; do printf '%s\\000' \"$word\"; done > \"$directory/arguments\"\n",
        quoted(scratch.as_os_str())
    )
}

/// A test binary, and how go would start it.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    path: PathBuf,
    package: String,
    directory: PathBuf,
    args: Vec<OsString>,
}

impl Binary {
    /// Reads what the script has written. Everything that go has started could write there too, so only regular files
    /// count, and a binary must not be a link to a file that the sandbox hides.
    fn read(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = open(directory, flags, Mode::empty())?;
        let line = |name: &str| {
            let mut bytes = read_regular(&opened, name)?;
            bytes.truncate(bytes.trim_ascii_end().len());
            Ok::<_, io::Error>(bytes)
        };
        let binary = statat(&opened, "test", AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(binary.st_mode) != FileType::RegularFile || binary.st_nlink != 1 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let arguments = read_regular(&opened, "arguments")?;
        let arguments = arguments.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
        let mut args: Vec<_> = arguments.collect();
        args.pop();
        Ok(Self {
            path: directory.join("test"),
            package: printable(&lossy(&line("package")?)),
            directory: PathBuf::from(OsString::from_vec(line("directory")?)),
            args,
        })
    }

    /// Returns the value of a flag of the test binary.
    fn flag(&self, name: &str) -> Option<&str> {
        let flag = format!("-test.{name}=");
        self.args.iter().rev().find_map(|word| word.to_str()?.strip_prefix(&flag))
    }

    /// Returns a flag that concerns all tests of the package together.
    fn shared(&self) -> Option<&'static str> {
        const SHARED: [&str; 9] = [
            "bench",
            "fuzz",
            "list",
            "coverprofile",
            "cpuprofile",
            "memprofile",
            "blockprofile",
            "mutexprofile",
            "trace",
        ];
        SHARED.into_iter().find(|name| self.flag(name).is_some_and(|value| !value.is_empty()))
    }

    /// Returns the arguments without those that go uses for itself and those that say which tests to run.
    fn others(&self) -> impl Iterator<Item = OsString> + '_ {
        const OURS: [&str; 5] = ["run", "v", "list", "testlogfile", "gocoverdir"];
        let is_ours = |word: &OsString| {
            let name = word.to_str().and_then(|word| word.strip_prefix("-test."));
            name.is_some_and(|name| OURS.contains(&name.split('=').next().unwrap_or_default()))
        };
        self.args.iter().filter(move |word| !is_ours(word)).cloned()
    }

    fn unit(&self, name: String, role: Role, flags: &[String]) -> Unit {
        let args = [self.path.clone().into_os_string()].into_iter().chain(flags.iter().map(OsString::from));
        Unit {
            name,
            role,
            args: args.chain(self.others()).collect(),
            directory: Some(self.directory.clone()),
            shown: vec![Show { path: self.path.clone(), access: PathAccess::Read }],
            ..Unit::default()
        }
    }
}

/// Reads a regular file of limited size.
fn read_regular(directory: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    const MOST: u64 = 1 << 20;
    // Without `NONBLOCK`, opening a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Go {
    /// Reads the output of go, and the binaries that the script has copied.
    fn built(&self, unit: &Unit, ended: &Ended, output: &Output) -> Reading {
        let directories = fs::read_dir(&self.scratch).into_iter().flatten().flatten();
        // A directory is incomplete if the script has failed, which go reports.
        let binaries = directories.filter_map(|directory| Binary::read(&directory.path()).ok());
        let mut binaries: Vec<_> = binaries.collect();
        binaries.sort_by(|one, other| one.package.cmp(&other.package));
        let text = output.text();
        let mut parts = if ended.status.success() { Vec::new() } else { failures(&text) };
        if let Some(flag) = binaries.iter().find_map(Binary::shared) {
            let why =
                format!("husk: with -{flag}, all tests of a package run in one process; leave out --each\n");
            parts.push(Part::new(unit.name.clone(), Outcome::Failed, why));
            binaries.clear();
        }
        let found = binaries.iter().map(|binary| {
            let pattern = binary.flag("run").map_or(".".to_owned(), |run| Pattern::read(run).tests());
            let flags = [format!("-test.list={pattern}")];
            Unit { splits: true, ..binary.unit(binary.package.clone(), Role::List, &flags) }
        });
        Reading {
            found: found.collect(),
            parts: with_status(parts, unit, ended, output),
            ..Reading::default()
        }
    }

    /// Reads the names that a binary has listed.
    fn listed(&self, unit: &Unit, binary: &Binary, ended: &Ended, output: &Output) -> Reading {
        let parts = with_status(Vec::new(), unit, ended, output);
        if !parts.is_empty() {
            return Reading { parts, ..Reading::default() };
        }
        let text = lossy(&output.out);
        let names: Vec<_> = text.lines().filter(|line| is_test(line)).collect();
        let full = |name: &str| format!("{}.{name}", binary.package);
        let run = binary.flag("run").unwrap_or_default();
        let pattern = Pattern::read(run);
        let rest = pattern.rest();
        let marked = MARKED.to_owned();
        let found = match rest.filter(|_| self.each != Each::Package) {
            Some(rest) => {
                let unit = |name: &&str| {
                    let flags = [marked.clone(), format!("-test.run=^{name}${rest}")];
                    Unit { tests: vec![full(name)], ..binary.unit(full(name), Role::Test, &flags) }
                };
                names.iter().map(unit).collect()
            }
            None if names.is_empty() => Vec::new(),
            None => {
                let flags: Vec<_> = [marked]
                    .into_iter()
                    .chain(binary.flag("run").map(|run| format!("-test.run={run}")))
                    .collect();
                let tests = names.iter().map(|name| full(name)).collect();
                vec![Unit { tests, ..binary.unit(binary.package.clone(), Role::Test, &flags) }]
            }
        };
        Reading { found, ..Reading::default() }
    }
}

impl Adapter for Go {
    fn format(&self) -> &'static str {
        "go"
    }

    fn begin(&self) -> Vec<Unit> {
        let ours = ["-count=1".to_owned(), format!("-exec=sh {OWN}/go-test")].map(OsString::from);
        let (before, after) = self.args.split_at(2.min(self.args.len()));
        // Later flags take precedence. These would change go's output, which the adapter reads.
        let mut is_gos = true;
        let after = after.iter().filter(|word| {
            is_gos &= *word != "-args" && *word != "--args";
            !is_gos || !["-json", "--json", "-json=true"].iter().any(|json| *word == json)
        });
        vec![Unit {
            name: "go test".to_owned(),
            role: Role::List,
            args: before.iter().cloned().chain(ours).chain(after.cloned()).collect(),
            files: vec![OwnFile { name: "go-test".to_owned(), text: script(&self.scratch) }],
            shown: vec![Show { path: self.scratch.clone(), access: PathAccess::Write }],
            ..Unit::default()
        }]
    }

    fn show_to_people(&self, profile: &mut Profile) {
        for word in profile.args.iter_mut().filter(|word| *word == MARKED) {
            *word = "-test.v".into();
        }
    }

    fn read(&self, unit: &Unit, ended: &Ended, output: &Output) -> Reading {
        let directory = unit.args.first().and_then(|binary| Path::new(binary).parent());
        match (unit.role, directory.map(Binary::read)) {
            (Role::List, Some(Ok(binary))) => self.listed(unit, &binary, ended, output),
            (Role::List, _) => self.built(unit, ended, output),
            (Role::Test, _) => {
                let parts = results(unit, ended, &output.out);
                let is_begun = |name: &&String| parts.iter().any(|part| part.name == **name);
                // Without a failure, -skip has left them out.
                let missing = unit.tests.iter().filter(|name| !is_begun(name)).count();
                let not_run = if ended.status.success() || unit.tests.len() == 1 { 0 } else { missing };
                Reading { parts: with_status(parts, unit, ended, output), not_run, ..Reading::default() }
            }
        }
    }
}

/// Returns whether a line of a list names something that `-test.run` runs. Benchmarks are listed too.
fn is_test(name: &str) -> bool {
    let rest = ["Test", "Example", "Fuzz"].iter().find_map(|prefix| name.strip_prefix(prefix));
    rest.is_some_and(|rest| {
        !rest.starts_with(char::is_lowercase)
            && rest.chars().all(|char| char.is_alphanumeric() || char == '_')
    })
}

/// Returns the packages that could not be built or whose tests go could not start, as go reports them.
fn failures(text: &str) -> Vec<Part> {
    let is_about = |line: &str| {
        ["ok", "FAIL", "?", "---"].iter().any(|word| line.split_whitespace().next() == Some(word))
    };
    let section = |package: &str| {
        let begins = |line: &str| {
            line.strip_prefix("# ").is_some_and(|rest| rest.split([' ', '\n']).next() == Some(package))
        };
        let mut is_in = false;
        let lines = text.split_inclusive('\n').filter(|line| {
            is_in = if line.starts_with("# ") { begins(line) } else { is_in && !is_about(line) };
            is_in
        });
        lines.collect::<String>()
    };
    let failed = text.lines().filter_map(|line| line.strip_prefix("FAIL\t")?.split_whitespace().next());
    let part = |package: &str| {
        let said = section(package);
        let said = if said.is_empty() { text.to_owned() } else { said };
        Part::new(printable(package), Outcome::Failed, said)
    };
    failed.map(part).collect()
}

/// A regular expression of `-run`: alternatives, each with an element for every level of subtests.
struct Pattern(Vec<Vec<String>>);

impl Pattern {
    /// Splits a pattern as go does (testing/match.go, `splitRegexp`).
    fn read(pattern: &str) -> Self {
        let (mut alternatives, mut sets, mut groups) = (vec![vec![String::new()]], 0usize, 0usize);
        let mut chars = pattern.chars();
        while let Some(char) = chars.next() {
            let Some(elements) = alternatives.last_mut() else { break };
            let is_outside = sets == 0 && groups == 0;
            match char {
                '/' if is_outside => {
                    elements.push(String::new());
                    continue;
                }
                '|' if is_outside => {
                    alternatives.push(vec![String::new()]);
                    continue;
                }
                '[' => sets += 1,
                ']' => sets = sets.saturating_sub(1),
                '(' if sets == 0 => groups += 1,
                ')' if sets == 0 => groups = groups.saturating_sub(1),
                _ => {}
            }
            let escaped = if char == '\\' { chars.next() } else { None };
            if let Some(element) = elements.last_mut() {
                element.extend([char].into_iter().chain(escaped));
            }
        }
        Self(alternatives)
    }

    /// Returns the regular expression for tests, without subtests.
    fn tests(&self) -> String {
        let firsts = self.0.iter().filter_map(|elements| elements.first());
        firsts.map(|first| format!("(?:{first})")).collect::<Vec<_>>().join("|")
    }

    /// Returns what follows a test's name to select its subtests. `None` if that depends on the test.
    fn rest(&self) -> Option<String> {
        match self.0.as_slice() {
            [elements] => Some(elements.iter().skip(1).map(|element| format!("/{element}")).collect()),
            many => many.iter().all(|elements| elements.len() == 1).then(String::new),
        }
    }
}

/// Returns the results in the output of a test binary.
fn results(unit: &Unit, ended: &Ended, output: &[u8]) -> Vec<Part> {
    let package =
        unit.tests.first().and_then(|name| name.rsplit_once('.')).map_or("", |(package, _)| package);
    let mut parts: Vec<(Part, bool)> = Vec::new();
    let mut current = None;
    let text = lossy(output);
    for (index, chunk) in text.split('\x16').enumerate() {
        let (line, said) =
            if index == 0 { ("", chunk) } else { chunk.split_once('\n').unwrap_or((chunk, "")) };
        let line = line.trim_start();
        let word = |prefix: &str| line.strip_prefix(prefix).map(str::trim);
        let running = ["=== RUN", "=== NAME", "=== CONT", "=== PAUSE"].iter().find_map(|prefix| word(prefix));
        let ended = [
            ("--- PASS: ", Outcome::Passed),
            ("--- FAIL: ", Outcome::Failed),
            ("--- SKIP: ", Outcome::Skipped(None)),
        ];
        let ended =
            ended.into_iter().find_map(|(prefix, outcome)| Some((line.strip_prefix(prefix)?, outcome)));
        let full = |name: &str| format!("{package}.{}", printable(name.split('/').next().unwrap_or(name)));
        if let Some(name) = running {
            current = Some(full(name)).filter(|_| !name.is_empty());
            if let Some(name) =
                current.clone().filter(|name| !parts.iter().any(|(part, _)| part.name == *name))
            {
                parts.push((Part::new(name, Outcome::Failed, String::new()), false));
            }
        } else if let Some((rest, outcome)) = ended {
            let (name, time) = rest.rsplit_once(" (").unwrap_or((rest, ""));
            if let Some((part, is_over)) = parts.iter_mut().find(|(part, _)| part.name == full(name)) {
                part.said.extend([line, "\n"]);
                if !name.contains('/') {
                    let seconds = time.trim_end_matches("s)").parse().ok();
                    part.wall = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                    part.outcome = match outcome {
                        Outcome::Skipped(_) => Outcome::Skipped(reason(&part.said)),
                        outcome => outcome,
                    };
                    *is_over = true;
                }
            }
            current = Some(full(name));
        } else if index > 0 {
            // PASS or FAIL, after all tests.
            current = None;
        }
        let part = parts.iter_mut().find(|(part, _)| Some(&part.name) == current.as_ref());
        if let Some((part, _)) = part {
            part.said += said;
        }
    }
    let finished = |(part, is_over): (Part, bool)| if is_over { part } else { part.unfinished(ended, "") };
    parts.into_iter().map(finished).collect()
}

/// Returns the reason of a skipped test: the last line that it has logged, without the place.
fn reason(said: &str) -> Option<String> {
    let line = said.lines().map(str::trim).rfind(|line| !line.is_empty() && !line.starts_with("--- "))?;
    let place = line
        .split_once(": ")
        .filter(|(place, _)| place.rsplit_once(':').is_some_and(|(file, _)| file.ends_with(".go")));
    Some(printable(place.map_or(line, |(_, reason)| reason)))
}

#[cfg(test)]
mod tests {
    use super::{Binary, Each, Go, Outcome, Pattern, Role, Unit, failures, is_test, results};
    use crate::adapters::Adapter as _;
    use crate::sandbox::ended::exited;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn patterns_are_split_as_by_go() {
        for (pattern, tests, rest) in [
            ("TestA", "(?:TestA)", Some("")),
            ("A/b/c", "(?:A)", Some("/b/c")),
            ("A|B", "(?:A)|(?:B)", Some("")),
            ("A/b|B", "(?:A)|(?:B)", None),
            ("(A|B)/c", "(?:(A|B))", Some("/c")),
            ("[/|]A", "(?:[/|]A)", Some("")),
            ("A\\/b", "(?:A\\/b)", Some("")),
            ("", "(?:)", Some("")),
        ] {
            let read = Pattern::read(pattern);
            assert_eq!((read.tests().as_str(), read.rest().as_deref()), (tests, rest), "{pattern}");
        }
    }

    #[test]
    fn listed_names_are_told_from_other_output() {
        for name in ["TestA", "Test_a", "Test1", "Example", "ExampleT_m", "FuzzÄ"] {
            assert!(is_test(name), "{name}");
        }
        for line in ["BenchmarkA", "Testing", "TestA ok", "ok  \texample.org\t0.1s", "", "Test\0"] {
            assert!(!is_test(line), "{line:?}");
        }
    }

    #[test]
    fn marked_lines_are_results() {
        let output = "noise\n--- FAIL: TestA (0.00s)\n\x16=== RUN   TestA\nno newline\x16=== RUN   TestA/x\n\x16--- PASS: TestA/x (0.00s)\n\
            \x16=== NAME  TestA\n--- FAIL: TestA (0.00s)\n\x16--- PASS: TestA (0.50s)\n\x16=== RUN   TestB\n    b_test.go:9: not here\n\
            \x16--- SKIP: TestB (0.00s)\n\x16=== RUN   TestC\npanic: no\n\x16exit";
        let tests = ["p.q/r.TestA", "p.q/r.TestB", "p.q/r.TestC"].map(str::to_owned).to_vec();
        let unit = Unit { name: "p.q/r".to_owned(), tests, ..Unit::default() };
        let parts = results(&unit, &exited(2), output.as_bytes());
        let found: Vec<_> = parts.iter().map(|part| (part.name.as_str(), part.outcome.clone())).collect();
        let skipped = Outcome::Skipped(Some("not here".to_owned()));
        let expected =
            [("p.q/r.TestA", Outcome::Passed), ("p.q/r.TestB", skipped), ("p.q/r.TestC", Outcome::Status)];
        assert_eq!(found, expected);
        assert_eq!(parts[0].wall.unwrap().as_millis(), 500);
        assert!(parts[0].said.contains("no newline") && parts[2].said.contains("panic: no"));
        assert!(results(&unit, &exited(0), b"\xff\0\n\x16").is_empty());
    }

    #[test]
    fn failures_of_builds_are_shown_for_their_package() {
        let text = "# m/b [m/b.test]\nb.go:4:31: undefined: nothing\n# m/c\nc.go:1:1: no\nok  \tm/a\t0.1s\n?   \tm/e\t[no test files]\n\
                    FAIL\tm/b [build failed]\nFAIL\tm/c [build failed]\nFAIL\tm/d\t0.1s\nFAIL\n";
        let parts = failures(text);
        let found: Vec<_> = parts.iter().map(|part| (part.name.as_str(), part.said.as_str())).collect();
        let expected = [
            ("m/b", "# m/b [m/b.test]\nb.go:4:31: undefined: nothing\n"),
            ("m/c", "# m/c\nc.go:1:1: no\n"),
            ("m/d", text),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn arguments_of_a_binary_are_kept_except_the_selection() {
        let scratch = tempfile::TempDir::new().unwrap();
        let file = |name: &str, text: &str| fs::write(scratch.path().join(name), text).unwrap();
        file("test", "");
        file("package", "example.org/m\n");
        file("directory", "/p/m\n");
        file("arguments", "-test.paniconexit0\0-test.run=A/b\0-test.v=true\0-test.timeout=9s\0a\nb\0\0");
        let binary = Binary::read(scratch.path()).unwrap();
        let others: Vec<_> = binary.others().collect();
        assert_eq!(others, ["-test.paniconexit0", "-test.timeout=9s", "a\nb", ""]);
        assert_eq!((binary.flag("run"), binary.shared()), (Some("A/b"), None));
        let args = ["go", "test", "-json", "./...", "-args", "-json"].map(Into::into).to_vec();
        let unit = Go { args, each: Each::Test, scratch: "/s".into() }.begin().pop().unwrap();
        let words = ["go", "test", "-count=1", "-exec=sh /run/husk/go-test", "./...", "-args", "-json"];
        assert_eq!((unit.role, unit.args), (Role::List, words.map(Into::into).to_vec()));
    }

    #[test]
    fn only_regular_files_are_read_from_the_scratch_directory() {
        let scratch = tempfile::TempDir::new().unwrap();
        let path = |name: &str| scratch.path().join("one").join(name);
        let names = ["test", "package", "directory", "arguments"];
        for replaced in names {
            for is_link in [false, true] {
                fs::create_dir(path("")).unwrap();
                names.iter().for_each(|name| fs::write(path(name), "/a").unwrap());
                assert!(Binary::read(&path("")).is_ok());
                fs::rename(path(replaced), scratch.path().join("secret")).unwrap();
                if is_link {
                    symlink(scratch.path().join("secret"), path(replaced)).unwrap();
                } else {
                    mknodat(CWD, path(replaced), FileType::Fifo, Mode::RUSR, 0).unwrap();
                }
                assert!(Binary::read(&path("")).is_err(), "{replaced}");
                fs::remove_dir_all(path("")).unwrap();
            }
        }
    }
}
