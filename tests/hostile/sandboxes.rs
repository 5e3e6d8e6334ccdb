//! Runs the images of the corpus with `husk test`. They are passed as a read-only `--rootfs`, as a writable one, and as
//! `--bundle`, which adds the bundle's mounts and masks.

use super::corpus::ATTACKS;
use super::liar::{self, Lie};
use super::{Attack, Canary, Outcome, outcome, same_as_golden, words};
use crate::hermetic::has_sandboxes;
use crate::util::{Bundle, Seen, is_root, need};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};

/// A kernel on which symlinks are followed and the host's files are not read-only. With read-only files, nothing is
/// lost even if symlinks are followed.
const NO_DEFENCE: &[Lie] = &[Lie::Follows, Lie::SetsNoAttributes];

/// How the image is passed to `husk test`.
#[derive(Clone, Copy)]
enum Way {
    Rootfs,
    Written,
    Bundle,
}

const WAYS: [Way; 3] = [Way::Rootfs, Way::Written, Way::Bundle];

impl Way {
    fn command(self, bundle: &Bundle) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.arg("test").current_dir(bundle.path()).stdin(Stdio::null());
        match self {
            Self::Rootfs => command.arg("--rootfs").arg(bundle.rootfs()),
            Self::Written => command.args(["--write", "/", "--rootfs"]).arg(bundle.rootfs()),
            Self::Bundle => {
                return {
                    command.arg("--bundle").arg(bundle.path());
                    command
                };
            }
        };
        command.args(["--", "/guest", "exit", "0"]);
        command
    }
}

fn attempt(attack: &Attack, way: Way, lies: &[Lie]) -> Outcome {
    // A sandbox also covers `/tmp` of the host's tree, which would protect a canary there.
    let canary = Canary::below(Path::new("/var/tmp"));
    let bundle = (attack.bundle)(&canary).with("/ociVersion", json!("1.0.2"));
    bundle.write();
    let mut command = way.command(&bundle);
    let seen = match lies {
        [] => Seen(command.output().expect("husk")),
        lies => liar::run_for_children(&command, lies),
    };
    outcome(&canary, &bundle, &seen)
}

#[test]
fn no_image_reaches_the_host_through_a_sandbox() {
    need!(is_root(), "needs root, who could reach it");
    need!(has_sandboxes(), "needs user namespaces");
    let mut table = String::from(HEAD);
    let mut lost = Vec::new();
    for attack in ATTACKS {
        let outcomes = WAYS.map(|way| attempt(attack, way, &[]));
        for outcome in outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Harm(_))) {
            lost.push(format!("{}: {outcome:?}", attack.name));
        }
        let without = attempt(attack, Way::Bundle, NO_DEFENCE);
        let [rootfs, written, bundle] = outcomes.each_ref().map(words);
        let without = words(&without);
        table += &format!("| {} | {rootfs} | {written} | {bundle} | {without} |\n", attack.name);
    }
    eprintln!("{table}");
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    assert!(table.contains("| **lost**: "), "the test cannot fail: nothing is lost without the defence");
    same_as_golden("sandboxes.md", &table);
}

const HEAD: &str = "\
Written by the tests themselves: `HUSK_GOLDEN=write cargo test --test tests hostile::`. The attacks of `table.md`, as the
files of a `husk test`. The last column is what becomes of `--bundle` on a kernel that follows links and leaves the
host's files as they are.

| attack | `--rootfs` | `--rootfs` with `--write /` | `--bundle` | on a lying kernel |
| - | - | - | - | - |
";
