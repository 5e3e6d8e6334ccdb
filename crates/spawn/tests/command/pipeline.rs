//! Pipelines.

use crate::support::{Dir, program, until_asleep};
use husk_spawn::{Command, Pipeline, Signal, Stdio};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::Duration;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn output_passes_through_and_all_statuses_are_returned() {
    let output = Pipeline::new(&shell("echo one >&2; cat; exit 1"))
        .pipe(&shell("echo two >&2; tr a-z A-Z; exit 2"))
        .pipe(&shell("echo three >&2; cat; exit 3"))
        .output_with_input(b"text")
        .unwrap();
    assert_eq!(output.stdout, b"TEXT");
    assert_eq!(output.statuses.iter().map(|status| status.code()).collect::<Vec<_>>(), [1, 2, 3].map(Some));
    assert_eq!(output.stderr, [&b"one\n"[..], b"two\n", b"three\n"]);
    assert!(!output.success());

    let alone = Pipeline::new(&shell("cat; echo alone")).output().unwrap();
    assert_eq!((alone.success(), &*alone.stdout), (true, &b"alone\n"[..]));
}

#[test]
fn megabytes_pass_through_without_a_deadlock() {
    let input: Vec<u8> = (0..4 << 20_u32).map(|index: u32| index.to_le_bytes()[1]).collect();
    let tee = shell("tee /dev/stderr");
    let output = Pipeline::new(&tee).pipe(&tee).pipe(&tee).output_with_input(&input).unwrap();
    assert!(output.success() && output.stdout == input && output.stderr == [&*input; 3]);
}

#[test]
fn program_is_killed_if_the_next_one_ends_first() {
    let statuses = Pipeline::new(&Command::new("yes")).pipe(&Command::new("true")).status().unwrap();
    assert_eq!(statuses[0].signal(), Some(Signal::PIPE.number()));
    assert!(statuses[1].success());
}

/// Returns what the descriptors of a process refer to.
fn descriptors(pid: u32) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_link(entry.path()).unwrap()))
        .collect()
}

#[test]
fn only_neighbours_hold_a_pipe() {
    let dir = Dir::new();
    let command = |name, status| {
        let mut command = Command::new(dir.program(name, program::holds(status)));
        command.kill_on_drop();
        command
    };
    let (mut first, second, mut third) = (command("a", 1), command("b", 2), command("c", 3));
    first.stdin(Stdio::piped());
    third.stdout(Stdio::piped());
    let mut running = Pipeline::new(&first).pipe(&second).pipe(&third).spawn().unwrap();
    // Each sleeps in its read after exec has closed its other descriptors.
    let mut stdout = running.children[2].stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    running.children.iter().for_each(|child| until_asleep(&format!("/proc/{}", child.id())));
    let held: Vec<_> = running.children.iter().map(|child| descriptors(child.id())).collect();
    for descriptors in &held {
        assert_eq!(descriptors.keys().collect::<Vec<_>>(), ["0", "1", "2"]);
    }
    assert_eq!(held[0]["1"], held[1]["0"]);
    assert_eq!(held[1]["1"], held[2]["0"]);
    let own: Vec<_> = descriptors(std::process::id()).into_values().collect();
    for pipe in [&held[0]["1"], &held[1]["1"]] {
        assert!(!own.contains(pipe), "{pipe:?}");
    }
    let input = running.children[0].stdin.take();
    assert_eq!(running.wait_timeout(Duration::ZERO).unwrap(), None);
    drop(input);
    // Each sees the end of its input when the one before it has ended.
    let codes: Vec<_> = running.wait().unwrap().iter().map(|status| status.code()).collect();
    assert_eq!(codes, [Some(1), Some(2), Some(3)]);
    assert_eq!(running.wait_timeout(Duration::MAX).unwrap().unwrap().len(), 3);
}

#[test]
fn nothing_is_left_of_a_pipeline_that_cannot_start() {
    let dir = Dir::new();
    let mut first = Command::new(dir.program("holds", program::holds(0)));
    let (input, output) = std::io::pipe().unwrap();
    let (mut closed, ends) = std::io::pipe().unwrap();
    first.stdin(input).fd(9, ends);
    let error =
        Pipeline::new(&first).pipe(&Command::new("/no/such")).pipe(&Command::new("cat")).spawn().unwrap_err();
    assert!(error.to_string().starts_with("exec /no/such: No such file"), "{error}");
    // A process that held it would hold it for ever, because its input is open.
    drop(first);
    assert_eq!(closed.read(&mut [0]).unwrap(), 0);
    drop(output);

    let looked_up = Command::new("no-such-program");
    let error = Pipeline::new(&shell("exec sleep 1000")).pipe(&looked_up).spawn().unwrap_err();
    assert_eq!(error.to_string(), "exec no-such-program: No such file or directory (os error 2)");
}

#[test]
fn pipeline_is_killed() {
    let mut first = Command::new("cat");
    first.stdin(Stdio::piped());
    let mut running = Pipeline::new(&first).pipe(&Command::new("cat")).spawn().unwrap();
    let mut input = running.children[0].stdin.take().unwrap();
    running.kill().unwrap();
    let signals: Vec<_> = running.wait().unwrap().iter().map(|status| status.signal()).collect();
    assert_eq!(signals, [Some(9), Some(9)]);
    assert!(input.write_all(b"late").is_err());
}

#[test]
fn stream_that_the_pipeline_connects_cannot_be_set() {
    let (mut to_null, mut from_null) = (Command::new("a"), Command::new("b"));
    to_null.stdout(Stdio::null());
    from_null.stdin(Stdio::null());
    let plain = Command::new("c");
    let failure = |pipeline: Pipeline<'_>| pipeline.spawn().unwrap_err().to_string();
    assert_eq!(
        failure(Pipeline::new(&to_null).pipe(&plain)),
        "pipeline with \"a\": its output goes to the next command"
    );
    assert_eq!(
        failure(Pipeline::new(&plain).pipe(&from_null)),
        "pipeline with \"b\": its input is that of the pipeline"
    );
}
