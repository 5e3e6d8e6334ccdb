//! Images that attack the host, and volumes that change while a container is made.
//!
//! Each attack has a canary: a tree of the host that must be the same afterwards. And where one call of the kernel's is
//! what defends, the same binary is run on a kernel that does not do that call (`liar.rs`), and has to lose there: a test
//! that cannot fail is noticed.

/// What a program holds.
mod audit;
/// A tree of the host, watched.
mod canary;
/// The attacks of images.
mod corpus;
/// Calls that fail, and processes that are killed at one.
mod faults;
/// Others who keep a verb waiting.
mod hanging;
/// A kernel that lies.
mod liar;
/// A verb that is stopped while another is said.
mod meanwhile;
/// Records, cgroups and clocks that others change.
mod meddling;
/// Neighbours, hooks and companions that look for the runtime's memory.
mod outside;
/// Volumes and images that change meanwhile.
mod races;
/// The attacks of images through `test`.
mod sandboxes;
/// Too little of what the runtime needs.
mod starvation;
/// Others who may write where the runtime reads or writes.
mod trust;
/// System calls that the test decides about.
mod watched;

use crate::util::{Bundle, Receiver, Runtime, Seen, is_husk, is_root, need};
use canary::{Canary, SECRET};
pub(crate) use faults::left;
use liar::Lie;
pub(crate) use meanwhile::Said;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// An attack.
pub(crate) struct Attack {
    /// Where it was seen, or what it is.
    name: &'static str,
    /// What makes it.
    bundle: fn(&Canary) -> Bundle,
    /// Whether the program has a terminal that is sent away.
    terminal: bool,
    /// What should become of it: the words with which it is refused, or nothing if it does no harm.
    refused: Option<&'static str>,
    /// The kernel on which it succeeds.
    lies: &'static [Lie],
}

/// What became of an attack.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It was made, and did no harm.
    Harmless,
    /// The runtime said no, in these words.
    Refused(String),
    /// The canary is not what it was, or was told.
    Harm(String),
}

impl Attack {
    /// Makes it, on a kernel that tells these lies.
    fn make(&self, lies: &[Lie]) -> Outcome {
        let canary = Canary::new();
        // A version that old runtimes know, too: they are the ones that lose.
        let bundle = (self.bundle)(&canary).with("/ociVersion", json!("1.0.2"));
        bundle.write();
        let runtime = Runtime::under_test();
        let receiver = Receiver::new();
        let mut command = runtime.command("run");
        command.arg("--bundle").arg(bundle.path());
        if self.terminal {
            command.args(["--detach", "--console-socket", &receiver.path()]);
        }
        command.arg("c");
        let seen = if lies.is_empty() { runtime.detached(command) } else { liar::run(&command, lies) };
        runtime.call("delete", &["--force", "c"]);
        outcome(&canary, &bundle, &seen)
    }

    /// Whether that is what should become of it.
    fn is_withstood(&self, outcome: &Outcome) -> bool {
        match (outcome, self.refused) {
            (Outcome::Harmless, None) => true,
            (Outcome::Refused(words), Some(wanted)) => !is_husk() || words.contains(wanted),
            // Another runtime may refuse more.
            (Outcome::Refused(_), None) => !is_husk(),
            _ => false,
        }
    }
}

fn outcome(canary: &Canary, bundle: &Bundle, seen: &Seen) -> Outcome {
    let (out, err) = (String::from_utf8_lossy(&seen.0.stdout), String::from_utf8_lossy(&seen.0.stderr));
    if let Some(harm) = canary.harm() {
        return Outcome::Harm(harm);
    }
    if out.contains(SECRET) {
        return Outcome::Harm("what is in it was told".to_owned());
    }
    // What the guest has to say is the program's.
    let said = err.lines().rfind(|line| !line.contains("warning") && !line.starts_with("guest: "));
    match said {
        Some(line) if !seen.0.status.success() => {
            let known = |text: &str, path: &Path, name: &str| text.replace(&*path.to_string_lossy(), name);
            Outcome::Refused(known(&known(line, canary.path(), "CANARY"), bundle.path(), "BUNDLE"))
        }
        _ => Outcome::Harmless,
    }
}

#[test]
fn no_image_reaches_the_host() {
    need!(is_root(), "needs root, who could reach it");
    let mut table = String::from(HEAD);
    let mut lost = Vec::new();
    for attack in corpus::ATTACKS {
        let outcome = attack.make(&[]);
        if !attack.is_withstood(&outcome) {
            lost.push(format!("{}: {outcome:?}", attack.name));
        }
        let expected = if attack.refused.is_some() { "refused" } else { "no harm" };
        let mut row = format!("| {} | {expected} | {} |", attack.name, words(&outcome));
        if !attack.lies.is_empty() && is_husk() {
            let outcome = attack.make(attack.lies);
            if attack.is_withstood(&outcome) {
                lost.push(format!("{}: cannot fail, {outcome:?} with {:?}", attack.name, attack.lies));
            }
            let lies = attack.lies.iter().map(|lie| lie.words()).collect::<Vec<_>>().join(", ");
            write!(row, " {lies}: {} |", words(&outcome)).expect("text");
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

/// Tells what came of a fault: the row of it is in the table, and no other.
fn tell(fault: &str, expected: &str, complaints: &[String]) {
    let seen = if complaints.is_empty() { expected } else { &complaints.join("; ") };
    let row = format!("| {fault} | {expected} | {seen} |");
    assert!(complaints.is_empty(), "{row}");
    // What is told of root is told of a user, too.
    if !is_husk() || !is_root() {
        return;
    }
    let _held = TABLE.lock();
    let whole = fs::read_to_string(golden("table.md")).expect("the table");
    let (attacks, faults) = whole.split_once(FAULTS).expect("a table of faults, too");
    let rows: BTreeSet<_> = faults.lines().chain([row.as_str()]).collect();
    let rows: Vec<_> = rows.into_iter().map(|row| format!("{row}\n")).collect();
    same_as_golden("table.md", &[attacks, FAULTS, &rows.concat()].concat());
}

/// Who writes the table waits for whoever reads it.
static TABLE: Mutex<()> = Mutex::new(());

const HEAD: &str = "\
Written by the tests themselves: `HUSK_GOLDEN=write cargo test --test tests hostile::`. The last column is what
becomes of the same binary on a kernel that does not do what defends it.

| attack | expected | seen | on a lying kernel |
| - | - | - | - |
";

/// What stands between attacks and faults there.
const FAULTS: &str = "
The same of faults: each verb, at each of its system calls.

| fault | expected | seen |
| - | - | - |
";

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Harmless => "no harm".to_owned(),
        // The field; the rest is another test's.
        Outcome::Refused(words) if is_husk() => {
            format!("refused: {}", words.split(": ").nth(1).unwrap_or(words))
        }
        Outcome::Refused(words) => format!("refused: `{words}`"),
        Outcome::Harm(harm) => format!("**lost**: {harm}"),
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile").join(name)
}

/// `HUSK_GOLDEN=write` writes the file; the difference is the review.
fn same_as_golden(name: &str, seen: &str) {
    let golden = golden(name);
    if std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&golden, seen).expect("a place for it");
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
