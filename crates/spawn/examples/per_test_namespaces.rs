//! Runs a command several times, each time in new namespaces, like a test runner whose tests must share nothing. Needs
//! no root.
//!
//!     cargo run --release -p husk-spawn --example per_test_namespaces -- 5 sh -c 'echo pid $$ on $(hostname)'

#![expect(clippy::disallowed_macros, reason = "an example prints as programs do")]

use husk_spawn::sys::mount::{MountFlags, MountPropagationFlags};
use husk_spawn::{Command, IdMap, Namespaces, Step};
use rustix::process::{getegid, geteuid};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let times: usize =
        arguments.next().map_or(Ok(3), |times| times.into_string().unwrap_or_default().parse())?;
    let program = arguments.next().unwrap_or_else(|| "hostname".into());
    let arguments: Vec<_> = arguments.collect();

    for test in 1..=times {
        let status =
            isolated(Command::new(&program).args(&arguments).hostname(format!("test-{test}"))).status()?;
        println!("test {test}: {status}");
    }
    Ok(())
}

/// Isolates the command from everything of the host except its files. `/proc` and `/tmp` are new.
fn isolated(command: &mut Command) -> &mut Command {
    let root = |id| [IdMap { inside: 0, outside: id, count: 1 }];
    let hardened = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    command
        .new_namespaces(Namespaces::ALL.without(Namespaces::TIME))
        .uid_map(&root(geteuid().as_raw()))
        .gid_map(&root(getegid().as_raw()))
        .step(Step::MountChange {
            target: c"/",
            flags: MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        })
        .step(mount(c"proc", c"/proc", hardened, c""))
        .step(mount(c"tmpfs", c"/tmp", MountFlags::NOSUID | MountFlags::NODEV, c"mode=1777,size=64m"))
}

fn mount(
    fstype: &'static std::ffi::CStr,
    target: &'static std::ffi::CStr,
    flags: MountFlags,
    data: &'static std::ffi::CStr,
) -> Step<'static> {
    Step::Mount { source: fstype, target, fstype, flags, data }
}
