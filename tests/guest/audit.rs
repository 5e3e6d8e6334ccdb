//! Lists everything that a process inherits from its creator, one item a line.

use husk_sys::keyring::{Key, keyctl_describe};
use rustix::process::{child_subreaper, dumpable_behavior, parent_process_death_signal};
use rustix::thread::{
    capabilities_secure_bits, current_timer_slack, get_keep_capabilities, transparent_huge_pages_are_disabled,
};
use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

/// The lines of /proc/self/status that describe the process itself and not its activity.
const STATUS: [&str; 21] = [
    "Umask",
    "PPid",
    "TracerPid",
    "Uid",
    "Gid",
    "Groups",
    "NSpid",
    "NSpgid",
    "NSsid",
    "SigPnd",
    "ShdPnd",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
];

/// Fields of /proc/self/stat after the name in parentheses (proc_pid_stat(5)).
const STAT: [(&str, usize); 5] =
    [("tty", 7), ("exit-signal", 38), ("rt-priority", 40), ("policy", 41), ("nice", 19)];

/// Files that hold a word or two.
const FILES: [&str; 9] = [
    "comm",
    "personality",
    "oom_score_adj",
    "coredump_filter",
    "timens_offsets",
    "attr/current",
    "attr/exec",
    "timers",
    "uid_map",
];

pub(crate) fn audit() -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    let mut say = |name: &str, value: &str| writeln!(text, "{name}: {value}");
    say("arguments", &env::args().collect::<Vec<_>>().join(" "))?;
    for (name, value) in env::vars_os() {
        say("environment", &format!("{}={}", name.display(), value.display()))?;
    }
    say("directory", &fs::read_link("/proc/self/cwd")?.to_string_lossy())?;
    say("root", &fs::read_link("/proc/self/root")?.to_string_lossy())?;
    for fd in 0..1024 {
        let Ok(target) = fs::read_link(format!("/proc/self/fd/{fd}")) else { continue };
        let target = kind(target.as_os_str());
        say("descriptor", &format!("{fd} {target}"))?;
    }
    let status = fs::read_to_string("/proc/self/status")?;
    for line in status.lines() {
        let (name, value) = line.split_once(":\t").unwrap_or((line, ""));
        if STATUS.contains(&name) {
            say(name, value.trim())?;
        }
    }
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    for (name, number) in STAT {
        // The first field after the name is field 3.
        say(name, fields.get(number - 3).unwrap_or(&"none"))?;
    }
    for file in FILES {
        let text = fs::read_to_string(format!("/proc/self/{file}")).unwrap_or_default();
        say(file, &text.split_whitespace().collect::<Vec<_>>().join(" "))?;
    }
    say("core limit", &limit("Max core file size")?)?;
    say("dumpable", &format!("{:?}", dumpable_behavior()?))?;
    say("dies with its parent", &format!("{:?}", parent_process_death_signal()?))?;
    say("subreaper", &format!("{:?}", child_subreaper()?))?;
    say("secure bits", &format!("{:?}", capabilities_secure_bits()?))?;
    say("keeps capabilities", &format!("{}", get_keep_capabilities()?))?;
    say("timer slack", &format!("{}", current_timer_slack()?))?;
    say("huge pages disabled", &format!("{}", transparent_huge_pages_are_disabled()?))?;
    let mut room = [std::mem::MaybeUninit::uninit(); 512];
    let keyring = keyctl_describe(Key::SESSION, &mut room)?;
    let name = keyring.split(|byte| *byte == b';').next_back().unwrap_or_default();
    say("session keyring", String::from_utf8_lossy(name).trim_end_matches('\0'))?;
    for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        say("mount", fields.get(4).ok_or("no mount")?)?;
    }
    let mut others = fs::read_dir("/proc")?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    others.retain(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    others.sort();
    say("processes", &others.join(" "))?;
    Ok(text)
}

/// Returns the kind of a descriptor, without numbers that differ each time.
fn kind(target: &OsStr) -> String {
    let target = String::from_utf8_lossy(target.as_bytes());
    target.split('[').next().unwrap_or_default().trim_end_matches(':').to_owned()
}

fn limit(name: &str) -> Result<String, Box<dyn Error>> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such limit")?;
    Ok(line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}
