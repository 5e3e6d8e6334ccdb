//! The attacks of images: each is a bundle built by a few lines, after a vulnerability found in runtimes.

use super::false_answers::FalseAnswer;
use super::{Attack, bind, devpts, proc, tmpfs};
use crate::util::Bundle;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

const FOLLOWS: &[FalseAnswer] = &[FalseAnswer::Follows];

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "mount point is a symlink (crun CVE-2019-18837)",
        bundle: |tripwire| linking("data", &tripwire.at("directory")).mounting(tmpfs("/data/made")),
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "mount point is a symlink with `..` that leads out of the image",
        bundle: |tripwire| {
            let climbing = format!("../../../../../../../..{}", tripwire.at("directory").display());
            linking("data", Path::new(&climbing)).mounting(tmpfs("/data/made"))
        },
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "mount point is a symlink to a symlink in a volume (runc CVE-2021-30465)",
        bundle: |tripwire| {
            let bundle = Bundle::running("exit 0");
            let volume = bundle.path().join("volume");
            fs::create_dir(&volume).unwrap();
            symlink("there", volume.join("link")).unwrap();
            symlink(tripwire.at("directory"), volume.join("there")).unwrap();
            bundle.mounting(bind(&volume, "/volume")).mounting(tmpfs("/volume/link/made"))
        },
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "mount point of a file is a symlink (runc CVE-2024-45310)",
        bundle: |tripwire| {
            let bundle = linking("data", &tripwire.at("directory"));
            let source = bundle.path().join("source");
            fs::write(&source, "").unwrap();
            bundle.mounting(bind(&source, "/data/made"))
        },
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "mount point is a symlink through procfs",
        bundle: |tripwire| {
            let through = format!("/proc/self/root{}", tripwire.at("directory").display());
            linking("data", Path::new(&through)).mounting(tmpfs("/data/made"))
        },
        terminal: false,
        refused: Some("too many levels of symbolic links"),
        false_answers: FOLLOWS,
    },
    Attack {
        name: "missing working directory lies behind a symlink",
        bundle: |tripwire| {
            linking("place", &tripwire.at("directory")).with("/process/cwd", json!("/place/made"))
        },
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "/dev is a symlink (runc CVE-2026-41579, crun CVE-2026-47766)",
        bundle: |tripwire| linking("dev", &tripwire.at("directory")).with("/mounts", json!([])),
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "/dev is a symlink with `..` that leads out of the image",
        bundle: |tripwire| {
            let climbing = format!("../../../../../../../..{}", tripwire.at("directory").display());
            linking("dev", Path::new(&climbing)).with("/mounts", json!([]))
        },
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "directory of a device is a symlink",
        bundle: |tripwire| {
            let bundle = Bundle::running("exit 0").with("/mounts", json!([]));
            fs::create_dir(bundle.rootfs().join("dev")).unwrap();
            symlink(tripwire.at("directory"), bundle.rootfs().join("dev/sub")).unwrap();
            let device = json!([{ "path": "/dev/sub/made", "type": "c", "major": 1, "minor": 3 }]);
            bundle.with("/linux/devices", device)
        },
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "/dev/console is a symlink in an image without a mount on /dev (crun CVE-2026-88264)",
        bundle: |tripwire| {
            let bundle = Bundle::running("exit 0").with("/mounts", json!([proc(), devpts()]));
            fs::create_dir(bundle.rootfs().join("dev")).unwrap();
            symlink(tripwire.at("file"), bundle.rootfs().join("dev/console")).unwrap();
            bundle.with("/process/terminal", json!(true))
        },
        terminal: true,
        refused: Some("process.terminal"),
        false_answers: FOLLOWS,
    },
    Attack {
        name: "volume in place of devpts (runc CVE-2025-52565)",
        bundle: |tripwire| {
            let bundle = Bundle::running("exit 0");
            let volume = bundle.path().join("volume");
            fs::create_dir(&volume).unwrap();
            symlink(tripwire.at("file"), volume.join("ptmx")).unwrap();
            symlink(tripwire.at("file"), volume.join("0")).unwrap();
            bundle.mounting(bind(&volume, "/dev/pts")).with("/process/terminal", json!(true))
        },
        terminal: true,
        refused: Some("process.terminal"),
        false_answers: &[],
    },
    Attack {
        name: "/proc is a symlink (runc CVE-2019-19921, CVE-2023-27561, youki CVE-2025-54867)",
        bundle: |_| {
            let bundle = linking("proc", Path::new("other"));
            fs::create_dir(bundle.rootfs().join("other")).unwrap();
            bundle
        },
        terminal: false,
        refused: Some("mounts[0] /proc"),
        false_answers: FOLLOWS,
    },
    Attack {
        name: "mount point lies behind a symlink into procfs (runc CVE-2019-16884, CVE-2025-52881)",
        bundle: |_| linking("data", Path::new("/proc/self")).mounting(tmpfs("/data/attr")),
        terminal: false,
        refused: Some("mounts[2] /data/attr"),
        false_answers: &[FalseAnswer::KnowsNoFileSystem],
    },
    Attack {
        name: "volume in place of procfs (runc CVE-2019-16884)",
        bundle: |_| {
            let bundle = Bundle::running("exit 0");
            let volume = bundle.path().join("volume");
            fs::create_dir_all(volume.join("self/attr")).unwrap();
            bundle.mounting(bind(&volume, "/proc"))
        },
        terminal: false,
        refused: Some("mounts[2] /proc"),
        false_answers: &[],
    },
    Attack {
        name: "symlinks in place of procfs files that the runtime writes (runc CVE-2025-52881, youki CVE-2025-62596)",
        bundle: |tripwire| {
            let bundle = Bundle::running("exit 0").with("/mounts", json!([dev()]));
            let own = bundle.rootfs().join("proc/self");
            fs::create_dir_all(&own).unwrap();
            symlink(tripwire.at("file"), own.join("oom_score_adj")).unwrap();
            let parameters = bundle.rootfs().join("proc/sys/net/ipv4");
            fs::create_dir_all(&parameters).unwrap();
            symlink(tripwire.at("file"), parameters.join("ip_forward")).unwrap();
            bundle
                .with("/process/oomScoreAdj", json!(500))
                .with("/linux/sysctl", json!({ "net.ipv4.ip_forward": "1" }))
        },
        terminal: false,
        refused: None,
        false_answers: &[],
    },
    Attack {
        name: "symlink in place of the null device that covers masked files (runc CVE-2025-31133, youki CVE-2025-62161)",
        bundle: |tripwire| {
            let bundle = Bundle::running("write /masked").mounting(bind(&tripwire.at("file"), "/victim"));
            let volume = bundle.path().join("volume");
            fs::create_dir(&volume).unwrap();
            symlink("/victim", volume.join("null")).unwrap();
            fs::write(bundle.rootfs().join("masked"), "").unwrap();
            bundle.mounting(bind(&volume, "/dev")).with("/linux/maskedPaths", json!(["/masked"]))
        },
        terminal: false,
        refused: None,
        false_answers: &[],
    },
    Attack {
        name: "symlink in place of the null device whose owner is changed (crun CVE-2026-88265)",
        bundle: |tripwire| {
            let bundle = Bundle::running("exit 0").mounting(bind(&tripwire.at("file"), "/victim"));
            let volume = bundle.path().join("volume");
            fs::create_dir(&volume).unwrap();
            fs::set_permissions(&volume, Permissions::from_mode(0o755)).unwrap();
            symlink("/victim", volume.join("null")).unwrap();
            bundle.mounting(bind(&volume, "/dev")).with("/process/user", json!({ "uid": 1000, "gid": 1000 }))
        },
        terminal: false,
        refused: None,
        false_answers: &[],
    },
    Attack {
        name: "program is a symlink to the runtime (runc CVE-2019-5736)",
        bundle: |_| {
            linking("program", Path::new("/proc/self/exe")).with("/process/args", json!(["/program", "list"]))
        },
        terminal: false,
        refused: Some("process.args[0]"),
        false_answers: FOLLOWS,
    },
    Attack {
        name: "interpreter of a script is the runtime (runc CVE-2019-5736)",
        bundle: |_| {
            let bundle = Bundle::running("").with("/process/args", json!(["/script"]));
            let script = bundle.rootfs().join("script");
            // The runtime is executed, on a read-only mount, and rejects these arguments.
            fs::write(&script, "#!/proc/self/exe --help\n").unwrap();
            fs::set_permissions(script, Permissions::from_mode(0o755)).unwrap();
            bundle
        },
        terminal: false,
        refused: Some("see 'husk --help'"),
        false_answers: &[],
    },
    Attack {
        name: "/etc/passwd is a symlink",
        bundle: |tripwire| {
            let bundle = Bundle::running("env");
            fs::create_dir(bundle.rootfs().join("etc")).unwrap();
            symlink(tripwire.at("directory/passwd"), bundle.rootfs().join("etc/passwd")).unwrap();
            bundle
        },
        terminal: false,
        refused: None,
        false_answers: FOLLOWS,
    },
    Attack {
        name: "masked path is a symlink",
        bundle: |tripwire| {
            linking("data", &tripwire.at("directory"))
                .with("/linux/maskedPaths", json!(["/data/file", "/data"]))
                .with("/linux/readonlyPaths", json!(["/data/empty", "/data"]))
        },
        terminal: false,
        refused: None,
        false_answers: &[],
    },
    Attack {
        name: "namespace path is a FIFO",
        bundle: |_| {
            let bundle = Bundle::running("exit 0");
            let fifo = bundle.path().join("fifo");
            assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
            joining(bundle, &fifo)
        },
        terminal: false,
        refused: Some("is not a namespace"),
        false_answers: &[],
    },
    Attack {
        name: "namespace path is a file of the host, reached through procfs",
        bundle: |tripwire| {
            let through = format!("/proc/self/root{}", tripwire.at("directory/passwd").display());
            joining(Bundle::running("exit 0"), Path::new(&through))
        },
        terminal: false,
        refused: Some("is not a namespace"),
        false_answers: &[],
    },
    Attack {
        name: "namespace path is a terminal, which must not become the controlling one",
        bundle: |_| joining(Bundle::running("exit 0"), Path::new("/dev/ptmx")),
        terminal: false,
        refused: Some("is not a namespace"),
        false_answers: &[],
    },
];

/// Makes a bundle join the network namespace at this path.
fn joining(mut bundle: Bundle, path: &Path) -> Bundle {
    let namespaces = bundle.config["linux"]["namespaces"].as_array_mut().expect("namespaces");
    namespaces.retain(|namespace| namespace["type"] != "network");
    namespaces.push(json!({ "type": "network", "path": path }));
    bundle
}

/// Returns a bundle whose root file system has this symlink.
fn linking(name: &str, target: &Path) -> Bundle {
    let bundle = Bundle::running("exit 0");
    symlink(target, bundle.rootfs().join(name)).unwrap();
    bundle
}

fn dev() -> Value {
    json!({ "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] })
}
