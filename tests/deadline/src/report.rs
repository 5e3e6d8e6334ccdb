//! Describes in words what a thread and its processes are doing.

use crate::task::Task;
use std::fmt::Write as _;

/// The fields of `/proc/PID/status` that a report shows.
const STATUS: [&str; 6] = ["State", "PPid", "NSpid", "SigPnd", "SigBlk", "Seccomp"];

/// Describes what a hanging test is doing.
pub(crate) fn report(name: &str, what: &str, thread: &Task, started: &[Task]) -> String {
    let mut text = format!("\ndeadline: {name} {what}.\n");
    describe(&mut text, "its thread", thread);
    for process in started {
        for thread in process.threads() {
            describe(&mut text, if thread == *process { "process" } else { "thread" }, &thread);
        }
    }
    text
}

fn describe(text: &mut String, kind: &str, task: &Task) {
    let mut line = |name: &str, value: &str| {
        if !value.trim().is_empty() {
            // Writing to a string does not fail. Names and arguments are chosen by the process, so they are escaped.
            let value = value.trim().escape_debug().to_string().replace("\\n", "\n           ");
            writeln!(text, "  {name:8} {value}").unwrap_or(());
        }
    };
    line(kind, &format!("{} {}", task.id(), task.name()));
    if kind == "process" {
        line("cmdline", &task.file("cmdline").replace('\0', " "));
    }
    let status = task.file("status");
    let fields = status.lines().filter_map(|line| line.split_once(':'));
    let fields = fields.filter(|(name, _)| STATUS.contains(name));
    let fields: Vec<_> = fields.map(|(name, value)| format!("{name} {}", value.trim())).collect();
    line("status", &fields.join(", "));
    for file in ["wchan", "syscall", "stack"] {
        line(file, &task.file(file));
    }
}
