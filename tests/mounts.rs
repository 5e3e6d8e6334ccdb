//! Checks mounts: what the program finds in its container, and what the host does not see.
//!
//! The tests run as root. If it makes a difference, they also use a user namespace, as root or an ordinary user.

use crate::util::{Bundle, Runtime, Seen, is_husk, is_linux, is_root, need};
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use tempfile::TempDir;

fn inside(words: &str) -> Bundle {
    Bundle::running(words)
}

#[track_caller]
fn prints(bundle: &Bundle, wanted: &str) {
    run(bundle).prints(wanted);
}

#[track_caller]
fn fails(bundle: &Bundle, wanted: &str) {
    run(bundle).fails(1, wanted);
}

fn run(bundle: &Bundle) -> Seen {
    Runtime::under_test().run(bundle)
}

/// The host id of root in a container with its own user namespace.
const ROOT: u32 = 100_000;

/// Adds a user namespace with other ids on the host, and gives the root file system to the container's root.
fn with_users(mut bundle: Bundle) -> Bundle {
    let linux = bundle.config["linux"].as_object_mut().unwrap();
    linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
    let map = json!([{ "containerID": 0, "hostID": ROOT, "size": 65536 }]);
    linux.insert("uidMappings".to_owned(), map.clone());
    linux.insert("gidMappings".to_owned(), map);
    fs::set_permissions(bundle.path(), Permissions::from_mode(0o755)).unwrap();
    give(&bundle.rootfs(), ROOT);
    bundle
}

/// Gives a file or a whole tree to one user.
fn give(path: &Path, id: u32) {
    lchown(path, Some(id), Some(id)).unwrap();
    if path.symlink_metadata().unwrap().is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), id));
    }
}

/// Returns a directory of the host with a file in it.
fn volume() -> TempDir {
    let volume = tempfile::tempdir().unwrap();
    fs::write(volume.path().join("file"), "of the host").unwrap();
    volume
}

fn bind(source: &Path, destination: &str, options: &[&str]) -> Value {
    json!({ "destination": destination, "type": "bind", "source": source, "options": options })
}

fn tmpfs(destination: &str, options: &[&str]) -> Value {
    json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs", "options": options })
}

/// Maps 1000 ids of a mount, beginning with `inside`, to those from `outside`, as `idmap` does.
fn mapped(mount: Value, inside: u32, outside: u32) -> Value {
    let mut mount = mount;
    let map = json!([{ "containerID": inside, "hostID": outside, "size": 1000 }]);
    mount["uidMappings"] = map.clone();
    mount["gidMappings"] = map;
    mount
}

#[test]
fn source_that_only_root_may_reach_is_mounted() {
    need!(is_root(), "needs root to map ids");
    // Only its owner, root, may enter a temporary directory.
    let volume = volume();
    let bundle =
        |options| with_users(inside("cat /data/file").mounting(bind(volume.path(), "/data", options)));
    prints(&bundle(&["bind"]), "of the host");
    prints(&bundle(&["rbind"]), "of the host");
    let file = bind(&volume.path().join("file"), "/a/file", &["bind"]);
    prints(&with_users(inside("cat /a/file").mounting(file)), "of the host");
    let missing = bind(&volume.path().join("not/there"), "/a/file", &["bind"]);
    fails(&with_users(inside("exit 0").mounting(missing)), "o such file or directory");
}

#[test]
fn source_may_lie_in_an_earlier_mount() {
    let (one, two) = (volume(), volume());
    fs::write(two.path().join("file"), "of the other").unwrap();
    fs::create_dir(one.path().join("below")).unwrap();
    let chain = |words| {
        let bundle = inside(words);
        let shown = bundle.rootfs().join("one/below/file");
        bundle
            .mounting(bind(one.path(), "/one", &["bind"]))
            .mounting(bind(two.path(), "/one/below", &["bind"]))
            .mounting(bind(&shown, "/final", &["bind"]))
    };
    prints(&chain("cat /final"), "of the other");
    // A destination may be the path on the host.
    let bundle = inside("cat /one/file");
    let place = bundle.rootfs().join("one");
    prints(&bundle.mounting(bind(one.path(), place.to_str().unwrap(), &["bind"])), "of the host");
    if is_root() {
        prints(&with_users(chain("cat /final")), "of the other");
    }
}

// CRI-O's list of options for a volume ends with a second, plain `bind`.
#[test]
fn rbind_shows_mounts_below_even_when_bind_follows() {
    need!(is_root(), "needs root to mount");
    let (volume, other) = (tempfile::tempdir().unwrap(), volume());
    let below = volume.path().join("below");
    fs::create_dir(&below).unwrap();
    let _below = Mounted::tmpfs(&below, "");
    fs::copy(other.path().join("file"), below.join("file")).unwrap();
    for options in [&["rbind", "rprivate", "ro", "bind"][..], &["bind", "rbind"]] {
        prints(
            &inside("cat /data/below/file").mounting(bind(volume.path(), "/data", options)),
            "of the host",
        );
    }
    let plain = bind(volume.path(), "/data", &["bind", "rprivate"]);
    prints(&inside("list /data/below").mounting(plain), "");
}

#[test]
fn mounts_of_the_host_cannot_be_separated_in_the_container() {
    need!(is_root(), "needs root to map ids");
    let volume = tempfile::tempdir().unwrap();
    fs::create_dir(volume.path().join("below")).unwrap();
    fs::write(volume.path().join("below/secret"), "").unwrap();
    // Root has every capability in the container, but only over its own user namespace.
    let all: Vec<_> = ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE"].into();
    let capable = |words: &str| {
        let sets = json!({ "bounding": all, "permitted": all, "effective": all });
        with_users(inside(words)).with("/process/capabilities", sets)
    };
    let _host = Mounted::tmpfs(&volume.path().join("below"), "nodev");
    let shown = bind(volume.path(), "/data", &["rbind"]);
    let seen = run(&capable("umount /data/below").mounting(shown.clone()));
    seen.fails(1, "Invalid argument");
    let seen = run(&capable("remount-dev /data/below").mounting(shown));
    seen.fails(1, "not permitted");
}

/// A mount of the host, for as long as the test runs.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn tmpfs(at: &Path, options: &str) -> Self {
        use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
        let flags = options.split(',').fold(MountFlags::empty(), |flags, option| {
            flags
                | match option {
                    "nodev" => MountFlags::NODEV,
                    "nosuid" => MountFlags::NOSUID,
                    "noexec" => MountFlags::NOEXEC,
                    "noatime" => MountFlags::NOATIME,
                    "nodiratime" => MountFlags::NODIRATIME,
                    _ => MountFlags::empty(),
                }
        });
        mount("tmpfs", at, "tmpfs", flags, None).unwrap();
        mount_change(at, MountPropagationFlags::SHARED).unwrap();
        Self(at.to_owned())
    }

    /// Returns the number of mounts at and below it.
    fn count(&self) -> usize {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.lines().filter(|line| Path::new(line.split(' ').nth(4).unwrap()).starts_with(&self.0)).count()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn idmapped_mount_maps_ids() {
    need!(is_root(), "needs root to map ids");
    let volume = volume();
    chown(volume.path().join("file"), Some(1), Some(2)).unwrap();
    let plain = bind(volume.path(), "/data", &["bind"]);
    let mount = |inside, outside| mapped(plain.clone(), inside, outside);
    let stat = || inside("stat /data/file");
    prints(&stat().mounting(mount(0, 5000)), "644 5001 5002");
    prints(&with_users(stat().mounting(mount(0, ROOT))), "644 1 2");
    prints(&with_users(stat().mounting(mount(0, ROOT + 50))), "644 51 52");
    // Two mounts with the same maps, and one without.
    let two = stat().mounting(mount(0, 7000)).mounting({
        let mut other = mount(0, 7000);
        other["destination"] = json!("/other");
        other
    });
    prints(&two, "644 7001 7002");
    // In a user namespace unmapped ids show as the overflow id.
    prints(&with_users(stat().mounting(plain.clone())), "644 65534 65534");
    // Without maps in the mount, the container's own apply.
    let own = bind(volume.path(), "/data", &["bind", "idmap"]);
    prints(&with_users(stat().mounting(own.clone())), "644 1 2");
    fails(&stat().mounting(own), "id-mapped mounts must have both uid and gid mappings specified");
}

#[test]
fn ids_below_a_mount_are_mapped_only_with_ridmap() {
    need!(is_root(), "needs root to map ids");
    let (volume, other) = (volume(), volume());
    let below = Mounted(volume.path().join("below"));
    fs::create_dir(&below.0).unwrap();
    // A mount of the same file system: before Linux 6.3 a tmpfs cannot be idmapped.
    rustix::mount::mount_bind(other.path(), &below.0).unwrap();
    let mount = |option| mapped(bind(volume.path(), "/data", &["rbind", option]), 0, 5000);
    for (option, top, under) in [("idmap", 5000, 0), ("ridmap", 5000, 5000)] {
        let owner = |path: &str| inside(&format!("stat {path}")).mounting(mount(option));
        prints(&owner("/data/file"), &format!("644 {top} {top}"));
        prints(&owner("/data/below/file"), &format!("644 {under} {under}"));
    }
}

#[test]
fn idmapped_mount_is_refused_for_ordinary_users() {
    need!(!is_root(), "needs an ordinary user");
    let volume = volume();
    let mount = mapped(bind(volume.path(), "/data", &["bind"]), 0, 5000);
    fails(&inside("exit 0").mounting(mount), "id-mapped mounts are not supported for rootless containers");
}

#[test]
fn many_sources_need_few_descriptors() {
    need!(is_root(), "needs root to map ids");
    let volume = volume();
    let limit = json!([{ "type": "RLIMIT_NOFILE", "soft": 20, "hard": 20 }]);
    let mut bundle = inside("stat /data/7/file").with("/process/rlimits", limit);
    for number in 0..30 {
        let mount = bind(volume.path(), &format!("/data/{number}"), &["bind"]);
        bundle = bundle.mounting(mapped(mount, 0, ROOT));
    }
    prints(&with_users(bundle), "644 0 0");
    // The program inherits none of the descriptors of these mounts.
    let bundle =
        inside("list /proc/self/fd").mounting(mapped(bind(volume.path(), "/data", &["bind"]), 0, ROOT));
    prints(&with_users(bundle), "0\n1\n2\n3");
}

// podman 5 in systemd mode passes an empty option.
#[test]
fn empty_options_are_skipped_and_joined_options_are_split() {
    let bundle = inside("mount /new").mounting(tmpfs("/new", &["", "size=64k,mode=700", "nosuid"]));
    let line = run(&bundle).succeeds();
    for option in ["nosuid", "size=64k", "mode=700"] {
        assert!(line.trim_end().split([' ', ',']).any(|found| found == option), "{line}");
    }
    let volume = volume();
    let empty = bind(volume.path(), "/data", &["bind", ""]);
    prints(&inside("cat /data/file").mounting(empty), "of the host");
    need!(is_husk(), "the command is husk's");
    let path = bundle.path().to_str().unwrap().to_owned();
    Runtime::under_test().call("validate", &[&path]).prints("0 errors, 0 warnings");
}

/// Returns an overlay at /o with a layer in `place` for each name. A layer's only file is named after the layer.
fn overlay(place: &Path, names: &[String], upper: &str) -> Value {
    let layers = names.iter().map(|name| {
        let layer = place.join(name);
        fs::create_dir(&layer).unwrap();
        fs::write(layer.join(format!("file-{name}")), "").unwrap();
        layer.to_str().unwrap().replace('\\', "\\\\").replace(':', "\\:")
    });
    let lower = format!("lowerdir={}", layers.collect::<Vec<_>>().join(":"));
    let options = if upper.is_empty() { json!([lower]) } else { json!([lower, upper, "noatime"]) };
    json!({ "destination": "/o", "type": "overlay", "source": "overlay", "options": options })
}

#[test]
fn overlay_of_many_layers_shows_all_of_them() {
    need!(is_root(), "needs root to mount an overlay");
    need!(fs::read_to_string("/proc/filesystems").unwrap().contains("\toverlay\n"), "needs overlayfs");
    // fsconfig(2) takes 255 bytes, and mount(2) 4095. Names of layers may contain colons and backslashes.
    for (last, padding) in [(60, ""), (40, "x".repeat(150).as_str())] {
        let place = tempfile::tempdir().unwrap();
        let names: Vec<_> = (10..last).map(|number| format!("layer:{number}\\{padding}")).collect();
        let bundle = inside("list /o").mounting(overlay(place.path(), &names, ""));
        let is_long = !padding.is_empty();
        if is_long && !is_linux(6, 8) {
            fails(&bundle, "options longer than 4095 bytes with lowerdir need Linux 6.8");
        } else {
            let wanted: Vec<_> = names.iter().map(|name| format!("file-{name}")).collect();
            prints(&bundle, &wanted.join("\n"));
        }
    }
}

#[test]
fn overlay_with_a_long_upper_directory_is_writable() {
    need!(is_root(), "needs root to mount an overlay");
    need!(fs::read_to_string("/proc/filesystems").unwrap().contains("\toverlay\n"), "needs overlayfs");
    // An upper layer cannot be on an overlay. /tmp is on one when the tests themselves run in a container.
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let private = format!("{0}/{0}", "p".repeat(140));
    let [upper, work] = ["upper", "work"].map(|name| place.path().join(&private).join(name));
    for directory in [&upper, &work] {
        fs::create_dir_all(directory).unwrap();
    }
    let options = format!("upperdir={},workdir={}", upper.display(), work.display());
    let overlay = overlay(place.path(), &["low".to_owned()], &options);
    let line = run(&inside("mount /o").mounting(overlay.clone())).succeeds();
    assert!(line.split([' ', ',']).any(|option| option == "noatime"), "{line}");
    // A temporary mount on the container's root does not propagate to the host.
    let shared = json!("shared");
    let bundle = inside("write /o/new").mounting(overlay).with("/linux/rootfsPropagation", shared);
    run(&bundle).succeeds();
    assert!(upper.join("new").exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(bundle.path().to_str().unwrap()), "{mounts}");
}

#[test]
fn tmpfs_takes_the_mode_of_the_directory_it_covers() {
    let covered = |options: &[&str]| {
        let bundle = inside("stat /covered").mounting(tmpfs("/covered", options));
        fs::create_dir(bundle.rootfs().join("covered")).unwrap();
        fs::set_permissions(bundle.rootfs().join("covered"), Permissions::from_mode(0o710)).unwrap();
        bundle
    };
    prints(&covered(&["nosuid"]), "710 0 0");
    prints(&covered(&["mode=1500"]), "1500 0 0");
    prints(&inside("stat /new/one").mounting(tmpfs("/new/one", &[])), "1777 0 0");
}

#[test]
fn read_only_tmpfs_holds_mounts() {
    let volume = volume();
    let bundle = |words| {
        inside(words).mounting(tmpfs("/holds", &["ro", "nodev", "mode=755"])).mounting(bind(
            volume.path(),
            "/holds/data",
            &["bind"],
        ))
    };
    prints(&bundle("cat /holds/data/file"), "of the host");
    fails(&bundle("write /holds/new"), "Read-only file system");
    let dev = json!(["nosuid", "mode=755", "ro"]);
    let bundle = inside("write /dev/new").with("/mounts/1/options", dev.clone());
    fails(&bundle, "Read-only file system");
    prints(&inside("null /dev/null").with("/mounts/1/options", dev), "0x103");
}

#[test]
fn tmpcopyup_copies_what_the_tmpfs_covers() {
    let host = volume();
    let copied = |words: &str| {
        let bundle = inside(words).mounting(tmpfs("/etc", &["tmpcopyup"]));
        let etc = bundle.rootfs().join("etc");
        fs::create_dir_all(etc.join("a/b/c")).unwrap();
        for number in 0..300 {
            fs::write(etc.join(format!("a/file-{number:03}")), number.to_string()).unwrap();
        }
        fs::write(etc.join("a/b/c/deep"), vec![b'x'; 100_000]).unwrap();
        fs::set_permissions(etc.join("a/b"), Permissions::from_mode(0o2707)).unwrap();
        fs::set_permissions(etc.join("a/file-007"), Permissions::from_mode(0o4711)).unwrap();
        symlink(host.path(), etc.join("link")).unwrap();
        if is_root() {
            chown(etc.join("a/file-009"), Some(11), Some(12)).unwrap();
        }
        bundle
    };
    let all = (0..300).map(|number| format!("file-{number:03}"));
    let all: Vec<_> = ["b".to_owned()].into_iter().chain(all).collect();
    prints(&copied("list /etc/a"), &all.join("\n"));
    prints(&copied("cat /etc/a/b/c/deep"), &"x".repeat(100_000));
    prints(&copied("stat /etc/a/b"), "2707 0 0");
    prints(&copied("stat /etc/a/file-007"), "4711 0 0");
    prints(&copied("read-link /etc/link"), host.path().to_str().unwrap());
    if is_root() {
        prints(&copied("stat /etc/a/file-009"), "644 11 12");
    }
    // A write changes only the copy.
    let bundle = copied("write /etc/a/file-001");
    run(&bundle).succeeds();
    assert_eq!(fs::read_to_string(bundle.rootfs().join("etc/a/file-001")).unwrap(), "1");
    // A missing directory, with nothing to copy, is not an error.
    prints(&inside("list /none").mounting(tmpfs("/none", &["tmpcopyup"])), "");
}

// The copy is in memory, where a terabyte of holes would fill all of it.
#[test]
fn tmpcopyup_keeps_holes() {
    const LENGTH: u64 = 1 << 40;
    let copied = |words: &str| {
        // The limit suffices for the data, but is much less than the lengths of the files.
        let bundle = inside(words).mounting(tmpfs("/etc", &["tmpcopyup", "size=1m"]));
        let etc = bundle.rootfs().join("etc");
        fs::create_dir(&etc).unwrap();
        let write = |name: &str, parts: &[(u64, &[u8])], length: u64| {
            let file = fs::File::create(etc.join(name)).unwrap();
            parts.iter().for_each(|(place, bytes)| file.write_all_at(bytes, *place).unwrap());
            file.set_len(length).unwrap();
        };
        write("between", &[(0, b"begin"), (LENGTH / 2, b"middle"), (LENGTH - 3, b"end")], LENGTH);
        write("after", &[(0, b"begin")], LENGTH);
        write("empty", &[], LENGTH);
        // Short enough to be printed.
        write("short", &[(0, b"begin"), (200_000, b"end")], 200_003);
        bundle
    };
    for name in ["between", "after", "empty"] {
        prints(&copied(&format!("length /etc/{name}")), &LENGTH.to_string());
    }
    prints(&copied("read-at /etc/between 549755813888 6"), "middle");
    prints(&copied("read-at /etc/between 1099511627773 3"), "end");
    prints(&copied("read-at /etc/after 0 6"), "begin\0");
    prints(&copied("cat /etc/short"), &["begin", &"\0".repeat(199_995), "end"].concat());
}

#[test]
fn tmpcopyup_follows_no_link_out_of_the_image() {
    let host = volume();
    let bundle = inside("list /etc").mounting(tmpfs("/etc", &["tmpcopyup"]));
    symlink(host.path(), bundle.rootfs().join("etc")).unwrap();
    // The link leads to a path inside the image, which is created there.
    let found = run(&bundle).succeeds();
    assert!(!found.contains("file"), "{found}");
}

#[test]
fn attributes_of_a_bind_mount_are_the_requested_ones() {
    need!(is_root(), "needs root to mount");
    let volume = tempfile::tempdir().unwrap();
    let _host = Mounted::tmpfs(volume.path(), "nodev,nosuid,noatime");
    let shown = |options: &[&str]| inside("mount /data").mounting(bind(volume.path(), "/data", options));
    let flags = |bundle: &Bundle| {
        let line = run(bundle).succeeds();
        let options = line.split_whitespace().nth(1).unwrap().to_owned();
        options.split(',').take_while(|option| *option != "inode64").map(str::to_owned).collect::<Vec<_>>()
    };
    let table: &[(&[&str], &[&str], &[&str])] = &[
        // The options, then the flags without a user namespace, then with one, where flags that the host has set stay
        // set.
        (&["bind"], &["rw", "nosuid", "nodev", "noatime"], &["rw", "nosuid", "nodev", "noatime"]),
        (&["bind", "ro"], &["ro", "noatime"], &["ro", "nosuid", "nodev", "noatime"]),
        (&["bind", "noexec"], &["rw", "noexec", "noatime"], &["rw", "nosuid", "nodev", "noexec", "noatime"]),
    ];
    for (options, alone, with_user_namespace) in table {
        assert_eq!(flags(&shown(options)), *alone, "{options:?}");
        assert_eq!(flags(&with_users(shown(options))), *with_user_namespace, "{options:?}");
    }
    assert_eq!(flags(&shown(&["bind", "relatime", "dev"])), ["rw", "relatime"]);
    assert_eq!(flags(&shown(&["bind", "nodiratime"])), ["rw", "nodiratime", "relatime"]);
    fails(&with_users(shown(&["bind", "dev"])), "operation not permitted");
    fails(&with_users(shown(&["bind", "strictatime"])), "operation not permitted");
    // The way access times are kept changes only if another way is named.
    let directory = tempfile::tempdir().unwrap();
    let _other = Mounted::tmpfs(directory.path(), "nodiratime");
    let other = || inside("mount /data").mounting(bind(directory.path(), "/data", &["bind", "diratime"]));
    assert_eq!(flags(&other()), ["rw", "nodiratime", "relatime"]);
    assert_eq!(flags(&with_users(other())), ["rw", "nodiratime", "relatime"]);
}

#[test]
fn remount_changes_an_earlier_mount() {
    let volume = volume();
    let bundle = |words| {
        inside(words).mounting(bind(volume.path(), "/data", &["bind"])).mounting(bind(
            volume.path(),
            "/data",
            &["remount", "bind", "ro"],
        ))
    };
    fails(&bundle("write /data/new"), "Read-only file system");
    prints(&bundle("cat /data/file"), "of the host");
    let bundle = inside("mount /tmp")
        .mounting(tmpfs("/tmp", &["size=64k"]))
        .mounting(tmpfs("/tmp", &["remount", "size=128k", "nosuid", "ro"]));
    let line = run(&bundle).succeeds();
    assert!(line.starts_with("tmpfs ro,nosuid,relatime,size=128k"), "{line}");
    let none = inside("exit 0").mounting(bind(volume.path(), "/", &["remount", "bind", "ro"]));
    fails(&none, "top of");
}

#[test]
fn propagation_of_a_mount_is_the_requested_one() {
    let volume = volume();
    for (option, wanted) in [("shared", "shared"), ("rprivate", ""), ("unbindable", "unbindable")] {
        let bundle = inside("propagation /data").mounting(bind(volume.path(), "/data", &["bind", option]));
        // If the host's root is shared, the mount is also a slave of it.
        let line = run(&bundle).succeeds();
        assert_eq!(line.trim_end().trim_end_matches(" master"), wanted);
    }
}

#[test]
fn propagation_of_the_root_is_the_requested_one() {
    need!(is_root(), "needs root to share mounts");
    let root = |kind: &str| inside("propagation /").with("/linux/rootfsPropagation", json!(kind));
    for (kind, wanted) in [
        ("shared", "shared"),
        ("rshared", "shared"),
        ("private", ""),
        ("rprivate", ""),
        ("unbindable", "unbindable"),
        ("runbindable", "unbindable"),
    ] {
        prints(&root(kind), wanted);
    }
    fails(&root("other"), "rootfsPropagation");
}

#[test]
fn mounts_reach_the_host_only_through_shared_mounts() {
    need!(is_root(), "needs root to share mounts");
    let volume = tempfile::tempdir().unwrap();
    let host = Mounted::tmpfs(volume.path(), "");
    fs::create_dir(host.0.join("below")).unwrap();
    let sets = json!({ "bounding": ["CAP_SYS_ADMIN"], "permitted": ["CAP_SYS_ADMIN"], "effective": ["CAP_SYS_ADMIN"] });
    let reaches = |root: &str, option: &str| {
        let bundle = inside("mount-new tmpfs /data/below")
            .with("/process/capabilities", sets.clone())
            .with("/linux/rootfsPropagation", json!(root))
            .mounting(bind(&host.0, "/data", &["rbind", option]));
        let before = host.count();
        run(&bundle).succeeds();
        let reached = host.count() - before;
        if reached > 0 {
            rustix::mount::unmount(host.0.join("below"), rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        reached
    };
    assert_eq!(reaches("rshared", "rshared"), 1);
    assert_eq!(reaches("rshared", "rprivate"), 0);
    assert_eq!(reaches("rslave", "rshared"), 0);
    assert_eq!(reaches("rprivate", "rshared"), 0);
    assert_eq!(reaches("", "rslave"), 0);
}

#[test]
fn mounts_of_the_host_appear_below_a_slave_root() {
    need!(is_root(), "needs root to share mounts");
    for (kind, arrives) in [("slave", true), ("rslave", true), ("private", false)] {
        // The image lies on a shared mount.
        let place = tempfile::tempdir().unwrap();
        let _host = Mounted::tmpfs(place.path(), "");
        let bundle = inside("wait").with("/linux/rootfsPropagation", json!(kind));
        let image = place.path().join("image");
        fs::create_dir_all(image.join("below")).unwrap();
        let guest = [bundle.rootfs().join("guest"), image.join("guest")];
        assert!(std::process::Command::new("cp").args(guest).status().unwrap().success());
        let bundle = bundle.with("/root/path", json!(image));
        let runtime = Runtime::started(&bundle);
        let later = Mounted::tmpfs(&image.join("below"), "");
        fs::write(later.0.join("file"), "").unwrap();
        let wanted = if arrives { "file" } else { "" };
        // runc makes the mount that the image lies on private.
        if is_husk() || kind != "slave" {
            runtime.call("exec", &["c", "/guest", "list", "/below"]).prints(wanted);
        }
    }
}

#[test]
fn root_is_not_shared_with_the_host() {
    need!(is_root(), "needs root to share mounts");
    // The image lies on a shared mount.
    let place = tempfile::tempdir().unwrap();
    let host = Mounted::tmpfs(place.path(), "");
    // The mount inside it is shared as well, and is detached with the old root.
    let below = place.path().join("below");
    fs::create_dir(&below).unwrap();
    let _below = Mounted::tmpfs(&below, "");
    let kinds =
        ["", "r"].map(|all| ["shared", "slave", "private", "unbindable"].map(|kind| format!("{all}{kind}")));
    for kind in kinds.as_flattened() {
        let bundle = inside("list /").with("/linux/rootfsPropagation", json!(kind));
        let image = place.path().join(kind);
        fs::create_dir(&image).unwrap();
        let guest = [bundle.rootfs().join("guest"), image.join("guest")];
        assert!(std::process::Command::new("cp").args(guest).status().unwrap().success());
        prints(&bundle.with("/root/path", json!(image)), "dev\nguest\nproc");
        assert_eq!(host.count(), 2, "{kind}");
    }
}

#[test]
fn mount_over_procfs_is_refused() {
    let volume = volume();
    let table = [
        (bind(volume.path(), "/proc", &["bind"]), "not of type proc"),
        (tmpfs("/proc", &[]), "not of type proc"),
        (tmpfs("/proc/driver", &[]), "inside /proc"),
        (tmpfs("proc//driver/", &[]), "inside /proc"),
        (bind(&volume.path().join("file"), "/proc/version", &["bind"]), "inside /proc"),
        (tmpfs("/link/driver", &[]), "inside /proc"),
        (tmpfs("/", &[]), "root"),
    ];
    for (mount, wanted) in table {
        let bundle = inside("exit 0").mounting(mount);
        symlink("/proc", bundle.rootfs().join("link")).unwrap();
        fails(&bundle, wanted);
    }
    // A mount may replace one of procfs's files.
    let stand_in = bind(&volume.path().join("file"), "/proc/uptime", &["bind"]);
    prints(&inside("cat /proc/uptime").mounting(stand_in), "of the host");
    let whole = bind(Path::new("/proc"), "/proc", &["rbind"]);
    run(&inside("list /proc").mounting(whole)).succeeds();
}

#[test]
fn proc_and_sys_must_be_ordinary_directories() {
    for (kind, name) in [("proc", "proc"), ("sysfs", "sys")] {
        let mount = json!({ "destination": format!("/{name}"), "type": kind, "source": kind });
        let bundle = inside("exit 0").with("/mounts", json!([mount]));
        fs::create_dir(bundle.rootfs().join("bad")).unwrap();
        symlink("/bad", bundle.rootfs().join(name)).unwrap();
        fails(&bundle, "must be mounted on ordinary directory");
    }
}

#[test]
fn mount_points_are_created_where_links_lead() {
    let volume = volume();
    let file = volume.path().join("file");
    let bundle = |words| {
        let bundle = inside(words).mounting(bind(&file, "/etc/hosts", &["bind"]));
        let root = bundle.rootfs();
        fs::create_dir(root.join("etc")).unwrap();
        symlink("/tmp/foo/bar", root.join("jump")).unwrap();
        symlink("../../../jump/./baz/hosts", root.join("etc/hosts")).unwrap();
        bundle
    };
    prints(&bundle("cat /tmp/foo/bar/baz/hosts"), "of the host");
    prints(&bundle("cat /etc/hosts"), "of the host");
    let circle = inside("exit 0").mounting(bind(&file, "/a/b", &["bind"]));
    symlink("/a", circle.rootfs().join("a")).unwrap();
    fails(&circle, "oo many levels of symbolic links");
}

#[test]
fn missing_mount_points_are_created_as_files_or_directories() {
    let volume = volume();
    let bundle = inside("stat /x/y/z")
        .mounting(bind(&volume.path().join("file"), "x/y/z", &["bind"]))
        .mounting(bind(volume.path(), "/x/./directory/../other", &["bind"]));
    run(&bundle).succeeds();
    let made = |path: &str| fs::symlink_metadata(bundle.rootfs().join(path)).unwrap();
    assert!(made("x/y").is_dir() && made("x/y/z").is_file() && made("x/other").is_dir());
    assert_eq!((made("x/y").mode() & 0o7777, made("x/y/z").mode() & 0o7777), (0o755, 0o644));
    // A file cannot be mounted on a directory.
    let wrong = inside("exit 0").mounting(bind(&volume.path().join("file"), "/dev", &["bind"]));
    fails(&wrong, "ot a directory");
}

#[test]
fn no_pivot_moves_the_root() {
    need!(is_root(), "needs root");
    let runtime = Runtime::under_test();
    let run = |bundle: &Bundle| runtime.run_with(bundle, &["--no-pivot"]);
    run(&inside("list /")).prints("dev\nguest\nproc");
    let private = inside("exit 0").with("/linux/rootfsPropagation", json!("rprivate"));
    run(&private).fails(1, "is not safe without pivot_root");
    // A new procfs can be mounted only if an existing one is fully visible, and here a path in it is masked. (To map
    // root, a process needs CAP_SETFCAP: user_namespaces(7).)
    let sets =
        json!({ "bounding": ["CAP_SETFCAP"], "permitted": ["CAP_SETFCAP"], "effective": ["CAP_SETFCAP"] });
    let bundle = inside("nested mount-new proc /mnt")
        .with("/process/capabilities", sets)
        .with("/linux/maskedPaths", json!(["/proc/version"]));
    fs::create_dir(bundle.rootfs().join("mnt")).unwrap();
    run(&bundle).fails(1, "not permitted");
    runtime.run(&bundle).fails(1, "not permitted");
    let bundle = bundle.with("/linux/maskedPaths", json!([]));
    runtime.run(&bundle).succeeds();
}

#[test]
fn nothing_is_mounted_without_a_mount_namespace() {
    need!(is_root(), "needs root");
    // runc mounts everything in the host's namespace, makes every mount there a slave, and leaves it so.
    need!(is_husk(), "runc would change mounts of the host");
    let bundle = |words| {
        let kinds = ["pid", "ipc", "uts", "network"].map(|kind| json!({ "type": kind }));
        inside(words).with("/linux/namespaces", json!(kinds)).with("/mounts", json!([]))
    };
    prints(&bundle("list /"), "guest");
    fails(&bundle("exit 0").mounting(tmpfs("/tmp", &[])), "private MNT namespace");
    fails(&bundle("exit 0").with("/linux/maskedPaths", json!(["/guest"])), "private MNT namespace");
}

#[test]
fn device_nodes_of_the_image_are_kept_if_they_match() {
    need!(is_root(), "needs root to create device nodes");
    let bundle = inside("null /dev/null").with("/mounts", json!([]));
    run(&bundle).prints("0x103");
    need!(is_husk(), "runc follows the link /dev/stdin, which leads nowhere here");
    // Run it again on the same image.
    run(&bundle).prints("0x103");
    fs::remove_file(bundle.rootfs().join("dev/null")).unwrap();
    fs::write(bundle.rootfs().join("dev/null"), "").unwrap();
    fails(&bundle, "ile exists");
}

#[test]
fn devices_in_a_user_namespace_are_the_hosts() {
    need!(is_root(), "needs root to map ids");
    prints(&with_users(inside("null /dev/full")), "0x107");
    // A pipe is not a device, so it can be created.
    let pipe = json!([{ "path": "/dev/sub/pipe", "type": "p", "fileMode": 0o600 }]);
    need!(is_husk(), "runc looks for a FIFO on the host");
    prints(&with_users(inside("stat /dev/sub/pipe").with("/linux/devices", pipe)), "600 0 0");
    let ptmx = json!([{ "path": "/dev/ptmx", "type": "c", "major": 5, "minor": 2 }]);
    prints(&inside("read-link /dev/ptmx").with("/linux/devices", ptmx), "pts/ptmx");
}

#[test]
fn sysfs_in_a_user_namespace_on_the_hosts_network_is_the_hosts_and_read_only() {
    need!(is_root(), "needs root to map ids");
    need!(is_husk(), "runc fails with EPERM");
    let bundle = |words: &str| {
        let mut bundle = with_users(inside(words));
        let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().unwrap();
        namespaces.retain(|namespace| namespace["type"] != "network");
        bundle.mounting(
            json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid"] }),
        )
    };
    let seen = run(&bundle("mount /sys"));
    let line = seen.succeeds();
    assert!(line.starts_with("sysfs ro,nosuid"), "{line}");
    seen.says("warning: mounts[2]: is the host's /sys, read-only: ");
    assert!(run(&bundle("list /sys")).succeeds().contains("kernel"));
}

#[test]
fn devices_in_a_user_namespace_have_the_requested_numbers() {
    need!(is_root(), "needs root to create device nodes");
    need!(is_husk(), "runc binds the host's node of the same path, whatever its numbers");
    let devices = json!([
        { "path": "/dev/kmsg", "type": "c", "major": 1, "minor": 3 },
        { "path": "/dev/sub/renamed", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 5, "gid": 6 }
    ]);
    let bundle = |words| with_users(inside(words).with("/linux/devices", devices.clone()));
    prints(&bundle("null /dev/kmsg"), "0x103");
    prints(&bundle("null /dev/sub/renamed"), "0x105");
    prints(&bundle("stat /dev/sub/renamed"), "640 5 6");
    // The device can be opened, which would fail on a file system of the container's own.
    prints(&bundle("write /dev/kmsg"), "");
    let line = run(&bundle("mount /dev/kmsg")).succeeds();
    assert!(line.contains("nosuid") && line.contains("noexec") && !line.contains("nodev"), "{line}");
    let unmapped = json!([{ "path": "/dev/x", "type": "c", "major": 1, "minor": 3, "uid": 4_000_000 }]);
    let unmapped = with_users(inside("exit 0").with("/linux/devices", unmapped));
    fails(&unmapped, "linux.devices /dev/x: uid 4000000 is not mapped");
}

#[test]
fn devices_of_an_ordinary_user_are_the_hosts_of_the_same_numbers() {
    need!(!is_root(), "needs an ordinary user");
    need!(is_husk(), "runc binds the host's node of the same path, whatever its numbers");
    let device = |path: &str, major: u32, minor: u32| json!([{ "path": path, "type": "c", "major": major, "minor": minor }]);
    prints(&inside("null /dev/kmsg").with("/linux/devices", device("/dev/kmsg", 1, 3)), "0x103");
    prints(&inside("null /dev/renamed").with("/linux/devices", device("/dev/renamed", 1, 5)), "0x105");
    let missing = inside("exit 0").with("/linux/devices", device("/dev/null", 4095, 1));
    fails(&missing, "linux.devices /dev/null: c 4095:1: the host does not have this device");
}

#[test]
fn cgroup_mount_is_read_only() {
    need!(is_husk(), "runc leaves the tmpfs that holds the hierarchies of version 1 writable");
    let mount = json!({
        "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
        "options": ["nosuid", "noexec", "nodev", "relatime", "ro"]
    });
    let bundle = |words| inside(words).mounting(mount.clone());
    fails(&bundle("write /sys/fs/cgroup/new"), "Read-only file system");
    let line = run(&bundle("mount /sys/fs/cgroup")).succeeds();
    assert!(line.contains(" ro,nosuid,nodev,noexec"), "{line}");
}

#[test]
fn cgroup_mount_shows_only_the_containers_cgroup() {
    need!(is_root(), "needs root to create cgroups");
    let procs = Path::new("/sys/fs/cgroup/pids/cgroup.procs");
    need!(procs.exists(), "needs cgroup version 1, because version 2 needs a cgroup namespace");
    let mount =
        json!({ "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["ro"] });
    let path = format!("/husk-test-{}", std::process::id());
    let bundle =
        inside(&format!("cat {}", procs.display())).mounting(mount).with("/linux/cgroupsPath", json!(path));
    // The program alone is in the cgroup. Its pid in its namespace is 1.
    prints(&bundle, "1");
}
