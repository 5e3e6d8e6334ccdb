//! Audits what a program inherits when its caller is careless in everything. It must have only what the configuration
//! specifies and what runc also passes on.

use super::{devpts, same_as_golden};
use crate::util::{Bundle, Receiver, Runtime, guest, is_husk, is_root, until_gone};
use husk_spawn::sys::process::Capabilities;
use husk_spawn::{Command, Resource, Signal, SignalSet, Step};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;

/// `ADDR_NO_RANDOMIZE`, which would place programs at fixed addresses.
const NO_RANDOMIZE: u32 = 0x0004_0000;

/// Runs a command with everything that it could inherit by mistake: descriptors, signals, privileges, a directory, an
/// environment.
fn carelessly(command: &std::process::Command) {
    let mut careless = Command::new(command.get_program());
    careless.args(command.get_args()).current_dir("/").env("SECRET", "of-the-caller");
    careless.stdin(File::open("/dev/null").unwrap());
    let output = tempfile::NamedTempFile::new().unwrap();
    careless.stdout(output.reopen().unwrap()).stderr(output.reopen().unwrap());
    for number in [3, 4, 9, 100] {
        careless.fd(number, File::open("/").unwrap());
    }
    careless.ignore_signal(Signal::HUP).ignore_signal(Signal::INT).ignore_signal(Signal::USR1);
    careless.blocked_signals(SignalSet::EMPTY.with(Signal::TERM).with(Signal::USR2));
    careless.nice(3).rlimit(Resource::Core, Some(7), Some(7));
    careless.umask(0).step(Step::Personality { persona: NO_RANDOMIZE });
    if is_root() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let ours = status.lines().find_map(|line| line.strip_prefix("CapPrm:\t")).unwrap();
        let all = u64::from_str_radix(ours, 16).unwrap();
        let capabilities = Capabilities { effective: all, permitted: all, inheritable: all };
        careless.final_steps(move |writer| {
            writer.push(Step::Capset { capabilities });
            writer.push(Step::RaiseAmbient { capabilities: all });
            Ok(())
        });
    }
    let status = careless.status().unwrap();
    assert!(status.success(), "{}", fs::read_to_string(output.path()).unwrap());
}

/// A way to start a program, and the runtime's arguments for it.
struct Way {
    name: &'static str,
    /// Changes to the minimal bundle.
    bundle: fn(Bundle) -> Bundle,
    /// Whether the program joins an existing container instead of being its first.
    joins: bool,
    /// The verb's options.
    options: &'static [&'static str],
    terminal: bool,
}

const WAYS: &[Way] = &[
    Way { name: "run", bundle: |bundle| bundle, joins: false, options: &[], terminal: false },
    Way {
        name: "run --detach",
        bundle: |bundle| bundle,
        joins: false,
        options: &["--detach"],
        terminal: false,
    },
    Way { name: "run, with hooks", bundle: hooked, joins: false, options: &[], terminal: false },
    Way { name: "run, as another user", bundle: as_user, joins: false, options: &[], terminal: false },
    Way { name: "run, in a user namespace", bundle: mapped, joins: false, options: &[], terminal: false },
    Way {
        name: "run, with a terminal",
        bundle: terminal,
        joins: false,
        options: &["--detach"],
        terminal: true,
    },
    Way {
        name: "create and start",
        bundle: |bundle| bundle,
        joins: false,
        options: &["create"],
        terminal: false,
    },
    Way { name: "exec", bundle: |bundle| bundle, joins: true, options: &[], terminal: false },
    Way {
        name: "exec --detach",
        bundle: |bundle| bundle,
        joins: true,
        options: &["--detach"],
        terminal: false,
    },
    Way { name: "exec, as another user", bundle: as_user, joins: true, options: &[], terminal: false },
    Way { name: "exec, in a user namespace", bundle: mapped, joins: true, options: &[], terminal: false },
    Way {
        name: "exec, with a terminal",
        bundle: terminal,
        joins: true,
        options: &["--detach", "--tty"],
        terminal: true,
    },
];

fn hooked(bundle: Bundle) -> Bundle {
    let hook = |path: &str| json!([{ "path": path, "args": ["guest", "exit", "0"] }]);
    let ours = guest();
    let ours = ours.to_str().unwrap();
    let hooks = json!({
        "createRuntime": hook(ours), "createContainer": hook(ours), "startContainer": hook("/guest"),
        "poststart": hook(ours)
    });
    bundle.with("/hooks", hooks)
}

fn as_user(bundle: Bundle) -> Bundle {
    if !is_root() {
        return bundle;
    }
    bundle.with("/process/user", json!({ "uid": 1000, "gid": 1001, "additionalGids": [5] }))
}

fn mapped(mut bundle: Bundle) -> Bundle {
    if !is_root() {
        return bundle;
    }
    bundle.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
    // Files belong to the same user inside and outside.
    let map = json!([{ "containerID": 0, "hostID": 0, "size": 1000 }]);
    bundle.with("/linux/uidMappings", map.clone()).with("/linux/gidMappings", map)
}

fn terminal(bundle: Bundle) -> Bundle {
    bundle.mounting(devpts()).with("/process/terminal", json!(true))
}

impl Way {
    /// Starts a program this way. Returns its list of what it inherited.
    fn report(&self) -> String {
        let words = if self.joins { "wait" } else { "audit /report" };
        let sets: Vec<_> = ["CAP_CHOWN", "CAP_KILL"].into();
        let sets = json!({ "bounding": sets, "permitted": sets, "effective": sets });
        let bundle = Bundle::running(words).with("/process/capabilities", sets);
        let mut bundle = (self.bundle)(bundle);
        if self.joins {
            // The container's first process is not examined.
            bundle = bundle.with("/process/terminal", json!(false));
        }
        let report = bundle.rootfs().join("report");
        fs::write(&report, "").unwrap();
        fs::set_permissions(&report, Permissions::from_mode(0o666)).unwrap();
        let runtime = if self.joins { Runtime::started(&bundle) } else { Runtime::under_test() };
        bundle.write();
        let (receiver, pid) = (Receiver::new(), bundle.path().join("pid"));
        let (verb, options) = match self.options {
            ["create"] => ("create", &[] as &[&str]),
            options => (if self.joins { "exec" } else { "run" }, options),
        };
        let mut command = runtime.command(verb);
        command.args(options).arg("--pid-file").arg(&pid);
        if self.terminal {
            command.args(["--console-socket", &receiver.path()]);
        }
        if self.joins {
            command.args(["c", "/guest", "audit", "/report"]);
        } else {
            command.arg("--bundle").arg(bundle.path()).arg("c");
        }
        carelessly(&command);
        if verb == "create" {
            let mut start = runtime.command("start");
            carelessly(start.arg("c"));
        }
        until_gone(fs::read_to_string(&pid).unwrap().trim().parse().unwrap());
        fs::read_to_string(report).unwrap()
    }
}

/// The golden file has the first report as a whole, and the differences of the others.
#[test]
fn process_inherits_nothing_from_a_careless_caller() {
    let mut text = String::new();
    let mut first: Vec<String> = Vec::new();
    for way in WAYS {
        let report: Vec<_> = way.report().lines().map(plain).collect();
        assert!(report.len() > 40, "{}: {report:?}", way.name);
        writeln!(text, "{}", way.name).unwrap();
        for line in report.iter().filter(|line| !first.contains(line)) {
            writeln!(text, "    {line}").unwrap();
        }
        for line in first.iter().filter(|line| !report.contains(line)) {
            writeln!(text, "    not {line}").unwrap();
        }
        if first.is_empty() {
            first = report;
        }
    }
    assert!(!text.contains("SECRET"), "{text}");
    if is_husk() {
        let name = if is_root() { "holds-root.txt" } else { "holds-user.txt" };
        same_as_golden(name, &text);
    } else {
        eprintln!("{text}");
    }
}

/// Removes the parts of a line that differ between runs.
fn plain(line: &str) -> String {
    match line.split_once("/tmp/") {
        Some((before, _)) if before.starts_with("descriptor: ") => format!("{before}FILE"),
        // The same for all processes of the machine.
        _ if line == "attr/current: unconfined" => "attr/current:".to_owned(),
        _ if is_inherited(line) => format!("{} the caller's", line.split(' ').next().unwrap_or_default()),
        // The user that runs the tests.
        _ if line.starts_with("uid_map: ") && !is_root() => "uid_map: of the user".to_owned(),
        _ => line.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Returns whether the test process has the same value.
fn is_inherited(line: &str) -> bool {
    ["oom_score_adj", "coredump_filter"].iter().any(|name| {
        let own = fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        line == format!("{name}: {}", own.trim())
    })
}
