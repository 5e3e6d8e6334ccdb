//! The page about a made-up run, compared with a golden page. `HUSK_GOLDEN=write` rewrites it; review the difference in
//! a browser.

use husk_hermetic::html::{Group, Run};
use husk_hermetic::{Attempt, Denial, Denied, Ended, Explanation, Grant, Reached, RemainingProcess, Tested};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

/// Text that would be a script, a command to a terminal, or the end of a field or of the page's data.
const HOSTILE: &str = "</script><img src=x onerror=\"alert('x')\">\x1b[31m\0\t\\\u{202e}-->";

fn attempt(start: u64, wall: u64, code: i32, said: &str) -> Attempt {
    let ended = Ended {
        services: Vec::new(),
        not_run: None,
        status: ExitStatus::from_raw(code << 8),
        wall: Duration::from_millis(wall),
        usage: Default::default(),
        remaining: Vec::new(),
        reached: None,
        full: None,
        had_terminal: false,
        was_signalled: false,
        losses: Vec::new(),
        files: None,
        recalled: None,
    };
    Attempt { start: Duration::from_millis(start), ended, reported: None, said: said.to_owned() }
}

fn tested(name: &str, attempts: Vec<Attempt>) -> Tested {
    Tested { name: name.to_owned(), mode: None, attempts, ignored: None, explained: None, unit: None }
}

fn run(name: &str, tests: Vec<Tested>) -> Run {
    let timestamp = "2026-01-02T03:04:05.6789Z".to_owned();
    let mut run = Run::new(name.to_owned(), format!("{name}-0123456789abcdef"), timestamp);
    tests.iter().for_each(|tested| run.add(tested));
    run
}

/// A hidden path with a hostile name, and the option that shows it.
fn denied() -> Explanation {
    let path = PathBuf::from(format!("/home/ann/{HOSTILE}"));
    let grants = vec![Grant::Read(path.clone())];
    let denied = vec![Denied { what: Denial::Hidden(path), grants }];
    Explanation { denied, ..Explanation::default() }
}

/// A run with every kind of result.
fn everything() -> Run {
    let mut late = attempt(5, 1500, 101, "waiting for the server\n");
    late.ended.reached = Some(Reached::Wall(Duration::from_millis(1500)));
    late.ended.usage.peak_kib = 20_480;
    late.ended.usage.cpu_micros = 12_345;
    let mut forgetful = attempt(30, 210, 0, "");
    let command = format!("sleep 1000 {HOSTILE}");
    forgetful.ended.remaining = vec![RemainingProcess { pid: 7, command }];
    forgetful.ended.usage.peak_kib = 1_536;
    let mut killed = attempt(240, 12, 0, HOSTILE);
    killed.ended.status = ExitStatus::from_raw(9);
    run(
        "web",
        vec![
            tested("server::answers", vec![attempt(0, 30, 0, "not shown")]),
            tested("server::is_late", vec![late]),
            tested("client::forgets", vec![forgetful]),
            Tested { explained: Some(denied()), ..tested(HOSTILE, vec![killed]) },
            tested("client::retries", vec![attempt(252, 40, 101, "no luck"), attempt(300, 35, 0, "")]),
            Tested { ignored: Some("needs <root>".to_owned()), ..tested("client::mounts", Vec::new()) },
        ],
    )
}

#[test]
fn page_of_a_made_up_run_is_golden() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page.html");
    let found = everything().into_page("").unwrap();
    if std::env::var_os("HUSK_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&golden, &found).unwrap();
    }
    assert!(found == fs::read_to_string(&golden).unwrap_or_default(), "{} differs", golden.display());
}

#[test]
fn hostile_text_adds_no_element() {
    let page = everything().into_page("").unwrap();
    for start in ["<img", "\x1b", "\0", "\u{202e}"] {
        assert!(!page.contains(start), "{start:?}");
    }
    // The page's own script and its data.
    assert_eq!(page.matches("</script>").count(), 2);
}

#[test]
fn run_replaces_the_earlier_one_with_its_id() {
    let both = run("cli", vec![tested("a", vec![attempt(0, 9, 0, "")])]);
    let both = both.into_page(&everything().into_page("").unwrap()).unwrap();
    assert!(both.contains("<h1 class=\"failed\">2 of 7 tests failed</h1>"), "{both}");
    assert!(both.contains("<bdi>a</bdi> <small>cli</small>"), "{both}");
    let mut again = run("web", vec![tested("server::answers", vec![attempt(0, 30, 0, "")])]);
    let better = again.clone().into_page(&both).unwrap();
    assert!(better.contains("<h1 class=\"passed\">2 tests passed</h1>"), "{better}");
    again.not_run = 3;
    let stopped = again.into_page(&better).unwrap();
    assert!(stopped.contains("<h1 class=\"failed\">3 of 5 tests not run</h1>"), "{stopped}");
    for foreign in ["<html></html>", &both.replace("\nrun\t", "\nwalk\t"), &both[1..both.len() - 1]] {
        assert!(run("web", Vec::new()).into_page(foreign).is_err());
    }
}

/// nextest runs each test in a process, in parallel, and runs those that failed again.
#[test]
fn runs_of_a_group_are_one_run() {
    let grouped = |group: &str, began, name: &str, code| {
        let mut run = run("web", vec![tested(name, vec![attempt(0, 9, code, "")])]);
        run.group = Some(Group { name: group.to_owned(), began });
        run
    };
    let add = |page: String, run: Run| run.into_page(&page).unwrap();
    let runs = [("a", 70_000, 0), ("b", 50_000, 101), ("c", 60_000, 101), ("b", 90_000, 0)];
    let page = runs
        .map(|(name, began, code)| grouped("one", began, name, code))
        .into_iter()
        .fold(String::new(), add);
    assert!(page.contains("<h1 class=\"failed\">1 of 3 tests failed</h1>"), "{page}");
    assert!(!page.contains("<section id=\"binaries\">"), "{page}");
    assert!(page.contains("\ntest\tb\tflaky\t\nattempt\t0\t9000\t0\t0\t\nattempt\t40000\t"), "{page}");
    assert!(page.contains("\ntest\ta\tpassed\t\nattempt\t20000\t"), "{page}");
    // They ran at a time: the whole takes as long as until the end of the last one.
    assert!(page.contains("<p>4 runs, at most 1 at a time, 49 ms;"), "{page}");
    // The next nextest begins anew.
    let next = add(page, grouped("two", 99_000, "a", 0));
    assert!(next.contains("<h1 class=\"passed\">1 test passed</h1>"), "{next}");
}

#[test]
fn timeline_of_many_tests_stays_small() {
    let name = |number: u64| format!("module::of::ordinary::depth::test_number_{number}");
    let tests = (0..2000).map(|number| tested(&name(number), vec![attempt(number * 3, 5, 0, "")]));
    let page = run("many", tests.collect()).into_page("").unwrap();
    let svg = &page[page.find("<svg").unwrap()..page.find("</svg>").unwrap()];
    assert_eq!(svg.matches("<rect").count(), 2000);
    assert!(svg.len() < 350_000, "{} bytes", svg.len());
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}
