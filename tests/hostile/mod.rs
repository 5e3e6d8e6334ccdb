//! Tests with images that attack the host, volumes that change while a container is made, and faults.
//!
//! Each attack has a tripwire: a tree of the host that must be unchanged afterwards. If a single system call is the
//! defence, the same binary also runs on a simulated kernel that does not make that call (`false_answers.rs`). There the
//! attack has to succeed, which exposes a test that cannot fail.

/// Archives of attacking images.
mod archives;
/// Descriptors and settings that programs inherit.
mod audit;
/// A verb that is stopped while another one runs.
mod concurrent;
/// Attacking images.
mod corpus;
/// A simulated kernel that reports success for calls that it does not make.
mod false_answers;
/// Failing system calls and killed processes.
mod faults;
/// Other processes that block a verb.
mod hanging;
/// Records, cgroups and clocks that other processes change.
mod interference;
/// Neighbours and companions that look for the runtime's memory.
mod outside;
/// Volumes and images that change while a container is made.
mod races;
/// Attacking images in `husk test`.
mod sandboxes;
/// Shortage of resources that the runtime needs.
mod starvation;
/// A watched tree of the host.
mod tripwire;
/// Other users that may write where the runtime reads or writes.
mod trust;
/// System calls that the test intercepts.
pub(crate) mod watched;

use crate::util::{Bundle, Receiver, Runtime, Seen, is_husk, is_root, need};
pub(crate) use concurrent::Said;
use false_answers::FalseAnswer;
pub(crate) use faults::left;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tripwire::{SECRET, Tripwire};

/// An attack of an image or volume.
pub(crate) struct Attack {
    /// The vulnerability or a description.
    name: &'static str,
    /// Builds the attacking bundle.
    bundle: fn(&Tripwire) -> Bundle,
    /// Whether the program has a terminal that is sent to a socket.
    terminal: bool,
    /// The message with which it must be refused; `None` if it must succeed without harm.
    refused: Option<&'static str>,
    /// The false answers with which the attack succeeds.
    false_answers: &'static [FalseAnswer],
}

/// The result of an attack.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The container ran and did no harm.
    Harmless,
    /// The runtime refused, with this message.
    Refused(String),
    /// The tripwire was changed or its secret was printed.
    Harm(String),
}

impl Attack {
    /// Performs the attack on a kernel that gives these false answers.
    fn make(&self, false_answers: &[FalseAnswer]) -> Outcome {
        let tripwire = Tripwire::new();
        // A version that old runtimes support too: those are the vulnerable ones.
        let bundle = (self.bundle)(&tripwire).with("/ociVersion", json!("1.0.2"));
        bundle.write();
        let runtime = Runtime::under_test();
        let receiver = Receiver::new();
        let mut command = runtime.command("run");
        command.arg("--bundle").arg(bundle.path());
        if self.terminal {
            command.args(["--detach", "--console-socket", &receiver.path()]);
        }
        command.arg("c");
        let seen = if false_answers.is_empty() {
            runtime.detached(command)
        } else {
            false_answers::run(&command, false_answers)
        };
        runtime.call("delete", &["--force", "c"]);
        outcome(&tripwire, &bundle, &seen)
    }

    /// Returns whether this is the expected result.
    fn is_withstood(&self, outcome: &Outcome) -> bool {
        match (outcome, self.refused) {
            (Outcome::Harmless, None) => true,
            (Outcome::Refused(words), Some(wanted)) => !is_husk() || words.contains(wanted),
            // Other runtimes may refuse more.
            (Outcome::Refused(_), None) => !is_husk(),
            _ => false,
        }
    }
}

fn outcome(tripwire: &Tripwire, bundle: &Bundle, seen: &Seen) -> Outcome {
    let (out, err) = (String::from_utf8_lossy(&seen.0.stdout), String::from_utf8_lossy(&seen.0.stderr));
    if let Some(harm) = tripwire.harm() {
        return Outcome::Harm(harm);
    }
    if out.contains(SECRET) {
        return Outcome::Harm("its content was printed".to_owned());
    }
    // Messages of the guest are the program's, not the runtime's.
    let said = err.lines().rfind(|line| !line.contains("warning") && !line.starts_with("guest: "));
    match said {
        Some(line) if !seen.0.status.success() => {
            let known = |text: &str, path: &Path, name: &str| text.replace(&*path.to_string_lossy(), name);
            Outcome::Refused(known(&known(line, tripwire.path(), "TRIPWIRE"), bundle.path(), "BUNDLE"))
        }
        _ => Outcome::Harmless,
    }
}

#[test]
fn no_image_reaches_the_host() {
    need!(is_root(), "needs root to be able to harm the host");
    let mut table = String::from(HEAD);
    let mut lost = Vec::new();
    for attack in corpus::ATTACKS {
        let outcome = attack.make(&[]);
        if !attack.is_withstood(&outcome) {
            lost.push(format!("{}: {outcome:?}", attack.name));
        }
        let expected = if attack.refused.is_some() { "refused" } else { "no harm" };
        let mut row = format!("| {} | {expected} | {} |", attack.name, words(&outcome));
        if !attack.false_answers.is_empty() && is_husk() {
            let outcome = attack.make(attack.false_answers);
            if attack.is_withstood(&outcome) {
                lost.push(format!(
                    "{}: cannot fail, {outcome:?} with {:?}",
                    attack.name, attack.false_answers
                ));
            }
            let without =
                attack.false_answers.iter().map(|answer| answer.words()).collect::<Vec<_>>().join(", ");
            write!(row, " {without}: {} |", words(&outcome)).expect("text");
        } else {
            row += " |";
        }
        table += &row;
        table.push('\n');
    }
    eprintln!("{table}");
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    if is_husk() {
        let _held = TABLE.lock();
        let whole = fs::read_to_string(golden("table.md")).unwrap_or_default();
        let faults = whole.split_once(FAULTS).map_or("", |(_, rows)| rows);
        same_as_golden("table.md", &(table + FAULTS + faults));
    }
}

/// Asserts that a fault had no complaints, and that the golden table has exactly this row for it.
fn tell(fault: &str, expected: &str, complaints: &[String]) {
    let seen = if complaints.is_empty() { expected } else { &complaints.join("; ") };
    let row = format!("| {fault} | {expected} | {seen} |");
    assert!(complaints.is_empty(), "{row}");
    // The table has root's results, which also stand for a user's.
    if !is_husk() || !is_root() {
        return;
    }
    let _held = TABLE.lock();
    let whole = fs::read_to_string(golden("table.md")).expect("the table");
    let (attacks, faults) = whole.split_once(FAULTS).expect("the table of faults");
    let rows: BTreeSet<_> = faults.lines().chain([row.as_str()]).collect();
    let rows: Vec<_> = rows.into_iter().map(|row| format!("{row}\n")).collect();
    same_as_golden("table.md", &[attacks, FAULTS, &rows.concat()].concat());
}

/// Serializes reading and writing of the table.
static TABLE: Mutex<()> = Mutex::new(());

const HEAD: &str = "\
Generated by `HUSK_GOLDEN=write cargo test --test tests hostile::`. The last column is the result of the same binary on
a simulated kernel that does not make the call on which the defence relies.

| attack | expected | result | without the defence |
| - | - | - | - |
";

/// The text between attacks and faults in the table.
const FAULTS: &str = "
Faults, which are injected at each system call of each verb:

| fault | expected | result |
| - | - | - |
";

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Harmless => "no harm".to_owned(),
        // Returns only the field of the error, because other tests check the rest.
        Outcome::Refused(words) if is_husk() => {
            format!("refused: {}", words.split(": ").nth(1).unwrap_or(words))
        }
        Outcome::Refused(words) => format!("refused: `{words}`"),
        Outcome::Harm(harm) => format!("**harm**: {harm}"),
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile").join(name)
}

/// Asserts that a golden file has this content. `HUSK_GOLDEN=write` rewrites the file; review the difference.
fn same_as_golden(name: &str, seen: &str) {
    let golden = golden(name);
    if std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&golden, seen).expect("a writable golden file");
    }
    let wanted = fs::read_to_string(&golden).unwrap_or_default();
    assert!(wanted == seen, "{} is not what was seen:\n{seen}", golden.display());
}

fn tmpfs(destination: &str) -> Value {
    json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs" })
}

fn bind(source: &Path, destination: &str) -> Value {
    json!({ "destination": destination, "type": "bind", "source": source, "options": ["rbind"] })
}

fn proc() -> Value {
    json!({ "destination": "/proc", "type": "proc", "source": "proc" })
}

fn devpts() -> Value {
    let options = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"];
    json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": options })
}
