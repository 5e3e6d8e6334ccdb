//! Terminals of containers and of processes that `Exec` adds.

use crate::client::{Client, FAILED_PRECONDITION, NOT_FOUND, Streams, named};
use crate::engine::{Engine, Output, input, is_root, need, whole_life};
use crate::streams::{lines, logger};
use crate::wire::Empty;
use crate::wire::task::{DeleteResponse, ResizePtyRequest};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// End of file, as a terminal's user types it.
const END: &[u8] = &[4];

fn resize(client: &mut Client, exec: &str, width: u32, height: u32) {
    let request = ResizePtyRequest { id: "c".into(), exec_id: exec.into(), width, height };
    client.call::<Empty>("ResizePty", &request).unwrap();
}

/// Sets sizes of a terminal whose program tells them, and ends the program.
fn sizes_arrive(client: &mut Client, exec: &str, stdin: &str, stdout: &mut Output) {
    assert_eq!(stdout.line(), "begun");
    let mut typist = input(stdin);
    for (width, height) in [(100, 40), (7, 3)] {
        resize(client, exec, width, height);
        typist.write_all(b"\n").unwrap();
        // The terminal echoes the line first.
        assert_eq!((&*stdout.line(), stdout.line()), ("", format!("{width}x{height}")));
    }
    typist.write_all(END).unwrap();
    assert_eq!(client.wait("c", exec), 0);
}

#[test]
fn terminal_has_the_clients_size() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "size").with("/process/terminal", true.into());
    let mut client = engine.start(&bundle);
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    client.create(&bundle, Streams::to(&out).with_input(&stdin).at_terminal());
    assert!(client.state("c", "").terminal);
    client.start("c", "");
    sizes_arrive(&mut client, "", &stdin, &mut stdout);
    client.delete("c", "");
    assert_eq!(stdout.until_end(), "");
}

#[test]
fn exec_has_a_terminal_of_its_own() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    client.exec("c", "e", "size", Streams::to(&out).with_input(&stdin).at_terminal());
    client.start("c", "e");
    sizes_arrive(&mut client, "e", &stdin, &mut stdout);
    client.delete("c", "e");
    assert_eq!(stdout.until_end(), "");
}

#[test]
fn output_through_a_terminal_is_complete() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    // A megabyte flows while it is read. A few lines are read when the program has ended.
    for (id, count) in [("c", 1 << 14), ("d", 100)] {
        let bundle = engine.bundle(id, &format!("write {count}")).with("/process/terminal", true.into());
        let mut client = engine.start(&bundle);
        let (out, mut stdout) = engine.output(&format!("out-{id}"));
        client.create(&bundle, Streams::to(&out).at_terminal());
        client.start(id, "");
        if count == 100 {
            assert_eq!(client.wait(id, ""), 0);
            client.delete(id, "");
        }
        assert!(stdout.until_end() == lines(count).replace('\n', "\r\n"));
        if count > 100 {
            assert_eq!(client.wait(id, ""), 0);
            client.delete(id, "");
        }
    }
}

#[test]
fn delete_waits_until_the_client_has_read_a_terminals_output() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let (out, mut stdout) = engine.output("out");
    // A little more than a FIFO holds: the rest is still in the terminal when the program has ended.
    client.exec("c", "e", "write 1100", Streams::to(&out).at_terminal());
    client.start("c", "e");
    assert_eq!(client.wait("c", "e"), 0);
    let deleting = client.begin("Delete", &named("c", "e"));
    // The second call is refused, so the first has been received.
    assert_eq!(client.refused("Delete", &named("c", "e")), FAILED_PRECONDITION);
    assert!(stdout.until_end() == lines(1100).replace('\n', "\r\n"));
    assert_eq!(client.answer::<DeleteResponse>(deleting).unwrap().exit_status, 0);
}

#[test]
fn delete_that_waits_is_answered_when_the_container_is_deleted() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait");
    let mut client = engine.start(&bundle);
    client.create(&bundle, Streams::none());
    client.start("c", "");
    let (out, _unread) = engine.output("out");
    client.exec("c", "e", "write 1100", Streams::to(&out).at_terminal());
    let pid = client.start("c", "e");
    assert_eq!(client.wait("c", "e"), 0);
    let deleting = client.begin("Delete", &named("c", "e"));
    client.kill("c", "");
    client.wait("c", "");
    client.delete("c", "");
    let deleted: DeleteResponse = client.answer(deleting).unwrap();
    assert_eq!((deleted.pid, deleted.exit_status), (pid, 0));
}

#[test]
fn client_of_a_terminal_may_go_away_and_come_back() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "answer").with("/process/terminal", true.into());
    let mut client = engine.start(&bundle);
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    client.create(&bundle, Streams::to(&out).with_input(&stdin).at_terminal());
    client.start("c", "");
    writeln!(input(&stdin), "a").unwrap();
    assert_eq!((stdout.line(), stdout.line()), ("a".to_owned(), "0 a".to_owned()));
    drop(stdout);
    let mut typist = input(&stdin);
    typist.write_all(b"b\n").unwrap();
    typist.write_all(END).unwrap();
    // The program has ended before a client is there again.
    assert_eq!(client.wait("c", ""), 0);
    let mut stdout = Output::open(&out);
    assert_eq!((stdout.line(), stdout.line()), ("b".to_owned(), "1 b".to_owned()));
    client.delete("c", "");
}

#[test]
fn program_at_a_terminal_may_be_killed() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "copy").with("/process/terminal", true.into());
    let mut client = engine.start(&bundle);
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    client.create(&bundle, Streams::to(&out).with_input(&stdin).at_terminal());
    client.start("c", "");
    assert_eq!(stdout.line(), "begun");
    client.kill("c", "");
    assert_eq!(client.wait("c", ""), 137);
    client.delete("c", "");
    assert_eq!(stdout.until_end(), "");
}

#[test]
fn program_may_close_its_terminal_and_open_it_again() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "reopen /told /go").with("/process/terminal", true.into());
    let mut client = engine.start(&bundle);
    let (out, mut stdout) = engine.output("out");
    let ((_, mut told), go) = (engine.output("c/rootfs/told"), engine.fifo("c/rootfs/go"));
    let go = File::options().read(true).write(true).open(go).unwrap();
    client.create(&bundle, Streams::to(&out).at_terminal());
    client.start("c", "");
    assert_eq!(told.line(), "closed");
    // The shim has seen the hang-up when it has answered twice.
    for _ in 0..2 {
        client.state("c", "");
    }
    drop(told);
    until_asleep(client.shim_pid());
    // The program opens its end, and reads to the end.
    let mut writer = input(&engine.text("c/rootfs/go"));
    writer.write_all(b"go").unwrap();
    drop((go, writer));
    assert_eq!(stdout.line(), "again");
    assert_eq!(client.wait("c", ""), 0);
    assert_eq!(stdout.until_end(), "");
    client.delete("c", "");
}

/// Reads the state of a process until it sleeps. A process that polls in vain never does.
fn until_asleep(pid: u32) {
    let sleeps = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('S')
    };
    assert!((0..100_000).any(|_| sleeps()), "the shim is never idle");
}

#[test]
fn shim_rests_while_a_container_with_a_terminal_has_ended() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "exit 0").with("/process/terminal", true.into());
    let mut client = engine.start(&bundle);
    let ((out, mut stdout), stdin) = (engine.output("out"), engine.fifo("in"));
    client.create(&bundle, Streams::to(&out).with_input(&stdin).at_terminal());
    client.start("c", "");
    assert_eq!(client.wait("c", ""), 0);
    assert_eq!(stdout.until_end(), "");
    until_asleep(client.shim_pid());
    client.delete("c", "");
}

#[test]
fn terminal_whose_output_has_no_name_is_read() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "write 1000").with("/process/terminal", true.into());
    let mut client = engine.start(&bundle);
    assert_eq!(whole_life(&mut client, &bundle, Streams::none().at_terminal()), 0);
}

#[test]
fn terminal_without_its_fifos_is_not_made() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = engine.bundle("c", "wait").with("/process/terminal", true.into());
    let mut client = engine.start(&bundle);
    let refusal = client.try_create(&bundle.request(Streams::to("/missing/fifo").at_terminal())).unwrap_err();
    assert!(refusal.message.contains("/missing/fifo"), "{refusal:?}");
    assert_eq!(client.refused("State", &named("c", "")), NOT_FOUND);
    assert_eq!((bundle.cgroups().len(), engine.has_no_container()), (0, true));

    client.create(&bundle, Streams::none().at_terminal());
    client.start("c", "");
    client.exec("c", "e", "wait", Streams::none().with_input("/missing/fifo").at_terminal());
    let refusal = client.call::<Empty>("Start", &named("c", "e")).unwrap_err();
    assert!(refusal.message.contains("/missing/fifo"), "{refusal:?}");
    client.delete("c", "e");
    engine.events.expect(&["create", "start", "exec-added"]);
    client.kill("c", "");
    client.wait("c", "");
    // No process of the exec has ended.
    engine.events.expect(&["exit"]);
}

#[test]
fn output_of_a_terminal_may_go_to_a_log() {
    need!(is_root(), "needs root");
    let engine = Engine::new();
    let bundle = |id: &str| engine.bundle(id, "print out err").with("/process/terminal", true.into());
    let (first, second) = (bundle("c"), bundle("d"));
    let mut client = engine.start(&first);
    let file = engine.path("log");
    let uri = format!("file://{}", file.display());
    assert_eq!(whole_life(&mut client, &first, Streams::to(&uri).at_terminal()), 0);
    // The program's standard output is buffered, and its standard error is not.
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "errout");

    let mut client = engine.start(&second);
    let (log, mut logged) = engine.output("logged");
    assert_eq!(whole_life(&mut client, &second, logger("log", Path::new(&log)).at_terminal()), 0);
    assert_eq!(logged.until_end(), "tests/d errout");
}
