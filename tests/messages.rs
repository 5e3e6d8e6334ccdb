//! Every message of the command line in one list, `messages.txt`: the command, its exit code, the error's code, and the
//! text.
//!
//! Each section provokes messages of one kind. `HUSK_GOLDEN=write`, as root, rewrites the list; read it from top to
//! bottom afterwards. Messages that depend on the machine are not in it: those of `doctor`, of CRIU, and those about
//! controllers of cgroups, Intel RDT, AppArmor and SELinux.

mod bundles;
mod commands;
mod sandboxes;
mod states;

use crate::cgroups::{has, is_version_2};
use crate::hermetic::has_sandboxes;
use crate::hermetic_libtest::has_rustc;
use crate::util::{Bundle, is_husk, is_root, need, program, skip, watch};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The codes that no command in the list has, and why.
const UNLISTED: [(&str, &str); 0] = [];

/// A section of the list: its heading, a check of its requirement, and the function that writes it. The check returns
/// the reason to skip the section.
type Section = (&'static str, fn() -> Option<&'static str>, fn(&mut List));

const SECTIONS: [Section; 17] = [
    ("Arguments", nothing, commands::arguments),
    ("Values of options", nothing, commands::values),
    ("Files of husk", nothing, states::files),
    ("Fields of config.json", nothing, bundles::fields),
    ("Files of a bundle", nothing, bundles::files),
    ("Warnings about config.json", nothing, bundles::warnings),
    ("validate", nothing, bundles::validate),
    ("Settings that this machine refuses", root, bundles::refused),
    ("Steps that fail", root, bundles::steps),
    ("Hooks that fail", root, bundles::hooks),
    ("States of a container", root, states::verbs),
    ("A paused container", freezer, states::paused),
    ("A container without a cgroup", root, states::without_cgroup),
    ("Options that need a container", root, states::options),
    ("spec and register", root, commands::files),
    ("test", sandboxes, sandboxes::sandboxes),
    ("test init", cargo, sandboxes::init),
];

fn nothing() -> Option<&'static str> {
    None
}

fn root() -> Option<&'static str> {
    (!is_root()).then_some("users have fewer privileges and get other messages")
}

fn freezer() -> Option<&'static str> {
    root().or((!is_version_2() && !has("freezer")).then_some("needs a freezer"))
}

fn sandboxes() -> Option<&'static str> {
    root().or((!has_sandboxes()).then_some("needs user namespaces"))
}

fn cargo() -> Option<&'static str> {
    (!has_rustc()).then_some("needs cargo")
}

/// The part of the list that is being written.
struct List {
    text: String,
    directory: TempDir,
    /// Replacements of paths and numbers that differ from run to run, and their names.
    names: Vec<(String, &'static str)>,
}

impl List {
    fn new() -> Self {
        watch();
        let directory = TempDir::new().expect("a temporary directory");
        let mut list = Self { text: String::new(), directory, names: Vec::new() };
        let (here, root) = (list.directory.path().to_owned(), list.root());
        list.name(&root, "{root}");
        list.name(&here, "{here}");
        list
    }

    /// The directory for containers. It does not exist before the first container.
    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// A path in the directory in which commands run.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Displays a path by this name from now on.
    fn name(&mut self, path: &Path, name: &'static str) {
        self.names.insert(0, (path.to_str().expect("text").to_owned(), name));
    }

    /// Adds a line that explains the entries below it.
    fn explain(&mut self, text: &str) {
        self.text += &format!("# {text}\n");
    }

    /// Returns a command with these words, in which the names of paths stand for the paths.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.arg("--root").arg(self.root()).arg("--log").arg(self.path("log"));
        command.args(["--log-format", "json"]).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.directory.path());
        command.env("RUSTUP_TOOLCHAIN", option_env!("RUSTUP_TOOLCHAIN").unwrap_or("stable"));
        for word in words {
            let named = |word: String, (path, name): &(String, &str)| word.replace(name, path);
            command.arg(self.names.iter().fold((*word).to_owned(), named));
        }
        command
    }

    /// Runs a command and adds what it says.
    fn add(&mut self, words: &[&str]) {
        let command = self.command(words);
        self.add_command(&words.join(" "), command);
    }

    /// Runs a command that has this description and adds what it says.
    fn add_command(&mut self, description: &str, command: Command) {
        self.run(description, command, false);
    }

    /// Like `add`, with standard output too.
    fn add_printed(&mut self, words: &[&str]) {
        let command = self.command(words);
        self.run(&words.join(" "), command, true);
    }

    fn run(&mut self, description: &str, mut command: Command, is_printed: bool) {
        let log = self.path("log");
        // In files: a container may keep its streams for longer than husk lives.
        let (out, err) = (self.path("out"), self.path("err"));
        let create = |path: &Path| fs::File::create(path).expect("a file");
        let status = command.stdout(create(&out)).stderr(create(&err)).status().expect("husk");
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let mut lines = if is_printed { read(&out) } else { String::new() };
        lines += &read(&err);
        let mut ended = status.code().map_or_else(|| status.to_string(), |code| format!("exit {code}"));
        for line in read(&log).lines() {
            let object: Value = serde_json::from_str(line).expect("a line of the log");
            let text = |key: &str| object[key].as_str().unwrap_or_default();
            let warnings = object["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let warnings = warnings.chain((text("level") == "warning").then(|| text("msg")));
            warnings.for_each(|warning| lines += &format!("warning: {warning}\n"));
            if text("level") == "error" {
                ended += &format!(", {}", text("code"));
                ended += &object["field"].as_str().map(|field| format!(", {field}")).unwrap_or_default();
            }
        }
        for file in [log, out, err].iter().filter(|file| file.exists()) {
            fs::remove_file(file).expect("a file that husk or this test made");
        }
        let shown = lines.lines().map(|line| format!("    {}\n", self.shown(line))).collect::<String>();
        self.text += &format!("{}\n  {}\n{shown}", self.shown(description), self.shown(&ended));
    }

    /// Replaces what differs from run to run.
    fn shown(&self, text: &str) -> String {
        let named = |text: String, (path, name): &(String, &str)| text.replace(path, name);
        let text = self.names.iter().fold(text.to_owned(), named);
        let text = without_numbers(&text, "pid ");
        let text = without_times(&text);
        match text.split_once("/sys/fs/cgroup/") {
            Some((before, after)) => {
                let end = after.find([':', ' ', ')']).unwrap_or(after.len());
                format!("{before}{{cgroup}}{}", &after[end..])
            }
            None => text,
        }
    }

    /// Writes the configuration of a bundle, which is `{bundle}` from now on.
    fn write(&mut self, bundle: &Bundle) {
        bundle.write();
        self.name(bundle.path(), "{bundle}");
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // Only after a failure is there a container to delete.
        let status = self.command(&["delete", "--force", "c"]).stderr(Stdio::null()).status();
        assert!(status.is_ok() || std::thread::panicking(), "husk");
    }
}

/// Replaces the time in a line of the log.
fn without_times(text: &str) -> String {
    const KEY: &str = "\"time\":\"";
    let Some((before, after)) = text.split_once(KEY) else { return text.to_owned() };
    format!("{before}{KEY}TIME{}", after.trim_start_matches(|char| char != '"'))
}

/// Replaces each number after `word` by N.
fn without_numbers(text: &str, word: &str) -> String {
    let mut parts = text.split(word);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|char: char| char.is_ascii_digit());
        let number = if rest.len() < part.len() { "N" } else { "" };
        shown += &format!("{word}{number}{rest}");
    }
    shown
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages.txt")
}

/// Returns a section of the list with its heading.
fn section<'t>(list: &'t str, heading: &str) -> &'t str {
    let begin = list.find(&format!("== {heading} ==\n")).unwrap_or(list.len());
    let rest = &list[begin..];
    let end = rest.match_indices("\n== ").next().map_or(rest.len(), |(place, _)| place + 1);
    &rest[..end]
}

// `HUSK_GOLDEN=write` rewrites the list; review the difference.
#[test]
fn messages_are_those_of_the_list() {
    need!(is_husk(), "another runtime has other words");
    let mut text = String::new();
    let golden_text = fs::read_to_string(golden()).unwrap_or_default();
    let is_written = std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write");
    let (mut wrong, mut missed) = (Vec::new(), BTreeSet::new());
    for (heading, missing, write) in SECTIONS {
        let wanted = section(&golden_text, heading);
        if let Some(reason) = missing() {
            missed.insert(reason);
            text += wanted;
            continue;
        }
        let mut list = List::new();
        write(&mut list);
        let found = format!("== {heading} ==\n\n{}\n", list.text);
        if found != wanted {
            wrong.push(difference(&found, wanted));
        }
        text += &found;
    }
    missed.iter().for_each(|reason| skip(module_path!(), reason));
    if is_written {
        fs::write(golden(), text).unwrap();
    } else {
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Returns the lines that are only in one of two texts.
fn difference(found: &str, wanted: &str) -> String {
    let only = |text: &str, other: &str, sign: &str| {
        let other: BTreeSet<_> = other.lines().collect();
        let lines = text.lines().filter(|line| !other.contains(line));
        lines.map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    only(wanted, found, "-") + &only(found, wanted, "+")
}

#[test]
fn every_error_code_is_in_the_list() {
    let list = fs::read_to_string(golden()).unwrap();
    let ends = list.lines().filter_map(|line| line.strip_prefix("  exit ")?.split(", ").nth(1));
    let listed: BTreeSet<_> = ends.collect();
    let sources = codes();
    assert!(sources.len() > 10, "{sources:?}");
    for (code, reason) in UNLISTED {
        assert!(!listed.contains(code), "{code} is in the list");
        assert!(sources.contains(code) && !reason.is_empty(), "{code}");
    }
    let wanted: BTreeSet<_> = sources.iter().map(String::as_str).collect();
    let unlisted: BTreeSet<_> = UNLISTED.iter().map(|(code, _)| *code).collect();
    assert_eq!(listed, &wanted - &unlisted);
}

/// Returns the codes in the source: those of the runtime's errors, and those that the log gives to all others.
fn codes() -> BTreeSet<String> {
    let read = |path: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let errors = read("crates/runtime/src/error.rs");
    let function = errors.split_once("pub fn code(").expect("the function").1;
    let function = function.split_once("\n    }\n").expect("its end").0;
    let mut found: BTreeSet<_> = function.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let log = read("src/output/log.rs");
    for (begin, end) in [("map_or(\"", "\", husk_runtime::Error::code"), ("misuse.message, \"", "\", None")] {
        let code = log.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
        found.insert(code.expect("a code in the log").0.to_owned());
    }
    found
}
