//! Tests that several machines share: `--shard` with `--durations`, and `--merge` of what they report. The tests are
//! shell scripts that print TAP, and scripts that answer like test binaries.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// A project whose tests are divided.
pub(crate) struct Machines {
    pub(crate) place: Project,
}

impl Machines {
    /// Returns a project with these tests, each of which has one test point.
    pub(crate) fn with(tests: &[&str]) -> Self {
        let machines = Self { place: Project::new() };
        tests.iter().for_each(|name| machines.script(name, "echo ok; echo 1..1"));
        machines
    }

    pub(crate) fn script(&self, name: &str, text: &str) {
        let path = self.place.path(&format!("here/{name}"));
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn report(&self, part: usize) -> String {
        self.place.path(&format!("{part}.json"))
    }

    fn lines(&self, part: usize) -> Vec<Value> {
        let lines = fs::read_to_string(self.report(part)).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs a shard of these programs.
    fn shard(&self, part: usize, parts: usize, options: &[&str], programs: &[&str]) -> Seen {
        let mut command = self.place.command(&[&["--tap", "--each"], options].concat(), programs);
        command.env("HUSK_TEST_SHARD", format!("{part}/{parts}")).env("HUSK_TEST_JSON", self.report(part));
        Seen(command.output().unwrap())
    }

    /// Runs all shards. Returns the names that each has run, in the order of their starts.
    fn shards(&self, parts: usize, options: &[&str], programs: &[&str]) -> Vec<Vec<String>> {
        let shard = |part| {
            drop(fs::remove_file(self.report(part)));
            self.shard(part, parts, options, programs);
            let listed = self.lines(part)[0]["listed"].as_array().unwrap().clone();
            listed.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        (1..=parts).map(shard).collect()
    }

    fn merge(&self, options: &[&str], reports: &[String]) -> Seen {
        let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
        command.args(["test", "--merge"]).args(options).args(reports).current_dir(self.place.path("here"));
        Seen(command.output().unwrap())
    }

    /// Writes a report that says how many milliseconds each test took.
    fn durations(&self, times: &[(&str, u64)]) -> String {
        let path = self.place.path("durations.json");
        let line = |(test, millis): &(&str, u64)| result(test, *millis).to_string() + "\n";
        fs::write(&path, times.iter().map(line).collect::<String>()).unwrap();
        path
    }
}

fn result(test: &str, millis: u64) -> Value {
    json!({
        "binary": "tap", "suite": "tap", "test": test, "verdict": "passed", "attempts": 1, "status": "exit status: 0",
        "start_ms": 0, "wall_ms": millis, "cpu_ms": 0, "peak_kib": 0
    })
}

#[test]
fn shards_of_durations_end_together() {
    need!(has_sandboxes(), "needs user namespaces");
    let tests = ["a.t", "b.t", "c.t", "d.t", "new.t"];
    let machines = Machines::with(&tests);
    let even = machines.shards(2, &[], &tests);
    assert_eq!(even, [vec!["a.t", "c.t", "new.t"], vec!["b.t", "d.t"]]);
    let durations =
        machines.durations(&[("a.t", 10), ("b.t", 70), ("c.t", 30), ("d.t", 20), ("gone.t", 900)]);
    let divided = machines.shards(2, &["--durations", &durations], &tests);
    // The new test counts as the median, 30 ms.
    assert_eq!(divided, [vec!["b.t", "a.t"], vec!["c.t", "new.t", "d.t"]]);
    // The order of the arguments does not matter.
    let reversed: Vec<_> = tests.iter().rev().copied().collect();
    assert_eq!(machines.shards(2, &[], &reversed), even);
    assert_eq!(machines.shards(2, &["--durations", &durations], &reversed), divided);
    // husk.toml says the same. Its paths are relative to it.
    fs::copy(&durations, machines.place.path("here/times.json")).unwrap();
    fs::write(machines.place.path("here/husk.toml"), "durations = \"times.json\"\n").unwrap();
    assert_eq!(machines.shards(2, &[], &tests), divided);
    fs::write(machines.place.path("here/husk.toml"), "[[override]]\ntest = \"a\"\ndurations = \"x\"\n")
        .unwrap();
    machines.shard(1, 2, &[], &tests).fails(125, "durations applies to all tests");
}

#[test]
fn joined_report_gives_the_durations_of_the_next_run() {
    need!(has_sandboxes(), "needs user namespaces");
    let tests = ["a.t", "b.t", "c.t"];
    let machines = Machines::with(&tests);
    // Only its last point has the time of the program.
    machines.script("b.t", "echo ok; sleep 0.2; echo ok; echo 1..2");
    machines.shards(2, &[], &tests);
    let all = machines.place.path("all.json");
    machines.merge(&["--json", &all], &[machines.report(1), machines.report(2)]).succeeds();
    let divided = machines.shards(2, &["--durations", &all], &tests);
    assert_eq!(divided[0], ["b.t"]);
    assert_eq!(divided[1].len(), 2);
}

#[test]
fn durations_that_cannot_be_read_are_reported() {
    need!(has_sandboxes(), "needs user namespaces");
    let tests = ["a.t", "b.t"];
    let machines = Machines::with(&tests);
    let path = machines.durations(&[("a.t", 10), ("b.t", 70)]);
    let with = || machines.shard(1, 2, &["--durations", &path], &tests);
    with().succeeds();
    assert!(machines.lines(1)[0]["durations"].is_string());
    let whole = fs::read_to_string(&path).unwrap();
    for (text, why) in [
        (whole.replace("70", "-70"), "line 2 is not one of a report; tests are divided evenly"),
        (whole.replace("70", "1e999"), "line 2 is not one of a report"),
        (whole.replace("\"tap\"", "7"), "line 1 is not one of a report"),
        (format!("{whole}\n"), "line 3 is not one of a report"),
        (whole.trim_end().to_owned(), "it is cut off in line 2"),
    ] {
        fs::write(&path, text).unwrap();
        let seen = with();
        seen.succeeds();
        seen.says(&format!("no durations from {path}: {why}"));
    }
    fs::remove_file(&path).unwrap();
    with().says("no such file or directory; tests are divided evenly");
    let fifo = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(fifo.success());
    with().says("is not a regular file; tests are divided evenly");
    let report = machines.report(1);
    machines.shard(1, 2, &["--durations", &report], &tests).fails(125, "is also --json");
}

#[test]
fn reports_of_all_shards_are_one_verdict() {
    need!(has_sandboxes(), "needs user namespaces");
    let tests = ["a.t", "b.t", "c.t", "d.t"];
    let machines = Machines::with(&tests);
    // A writable directory keeps a file between the attempts.
    let here = machines.place.path("here");
    machines.script("b.t", "test -e left || { echo > left; echo not ok; echo '# first <'; echo 1..1; exit; }; echo ok; echo 1..1");
    machines.script("d.t", "echo ok '# SKIP later'; echo 1..1");
    machines.shards(2, &["--retries=1", "--write", &here], &tests);
    let reports = [machines.report(1), machines.report(2)];
    let [json, junit, html] = ["all.json", "junit.xml", "page.html"].map(|name| machines.place.path(name));
    let options = ["--json", &json, "--junit", &junit, "--html", &html];
    let seen = machines.merge(&options, &reports);
    seen.succeeds();
    seen.shows("\nrunning 4 tests in 2 shards\nshard 1/2: 2 tests in ");
    seen.shows("\nflaky:\n    b.t 1\n");
    seen.shows("\ntest result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in ");
    let document = fs::read_to_string(&junit).unwrap();
    assert_eq!(document.matches("<testsuite ").count(), 1, "{document}");
    assert!(document.contains("<testsuite name=\"tap\""), "{document}");
    assert!(document.contains("tests=\"4\" failures=\"0\" errors=\"0\" skipped=\"1\""), "{document}");
    assert!(
        document.contains("<flakyFailure type=\"failure\" message=\"failed\">not ok\n# first &lt;\n"),
        "{document}"
    );
    assert!(document.contains("<skipped message=\"later\"/>"), "{document}");
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("<h1 class=\"passed\">3 tests passed</h1>"), "{page}");
    let lines = fs::read_to_string(&json).unwrap();
    assert_eq!(lines.lines().count(), 4, "{lines}");
    assert!(!lines.contains("\"run\""), "{lines}");
    // Joining again replaces the reports.
    machines.script("c.t", "echo not ok '- \x1b[31mc'; echo 1..1");
    machines.shards(2, &["--retries=1", "--write", &here], &tests);
    let seen = machines.merge(&options, &reports);
    seen.fails(101, "");
    seen.shows("---- c.t 1 - ");
    assert!(!seen.0.stdout.contains(&0x1b));
    assert_eq!(fs::read_to_string(&json).unwrap().lines().count(), 4);
    assert!(fs::read_to_string(&junit).unwrap().contains("failures=\"1\""));
    fs::write(&junit, "<somebody-elses/>").unwrap();
    machines.merge(&options, &reports).fails(125, "already exists and is not a report by husk");
    machines.merge(&["--json", &reports[0]], &reports).fails(125, "is one of the reports to join");
}

/// Each change to complete reports is named, and fails the whole.
#[test]
fn incomplete_reports_fail() {
    need!(has_sandboxes(), "needs user namespaces");
    let tests = ["a.t", "b.t", "c.t", "d.t"];
    let machines = Machines::with(&tests);
    machines.shards(2, &[], &tests);
    let paths = [machines.report(1), machines.report(2)];
    let [one, two] = [&paths[0], &paths[1]].map(|path| fs::read_to_string(path).unwrap());
    machines.merge(&[], &paths).succeeds();
    let without = |text: &str, place: usize| {
        let mut lines: Vec<_> = text.split_inclusive('\n').collect();
        lines.remove(place);
        lines.concat()
    };
    let run = machines.lines(2)[0]["run"].as_str().unwrap().to_owned();
    let parts = two.replace("\"shard\":[2,2]", "\"shard\":[2,4]");
    let lists = |names: &str| two.replace("[\"b.t\",\"d.t\"]", names);
    let other = two.replace("\"suite\":\"tap\"", "\"suite\":\"web\"").replace("\"id\":\"", "\"id\":\"web ");
    let cut = two.rfind("not_run").unwrap();
    for (text, why) in [
        (String::new(), "2.json: records no shard"),
        (without(&two, 0), "2.json: has results of shards that are not in it: "),
        (without(&two, 1), "2.json: tap shard 2/2 has 1 results of 2"),
        (without(&two, 1), "tap shard 2/2: never ran: "),
        (without(&two, 3), "2.json: the report of tap shard 2/2 ends too early"),
        (two[..cut].to_owned(), "2.json: is cut off in line 4"),
        (two.replacen("\"passed\"", "\"pass\"", 1), "2.json: is damaged in line 2"),
        (format!("{two}{}", "[".repeat(100_000) + "\n"), "2.json: is damaged in line 5"),
        (parts, "1.json has shard 1/2 and"),
        (lists("[\"a.t\",\"b.t\",\"d.t\"]"), "tap: ran twice, in shards 1/2 and 2/2: a.t"),
        (lists("[\"b.t\"]"), "tap: tests that were listed are in no shard"),
        (two.replace("\"all\":4", "\"all\":5"), "tap shard 1/2 and tap shard 2/2 have different tests"),
        (two.replace("\"durations\":null", "\"durations\":\"1\""), "were divided by different --durations"),
        (other, "web: shard 1/2 is missing"),
        (two.clone() + &two, "2.json: repeats tap shard 2/2"),
        (two.clone() + &two.replace(&run, "another"), "tap shard 2/2 ran twice in "),
        (one.clone(), "2.json: repeats tap shard 1/2"),
        (one, "shard 2/2 is missing"),
    ] {
        fs::write(&paths[1], text).unwrap();
        machines.merge(&[], &paths).fails(101, why);
    }
    let junit = machines.place.path("junit.xml");
    machines.merge(&["--junit", &junit], &paths[..1]).fails(101, "husk: shard 2/2 is missing");
    let document = fs::read_to_string(junit).unwrap();
    assert!(document.contains("<testcase name=\"shard 2/2 is missing\""), "{document}");
    machines.merge(&[], &["/no/such".to_owned()]).fails(101, "/no/such: no such file or directory");
    machines.merge(&[], &[machines.place.path("here")]).fails(101, "is not a regular file");
    machines.merge(&[], &[]).fails(125, "");
}

#[test]
fn tests_that_were_not_run_fail_the_joined_report() {
    need!(has_sandboxes(), "needs user namespaces");
    let tests = ["a.t", "b.t", "c.t"];
    let machines = Machines::with(&tests);
    machines.script("a.t", "echo not ok; echo 1..1");
    machines.shard(1, 1, &["--fail-fast"], &tests).fails(101, "");
    let end = machines.lines(1).pop().unwrap();
    // As many as were running when the first failed may have ended.
    assert_eq!(end["results"].as_u64().unwrap() + end["not_run"].as_u64().unwrap(), 3, "{end}");
    let seen = machines.merge(&[], &[machines.report(1)]);
    seen.fails(101, if end["not_run"] == 0 { "" } else { "tests were not run: " });
    // A test that ends husk itself leaves no end.
    machines.script("a.t", "echo ok; echo 1..1");
    machines.script("c.t", "read line");
    drop(fs::remove_file(machines.report(1)));
    let mut command =
        machines.place.command(&["--tap", "--each", "--shard=1/1", "--json", &machines.report(1)], &tests);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().contains("test ")));
    child.kill().unwrap();
    child.wait().unwrap();
    machines.merge(&[], &[machines.report(1)]).fails(101, "ends too early");
}

/// Text and numbers of a report are those of another machine.
#[test]
fn hostile_report_is_harmless() {
    let machines = Machines::with(&[]);
    let hostile = "</testcase>\x1b[2J\n    husk: ok\n\u{202e}";
    let mut test = result(hostile, 1);
    let most = u64::MAX;
    for (name, value) in [("wall_ms", json!(1e300)), ("start_ms", json!(1e300)), ("peak_kib", json!(most))] {
        test[name] = value;
    }
    (test["cpu_ms"], test["run"]) = (json!(1e300), hostile.into());
    (test["verdict"], test["output"]) = ("failed".into(), hostile.into());
    (test["earlier"], test["remarks"]) = (json!([test.clone(), test.clone()]), json!([["left", hostile]]));
    let begin = |run: &str, part: u64, began: u64| {
        json!({
            "run": run, "suite": hostile, "id": hostile, "shard": [part, 65536], "began": began, "timestamp": hostile,
            "durations": null, "all": most, "digest": "ffffffffffffffff", "listed": [hostile, hostile]
        })
    };
    let end = json!({ "run": hostile, "results": 9, "not_run": u32::MAX, "not_begun": [hostile], "wall_ms": 1e300 });
    let mut later = test.clone();
    later["run"] = "b".into();
    let lines = [begin(hostile, 1, 0), begin("b", 2, most), test, later, end];
    let text: String = lines.iter().map(|line| line.to_string() + "\n").collect();
    let path = machines.report(1);
    fs::write(&path, text).unwrap();
    let [junit, html, json] = ["j", "h", "l"].map(|name| machines.place.path(name));
    let seen = machines.merge(&["--junit", &junit, "--html", &html, "--json", &json], &[path]);
    seen.fails(101, "husk: shards 3/65536, 4/65536,");
    seen.says("and 65524 others are missing");
    assert!(!seen.0.stdout.contains(&0x1b) && !seen.0.stderr.contains(&0x1b));
    let errors = String::from_utf8_lossy(&seen.0.stderr);
    assert!(errors.lines().all(|line| line.starts_with("husk: ")), "{errors}");
    // Neither its times nor its clock let sums overflow.
    assert!(fs::read_to_string(&html).unwrap().contains("333333 min 20 s"));
    for path in [junit, html, json] {
        let text = fs::read_to_string(path).unwrap();
        assert!(!text.contains('\x1b') && !text.contains("</testcase>\u{1b}"), "{text}");
    }
    // Numbers that no report has.
    for (from, to) in [("65536", "65537"), ("65536", "0"), ("\"results\":9", "\"results\":-1")] {
        let text: String = lines.iter().map(|line| line.to_string() + "\n").collect();
        fs::write(machines.report(1), text.replace(from, to)).unwrap();
        machines.merge(&[], &[machines.report(1)]).fails(101, "is damaged in line");
    }
}

/// Files that would block a reader or fill its memory.
#[test]
fn report_that_never_ends_is_refused() {
    let machines = Machines::with(&[]);
    let path = machines.report(1);
    let merge = || machines.merge(&[], std::slice::from_ref(&path));
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    merge().fails(101, "is not a regular file");
    for device in ["/dev/zero", "/dev/tty"] {
        let seen = machines.merge(&[], &[device.to_owned()]);
        assert_eq!(seen.0.status.code(), Some(101), "{device}");
    }
    fs::remove_file(&path).unwrap();
    let file = fs::File::create(&path).unwrap();
    // Its size says that it is too long before a byte of it is read.
    file.set_len(1 << 40).unwrap();
    merge().fails(101, "has more than 512 MiB");
    drop(file);
    for (text, why) in [
        ("\n".repeat(1 << 22), "is damaged in line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 4194294 others"),
        ("[".repeat(1 << 24) + "\n", "is damaged in line 1"),
        (format!("{{\"run\":\"\",\"x\":[0{}]}}\n", ",0".repeat(1 << 24)), "is damaged in line 1"),
        ("x".repeat(1 << 24), "is cut off in line 1"),
        (
            "{\"run\":\"\",\"results\":0,\"not_run\":0,\"not_begun\":[],\"wall_ms\":0}\n".repeat(1 << 16),
            "has further problems",
        ),
    ] {
        fs::write(&path, text).unwrap();
        let mut command = Command::new("sh");
        // Limited to 600 MB of memory, of which the values would take more.
        let script = format!("ulimit -v 600000; exec {} test --merge {path}", env!("CARGO_BIN_EXE_husk"));
        let seen = Seen(command.args(["-c", &script]).output().unwrap());
        seen.fails(101, why);
        assert!(seen.0.stderr.len() < 20_000);
    }
    // As many suites as shards, each of which lacks all other shards.
    let begin = |part: usize| {
        json!({
            "run": part.to_string(), "suite": part.to_string(), "id": part.to_string(), "shard": [part, 65536], "began": 0,
            "timestamp": "", "durations": null, "all": 0, "digest": "0", "listed": []
        })
        .to_string() + "\n"
    };
    fs::write(&path, (1..=16384).map(begin).collect::<String>()).unwrap();
    merge().fails(101, "and 16373 others are missing");
}

/// Lists two tests, and passes each of them.
const BINARY: &str = r#"case "$*" in
    *--list*--ignored*) ;;
    *--list*) echo "one: test"; echo "two: test";;
esac"#;

#[test]
fn binaries_of_cargo_share_a_report() {
    need!(has_sandboxes(), "needs user namespaces");
    let machines = Machines::with(&[]);
    fs::create_dir(machines.place.path("here/deps")).unwrap();
    let binaries = ["web", "db"].map(|name| format!("deps/{name}-0123456789abcdef"));
    binaries.iter().for_each(|name| machines.script(name, BINARY));
    let durations = machines.place.path("durations.json");
    let times = [("web", "one", 90), ("web", "two", 10), ("db", "one", 80), ("db", "two", 10)];
    // Reports of older versions name only the binary.
    let line = |(binary, test, millis): &(&str, &str, u64)| {
        let mut line = result(test, *millis);
        line["binary"] = format!("/elsewhere/deps/{binary}-fedcba9876543210").into();
        line.as_object_mut().unwrap().remove("suite");
        line.to_string() + "\n"
    };
    fs::write(&durations, times.iter().map(line).collect::<String>()).unwrap();
    let run = |part: usize, options: &[&str], words: &[&str]| {
        for binary in &binaries {
            let report = machines.report(part);
            let shard = format!("{part}/2");
            let options = [&["--runner", "--json", &report, "--shard", &shard], options].concat();
            let binary = machines.place.path(&format!("here/{binary}"));
            let mut command = machines.place.command(&options, &[&[binary.as_str()], words].concat());
            // The cargo that runs this test has set it.
            Seen(command.env_remove("CARGO_PKG_NAME").output().unwrap()).succeeds();
        }
    };
    let reports = [machines.report(1), machines.report(2)];
    let listed = |part| -> Vec<_> {
        let lines = machines.lines(part);
        lines.iter().filter(|line| line["listed"].is_array()).map(|line| line["listed"].clone()).collect()
    };
    for part in [1, 2] {
        run(part, &["--durations", &durations], &[]);
    }
    // The longest tests of the two binaries are in different shards.
    assert_eq!(listed(1), [json!(["one", "two"]), json!([])]);
    assert_eq!(listed(2), [json!([]), json!(["one", "two"])]);
    let junit = machines.place.path("junit.xml");
    let seen = machines.merge(&["--junit", &junit], &reports);
    seen.succeeds();
    seen.shows("running 4 tests in 2 shards");
    let document = fs::read_to_string(&junit).unwrap();
    assert_eq!(document.matches("<testsuite ").count(), 2, "{document}");
    // A binary whose tests must run together is in the first shard.
    reports.iter().for_each(|report| fs::remove_file(report).unwrap());
    for part in [1, 2] {
        run(part, &[], &["--bench"]);
    }
    assert_eq!(listed(2), [json!([]), json!([])]);
    machines.merge(&[], &reports).shows("running 2 tests in 2 shards");
    machines.merge(&[], &reports).succeeds();
    // A binary that one machine did not reach.
    let text = fs::read_to_string(&reports[1]).unwrap();
    let (web, _) = text.split_inclusive('\n').enumerate().partition::<Vec<_>, _>(|(place, _)| *place < 2);
    fs::write(&reports[1], web.into_iter().map(|(_, line)| line).collect::<String>()).unwrap();
    machines.merge(&[], &reports).fails(101, "husk: db: shard 2/2 is missing");
}
