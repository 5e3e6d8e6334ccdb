//! `test --job`: the printed jobs are valid, and that of Kubernetes runs here with processes as its pods.

use crate::hermetic::{Project, has_sandboxes};
use crate::hermetic_shards::Machines;
use crate::util::{Seen, need};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Returns the script in a printed job, as the shell of a pod gets it.
fn script(job: &str) -> String {
    let (_, script) = job.split_once("- -euc\n            - |\n").unwrap();
    let lines = script.lines().take_while(|line| line.starts_with("              "));
    let lines = lines.map(|line| line.trim_start_matches("              ").to_owned() + "\n");
    as_the_kubelet_reads(&lines.collect::<String>())
}

/// Replaces variables like the kubelet (`Expand` in k8s.io/kubernetes/third_party/forked/golang/expansion), with the one
/// variable that each pod has.
fn as_the_kubelet_reads(text: &str) -> String {
    let (mut read, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        read += before;
        rest = match after.chars().next() {
            Some('$') => &after[1..],
            Some('(') if after.starts_with("(HUSK_JOB)") => {
                read += "replaced";
                rest = &after["(HUSK_JOB)".len()..];
                continue;
            }
            _ => after,
        };
        read.push('$');
    }
    read + rest
}

fn job(options: &[&str], program: &[&str]) -> Seen {
    let mut command = Command::new(env!("CARGO_BIN_EXE_husk"));
    for variable in ["HUSK_TEST_SHARD", "HUSK_TEST_JSON", "HUSK_TEST_DURATIONS"] {
        command.env_remove(variable);
    }
    Seen(command.args(["test", "--job"]).args(options).arg("--").args(program).output().unwrap())
}

/// The pods of a printed job are processes here, which run at the same time.
#[test]
fn last_pod_of_a_job_joins_the_reports() {
    need!(has_sandboxes(), "needs user namespaces");
    let tests = ["a.t", "b.t", "c.t"];
    let machines = Machines::with(&tests);
    let image = ["kubernetes", "--job-image=image", "--shards=3", "--tap", "--each"];
    let reports = machines.place.path("reports");
    fs::create_dir(&reports).unwrap();
    let script = script(&job(&image, &tests).succeeds()).replace("/reports", &reports);
    let husk = std::path::Path::new(env!("CARGO_BIN_EXE_husk")).parent().unwrap().to_owned();
    let path = format!("{}:{}", husk.display(), std::env::var("PATH").unwrap());
    let run = |name: &str, indices: &[usize]| -> Vec<Option<i32>> {
        let pod = |index: &usize| {
            let mut pod = Command::new("sh");
            pod.args(["-euc", &script]).current_dir(machines.place.path("here")).env("PATH", &path);
            pod.env("HUSK_JOB", name).env("JOB_COMPLETION_INDEX", index.to_string());
            pod.stdout(std::process::Stdio::null()).spawn().unwrap()
        };
        let pods: Vec<_> = indices.iter().map(pod).collect();
        pods.into_iter().map(|mut pod| pod.wait().unwrap().code()).collect()
    };
    let read = |name: &str| fs::read_to_string(format!("{reports}/{name}"));
    assert_eq!(run("one", &[0, 1, 2]), [Some(0); 3]);
    assert!(read("one/junit.xml").unwrap().contains("tests=\"3\" failures=\"0\""));
    assert_eq!(read("durations.json").unwrap().lines().count(), 3);
    // The pods of a job use the durations with which it began.
    assert_eq!(read("one/durations.json").unwrap(), "");
    // The pod that ends last fails, whichever shard the failed test is in.
    machines.script("b.t", "echo not ok; echo 1..1");
    assert_eq!(run("two", &[1, 0]), [Some(0); 2]);
    assert!(read("two/junit.xml").is_err());
    assert_eq!(run("two", &[2]), [Some(101)]);
    assert!(read("two/junit.xml").unwrap().contains("tests=\"3\" failures=\"1\""));
    // A pod that was evicted while its shard ran is replaced.
    machines.script("b.t", "echo ok; echo 1..1");
    fs::create_dir(format!("{reports}/three")).unwrap();
    fs::write(format!("{reports}/three/shard-2.json"), "{\"run\":").unwrap();
    assert_eq!(run("three", &[0, 2]), [Some(0); 2]);
    assert_eq!(run("three", &[1]), [Some(0)]);
    // A shard whose report is lost.
    fs::remove_file(format!("{reports}/three/shard-3.json")).unwrap();
    assert_eq!(run("three", &[0]), [Some(101)]);
}

#[test]
fn printed_jobs_are_as_recorded() {
    let cargo = ["cargo", "test", "--offline", "--no-fail-fast"];
    let image = "--job-image=registry.example.org/project-tests:latest";
    for (path, options, program) in [
        ("examples/kubernetes/test-job.yaml", &["kubernetes", image] as &[_], &cargo as &[_]),
        ("tests/jobs/github.yaml", &["github", "--timeout=10s", "--shards=3"], &cargo),
        ("tests/jobs/gitlab.yaml", &["gitlab", "--each", image], &["pytest", "-k", "it's \"b\": # $x ${y}"]),
    ] {
        let printed = job(options, program).succeeds();
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("HUSK_GOLDEN").is_some() {
            fs::write(&path, &printed).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), printed, "{path}");
    }
}

/// Python's parser reads the jobs, if it is there.
#[test]
fn printed_jobs_are_yaml() {
    let has_parser = Command::new("python3").args(["-c", "import yaml"]).output();
    need!(has_parser.is_ok_and(|said| said.status.success()), "needs python3-yaml");
    let word =
        "it's \"b\": # $x $(y) $(HUSK_JOB) $$(HUSK_JOB) $$$ `z` é\\ - [c] {{d}} ${e} !f &g *h %i @j | > $";
    let show = "import sys, yaml, json; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let place = Project::new();
    for (name, pointer) in [
        ("kubernetes", "/2/spec/template/spec/containers/0/command/2"),
        ("github", "/0/jobs/shard/steps/3/run"),
        ("gitlab", "/0/husk-shard/script/4"),
    ] {
        let image: &[_] = if name == "github" { &[] } else { &["--job-image=a\"b\\c: #"] };
        let path = place.path(name);
        let printed = job(&[&[name, "--each", "--env", word], image].concat(), &["pytest", word]).succeeds();
        fs::write(&path, printed).unwrap();
        let read = Seen(Command::new("python3").args(["-c", show, &path]).output().unwrap()).succeeds();
        let read: Value = serde_json::from_str(&read).unwrap();
        let script = read.pointer(pointer).unwrap().as_str().unwrap();
        let script = if name == "kubernetes" { as_the_kubelet_reads(script) } else { script.to_owned() };
        let shell = script.lines().find(|line| line.starts_with("husk test '--env")).unwrap();
        let shell = format!("husk() {{ for word; do printf '%s\\n' \"$word\"; done; }}; {shell}");
        let words = Seen(Command::new("sh").args(["-c", &shell]).output().unwrap()).succeeds();
        let expected = format!("test\n--env={word}\n--each=usual\n--\npytest\n{word}\n");
        assert_eq!(words, expected, "{name}");
        let image =
            read.pointer("/2/spec/template/spec/containers/0/image").or_else(|| read.pointer("/0/image"));
        assert!(image.is_none_or(|image| image == "a\"b\\c: #"), "{image:?}");
    }
}

#[test]
fn jobs_that_could_not_run_are_refused() {
    for (options, program, why) in [
        (&["kubernetes"] as &[_], &["cargo", "test"] as &[_], "needs an image; name it with --job-image"),
        (&["kubernetes", "--job-image=a\nb"], &["cargo", "test"], "not the name of an image"),
        (&["github", "--job-image=a"], &["cargo", "test"], "leave out --job-image"),
        (&["github"], &["./check"], "a program is one test, which cannot be divided"),
        (&["github"], &["cargo", "nextest", "run"], "nextest divides tests itself"),
        (&["github", "--each"], &["pytest", "${{ secrets.x }}"], "begins an expression of GitHub"),
        (&["github", "--env=A=${{ secrets.x }}"], &["cargo", "test"], "cannot contain spaces"),
        (&["github", "--env=A=${{secrets.x}}"], &["cargo", "test"], "begins an expression of GitHub"),
        (&["gitlab", "--each"], &["pytest", "a\nb"], "a job cannot contain this word"),
        (&["gitlab", "--each"], &["pytest", "a\u{85}b"], "a job cannot contain this word"),
        (&["kubernetes", "--job-image=a\u{2028}b"], &["cargo", "test"], "not the name of an image"),
        (&["gitlab", "--env=a=b c"], &["cargo", "test"], "cargo's runner cannot contain spaces"),
        (&["gitlab", "--shards=201"], &["cargo", "test"], "must be from 2 to 200"),
        (&["gitlab", "--shards=1"], &["cargo", "test"], "must be from 2 to 200"),
        (&["gitlab", "--json=x"], &["cargo", "test"], "the job sets this for each shard"),
    ] {
        job(options, program).fails(125, why);
    }
}
