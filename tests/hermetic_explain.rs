//! `test --explain`: each hint is followed literally, and works.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use std::fs;
use std::process::Command;

/// Returns the lines of husk's about a program.
fn hints(seen: &Seen) -> Vec<String> {
    let said = String::from_utf8(seen.0.stderr.clone()).unwrap();
    said.lines().filter_map(|line| line.strip_prefix("husk: ")).map(str::to_owned).collect()
}

/// Returns the first option between quotes in a hint that contains this text.
fn quoted_option(hints: &[String], text: &str) -> String {
    let hint = hints.iter().find(|hint| hint.contains(text)).unwrap_or_else(|| panic!("{hints:?}"));
    hint.split('\'').nth(1).unwrap_or_else(|| panic!("{hint}")).to_owned()
}

/// Runs a script with this option, as typed in a shell.
fn follow(place: &Project, option: &str, script: &str, variables: &[(&str, &str)]) -> Seen {
    let husk = place.command(&[], &["sh", "-c", script]);
    let words = husk.get_args().map(|word| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''")));
    let words: Vec<_> = words.collect();
    let line = format!("exec {} test {option} {}", env!("CARGO_BIN_EXE_husk"), words[1..].join(" "));
    let mut shell = Command::new("bash");
    shell.args(["-c", &line]).envs(husk.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.envs(variables.iter().copied()).current_dir(husk.get_current_dir().unwrap());
    Seen(shell.stdin(std::process::Stdio::null()).output().unwrap())
}

#[test]
fn hidden_file_is_explained_and_the_hint_works() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::write(place.path("home/x"), "found").unwrap();
    let script = "cat ~/x";
    let hints = hints(&place.sh(&[], script));
    let x = place.path("home/x");
    let golden =
        [format!("passes with: husk test --read {x}"), format!("{x} is hidden; show it with '--read {x}'")];
    assert_eq!(hints, golden);
    follow(&place, &quoted_option(&hints, "is hidden"), script, &[]).prints("found");
    follow(&place, hints[0].split_once("husk test ").unwrap().1, script, &[]).prints("found");
}
