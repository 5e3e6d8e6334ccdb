//! Which processes a program leaves behind.

use std::fs;

/// A process that ran when the program had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid on the host.
    pub pid: u32,
    /// Its program with its arguments.
    pub command: String,
}

/// All that descend from a process, itself not among them.
pub(crate) fn below(pid: u32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        // One that has ended meanwhile has none.
        let children =
            fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            parents.push(pid);
            found.push(Process { pid, command: command(pid) });
        }
    }
    found
}

/// What it was started with; for what says nothing of that, its name.
fn command(pid: u32) -> String {
    const MOST_CHARACTERS: usize = 80;
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
    let text = match line.is_empty() {
        true => fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned(),
        false => line,
    };
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).take(MOST_CHARACTERS).collect()
}
