//! `test --runner`: a libtest binary prints the same as without husk, and husk reports its results to other programs.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use std::fs;
use std::io::{BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Tests of every kind. The flaky test passes if it finds the file that an earlier attempt has left.
const TESTS: &str = r#"
#[test] fn passes() { println!("heard") }
#[test] fn fails() { println!("said"); eprintln!("and said"); panic!("on purpose") }
#[test] fn fails_silently() -> std::process::ExitCode { std::process::ExitCode::FAILURE }
#[test] fn fails_with_an_error() -> Result<(), String> { Err("\x1b[31m<no>".to_owned()) }
#[test] #[should_panic] fn panics() { println!("before"); panic!("x") }
#[test] #[should_panic] fn panics_not() {}
#[test] #[should_panic(expected = "abc")] fn panics_otherwise() { panic!("def") }
#[test] #[ignore] fn is_ignored() {}
#[test] #[ignore = "it has a reason"] #[should_panic] fn is_ignored_because() {}
#[test] fn speaks() { std::process::Command::new("echo").arg("ok\n\nraw").status().unwrap(); }
#[test] #[ignore] fn waits() { drop(std::fs::read(std::env::var("CARGO_FIFO").unwrap()).unwrap()) }
mod flaky {
    #[test] #[ignore] fn it_is() {
        let path = std::env::var("CARGO_LEFT").unwrap();
        if !std::fs::exists(&path).unwrap() { std::fs::write(path, "").unwrap(); panic!("the first time") }
    }
}
mod many { macro_rules! many { ($($name:ident)*) => { $(#[test] fn $name() {})* } }
    many!(a0 a1 a2 a3 a4 a5 a6 a7 a8 a9 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 c0 c1 c2 c3 c4 c5 c6 c7 c8 c9
          d0 d1 d2 d3 d4 d5 d6 d7 d8 d9 e0 e1 e2 e3 e4 e5 e6 e7 e8 e9 f0 f1 f2 f3 f4 f5 f6 f7 f8 f9
          g0 g1 g2 g3 g4 g5 g6 g7 g8 g9 h0 h1 h2 h3 h4 h5 h6 h7 h8 h9 i0 i1 i2 i3 i4 i5 i6 i7 i8 i9);
}
"#;

/// The document type of the reports that JUnit's tools expect.
const DTD: &str = "
<!ELEMENT testsuites (testsuite*)> <!ATTLIST testsuites name CDATA #IMPLIED>
<!ELEMENT testsuite (testcase*)>
<!ATTLIST testsuite name CDATA #REQUIRED id CDATA #IMPLIED timestamp CDATA #IMPLIED tests CDATA #REQUIRED
    failures CDATA #REQUIRED errors CDATA #REQUIRED skipped CDATA #IMPLIED time CDATA #IMPLIED>
<!ELEMENT testcase (skipped | failure | rerunFailure | flakyFailure | system-out | system-err)*>
<!ATTLIST testcase name CDATA #REQUIRED classname CDATA #IMPLIED time CDATA #IMPLIED>
<!ELEMENT skipped (#PCDATA)> <!ATTLIST skipped message CDATA #IMPLIED>
<!ELEMENT failure (#PCDATA)> <!ATTLIST failure type CDATA #IMPLIED message CDATA #IMPLIED>
<!ELEMENT rerunFailure (#PCDATA)> <!ATTLIST rerunFailure type CDATA #REQUIRED message CDATA #IMPLIED>
<!ELEMENT flakyFailure (#PCDATA)> <!ATTLIST flakyFailure type CDATA #REQUIRED message CDATA #IMPLIED>
<!ELEMENT system-out (#PCDATA)> <!ELEMENT system-err (#PCDATA)>
";

/// Returns rustc. If several versions are installed, it is the one that built this test.
fn rustc() -> Command {
    let mut command = Command::new("rustc");
    command.env("RUSTUP_TOOLCHAIN", option_env!("RUSTUP_TOOLCHAIN").unwrap_or("stable"));
    command
}

/// Whether the current user can compile: the compiler may be in another user's home directory.
pub(crate) fn has_rustc() -> bool {
    rustc().arg("--version").output().is_ok_and(|said| said.status.success())
}

/// A [`Project`] with a compiled binary of `TESTS`.
pub(crate) struct Binary {
    pub(crate) place: Project,
    pub(crate) path: PathBuf,
}

impl Binary {
    pub(crate) fn new() -> Self {
        Self::of(TESTS)
    }

    /// Compiles this source.
    pub(crate) fn of(tests: &str) -> Self {
        let place = Project::new();
        let path = PathBuf::from(place.path("here/deps/lab-0123456789abcdef"));
        fs::create_dir(path.parent().unwrap()).unwrap();
        let source = place.path("here/lab.rs");
        fs::write(&source, tests).unwrap();
        let built = rustc()
            .args(["--test", "--edition=2024", "--crate-name=lab", "-Cdebuginfo=0", "-o"])
            .args([&path, Path::new(&source)])
            .output()
            .unwrap();
        Seen(built).succeeds();
        Self { place, path }
    }

    /// Runs the binary with these words, without husk.
    fn alone(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.path);
        command.args(words).current_dir(self.place.path("here")).stdin(Stdio::null());
        command.env_remove("RUST_BACKTRACE").output().unwrap()
    }

    /// Runs the binary with these words under husk, with these options.
    pub(crate) fn with_husk(&self, options: &[&str], words: &[&str]) -> Output {
        let options = [&["--runner"], options].concat();
        let mut command = self.place.command(&options, &[&[self.path.to_str().unwrap()], words].concat());
        let manifest = self.place.path("here");
        command.env_remove("RUST_BACKTRACE").env_remove("CARGO_PKG_NAME").env("CARGO_MANIFEST_DIR", manifest);
        command.output().unwrap()
    }
}

/// Returns the lines of the output, without the parts that differ from run to run.
fn lines(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    // libtest prints this hint once in each process, and husk runs several.
    let lines = text.lines().filter(|line| !line.contains("RUST_BACKTRACE=1"));
    let lines = lines.map(|line| match line.split_once("; finished in ") {
        Some((before, _)) => before.to_owned(),
        None => match (line.find("' ("), line.find(") panicked at ")) {
            (Some(begin), Some(end)) => [&line[..begin], &line[end..]].concat(),
            _ => line.to_owned(),
        },
    });
    lines.collect()
}

#[test]
fn output_matches_that_of_libtest() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let binary = Binary::new();
    // One test at a time makes the order fixed. husk does not show what a child of a passing test writes.
    for words in [
        "",
        "-q",
        "--format=terse many",
        "--skip many --show-output",
        "--skip many --nocapture",
        "--skip many --no-capture --show-output",
        "--exact fails many::a0",
        "--exact is_ignored is_ignored_because",
        "no_such_test",
        "--ignored --skip flaky --skip waits",
        "--include-ignored is_ignored",
        "--list",
        "--list --format terse",
        "--help",
        "--no-such-option",
    ] {
        let is_uncaptured = words.contains("capture");
        let mut words: Vec<_> = words.split_whitespace().chain(["--test-threads=1"]).collect();
        if !is_uncaptured {
            words.extend(["--skip", "speaks"]);
        }
        let (alone, seen) = (binary.alone(&words), binary.with_husk(&[], &words));
        assert_eq!(lines(&seen.stdout), lines(&alone.stdout), "{words:?}");
        assert_eq!(lines(&seen.stderr), lines(&alone.stderr), "{words:?}");
        assert_eq!(seen.status.code(), alone.status.code(), "{words:?}");
    }
    // With several threads the order varies. Without capture, libtest's lines would mix with the threads' output.
    let sorted = |output: Output| {
        let mut lines = lines(&output.stdout);
        lines.sort_unstable();
        lines
    };
    let words = ["--skip", "speaks", "--skip", "many", "--test-threads=4"];
    assert_eq!(sorted(binary.with_husk(&[], &words)), sorted(binary.alone(&words)));
    let colored = String::from_utf8(binary.with_husk(&[], &["--color=always", "passes"]).stdout).unwrap();
    assert!(colored.contains("\x1b[32mok\x1b"), "{colored}");
}

#[test]
fn full_disk_is_in_every_report() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let binary = Binary::of("#[test] fn fills() { std::fs::write(\"/tmp/own\", [1; 100_000]).unwrap() }");
    let reports = ["json", "junit", "html"].map(|name| (format!("--{name}"), binary.place.path(name)));
    let mut options = vec!["--disk", "64k", "--explain", "off"];
    reports.iter().for_each(|(option, path)| options.extend([option, &**path]));
    let seen = binary.with_husk(&options, &[]);
    let limit = "disk limit of 65536 bytes reached";
    let said = String::from_utf8(seen.stdout).unwrap();
    assert!(said.contains(&format!("test fills ... FAILED ({limit})")), "{said}");
    let [json, junit, html] = reports.map(|(_, path)| fs::read_to_string(path).unwrap());
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["limit"], limit);
    assert!(junit.contains(&format!("<failure type=\"limit\" message=\"{limit}\">")), "{junit}");
    let (_, section) = html.split_once("<section id=\"full\">").unwrap();
    assert!(
        section.split_once("</section>").unwrap().0.contains(&format!("fills</bdi><td>{limit}")),
        "{section}"
    );
}

/// nextest runs a process for each test, several at a time.
#[test]
fn tests_of_nextest_share_their_reports() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let binary = Binary::new();
    let reports = ["json", "junit", "html"].map(|name| binary.place.path(name));
    let [json, junit, html] = &reports;
    let run = |id: &str, names: &[&str]| {
        let husk = |name: &&str| {
            let options = ["--runner", "--explain", "off", "--json", json, "--junit", junit, "--html", html];
            let words = [binary.path.to_str().unwrap(), "--exact", name, "--nocapture"];
            let mut command = binary.place.command(&options, &words);
            command.env("NEXTEST_TEST_PHASE", "run").env("NEXTEST_RUN_ID", id);
            command.env_remove("CARGO_PKG_NAME").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let husks: Vec<_> = names.iter().map(husk).collect();
        for mut husk in husks {
            assert!(husk.wait().unwrap().code().is_some());
        }
    };
    let names = ["passes", "fails", "many::a0", "many::a1", "many::a2", "many::a3", "many::a4", "many::a5"];
    run("first", &names);
    let [lines, document, page] = reports.each_ref().map(|path| fs::read_to_string(path).unwrap());
    assert_eq!(lines.lines().count(), names.len(), "{lines}");
    assert_eq!(document.matches("<testcase ").count(), names.len(), "{document}");
    assert!(page.contains("<h1 class=\"failed\">1 of 8 tests failed</h1>"), "{page}");
    assert_eq!(page.matches("\nrun\t").count(), 1, "{page}");
    names.iter().for_each(|name| assert!(page.contains(&format!("\ntest\t{name}\t")), "{name}: {page}"));
    run("second", &names[..1]);
    let page = fs::read_to_string(html).unwrap();
    assert!(page.contains("<h1 class=\"passed\">1 test passed</h1>"), "{page}");
}

#[test]
fn results_are_written_as_json_and_xml() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    let binary = Binary::new();
    let (json, junit) = (binary.place.path("out/lines"), binary.place.path("out/junit.xml"));
    fs::create_dir(binary.place.path("out")).unwrap();
    let options = ["--json", &json, "--junit", &junit, "--retries=1"];
    let flaky = binary.place.path("here/left");
    let (write, left) = (binary.place.path("here"), format!("CARGO_LEFT={flaky}"));
    let options = [&options[..], &["--write", &write, "--env", &left]].concat();
    let seen = binary.with_husk(&options, &["--skip", "many", "--skip", "waits", "--include-ignored"]);
    assert_eq!(seen.status.code(), Some(101));
    let text = String::from_utf8(seen.stdout).unwrap();
    assert!(text.contains("test flaky::it_is ... ok (flaky: passed at attempt 2)"), "{text}");
    assert!(
        text.contains("\nflaky:\n    flaky::it_is\n\ntest result: FAILED. 5 passed; 6 failed;"),
        "{text}"
    );

    let line = |test: &str| {
        let lines = fs::read_to_string(&json).unwrap();
        let mut lines = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.find(|line| line["test"] == test).expect(test)
    };
    assert_eq!((&line("fails")["verdict"], &line("fails")["attempts"]), (&"failed".into(), &2.into()));
    assert!(line("fails")["output"].as_str().unwrap().starts_with("said\nand said\n"));
    assert_eq!(
        (&line("flaky::it_is")["verdict"], &line("passes")["verdict"]),
        (&"flaky".into(), &"passed".into())
    );
    assert!(line("passes")["wall_ms"].as_f64().unwrap() > 0.0);
    assert!(line("passes")["peak_kib"].as_u64().unwrap() > 0);
    // The attempt that is reported began after the first one had ended.
    assert!(line("flaky::it_is")["start_ms"].as_f64().unwrap() > 0.0);

    let report = || fs::read_to_string(&junit).unwrap();
    for part in [
        "<testsuite name=\"lab\" id=\"lab-0123456789abcdef\" ",
        " tests=\"11\" failures=\"6\" errors=\"0\" skipped=\"0\" ",
        "<flakyFailure type=\"failure\" message=\"failed\">",
        "<rerunFailure type=\"failure\" message=\"failed\">",
        "Error: &quot;\\u{1b}[31m&lt;no&gt;&quot;",
        " KiB of memory at peak",
    ] {
        assert!(report().contains(part), "{part}\n{}", report());
    }
    // Another run of the same tests replaces its suite in the report; a shard is a suite of its own.
    binary.with_husk(&options, &["many::a0"]);
    assert_eq!(report().matches("<testsuite ").count(), 1);
    binary.with_husk(&[&options[..], &["--shard", "1/2"]].concat(), &["is_ignored"]);
    assert_eq!(report().matches("<testsuite ").count(), 2);
    assert!(report().contains("<skipped/>"), "{}", report());
    let dtd = binary.place.path("junit.dtd");
    fs::write(&dtd, DTD).unwrap();
    if let Ok(checked) = Command::new("xmllint").args(["--noout", "--dtdvalid", &dtd, &junit]).output() {
        Seen(checked).succeeds();
    }

    fs::write(&junit, "<somebody-elses/>").unwrap();
    Seen(binary.with_husk(&options, &["passes"]))
        .fails(125, "junit.xml: already exists and is not a report by husk");
}

#[test]
fn progress_is_shown_on_a_terminal() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_rustc(), "needs a compiler");
    need!(Command::new("script").arg("--version").output().is_ok(), "script(1) is missing");
    let binary = Binary::new();
    let fifo = binary.place.path("here/fifo");
    Seen(Command::new("mkfifo").arg(&fifo).output().unwrap()).succeeds();
    let (husk, path) = (env!("CARGO_BIN_EXE_husk"), binary.path.display());
    let run = format!(
        "exec {husk} test --runner --env CARGO_FIFO={fifo} -- {path} --include-ignored --test-threads=2 many waits"
    );
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--command", &run, "/dev/null"])
        .current_dir(binary.place.path("here"));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut seen, mut bytes) = (Vec::new(), BufReader::new(child.stdout.take().unwrap()).bytes());
    while let Some(Ok(byte)) = bytes.next() {
        seen.push(byte);
        if seen.ends_with(b"\r\x1b[K90 of 91 tests; 1 running, waits for ") {
            // The test reads until a writer has opened and closed the fifo.
            fs::write(&fifo, "").unwrap();
        }
    }
    let seen = String::from_utf8_lossy(&seen).into_owned();
    assert!(child.wait().unwrap().success(), "{seen}");
    assert!(seen.contains("\r\x1b[Ktest waits ... \x1b[32mok\x1b[0m\r\n"), "{seen}");
}

#[test]
fn custom_harness_runs_as_a_whole() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let deps = place.path("here/deps");
    fs::create_dir(&deps).unwrap();
    let path = format!("{deps}/lab-0123456789abcdef");
    fs::write(&path, "#!/bin/sh\necho all of them\nexit $1\n").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    place.test(&["--runner"], &[&path, "0"]).prints("all of them\n");
}

/// Makes a test binary with one test, which runs this shell command.
fn with_one_test(place: &Project, act: &str) -> String {
    let binary = place.path("here/deps/lab-0123456789abcdef");
    fs::create_dir(place.path("here/deps")).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--list*--ignored*) ;; *--list*) echo 'one: test' ;; *) {act} ;; esac"
    );
    fs::write(&binary, script).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
    binary
}

/// Runs the test binary under husk with these options.
fn reported(place: &Project, binary: &str, options: &[&str]) -> Seen {
    place.test(&[&["--runner"], options].concat(), &[binary])
}

#[test]
fn report_that_a_test_may_write_is_refused() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    fs::write(place.path("victim"), "before").unwrap();
    fs::create_dir(place.path("here/out")).unwrap();
    symlink("out", place.path("here/way")).unwrap();
    // After the test, husk would open these links outside the sandbox.
    let plant = "ln -s ../../victim out/j.xml.new; ln -sf ../../victim out/lines";
    let binary = with_one_test(&place, plant);
    for report in ["out/j.xml", "way/j.xml", "out/made/j.xml", "out/../out/lines"] {
        for option in ["--junit", "--json", "--html"] {
            let seen = reported(&place, &binary, &["--write", "out", option, report]);
            seen.fails(125, &format!("{option} {report}: is in --write {}", place.path("here/out")));
        }
    }
    // An override for one test can make the directory writable, too.
    fs::write(place.path("here/husk.toml"), "[[override]]\ntest = \"one\"\nwrite = \"out\"\n").unwrap();
    let options = ["--config", "husk.toml", "--json", "out/lines"];
    reported(&place, &binary, &options).fails(125, "--json out/lines: is in --write");
    assert_eq!(fs::read_to_string(place.path("victim")).unwrap(), "before");
}

#[test]
fn reports_can_be_written_to_descriptors_of_the_caller() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let binary = with_one_test(&place, "true");
    let is_line = |text: &str| text.lines().any(|line| line.starts_with("{\"attempts\":1,"));
    let is_document = |text: &str| text.contains("<?xml") && text.trim_end().ends_with("</testsuites>");
    let is_page = |text: &str| text.contains("<!DOCTYPE html>") && text.trim_end().ends_with("</html>");
    // The streams are pipes. Descriptor 5 is a file, whose previous content is kept.
    let at = |option: &str, report: &str| {
        let file = place.path("file");
        fs::write(&file, "before\n").unwrap();
        let script = "exec 5>>\"$0\"; exec \"$@\"";
        let husk = [env!("CARGO_BIN_EXE_husk"), "test", "--runner", option, report, "--", &binary];
        let mut command = Command::new("sh");
        command.args(["-c", script, &file]).args(husk).current_dir(place.path("here"));
        let seen = command.output().unwrap();
        assert!(seen.status.success(), "{option} {report}: {}", String::from_utf8_lossy(&seen.stderr));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let inner = fs::read_to_string(&file).unwrap();
        [text(seen.stdout), text(seen.stderr), inner.strip_prefix("before\n").unwrap().to_owned()]
    };
    let reports =
        [("-", 0), ("/dev/stdout", 0), ("/dev/stderr", 1), ("/dev/fd/5", 2), ("/proc/self/fd/5", 2)];
    for (report, whither) in reports {
        let streams = at("--json", report);
        let found: Vec<_> = streams.iter().map(|text| is_line(text)).collect();
        assert_eq!(found, [0, 1, 2].map(|stream| stream == whither), "{report}: {streams:?}");
        let streams = at("--junit", report);
        let found: Vec<_> = streams.iter().map(|text| is_document(text)).collect();
        assert_eq!(found, [0, 1, 2].map(|stream| stream == whither), "{report}: {streams:?}");
        let streams = at("--html", report);
        let found: Vec<_> = streams.iter().map(|text| is_page(text)).collect();
        assert_eq!(found, [0, 1, 2].map(|stream| stream == whither), "{report}: {streams:?}");
    }
    fs::write(place.path("here/husk.toml"), "json = \"-\"\n").unwrap();
    let seen = reported(&place, &binary, &["--config", "husk.toml"]);
    assert!(is_line(&seen.succeeds()));
    fs::write(place.path("here/husk.toml"), "html = \"-\"\n").unwrap();
    let seen = reported(&place, &binary, &["--config", &place.path("here/husk.toml")]);
    assert!(is_page(&seen.succeeds()));
    // `-` is standard output, not the name of a file.
    assert!(!fs::exists(place.path("here/-")).unwrap());
    for option in ["--json", "--junit", "--html"] {
        reported(&place, &binary, &[option, "/dev/fd/99"])
            .fails(125, "write to /dev/fd/99: bad file descriptor");
    }
}

#[test]
fn reports_do_not_follow_symlinks() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let binary = with_one_test(&place, "true");
    fs::write(place.path("victim"), "before").unwrap();
    fs::create_dir(place.path("out")).unwrap();
    for name in ["lines", "j.xml", "free.xml.new"] {
        symlink("../victim", place.path("out").to_owned() + "/" + name).unwrap();
    }
    let (lines, junit) = (place.path("out/lines"), place.path("out/j.xml"));
    reported(&place, &binary, &["--json", &lines]).fails(125, "too many levels of symbolic links");
    reported(&place, &binary, &["--junit", &junit]).fails(125, "too many levels of symbolic links");
    reported(&place, &binary, &["--html", &junit]).fails(125, "too many levels of symbolic links");
    reported(&place, &binary, &["--junit", &place.path("out/free.xml")]).succeeds();
    assert_eq!(fs::read_to_string(place.path("victim")).unwrap(), "before");
    assert!(fs::read_to_string(place.path("out/free.xml")).unwrap().contains("<testcase name=\"one\""));
    let mut left: Vec<_> =
        fs::read_dir(place.path("out")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["free.xml", "free.xml.new", "j.xml", "lines"]);
    // A fifo without a reader does not block husk either.
    let fifo = place.path("out/fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    reported(&place, &binary, &["--json", &fifo]).fails(125, &format!("open {fifo}"));
    reported(&place, &binary, &["--junit", &fifo]).fails(125, "is not a regular file");
    reported(&place, &binary, &["--html", &fifo]).fails(125, "is not a regular file");
}
