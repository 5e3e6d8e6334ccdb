//! `[[service]]` in husk.toml: programs that run beside a test. A guest serves as each service.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, guest, is_root, need};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

/// A project with services.
struct Served {
    place: Project,
}

impl Served {
    fn new(toml: &str) -> Self {
        let place = Project::new();
        let toml = toml.replace("GUEST", guest().to_str().unwrap());
        fs::write(place.path("here/husk.toml"), toml).unwrap();
        Self { place }
    }

    /// A server on port 7000 with more keys.
    fn server(keys: &str) -> Self {
        Self::new(&format!("{}\n{keys}", server("web", 7000)))
    }

    fn command(&self, options: &[&str], script: &str) -> Command {
        let script = script.replace("ask", &format!("{} ask", guest().display()));
        self.place.command(&[&["--explain", "off"], options].concat(), &["sh", "-c", &script])
    }

    fn sh(&self, script: &str) -> Seen {
        Seen(self.command(&[], script).output().unwrap())
    }

    /// Runs TAP programs of one test each, and returns their output. They ask the server how often it was asked.
    fn counts(&self, tests: usize) -> BTreeSet<String> {
        let paths: Vec<_> = (0..tests).map(|number| self.place.path(&format!("here/{number}.t"))).collect();
        for path in &paths {
            let text = format!(
                "#!/bin/sh\necho 1..1; echo not ok 1 - count $({} ask 7000 count)\n",
                guest().display()
            );
            fs::write(path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let json = self.place.path("lines.json");
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        let options = ["--explain", "off", "--json", &json, "--tap", "--each"];
        Seen(self.place.command(&options, &paths).output().unwrap()).fails(101, "");
        lines(&json).iter().map(|line| line["test"].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn server(name: &str, port: u16) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\ncommand = [\"GUEST\", \"serve\", \"{port}\"]\nready = {{ port = {port} }}\n"
    )
}

pub(crate) fn lines(path: &str) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the descendants of a process.
fn below(pid: u32) -> Vec<OwnedFd> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().map(|child| child.parse::<u32>().unwrap());
    let open = |pid: u32| pidfd_open(Pid::from_raw(pid.cast_signed()).unwrap(), PidfdFlags::empty()).ok();
    children.flat_map(|child| open(child).into_iter().chain(below(child))).collect()
}

/// Waits until all of them have ended.
#[track_caller]
pub(crate) fn have_ended(processes: &[OwnedFd]) {
    let most = Timespec { tv_sec: 30, tv_nsec: 0 };
    for process in processes {
        assert_eq!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&most)).unwrap(), 1, "still runs");
    }
}

#[test]
fn service_shares_nothing_but_its_network_with_the_test() {
    need!(has_sandboxes(), "needs user namespaces");
    let served = Served::server("");
    served.sh("touch /tmp/mine; ask 7000 exists /tmp/mine").prints("false\n");
    served
        .sh("touch /var/tmp/mine; ask 7000 exists /var/tmp/mine; ask 7000 exists /var/tmp")
        .prints("false\ntrue\n");
    // The first process, the server and nothing of the test.
    served.sh("ask 7000 processes").prints("2\n");
    served.sh("set -- /proc/[0-9]*; echo $#").prints("2\n");
    let seen = served.sh("ask 7000 namespaces; ask itself");
    let said = String::from_utf8(seen.0.stdout).unwrap();
    let (theirs, ours) = said.trim_end().split_once('\n').unwrap();
    for (theirs, ours) in theirs.split(' ').zip(ours.split(' ')) {
        assert_eq!(theirs == ours, ours.starts_with("net:"), "{theirs} {ours}");
    }
}

#[test]
fn test_with_services_is_isolated_like_any_other() {
    need!(has_sandboxes(), "needs user namespaces");
    let (alone, served) = (Project::new(), Served::server(""));
    let script = "ls /sys/class/net /sys/fs/cgroup; grep -E 'Cap|Seccomp:|NoNew' /proc/self/status; \
                  cat /proc/self/uid_map /proc/self/setgroups; hostname; mount | grep -c ' on /sys '; \
                  echo x 2>/dev/null > /etc/x; mount -t tmpfs x /mnt 2>/dev/null || echo no mount";
    let wanted = alone.sh(&["--explain", "off"], script);
    served.sh(script).prints(&String::from_utf8(wanted.0.stdout).unwrap());
}

#[test]
fn user_without_privileges_has_services() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(is_root(), "needs root to become another user");
    let served = Served::server("");
    let open = |path: &str| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(&served.place.path(""));
    let program = served.command(&[], "ask 7000 count; id -u; ls /sys/class/net");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
    command.arg(program.get_program()).args(program.get_args());
    // The file belongs to root, so it is trusted.
    command.current_dir(served.place.path("here")).env("HOME", "/").stdin(Stdio::null());
    Seen(command.output().unwrap()).prints("1\n1000\nlo\n");
}

#[test]
fn each_test_has_a_service_of_its_own_unless_they_share_it() {
    need!(has_sandboxes(), "needs user namespaces");
    let own = Served::server("").counts(4);
    assert!(own.iter().all(|name| name.ends_with("count 1")), "{own:?}");
    let shared = Served::server("per = \"binary\"").counts(4);
    let counts: BTreeSet<_> = shared.iter().map(|name| name.rsplit_once(' ').unwrap().1).collect();
    assert_eq!(counts, BTreeSet::from(["1", "2", "3", "4"]), "{shared:?}");
}

#[test]
fn service_runs_only_for_the_tests_that_it_names() {
    need!(has_sandboxes(), "needs user namespaces");
    let served = Served::server("test = \"*1.t*\"");
    let names = served.counts(2);
    // Without a service nothing answers.
    assert!(names.iter().any(|name| name.ends_with("1.t 1 - count 1")), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with("0.t 1 - count")), "{names:?}");
}

#[test]
fn service_is_ready_when_it_says_so() {
    need!(has_sandboxes(), "needs user namespaces");
    let late = "command = [\"sh\", \"-c\", \"read x < /proc/sys/kernel/ostype; exec GUEST serve 7000\"]\nread = [\"GUEST\"]";
    for ready in [
        "{ port = 7000 }",
        "{ log = \"serving\" }",
        "{ command = [\"GUEST\", \"ask\", \"7000\", \"count\"] }",
    ] {
        let text = format!("[[service]]\nname = \"web\"\n{late}\nready = {ready}\n");
        Served::new(&text).sh("ask 7000 exists /").prints("true\n");
    }
}

#[test]
fn several_services_share_the_network_of_a_test() {
    need!(has_sandboxes(), "needs user namespaces");
    let text = server("one", 7000) + &server("two", 7001);
    Served::new(&text).sh("ask 7001 count; ask 7000 count; ask 7000 count").prints("1\n1\n2\n");
}

#[test]
fn service_that_is_never_ready_fails_the_test_with_its_output() {
    need!(has_sandboxes(), "needs user namespaces");
    let hangs = "command = [\"sh\", \"-c\", \"echo starting slowly; exec sleep 1000\"]\ntimeout = \"300ms\"";
    for (ready, why) in [
        ("{ port = 7000 }", "nothing listens on port 7000"),
        ("{ log = \"serving\" }", "its output does not contain \"serving\""),
        ("{ command = [\"false\"] }", "false fails (exit status: 1)"),
    ] {
        let served = Served::new(&format!("[[service]]\nname = \"db\"\n{hangs}\nready = {ready}\n"));
        let seen = served.sh("echo never");
        seen.fails(125, &format!("warning: service db was not ready after 0.3 s: {why}"));
        seen.says("starting slowly");
        assert!(seen.0.stdout.is_empty());
    }
}

#[test]
fn service_that_dies_is_named_with_its_last_words() {
    need!(has_sandboxes(), "needs user namespaces");
    // Before it is ready.
    let text = "[[service]]\nname = \"db\"\ncommand = [\"sh\", \"-c\", \"echo no disk; exit 3\"]\nready = { port = 7 }\n";
    let seen = Served::new(text).sh("true");
    seen.fails(125, "warning: service db ended before it was ready: exit status: 3");
    seen.says("no disk");
    // A service must not become a daemon, because its sandbox ends with it.
    let text = "[[service]]\nname = \"db\"\ncommand = [\"sh\", \"-c\", \"sleep 1000 & exit 0\"]\nready = { port = 7 }\n";
    Served::new(text).sh("true").fails(125, "service db ended before it was ready: exit status: 0");
    // While the test runs. The result of the test stands.
    let served = Served::server("");
    let seen = served.sh("ask 7000 exit 4; exit 1");
    seen.fails(1, "warning: service web ended: exit status: 4");
    seen.says("asked exit 4");
    served.sh("ask 7000 exit 4; true").says("warning: service web ended: exit status: 4");
}

#[test]
fn output_of_services_is_part_of_a_failed_tests_reports() {
    need!(has_sandboxes(), "needs user namespaces");
    let served = Served::server("");
    let [json, junit, html] = ["l.json", "j.xml", "h.html"].map(|name| served.place.path(name));
    let reports = ["--json", &json, "--junit", &junit, "--html", &html];
    let seen = Seen(served.command(&reports, "ask 7000 exit 4; exit 1").output().unwrap());
    seen.fails(1, "");
    let output = lines(&json)[0]["output"].as_str().unwrap().to_owned();
    let wanted = "output of service web, which ended: exit status: 4:\nserving\nasked exit 4\n";
    assert_eq!(output, wanted);
    for path in [&junit, &html] {
        assert!(fs::read_to_string(path).unwrap().contains("asked exit 4"), "{path}");
    }
}

#[test]
fn flood_of_output_is_neither_kept_nor_in_the_way() {
    need!(has_sandboxes(), "needs user namespaces");
    let flood = "[[service]]\nname = \"web\"\nread = [\"GUEST\"]\nready = { port = 7000 }\n\
                 command = [\"sh\", \"-c\", \"head -c 100m /dev/zero | tr '\\\\\\\\0' x; exec GUEST serve 7000\"]\n";
    let served = Served::new(flood);
    let json = served.place.path("l.json");
    let seen = Seen(served.command(&["--json", &json], "ask 7000 count; exit 1").output().unwrap());
    seen.fails(1, "output of service web");
    let output = lines(&json)[0]["output"].as_str().unwrap().to_owned();
    assert!(output.contains("bytes left out]") && output.ends_with("asked count\n"));
    assert!(output.len() < 70_000, "{}", output.len());
}

/// Starts a test with a service that waits until it is killed.
fn waiting(served: &Served) -> Child {
    let mut command = served.command(&[], "ask 7000 count; exec sleep 1000");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "1\n");
    child
}

#[test]
fn nothing_outlives_a_killed_husk() {
    need!(has_sandboxes(), "needs user namespaces");
    let served = Served::server("");
    for signal in [Signal::KILL, Signal::TERM, Signal::INT] {
        let mut child = waiting(&served);
        let processes = below(child.id());
        // The first processes of two sandboxes, the server and the test.
        assert!(processes.len() >= 4, "{}", processes.len());
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        have_ended(&processes);
    }
}

#[test]
fn nothing_outlives_a_husk_that_is_killed_while_services_start() {
    need!(has_sandboxes(), "needs user namespaces");
    let served = Served::new(&(server("one", 7000) + &server("two", 7001)));
    for least in 0..7 {
        let mut child = served.command(&[], "exec sleep 1000").stderr(Stdio::null()).spawn().unwrap();
        // Each turn kills it after more processes have appeared.
        let processes = loop {
            let processes = below(child.id());
            assert_eq!(child.try_wait().unwrap(), None);
            if processes.len() >= least {
                break processes;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        have_ended(&processes);
        let marker = guest().to_str().unwrap().to_owned() + "\x00serve\x00700";
        have_ended(&named(&marker));
    }
}

/// Returns the processes whose command line begins like this.
pub(crate) fn named(begin: &str) -> Vec<OwnedFd> {
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(begin))
    };
    pids.filter(is).filter_map(|pid| pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()).collect()
}

#[test]
fn interrupt_ends_a_husk_that_waits_for_services() {
    need!(has_sandboxes(), "needs user namespaces");
    let served = Served::new("");
    let fifo = served.place.path("here/fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
    let text = "[[service]]\nname = \"db\"\nready = { port = 7000 }\nwrite = [\"fifo\"]\n\
                command = [\"sh\", \"-c\", \"echo begun > FIFO; exec sleep 1000\"]\n";
    fs::write(served.place.path("here/husk.toml"), text.replace("FIFO", &fifo)).unwrap();
    let mut child = served.command(&[], "true").stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(fs::read_to_string(&fifo).unwrap(), "begun\n");
    let processes = below(child.id());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::INT.as_raw()));
    have_ended(&processes);
}

#[test]
fn limits_apply_to_a_service() {
    need!(has_sandboxes(), "needs user namespaces");
    let text = "[[service]]\nname = \"db\"\nready = { port = 7000 }\nfile-size = \"1m\"\n\
                command = [\"sh\", \"-c\", \"exec head -c 2m /dev/zero > /tmp/big\"]\n";
    let seen = Served::new(text).sh("true");
    seen.fails(125, "service db ended before it was ready: signal: 25 (SIGXFSZ)");
    seen.says("(file size limit of 1048576 bytes reached)");
}

#[test]
fn plan_shows_services() {
    let seen = Seen(Served::server("").command(&["--plan"], "true").output().unwrap());
    seen.shows("service web (one for each test; ready when a socket listens on port 7000)");
    for line in ["join user", "join net", "clone-parent", "GUEST"] {
        seen.shows(&line.replace("GUEST", guest().to_str().unwrap()));
    }
}

#[test]
fn service_needs_a_network_of_its_own() {
    need!(has_sandboxes(), "needs user namespaces");
    for net in ["host", "none"] {
        let seen = Seen(Served::server("").command(&["--net", net], "true").output().unwrap());
        seen.fails(125, "service web: the test needs the private network");
    }
}

#[test]
fn invalid_service_is_shown_where_it_is() {
    let with = |line: &str| {
        format!("[[service]]\nname = \"a\"\ncommand = [\"x\"]\nready = {{ port = 1 }}\n{line}\n")
    };
    for (text, said) in [
        ("service = 3".to_owned(), "husk.toml:1:1: service must be written as [[service]]"),
        ("[[service]]\nname = \"a\"".to_owned(), "husk.toml:1:1: this [[service]] has no command"),
        ("[[service]]\nname = \"a b\"".to_owned(), "husk.toml:2:8: name may only have"),
        (with("per = 1"), "husk.toml:5:7: per must be \"test\", \"binary\" or \"run\""),
        (with("net = \"host\""), "husk.toml:5:1: net is not an option of a service"),
        (with("redy = 1"), "husk.toml:5:1: unknown option 'redy'; did you mean 'ready'?"),
        (with("user = \"no-such-user\""), "husk.toml:5:8: 'no-such-user' is neither UID:GID nor a user here"),
        (with("timeout = \"soon\""), "husk.toml:5:11: not a time such as"),
        (with("memory = \"much\""), "husk.toml:5:10: invalid value 'much'"),
        (with("[[service]]\nname = \"a\""), "husk.toml:6:8: another service is named 'a'"),
        (
            "[[service]]\nname = \"a\"\nready = { port = 0 }".to_owned(),
            "husk.toml:3:18: port must be from 1 to 65535",
        ),
        ("[[service]]\nname = \"a\"\nready = \"log\"".to_owned(), "husk.toml:3:9: ready must be one of"),
        (
            "[[service]]\nname = \"a\"\ncommand = \"x y\"".to_owned(),
            "husk.toml:3:11: command must be an array",
        ),
    ] {
        Served::new(&text).sh("true").fails(125, said);
    }
    for (one, two, why) in [
        ("binary", "test", "tests that share service one (per = \"binary\") share a network"),
        ("test", "run", "tests that share service two (per = \"run\") share a network"),
        ("run", "binary", "a test can be in one network only, and services two"),
    ] {
        let per = |per: &str| format!("per = \"{per}\"\n");
        let mixed = server("one", 7000) + &per(one) + &server("two", 7001) + &per(two);
        Served::new(&mixed).sh("true").fails(125, why);
    }
}
