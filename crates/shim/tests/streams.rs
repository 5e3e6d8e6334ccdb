//! FIFOs, log files and logging programs.

use crate::client::Streams;
use crate::engine::{Engine, Output, input, is_root, need, program, whole_life};
use crate::wire::task::Status;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// A number of lines that no pipe can hold.
const MANY: usize = 1 << 14;

/// Returns what the program of the tests writes with the word `write`.
pub(crate) fn lines(count: usize) -> String {
    let lines: String = (0..count).map(|number| format!("{number:063}\n")).collect();
    lines + "done\n"
}

#[test]
fn output_through_a_fifo_is_complete() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", &format!("write {MANY}"));
    let mut client = engine.start(&bundle);
    let (out, mut stdout) = engine.output("out");
    client.create(&bundle, Streams::to(&out));
    client.start("c", "");
    assert!(stdout.until_end() == lines(MANY));
    assert_eq!(client.wait("c", ""), 0);
}

#[test]
fn input_ends_with_close_io_and_not_with_the_clients_end() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "copy");
    let mut client = engine.start(&bundle);
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    client.create(&bundle, Streams::to(&out).with_input(&stdin));
    client.start("c", "");
    assert_eq!(stdout.line(), "begun");
    for text in ["one", "two"] {
        // Each opens the FIFO and closes it again.
        writeln!(input(&stdin), "{text}").unwrap();
        assert_eq!(stdout.line(), text);
    }
    assert_eq!(client.state("c", "").status, i32::from(Status::Running));
    client.close_input("c", "");
    assert_eq!(stdout.line(), "ended");
    assert_eq!(client.wait("c", ""), 0);
    // A second time is not an error.
    client.close_input("c", "");
}

#[test]
fn input_of_an_exec_ends_with_close_io() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    client.exec("c", "e", "copy", Streams::to(&out).with_input(&stdin));
    client.start("c", "e");
    assert_eq!(stdout.line(), "begun");
    client.close_input("c", "e");
    assert_eq!(stdout.until_end(), "ended\n");
    assert_eq!(client.wait("c", "e"), 0);
}

#[test]
fn client_may_go_away_and_come_back() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "answer");
    let mut client = engine.start(&bundle);
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    client.create(&bundle, Streams::to(&out).with_input(&stdin));
    client.start("c", "");
    writeln!(input(&stdin), "a").unwrap();
    assert_eq!(stdout.line(), "0 a");
    drop((client, stdout));
    writeln!(input(&stdin), "b").unwrap();
    let mut client = crate::client::Client::connect(&engine.start_shim(&bundle));
    let mut stdout = Output::open(&out);
    writeln!(input(&stdin), "c").unwrap();
    assert_eq!((stdout.line(), stdout.line()), ("1 b".to_owned(), "2 c".to_owned()));
    client.close_input("c", "");
    assert_eq!(client.wait("c", ""), 0);
}

#[test]
fn file_log_is_complete_when_the_container_is_deleted() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", &format!("write {MANY}"));
    let mut client = engine.start(&bundle);
    let log = engine.path("logs/of c/log");
    let uri = format!("file://{}", log.to_str().unwrap().replace(' ', "%20"));
    assert_eq!(whole_life(&mut client, &bundle, Streams::to(&uri)), 0);
    assert!(fs::read_to_string(&log).unwrap() == lines(MANY));
    // The next container appends, and both of its streams go there.
    let second = engine.bundle("d", "print out err");
    assert_eq!(whole_life(&mut client, &second, Streams::to(&uri)), 0);
    let text = fs::read_to_string(&log).unwrap();
    let rest = text.strip_prefix(&lines(MANY)).unwrap();
    assert!(rest == "outerr" || rest == "errout", "{rest}");
}

/// A file system for a single page.
struct Full(PathBuf);

impl Full {
    fn new(path: PathBuf) -> Self {
        fs::create_dir(&path).unwrap();
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), c"size=4096").unwrap();
        Self(path)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).expect("a mount");
    }
}

#[test]
fn full_disk_loses_output_and_harms_no_program() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let full = Full::new(engine.path("full"));
    for (id, path) in [("c", full.0.join("log")), ("d", PathBuf::from("/dev/full"))] {
        let bundle = engine.bundle(id, &format!("write {MANY}"));
        let mut client = engine.start(&bundle);
        let log = Streams::to(format!("file://{}", path.display()));
        assert_eq!(whole_life(&mut client, &bundle, log), 0, "{}", path.display());
    }
    assert_eq!(fs::metadata(full.0.join("log")).unwrap().len(), 4096);
}

/// Returns the name of standard output for a logging program.
pub(crate) fn logger(word: &str, path: &Path) -> Streams {
    Streams::to(format!("binary://{}?{word}={}", program().display(), path.display()))
}

#[test]
fn logging_program_reads_both_streams_until_end() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "print out err");
    let mut client = engine.start(&bundle);
    let (log, mut logged) = engine.output("logged");
    assert_eq!(whole_life(&mut client, &bundle, logger("log", Path::new(&log))), 0);
    assert_eq!(logged.until_end(), "tests/c outerr");
}

#[test]
fn logging_program_that_dies_harms_no_program() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", &format!("write {MANY}"));
    let mut client = engine.start(&bundle);
    let mut log = Output::open(bundle.path.join("log").to_str().unwrap());
    let streams = logger("die", &engine.path("logged"));
    assert_eq!(whole_life(&mut client, &bundle, streams), 0);
    let line = log.line();
    assert!(line.contains("the logging program has ended"), "{line}");
}

#[test]
fn logging_program_may_die_while_another_container_is_created() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let (path, mut hook) = engine.output("hook");
    let program = program().to_str().unwrap().to_owned();
    let hooks =
        serde_json::json!({ "createRuntime": [{ "path": program, "args": ["inside", "hang", path] }] });
    let slow = engine.bundle("slow", "wait").with("/hooks", hooks);
    let mut client = engine.start(&slow);
    client.begin("Create", &slow.request(Streams::none()));
    assert_eq!(hook.line(), "begun");
    let bundle = engine.bundle("c", &format!("write {MANY}"));
    assert_eq!(whole_life(&mut client, &bundle, logger("die", &engine.path("logged"))), 0);
    // This one dies before its container exists.
    let bundle = engine.bundle("d", &format!("write {MANY}"));
    assert_eq!(whole_life(&mut client, &bundle, Streams::to("binary:///bin/true")), 0);
}

#[test]
fn log_file_that_is_a_fifo_without_a_reader_is_refused() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 0");
    let mut client = engine.start(&bundle);
    let fifo = engine.fifo("fifo");
    let refusal = client.try_create(&bundle.request(Streams::to(format!("file://{fifo}")))).unwrap_err();
    assert!(refusal.message.contains(&fifo), "{refusal:?}");
}

#[test]
fn streams_that_cannot_be_opened_fail_create_and_leave_nothing() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 4");
    let mut client = engine.start(&bundle);
    for (name, words) in [
        ("binary:///missing/logger", "/missing/logger"),
        ("tcp://host", "unknown STDIO scheme tcp"),
        ("/missing/fifo", "/missing/fifo"),
    ] {
        let refusal = client.try_create(&bundle.request(Streams::to(name))).unwrap_err();
        assert!(refusal.message.contains(words), "{refusal:?}");
    }
    assert_eq!((bundle.cgroups().len(), engine.has_no_container()), (0, true));
    assert_eq!(whole_life(&mut client, &bundle, Streams::none()), 4);
}

#[test]
fn stream_may_be_a_plain_file() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "print out err");
    let mut client = engine.start(&bundle);
    for name in ["out", "err"] {
        fs::write(engine.path(name), "before ").unwrap();
    }
    let streams = Streams::to(engine.text("out")).with_errors(engine.text("err"));
    assert_eq!(whole_life(&mut client, &bundle, streams), 0);
    assert_eq!(fs::read_to_string(engine.path("out")).unwrap(), "before out");
    assert_eq!(fs::read_to_string(engine.path("err")).unwrap(), "before err");
}
