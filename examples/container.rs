//! A small container written as a list of steps. It has a root file system with only the host's programs, and its own
//! namespaces, as root or not.
//!
//!     make run
//!
//! It prints the list that the child performs, runs a shell that looks around, and prints the time it took.

#![expect(clippy::disallowed_macros, reason = "an example prints as programs do")]

use husk_spawn::sys::file::Mode;
use husk_spawn::sys::mount::{MountFlags, MountPropagationFlags};
use husk_spawn::{Command, Error, IdMap, Namespaces, Step, Writer};
use rustix::process::{getegid, geteuid};
use std::ffi::CStr;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The script of the shell inside.
const LOOK_AROUND: &str = r#"
echo "hello from pid $$ on $(cat /proc/sys/kernel/hostname), uid $(id -u)"
echo "  files:     $(echo /*)"
echo "  processes: $(cd /proc && echo [0-9]*)"
echo "  network:   $(tail -n +3 /proc/net/dev | cut -d: -f1)"
echo "  mounts:    $(cut -d' ' -f2 /proc/mounts | tr '\n' ' ')"
"#;

/// The directories of the host that are shown.
const PROGRAMS: [&str; 5] = ["usr", "bin", "sbin", "lib", "lib64"];

const STARTS: u32 = 200;

fn main() -> Result<(), Error> {
    let container = container(&["-c", LOOK_AROUND]);
    for (index, line) in container.listing()?.iter().enumerate() {
        println!("{:3}  {line}", index + 1);
    }
    println!();
    container.status()?;
    println!();
    println!("started and ended in {:.2?}, median of {STARTS}", median_time()?);
    Ok(())
}

/// Returns a shell in its own container.
fn container(arguments: &[&str]) -> Command {
    let root = |id| [IdMap { inside: 0, outside: id, count: 1 }];
    let mut container = Command::new("/bin/sh");
    container
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .new_namespaces(Namespaces::ALL)
        .uid_map(&root(geteuid().as_raw()))
        .gid_map(&root(getegid().as_raw()))
        .hostname("husk")
        .steps(root_file_system)
        .no_new_privs();
    container
}

/// Builds a tree on a tmpfs that only the child sees, and makes it the root.
fn root_file_system(list: &mut Writer<'_>) -> Result<(), Error> {
    let hardened = MountFlags::NOSUID | MountFlags::NODEV;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    // From here on, none of our mounts propagates to the host.
    list.push(Step::MountChange { target: c"/", flags: private });
    list.push(mount(c"tmpfs", c"/tmp", hardened, c"mode=755"));
    list.push(Step::Chdir { path: c"/tmp" });
    for name in PROGRAMS {
        let host = Path::new("/").join(name);
        let path = list.text(name)?;
        if let Ok(target) = fs::read_link(&host) {
            // /bin -> usr/bin, where the two are merged.
            list.push(Step::Symlink { target: list.text(target)?, path });
        } else if host.is_dir() {
            list.push(directory(path));
            list.push(Step::MountBind { source: list.text(host)?, target: path });
        }
    }
    list.push(directory(c"proc"));
    list.push(mount(c"proc", c"proc", hardened | MountFlags::NOEXEC, c""));
    // The old root lands on top of the new one and is unmounted there, so it needs no directory.
    list.push(Step::PivotRoot { new_root: c".", put_old: c"." });
    list.push(Step::UmountDetach { target: c"." });
    list.push(Step::Chdir { path: c"/" });
    Ok(())
}

fn directory(path: &CStr) -> Step<'_> {
    Step::Mkdir { path, mode: Mode::from_raw_mode(0o755), tolerate: None }
}

fn mount<'a>(fstype: &'a CStr, target: &'a CStr, flags: MountFlags, data: &'a CStr) -> Step<'a> {
    Step::Mount { source: fstype, target, fstype, flags, data }
}

fn median_time() -> Result<Duration, Error> {
    let container = container(&["-c", ":"]);
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let start = Instant::now();
        container.status()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}
