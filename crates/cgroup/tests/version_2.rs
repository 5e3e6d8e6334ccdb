//! Tests version 2: creating, limiting, filling, freezing, killing and removing cgroups.

use crate::support::{PATIENCE, Reader, V2, need};
use husk_cgroup::resources::{Cpu, HugepageLimit, Memory};
use husk_cgroup::{CgroupPaths, Error, OomEvent, OomWatch, Resources};
use rustix::event::{PollFd, Timespec, poll};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

fn hugepages(limit: u64) -> Resources {
    let limit = HugepageLimit { page_size: "2MB".to_owned(), limit };
    Resources { hugepage_limits: vec![limit], ..Resources::default() }
}

#[test]
fn process_starts_in_a_cgroup_that_is_removed_after_its_end() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    let mut reader = Reader::started_in(cgroup.directory());
    assert_eq!(cgroup.pids().unwrap(), [reader.pid()]);
    // Fails while the cgroup is in use, and the message names the process.
    let error = v2.tree.remove(&v2.name, Duration::ZERO).unwrap_err();
    assert!(matches!(&error, Error::Deadline { pids, .. } if *pids == [reader.pid()]));
    assert!(error.to_string().ends_with(&format!("; remaining processes: {}", reader.pid())), "{error}");

    cgroup.kill().unwrap();
    cgroup.wait_empty(PATIENCE).unwrap();
    assert_eq!(reader.child.wait().unwrap().signal(), Some(9));
    v2.tree.remove(&v2.name, PATIENCE).unwrap();
    assert!(v2.tree.find(&v2.name).unwrap().is_none());
    // Removing a cgroup that is gone succeeds.
    v2.tree.remove(&v2.name, Duration::ZERO).unwrap();
}

#[test]
fn limits_are_written_and_read_back() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(v2.has("hugetlb"), "needs the hugetlb controller in version 2");
    let resources = hugepages(4 << 21);
    let cgroup = v2.tree.create(&v2.name, &resources).unwrap();
    assert_eq!(cgroup.apply_early(&resources).unwrap(), []);
    cgroup.apply_late(&resources).unwrap();
    assert_eq!(v2.read("hugetlb.2MB.max"), (4 << 21).to_string());
    assert_eq!(v2.read("hugetlb.2MB.rsvd.max"), (4 << 21).to_string());
    cgroup.update(&hugepages(u64::MAX)).unwrap();
    assert_eq!(v2.read("hugetlb.2MB.max"), "max");
    let stats = cgroup.stats().unwrap();
    assert_eq!(stats.hugetlb.get("2MB").unwrap().usage, 0);
}

#[test]
fn controllers_are_enabled_in_new_ancestors() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(v2.has("hugetlb"), "needs the hugetlb controller in version 2");
    let path = format!("{}/a/b", v2.name);
    let cgroup = v2.tree.create(&path, &hugepages(0)).unwrap();
    cgroup.apply_early(&hugepages(0)).unwrap();
    assert_eq!(v2.read("a/b/hugetlb.2MB.max"), "0");
    let enabled = v2.read("a/cgroup.subtree_control");
    assert!(enabled.split_whitespace().any(|name| name == "hugetlb"), "{enabled}");
}

#[test]
fn missing_controller_is_named_with_the_field() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(v2.has("cpu").is_none().then_some(()), "needs a version 2 tree without the cpu controller");
    let resources = Resources { cpu: Cpu { quota: Some(1000), ..Cpu::default() }, ..Resources::default() };
    let cgroup = v2.tree.create(&v2.name, &resources).unwrap();
    let error = cgroup.apply_late(&resources).unwrap_err().to_string();
    let expected = "linux.resources.cpu.quota: this cgroup has no cpu controller: this hierarchy has";
    assert!(error.starts_with(expected), "{error}");
    // The same for a file of the kernel in `unified`.
    let resources =
        Resources { unified: [("cpu.weight".to_owned(), "1".to_owned())].into(), ..Resources::default() };
    let error = cgroup.apply_early(&resources).unwrap_err().to_string();
    assert!(error.starts_with("linux.resources.unified.cpu.weight: this cgroup has no cpu"), "{error}");
    // The same for a controller that no kernel has.
    let resources =
        Resources { unified: [("nonsense.x".to_owned(), "1".to_owned())].into(), ..Resources::default() };
    let error = cgroup.apply_late(&resources).unwrap_err().to_string();
    assert!(error.starts_with("linux.resources.unified.nonsense.x: this cgroup has no nonsense"), "{error}");
}

#[test]
fn value_refused_by_the_kernel_is_named_with_the_field() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    let unified = [("cgroup.max.depth".to_owned(), "deep".to_owned())].into();
    let resources = Resources { unified, ..Resources::default() };
    let cgroup = v2.tree.create(&v2.name, &resources).unwrap();
    let error = cgroup.apply_late(&resources).unwrap_err();
    let act = r#"linux.resources.unified.cgroup.max.depth: write "deep" to cgroup.max.depth"#;
    assert_eq!(error.to_string(), format!("{act}: invalid argument"));
    assert_eq!(error.errno(), Some(rustix::io::Errno::INVAL));
}

#[test]
fn cgroup_in_use_or_frozen_is_refused() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    // An empty cgroup may be used again.
    v2.tree.create(&v2.name, &Resources::default()).unwrap();
    let reader = Reader::started_in(cgroup.directory());
    let error = v2.tree.create(&v2.name, &Resources::default()).unwrap_err().to_string();
    assert!(error.starts_with("container's cgroup is not empty: 1 process(es) found"), "{error}");
    drop(reader);
    cgroup.wait_empty(PATIENCE).unwrap();
    cgroup.freeze(PATIENCE).unwrap();
    let error = v2.tree.create(&v2.name, &Resources::default()).unwrap_err().to_string();
    assert!(error.starts_with("container's cgroup unexpectedly frozen"), "{error}");
    cgroup.thaw().unwrap();
    v2.tree.create(&v2.name, &Resources::default()).unwrap();
}

#[test]
fn root_cgroup_is_refused() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    assert!(matches!(v2.tree.create("", &Resources::default()), Err(Error::Root(_))));
    assert!(matches!(v2.tree.remove("", PATIENCE), Err(Error::Root(_))));
}

#[test]
fn failed_create_removes_new_cgroups() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    fs::create_dir(v2.path("")).unwrap();
    fs::write(v2.path("cgroup.max.depth"), "2").unwrap();
    let error = v2.tree.create(&format!("{}/a/b/c/d", v2.name), &Resources::default()).unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::AGAIN), "{error}");
    assert!(!fs::exists(v2.path("a")).unwrap());
}

#[test]
fn frozen_process_stops_and_can_be_killed() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    let mut reader = Reader::started_in(cgroup.directory());
    let place = CgroupPaths::new([(String::new(), v2.path("").into())].into());
    assert!(!place.is_frozen().unwrap());
    cgroup.freeze(PATIENCE).unwrap();
    assert!(place.is_frozen().unwrap());
    cgroup.thaw().unwrap();
    assert!(!place.is_frozen().unwrap());
    cgroup.freeze(PATIENCE).unwrap();
    cgroup.kill().unwrap();
    assert_eq!(reader.child.wait().unwrap().signal(), Some(9));
    cgroup.wait_empty(PATIENCE).unwrap();
}

#[test]
fn removal_includes_nested_cgroups() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    for below in ["a", "a/b", "c"] {
        fs::create_dir(v2.path(below)).unwrap();
    }
    let inner = v2.tree.find(&format!("{}/a/b", v2.name)).unwrap().unwrap();
    let reader = Reader::started_in(inner.directory());
    assert_eq!(cgroup.pids().unwrap(), [reader.pid()]);
    cgroup.kill().unwrap();
    // The test does not wait for the process, because the removal does.
    v2.tree.remove(&v2.name, PATIENCE).unwrap();
    assert!(!fs::exists(v2.path("")).unwrap());
}

#[test]
fn signal_reaches_every_process() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    let mut readers = [Reader::started_in(cgroup.directory()), Reader::started_in(cgroup.directory())];
    cgroup.signal(rustix::process::Signal::TERM).unwrap();
    for reader in &mut readers {
        assert_eq!(reader.child.wait().unwrap().signal(), Some(15));
    }
}

#[test]
fn cpu_and_pids_statistics_need_no_controller() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    let reader = Reader::started_in(cgroup.directory());
    let stats = cgroup.stats().unwrap();
    assert_eq!(stats.pids.current, 1);
    assert_eq!(stats.cpu.usage.total % 1000, 0);
    if v2.has("memory").is_some() {
        assert!(stats.memory.usage.usage > 0);
        assert_eq!(stats.memory.usage.limit, u64::MAX);
        assert!(stats.memory.raw.contains_key("anon"));
    }
    drop(reader);
}

#[test]
fn limit_below_current_use_is_refused_on_request() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(v2.has("memory"), "needs the memory controller in version 2");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    let reader = Reader::started_in(cgroup.directory());
    for (swap, words) in [
        (None, "linux.resources.memory.limit: rejecting memory limit 1 <= usage"),
        (Some(2), "linux.resources.memory.swap: rejecting memory+swap limit 2 <= usage"),
    ] {
        let memory = Memory { limit: Some(1), swap, check_before_update: true, ..Memory::default() };
        let error = cgroup.update(&Resources { memory, ..Resources::default() }).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
    drop(reader);
}

#[test]
fn domain_limits_in_a_threaded_cgroup_are_refused() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(v2.has("hugetlb"), "needs the hugetlb controller in version 2");
    fs::create_dir(v2.path("")).unwrap();
    fs::create_dir(v2.path("threads")).unwrap();
    fs::write(v2.path("threads/cgroup.type"), "threaded").unwrap();
    let below = format!("{}/threads/new", v2.name);
    let error = v2.tree.create(&below, &hugepages(0)).unwrap_err().to_string();
    assert!(error.ends_with("is a domain invalid cgroup, which cannot have these limits"), "{error}");
    assert!(!fs::exists(v2.path("threads/new")).unwrap());
    // Without these limits the cgroup can become threaded.
    v2.tree.create(&below, &Resources::default()).unwrap();
    assert_eq!(v2.read("threads/new/cgroup.type"), "threaded");
}

#[test]
fn delegated_cgroup_belongs_to_its_user() {
    use std::os::unix::fs::MetadataExt as _;
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(rustix::process::geteuid().is_root().then_some(()), "needs root");
    let cgroup = v2.tree.create(&v2.name, &Resources::default()).unwrap();
    cgroup.delegate(rustix::fs::Uid::from_raw(1234)).unwrap();
    for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
        assert_eq!(fs::metadata(v2.path(file)).unwrap().uid(), 1234, "{file}");
    }
    assert_eq!(fs::metadata(v2.path("cgroup.freeze")).unwrap().uid(), 0);
}

#[test]
fn memory_beyond_the_limit_kills_and_is_counted() {
    let v2 = need!(V2::new(), "needs a cgroup2 tree in which cgroups can be created");
    need!(v2.has("memory"), "needs the memory controller in version 2");
    let memory = Memory { limit: Some(8 << 20), swap: Some(8 << 20), ..Memory::default() };
    let resources = Resources { memory, ..Resources::default() };
    let cgroup = v2.tree.create(&v2.name, &resources).unwrap();
    cgroup.apply_early(&resources).unwrap();
    cgroup.apply_late(&resources).unwrap();
    let place = CgroupPaths::new([(String::new(), v2.path("").into())].into());
    let mut watch = place.watch_oom().unwrap();
    assert_eq!(watch.check().unwrap(), OomEvent::Nothing);
    // tail must keep the whole line, which never ends. Without a limit it would use half a gigabyte.
    let script =
        format!("echo $$ >{} && head -c 512M /dev/zero | tail -n1 >/dev/null", v2.path("cgroup.procs"));
    let mut command = husk_spawn::Command::new("sh");
    let output = command.args(["-c", &script]).stderr(husk_spawn::Stdio::piped()).output().unwrap();
    assert!(!output.status.success());
    let is_ready = |watch: &OomWatch, patience: Duration| {
        let mut files = [PollFd::new(watch, watch.flags())];
        poll(&mut files, Some(&Timespec::try_from(patience).unwrap())).unwrap() == 1
    };
    // The kernel delays notifications of events that are close together.
    assert!(is_ready(&watch, PATIENCE));
    let mut seen = watch.check().unwrap();
    while seen == OomEvent::Nothing {
        assert!(is_ready(&watch, PATIENCE), "no event of the kill");
        seen = watch.check().unwrap();
    }
    assert_eq!(seen, OomEvent::OutOfMemory);
    assert!(cgroup.oom_kills().unwrap() >= 1);
    v2.tree.remove(&v2.name, PATIENCE).unwrap();
    assert!(is_ready(&watch, PATIENCE));
    assert_eq!(watch.check().unwrap(), OomEvent::Gone);
}
