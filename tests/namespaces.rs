//! Checks new namespaces, joined namespaces, and the ids of users in them.

use crate::util::{Bundle, Runtime, guest, is_husk, is_root, need};
use husk_spawn::{Child, Command, IdMap, Namespaces, Stdio};
use rustix::process::{getegid, geteuid};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process;

/// runc refuses even mappings that equal those of the joined namespace.
const RUNC_REFUSES: &str = "runc refuses mappings beside the path of a user namespace";

/// The kinds as config.json names them, as `/proc/PID/ns` does, and as flags, in the order in which the guest prints
/// them.
const KINDS: [(&str, &str, Namespaces); 8] = [
    ("user", "user", Namespaces::USER),
    ("mount", "mnt", Namespaces::MOUNT),
    ("pid", "pid", Namespaces::PID),
    ("network", "net", Namespaces::NET),
    ("ipc", "ipc", Namespaces::IPC),
    ("uts", "uts", Namespaces::UTS),
    ("cgroup", "cgroup", Namespaces::CGROUP),
    ("time", "time", Namespaces::TIME),
];

/// A process that keeps namespaces alive.
pub(crate) struct Holder(Child);

impl Holder {
    /// Starts the process in new namespaces of these kinds. A user namespace gets as many ids as the caller may map.
    pub(crate) fn of(kinds: Namespaces) -> Self {
        let count = if is_root() { 100_000 } else { 1 };
        let own = |outside| [IdMap { inside: 0, outside, count }];
        let mut command = Command::new(guest());
        command.arg("wait").stdin(Stdio::null()).stdout(Stdio::piped()).new_namespaces(kinds).kill_on_drop();
        if kinds.contains(Namespaces::USER) {
            command.uid_map(&own(geteuid().as_raw())).gid_map(&own(getegid().as_raw()));
        }
        let mut child = command.spawn_and_exec().expect("a process in new namespaces");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a message");
        Self(child)
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/{name}", self.0.id()))
    }

    pub(crate) fn link(&self, name: &str) -> String {
        link(&self.path(name))
    }
}

fn link(path: &Path) -> String {
    fs::read_link(path).unwrap().display().to_string()
}

fn host(name: &str) -> String {
    link(&Path::new("/proc/self/ns").join(name))
}

/// Returns a bundle with new namespaces of some kinds, and the holder's namespaces of others.
pub(crate) fn bundle(words: &str, new: Namespaces, joined: Namespaces, holder: &Holder) -> Bundle {
    let namespaces = KINDS.into_iter().filter_map(|(kind, name, flag)| {
        if joined.contains(flag) {
            Some(json!({ "type": kind, "path": holder.path(name) }))
        } else {
            new.contains(flag).then(|| json!({ "type": kind }))
        }
    });
    let namespaces: Value = namespaces.collect();
    let mut bundle = Bundle::running(words).with("/linux/namespaces", namespaces);
    if new.contains(Namespaces::USER) && is_root() {
        let map = json!([{ "containerID": 0, "hostID": 0, "size": 1000 }]);
        bundle = bundle.with("/linux/uidMappings", map.clone()).with("/linux/gidMappings", map);
    } else if !new.contains(Namespaces::USER) {
        bundle = bundle.with("/linux/uidMappings", json!([])).with("/linux/gidMappings", json!([]));
    }
    // Only the owner of the pid namespace can mount a procfs of it.
    let owns_pids = new.contains(Namespaces::PID) || joined.contains(Namespaces::PID | Namespaces::USER);
    if (new | joined).contains(Namespaces::USER) && !owns_pids {
        let hosts =
            json!({ "destination": "/proc", "type": "bind", "source": "/proc", "options": ["rbind"] });
        bundle = bundle.with("/mounts", json!([hosts]));
    }
    if !new.contains(Namespaces::UTS) {
        bundle = bundle.with("/hostname", json!(""));
    }
    bundle
}

/// The kinds that an ordinary user cannot do without.
pub(crate) fn least() -> Namespaces {
    if is_root() { Namespaces::EMPTY } else { Namespaces::USER }
}

/// Asserts that each namespace of the container is the holder's if joined, new if asked for, and otherwise the host's.
#[track_caller]
fn agrees(new: Namespaces, joined: Namespaces, holder: &Holder) {
    let bundle = bundle("namespaces", new, joined, holder);
    let found = Runtime::under_test().run(&bundle).succeeds();
    assert_eq!(found.lines().count(), KINDS.len());
    for (found, (kind, name, flag)) in found.lines().zip(KINDS) {
        let what = format!("{kind}, new {new:?}, joined {joined:?}");
        if joined.contains(flag) {
            assert_eq!(found, holder.link(name), "{what}");
        } else if new.contains(flag) {
            assert!(found != holder.link(name) && found != host(name), "{what}");
        } else {
            assert_eq!(found, host(name), "{what}");
        }
    }
}

#[test]
fn each_namespace_can_be_new_or_joined() {
    need!(is_husk(), RUNC_REFUSES);
    let all = Namespaces::ALL;
    let mount = Namespaces::MOUNT;
    let holder = Holder::of(all);
    let others = all.without(mount);
    // Joins or creates none, each one, all except one, and all.
    agrees(all, Namespaces::EMPTY, &holder);
    agrees(mount | least(), Namespaces::EMPTY, &holder);
    for (_, _, kind) in KINDS.into_iter().filter(|(_, _, kind)| *kind != mount) {
        // Without privileges a namespace can be joined only together with its owner, the user namespace.
        agrees(mount, kind | least(), &holder);
        agrees(all.without(kind | least()), kind | least(), &holder);
        if kind != least() {
            agrees(mount | kind, others.without(kind), &holder);
        }
    }
    agrees(mount, others, &holder);
}

#[test]
fn namespaces_of_the_host_are_joined_before_a_user_namespace_is_made() {
    need!(is_root(), "needs root to map other ids");
    let others = Namespaces::NET | Namespaces::IPC | Namespaces::UTS | Namespaces::TIME;
    let holder = Holder::of(others);
    let new = Namespaces::ALL.without(others);
    let bundle = bundle("namespaces", new, others, &holder);
    let bundle = bundle.with("/hostname", json!(""));
    let found = Runtime::under_test().run(&bundle).succeeds();
    for name in ["net", "ipc", "uts", "time"] {
        assert!(found.lines().any(|line| line == holder.link(name)), "{found}");
    }
}

#[test]
fn pid_file_names_the_process_in_a_joined_pid_namespace() {
    let holder = Holder::of(least() | Namespaces::PID);
    let bundle = bundle("wait", Namespaces::MOUNT, Namespaces::PID | least(), &holder);
    let runtime = Runtime::under_test();
    let pid_file = bundle.path().join("pid");
    runtime.create_with(&bundle, &["--pid-file", pid_file.to_str().unwrap()]).succeeds();
    assert_eq!(runtime.status(), "created");
    let pid = fs::read_to_string(&pid_file).unwrap();
    let process = Path::new("/proc").join(&pid);
    let status = fs::read_to_string(process.join("status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    // This is not the intermediate process, which has ended. It leads its session, and has a pid in the joined
    // namespace.
    assert_eq!(field("NSsid:"), field("NSpid:"));
    assert_eq!(field("NSpid:").split_whitespace().count(), 2);

    runtime.call("start", &["c"]).succeeds();
    assert_eq!(runtime.status(), "running");
    // Only root may read these links before the process executes its program.
    assert_eq!(link(&process.join("ns/pid")), holder.link("pid"));
    assert_eq!(link(&process.join("exe")), "/guest");
    runtime.call("kill", &["c", "KILL"]).succeeds();
    runtime.call("delete", &["--force", "c"]).succeeds();
    assert!(runtime.is_empty());
    // The container does not own the namespace, so the namespace outlives it.
    assert!(holder.path("pid").exists());
}

#[test]
fn proc_shows_the_joined_pid_namespace() {
    let holder = Holder::of(least() | Namespaces::PID);
    let bundle = bundle("list /proc", Namespaces::MOUNT, Namespaces::PID | least(), &holder);
    let found = Runtime::under_test().run(&bundle).succeeds();
    let pids: Vec<_> = found.lines().filter(|name| name.parse::<u32>().is_ok()).collect();
    assert_eq!(pids.len(), 2, "{found}");
    assert!(pids.contains(&"1"), "{found}");
}

#[test]
fn container_is_invisible_in_a_joined_pid_namespace_until_it_drops_privileges() {
    need!(is_root(), "needs root to start with privileges");
    need!(is_husk() && procfs_takes_pidns(), "needs Linux 6.17");
    // A watcher that may look at everything, and does.
    let capabilities = json!(["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]);
    let sets = json!({ "bounding": capabilities, "permitted": capabilities, "effective": capabilities });
    let watching = Bundle::running("watch").with("/process/capabilities", sets);
    let (watchers, runtime) = (Runtime::under_test(), Runtime::under_test());
    let mut watcher = watchers.running(&watching);
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    let state: Value = serde_json::from_str(&watchers.call("state", &["c"]).succeeds()).unwrap();
    let path = format!("/proc/{}/ns/pid", state["pid"]);

    let user = json!({ "uid": 7, "gid": 8 });
    let mount = json!([{ "type": "mount" }, { "type": "pid", "path": path }]);
    let watched = Bundle::running("wait").with("/linux/namespaces", mount).with("/hostname", json!(""));
    let watched = watched.with("/process/user", user);
    runtime.create(&watched).succeeds();
    // The process exists. Waits until the watcher has seen it.
    let wanted = ["CapAmb", "CapBnd", "CapEff", "CapInh", "CapPrm"];
    let mut seen = Vec::new();
    while seen.len() < wanted.len() + 1 {
        seen.push(lines.next().unwrap().unwrap());
    }
    runtime.call("start", &["c"]).succeeds();
    runtime.call("delete", &["--force", "c"]).succeeds();
    watchers.call("delete", &["--force", "c"]).succeeds();
    seen.extend(lines.map(Result::unwrap));
    watcher.wait().unwrap();
    seen.sort();
    let mut all = wanted.map(|name| format!("{name} 0000000000000000")).to_vec();
    all.push("Uid 7 7 7 7".to_owned());
    assert_eq!(seen, all);
}

/// Returns whether a procfs can show a pid namespace other than that of the process that mounts it.
fn procfs_takes_pidns() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(17))
}

#[test]
fn failure_in_the_second_process_is_reported_and_leaves_nothing() {
    need!(is_husk(), RUNC_REFUSES);
    let holder = Holder::of(Namespaces::USER | Namespaces::PID);
    let joined = Namespaces::USER | Namespaces::PID;
    for (new, joined) in
        [(Namespaces::MOUNT, joined), (Namespaces::MOUNT | Namespaces::PID, Namespaces::USER)]
    {
        let bundle = bundle("exit 0", new, joined, &holder).with("/process/args", json!(["/no/such"]));
        let runtime = Runtime::under_test();
        runtime.create(&bundle).fails(1, "no such file");
        runtime.run(&bundle).fails(1, "no such file");
        assert!(runtime.is_empty());
    }
}

#[test]
fn path_that_is_not_such_a_namespace_is_refused() {
    let holder = Holder::of(least() | Namespaces::UTS);
    let table = [
        ("network", "/no/such".to_owned(), "cannot be opened: no such file or directory"),
        ("network", "/dev/null".to_owned(), "is not a namespace"),
        ("network", "/proc/self/status".to_owned(), "is not a namespace"),
        ("network", holder.path("uts").display().to_string(), "is a namespace of type uts, not net"),
        ("user", "/proc/self/ns/user".to_owned(), "is the caller's own user namespace"),
    ];
    for (kind, path, why) in table {
        let namespaces = json!([{ "type": "mount" }, { "type": kind, "path": path }]);
        let bundle =
            Bundle::running("exit 0").with("/linux/namespaces", namespaces).with("/hostname", json!(""));
        let bundle = bundle.with("/linux/uidMappings", json!([])).with("/linux/gidMappings", json!([]));
        let message = format!("linux.namespaces[1] {path}: {why}");
        Runtime::under_test().run(&bundle).fails(1, if is_husk() { &message } else { "" });
    }
}

// Ids

/// Gives the root file system of a bundle to this id.
pub(crate) fn owned_by(bundle: Bundle, id: u32) -> Bundle {
    chown(bundle.rootfs(), Some(id), Some(id)).unwrap();
    fs::set_permissions(bundle.path(), fs::Permissions::from_mode(0o711)).unwrap();
    bundle
}

#[test]
fn user_namespace_may_have_many_ranges() {
    need!(is_root(), "needs root to map the ids of others");
    let map = json!([
        { "containerID": 0, "hostID": 100_000, "size": 1000 },
        { "containerID": 1000, "hostID": 0, "size": 1 },
        { "containerID": 1001, "hostID": 101_001, "size": 64_535 }
    ]);
    let bundle = |words: &str| {
        let holder = Holder::of(Namespaces::EMPTY);
        let bundle = bundle(words, Namespaces::ALL, Namespaces::EMPTY, &holder);
        let bundle = bundle.with("/linux/uidMappings", map.clone()).with("/linux/gidMappings", map.clone());
        owned_by(bundle, 100_000)
    };
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for file in ["uid_map", "gid_map"] {
        let found = Runtime::under_test().run(&bundle(&format!("cat /proc/self/{file}"))).succeeds();
        assert_eq!(words(&found), words("0 100000 1000 1000 0 1 1001 101001 64535"));
    }
    // Files that are created belong to the container's root, and its users may have supplementary groups.
    let made = bundle("write /made");
    Runtime::under_test().run(&made).succeeds();
    let owner = |name: &str| {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = fs::metadata(made.rootfs().join(name)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    assert_eq!([owner("made"), owner("proc")], [(100_000, 100_000); 2]);
    let grouped = bundle("status Groups").with("/process/user/additionalGids", json!([5, 6]));
    Runtime::under_test().run(&grouped).prints("5 6");
    Runtime::under_test().run(&bundle("cat /proc/self/setgroups")).prints("allow");
}

#[test]
fn oom_score_adj_is_lowered_before_privileges_are_dropped() {
    need!(is_root() && may_lower_scores(), "needs CAP_SYS_RESOURCE");
    let holder = Holder::of(Namespaces::EMPTY);
    let bundle = bundle("cat /proc/self/oom_score_adj", Namespaces::ALL, Namespaces::EMPTY, &holder);
    Runtime::under_test().run(&bundle.with("/process/oomScoreAdj", json!(-700))).prints("-700");
}

fn may_lower_scores() -> bool {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
    u64::from_str_radix(own, 16).unwrap() & CAP_SYS_RESOURCE != 0
}

#[test]
fn id_maps_beside_a_path_must_match_the_joined_user_namespace() {
    need!(is_husk(), RUNC_REFUSES);
    let holder = Holder::of(Namespaces::USER);
    let join =
        || bundle("cat /proc/self/uid_map", Namespaces::MOUNT | Namespaces::PID, Namespaces::USER, &holder);
    let size = if is_root() { 100_000 } else { 1 };
    let map = |id: u32, size: u32| json!([{ "containerID": 0, "hostID": id, "size": size }]);
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let same = join().with("/linux/uidMappings", map(uid, size)).with("/linux/gidMappings", map(gid, size));
    Runtime::under_test().run(&same).succeeds();
    Runtime::under_test().run(&join()).succeeds();
    let other = join().with("/linux/uidMappings", map(uid, size + 1));
    let other = other.with("/linux/gidMappings", map(gid, size));
    let phrase = "user namespaces enabled, but both namespace path and non-matching mapping specified";
    Runtime::under_test().run(&other).fails(1, phrase);
}

#[test]
fn ordinary_user_needs_a_user_namespace_with_own_ids() {
    need!(!is_root(), "needs an ordinary user");
    let namespaces = |kinds: &[&str]| -> Value { kinds.iter().map(|kind| json!({ "type": kind })).collect() };
    let bundle = Bundle::running("exit 0").with("/hostname", json!(""));
    let bundle = bundle.with("/linux/namespaces", namespaces(&["mount"]));
    let bundle = bundle.with("/linux/uidMappings", json!([])).with("/linux/gidMappings", json!([]));
    Runtime::under_test().run(&bundle).fails(1, "rootless container requires user namespaces");
    let bundle = bundle.with("/linux/namespaces", namespaces(&["mount", "user"]));
    let seen = Runtime::under_test().run(&bundle);
    seen.fails(1, if is_husk() { "linux.uidMappings: is missing" } else { "" });
    let grouped = Bundle::running("exit 0").with("/process/user/additionalGids", json!([5]));
    Runtime::under_test().run(&grouped).fails(1, "cannot set any additional groups in a rootless container");
    Runtime::under_test().run(&Bundle::running("cat /proc/self/setgroups")).prints("deny");
}

#[test]
fn newuidmap_maps_more_ids_for_an_ordinary_user() {
    need!(!is_root(), "needs an ordinary user");
    let own = geteuid().as_raw();
    let map = |id: u32| {
        let first = json!({ "containerID": 0, "hostID": own, "size": 1 });
        json!([first, { "containerID": 1, "hostID": id, "size": 10 }])
    };
    // Ids that are delegated to no user.
    let bundle = |id| Bundle::running("cat /proc/self/uid_map").with("/linux/uidMappings", map(id));
    let runtime = Runtime::under_test();
    let without = runtime.through("PATH=.:relative exec \"$@\"", "run", &bundle(4_000_000_000), &[]);
    without.fails(1, if is_husk() { "newuidmap is missing: install uidmap" } else { "" });
    let path = std::env::var_os("PATH").unwrap_or_default();
    need!(std::env::split_paths(&path).any(|at| at.join("newuidmap").exists()), "needs newuidmap");
    let refused = runtime.run(&bundle(4_000_000_000));
    refused.fails(1, if is_husk() { "is there a line for this user in /etc/subuid" } else { "newuidmap" });

    let name = own.to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let mut users = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|user| user.get(2) == Some(&&*name)).map_or(&*name, |user| user[0]).to_owned();
    let range = |file| {
        let ranges = fs::read_to_string(file).unwrap_or_default();
        let line = ranges.lines().find(|line| {
            let owner = line.split(':').next();
            owner == Some(&user) || owner == Some(&name)
        });
        line.and_then(|line| line.split(':').nth(1)?.parse::<u32>().ok())
    };
    let (Some(uid), Some(gid)) = (range("/etc/subuid"), range("/etc/subgid")) else {
        return crate::util::skip(module_path!(), "needs ranges in /etc/subuid and /etc/subgid");
    };
    let gids = json!([
        { "containerID": 0, "hostID": getegid().as_raw(), "size": 1 },
        { "containerID": 1, "hostID": gid, "size": 10 }
    ]);
    let grouped = bundle(uid).with("/linux/gidMappings", gids);
    let grouped = grouped.with("/process/user/additionalGids", json!([5]));
    let found = runtime.run(&grouped).succeeds();
    let found: Vec<_> = found.split_whitespace().collect();
    assert_eq!(found, ["0", &name, "1", "1", &uid.to_string(), "10"]);
}

// Settings of namespaces

#[test]
fn new_time_namespace_has_its_offsets() {
    let time = |words: &str| {
        let new = Namespaces::MOUNT | Namespaces::TIME | least();
        bundle(words, new, Namespaces::EMPTY, &Holder::of(Namespaces::EMPTY))
    };
    let offsets = json!({ "boottime": { "secs": 5_000_000, "nanosecs": 7 }, "monotonic": { "secs": 3 } });
    let with = |words| time(words).with("/linux/timeOffsets", offsets.clone());
    let found = Runtime::under_test().run(&with("cat /proc/self/timens_offsets")).succeeds();
    let found: Vec<_> = found.split_whitespace().collect();
    assert_eq!(found, ["monotonic", "3", "0", "boottime", "5000000", "7"]);
    let uptime = Runtime::under_test().run(&with("cat /proc/uptime")).succeeds();
    assert!(uptime.split('.').next().unwrap().parse::<u64>().unwrap() >= 5_000_000, "{uptime}");

    let offsets = offsets.clone();
    let namespaces = |time: Value| {
        let kinds = ["mount", "user"].into_iter().take(if is_root() { 1 } else { 2 });
        let kinds = kinds.map(|kind| json!({ "type": kind }));
        kinds.chain((!time.is_null()).then_some(time)).collect::<Value>()
    };
    let without = Bundle::running("exit 0").with("/hostname", json!("")).with("/linux/timeOffsets", offsets);
    let without = without.with("/linux/namespaces", namespaces(Value::Null));
    let phrase = "time namespace offsets specified, but time namespace isn't enabled in the config";
    Runtime::under_test().run(&without).fails(1, phrase);
    let both = without
        .with("/linux/namespaces", namespaces(json!({ "type": "time", "path": "/proc/self/ns/time" })));
    let phrase = "both namespace path and time offsets specified -- you may only provide one";
    Runtime::under_test().run(&both).fails(1, phrase);
}

#[test]
fn time_offsets_apply_in_the_second_process() {
    need!(is_husk(), RUNC_REFUSES);
    let holder = Holder::of(Namespaces::USER);
    let offsets = json!({ "boottime": { "secs": 5_000_000 } });
    let new = Namespaces::MOUNT | Namespaces::TIME | Namespaces::PID;
    let bundle = bundle("cat /proc/uptime", new, Namespaces::USER, &holder);
    let uptime = Runtime::under_test().run(&bundle.with("/linux/timeOffsets", offsets)).succeeds();
    assert!(uptime.split('.').next().unwrap().parse::<u64>().unwrap() >= 5_000_000, "{uptime}");
}

#[test]
fn new_network_namespace_has_loopback_up() {
    let local = |bundle| Runtime::under_test().run(&bundle).succeeds().contains("127.0.0.1");
    assert!(local(Bundle::running("cat /proc/net/fib_trie")));
    // A joined network namespace stays as it is.
    let holder = Holder::of(least() | Namespaces::NET);
    let joined = Namespaces::NET | least();
    assert!(!local(bundle("cat /proc/net/fib_trie", Namespaces::MOUNT, joined, &holder)));
}

#[test]
fn sysctls_are_set_in_the_containers_namespaces() {
    let key = |key: &str, value: &str| json!({ key: value });
    let set = |words: &str, sysctl: Value| Bundle::running(words).with("/linux/sysctl", sysctl);
    let forward = "net.ipv4.ip_forward";
    let run = |bundle| Runtime::under_test().run(&bundle);
    run(set("cat /proc/sys/net/ipv4/ip_forward", key(forward, "1"))).prints("1");
    run(set("cat /proc/sys/kernel/domainname", key("kernel.domainname", "a.domain"))).prints("a.domain");
    run(set("exit 0", key("kernel.hostname", "name")))
        .fails(1, "is not allowed as it conflicts with the OCI");
    let named = |domain: &str| {
        set("cat /proc/sys/kernel/domainname", key("kernel.domainname", "a.domain"))
            .with("/domainname", json!(domain))
    };
    run(named("a.domain")).prints("a.domain");
    if is_husk() {
        // With runc the parameter wins.
        run(named("another")).fails(1, "is not allowed as it conflicts with the OCI \"domainname\" field");
    }
    run(set("exit 0", key("kernel.panic", "1"))).fails(1, "is not in a separate kernel namespace");
    need!(is_husk(), "runc looks for a file of that name");
    run(set("exit 0", key("net..x", "1"))).fails(1, "\"net..x\"");

    // The container lacks the namespaces that the parameters belong to.
    let bare = |sysctl| {
        let bundle =
            bundle("exit 0", Namespaces::MOUNT | least(), Namespaces::EMPTY, &Holder::of(Namespaces::EMPTY));
        bundle.with("/linux/sysctl", sysctl)
    };
    run(bare(key(forward, "1"))).fails(1, "not allowed in host network namespace");
    run(bare(key("fs.mqueue.msg_max", "1"))).fails(1, "is not allowed in the hosts ipc namespace");
    run(bare(key("kernel.domainname", "a"))).fails(1, "is not in a separate kernel namespace");
    if is_root() {
        run(bare(key("user.max_user_namespaces", "1"))).fails(1, "setting ucounts without a user namespace");
    }
    // The host's own network namespace, by another path.
    let mut hosts = bare(key(forward, "1"));
    let network = json!({ "type": "network", "path": "/proc/self/ns/net" });
    hosts.config["linux"]["namespaces"].as_array_mut().unwrap().push(network);
    run(hosts).fails(1, "not allowed in host network namespace");
}

// Only root of the user namespace that owns an IPC namespace may write its parameters.
#[test]
fn ipc_sysctls_are_set_by_root_of_the_user_namespace() {
    need!(is_root(), "needs root to map ids");
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 1000 }]);
    for (name, value) in [
        ("kernel/msgmax", "4242"),
        ("kernel/shmmax", "42420000"),
        ("kernel/sem", "32000\t1024000000\t500\t42"),
        ("fs/mqueue/msg_max", "42"),
    ] {
        let key = name.replace('/', ".");
        let mut bundle = Bundle::running(&format!("cat /proc/sys/{name}"))
            .with("/linux/sysctl", json!({ key: value, "net.ipv4.ip_forward": "1" }))
            .with("/linux/uidMappings", map.clone())
            .with("/linux/gidMappings", map.clone());
        bundle.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        std::fs::set_permissions(bundle.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(bundle.rootfs(), Some(100_000), Some(100_000)).unwrap();
        Runtime::under_test().run(&bundle).prints(value);
    }
}

/// A mount namespace in which files and links replace procfs.
struct PlayedProcfs {
    holder: process::Child,
    /// The directory that a write through the links would change.
    tripwire: tempfile::TempDir,
}

impl PlayedProcfs {
    fn new() -> Self {
        const SCRIPT: &str = "mount -t tmpfs tmpfs /proc && mkdir -p /proc/sys/net/ipv4 /proc/self &&
            ln -s \"$0/parameter\" /proc/sys/net/ipv4/ip_forward && ln -s \"$0/clocks\" /proc/self/timens_offsets &&
            echo ready && read end";
        let tripwire = tempfile::TempDir::new().unwrap();
        for name in ["parameter", "clocks"] {
            fs::write(tripwire.path().join(name), "untouched").unwrap();
        }
        let mut holder = process::Command::new("unshare");
        holder.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT]).arg(tripwire.path());
        let pipe = process::Stdio::piped;
        let mut holder = holder.stdin(pipe()).stdout(pipe()).spawn().expect("unshare(1)");
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { holder, tripwire }
    }

    /// Returns a bundle that joins this mount namespace and has new namespaces of these kinds.
    fn joined(&self, words: &str, own: &[&str]) -> Bundle {
        let mut namespaces: Vec<_> = own.iter().map(|kind| json!({ "type": kind })).collect();
        namespaces.push(json!({ "type": "mount", "path": format!("/proc/{}/ns/mnt", self.holder.id()) }));
        let bundle = Bundle::running(words).with("/linux/namespaces", namespaces.into());
        bundle.with("/hostname", json!(""))
    }

    #[track_caller]
    fn is_untouched(&self) {
        for name in ["parameter", "clocks"] {
            assert_eq!(fs::read_to_string(self.tripwire.path().join(name)).unwrap(), "untouched", "{name}");
        }
    }
}

impl Drop for PlayedProcfs {
    fn drop(&mut self) {
        // The process ends at the end of its input.
        drop(self.holder.stdin.take());
        self.holder.wait().expect("exit status");
    }
}

// Links in a joined mount namespace used to redirect root's writes to the host's hostname.
#[test]
fn links_in_a_joined_mount_namespace_redirect_no_write_to_procfs() {
    need!(is_root() && is_husk(), "needs root to join mount namespaces");
    let played = PlayedProcfs::new();
    let forward = "cat /proc/sys/net/ipv4/ip_forward";
    let set = played.joined(forward, &["pid", "network"]);
    let set = set.with("/linux/sysctl", json!({ "net.ipv4.ip_forward": "1" }));
    Runtime::under_test().run(&set).prints("1");
    played.is_untouched();
    // A second namespace: the first one now has the container's root.
    let played = PlayedProcfs::new();
    let set = played.joined("cat /proc/uptime", &["pid", "time"]);
    let set = set.with("/linux/timeOffsets", json!({ "boottime": { "secs": 1_000_000_000, "nanosecs": 0 } }));
    let uptime = Runtime::under_test().run(&set).succeeds();
    assert!(uptime.split('.').next().unwrap().parse::<u64>().unwrap() >= 1_000_000_000, "{uptime}");
    played.is_untouched();
}

#[test]
fn hostname_is_set_in_a_joined_uts_namespace() {
    let holder = Holder::of(least() | Namespaces::UTS);
    let join = |words: &str| bundle(words, Namespaces::MOUNT, Namespaces::UTS | least(), &holder);
    let named = join("cat /proc/sys/kernel/hostname").with("/hostname", json!("joined"));
    Runtime::under_test().run(&named).prints("joined");
    let named = join("cat /proc/sys/kernel/domainname").with("/domainname", json!("a.domain"));
    Runtime::under_test().run(&named).prints("a.domain");
    let host = bundle("exit 0", Namespaces::MOUNT | least(), Namespaces::EMPTY, &holder);
    for field in ["hostname", "domainname"] {
        let host = Bundle::running("exit 0").with("/linux", host.config["linux"].clone());
        let host = host.with("/hostname", json!("")).with(&format!("/{field}"), json!("name"));
        let phrase = format!("unable to set {field} without a private UTS namespace");
        Runtime::under_test().run(&host).fails(1, &phrase);
    }
}

#[test]
fn program_in_a_second_process_has_its_standard_input() {
    need!(is_husk(), RUNC_REFUSES);
    let holder = Holder::of(Namespaces::USER | Namespaces::PID);
    let joined = Namespaces::USER | Namespaces::PID;
    let bundle = bundle("wait", Namespaces::MOUNT, joined, &holder);
    let runtime = Runtime::under_test();
    let mut running = runtime.running(&bundle);
    let mut said = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"begun\n");
    assert_eq!(runtime.status(), "running");
    // Signals go to the process that executes the program, and the container ends with it.
    runtime.call("kill", &["c", "KILL"]).succeeds();
    assert_eq!(running.wait().unwrap().code(), Some(128 + 9));
    assert!(runtime.is_empty());
}

// LXC gives a container a read-only `/proc/sys` with a writable `/proc/sys/net` mounted over it.
#[test]
fn sysctl_under_a_mount_of_the_caller_is_refused_by_name() {
    need!(is_root() && is_husk(), "needs root to mount, and runc opens a procfs of its own");
    let covered =
        "exec unshare --mount sh -c 'mount --bind /proc/sys/net /proc/sys/net && exec \"$@\"' sh \"$@\"";
    let bundle = Bundle::running("exit 0").with("/linux/sysctl", json!({ "net.ipv4.ip_forward": "1" }));
    let runtime = Runtime::under_test();
    let seen = runtime.through(covered, "run", &bundle, &[]);
    seen.fails(1, "linux.sysctl");
    seen.fails(1, "something is mounted over it in the runtime's /proc");
    assert!(runtime.is_empty());
}
