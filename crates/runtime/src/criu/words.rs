//! Says in words what an error in CRIU's log means for the user, and which option helps.

use std::fs;

/// Errors of CRIU with a constant meaning.
const MEANINGS: [(&str, &str); 8] = [
    ("Connected TCP socket", "a TCP connection is open: --tcp-established saves and restores it"),
    ("Some file locks are hold", "a file is locked: --file-locks saves and restores locks"),
    ("is not a session leader", "the session's leader is outside of the container: --shell-job allows that"),
    ("A session leader of ", "the session's leader is outside of the container: --shell-job allows that"),
    (
        "External socket ",
        "a Unix socket is connected to a process outside of the container: --ext-unix-sk allows that",
    ),
    ("Can't create link remap", "a file is open that was deleted: --link-remap gives it a temporary name"),
    // CRIU continues without the pipe that it could not enlarge (criu/page-pipe.c, `pipe_read_dest_init`).
    (
        "page-pipe: splice: -1: Bad file descriptor",
        "serving pages needs CAP_SYS_RESOURCE, or long pipes: sysctl fs.pipe-max-size=4194304",
    ),
    ("io_uring", "io_uring is in use, which CRIU cannot save"),
];

/// Errors after which CRIU continues.
const HARMLESS: [&str; 3] =
    ["Can't setup RLIMIT_NOFILE for self", "tun: Unable to create tun", "net: Unexpected error"];

/// Whether a line has nothing to do with a failure.
pub(crate) fn is_harmless(line: &str) -> bool {
    HARMLESS.iter().any(|harmless| line.contains(harmless))
}

/// Returns the meaning of a line. `None` if husk knows none. `shares_pids` says that pids in it are this process's.
pub(crate) fn meaning(line: &str, shares_pids: bool) -> Option<String> {
    let constant = MEANINGS.iter().find(|(error, _)| line.contains(error));
    let constant = constant.map(|(_, meaning)| (*meaning).to_owned());
    constant
        .or_else(|| host_file(line))
        .or_else(|| foreign_mount(line))
        .or_else(|| unknown_kind(line))
        .or_else(|| lost_mapping(line))
        .or_else(|| taken_pid(line, shares_pids))
}

/// `Can't lookup mount=27 for fd=1 path=/var/log/web`
fn host_file(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("Can't lookup mount=")?;
    let (number, path) = rest.split_once(" for fd=")?.1.split_once(" path=")?;
    // CRIU opens the files of mappings too, without a number.
    let what =
        if number.starts_with('-') { "a mapped file".to_owned() } else { format!("descriptor {number}") };
    Some(format!(
        "{what} is {path}, a file outside of the container: give the container a pipe, a terminal or /dev/null instead"
    ))
}

/// `mnt: 2049:./dev/urandom doesn't have a proper root mount`
fn foreign_mount(line: &str) -> Option<String> {
    let (before, _) = line.split_once(" doesn't have a proper root mount")?;
    let point = before.rsplit_once(':')?.1.trim_start_matches('.');
    Some(format!(
        "{point} shows files outside of the container but is not in config.json: unmount it, or add it to `mounts`"
    ))
}

/// `Can't dump file 5 of that type [600] (unknown /dev/kvm)`
fn unknown_kind(line: &str) -> Option<String> {
    let (number, rest) = line.split_once("Can't dump file ")?.1.split_once(" of that type ")?;
    let what = rest.split_once('(')?.1.trim_end_matches(')');
    Some(format!("descriptor {number} is of a kind that CRIU cannot save ({what}): close it first"))
}

/// `Can't open mapped [/lib/libc.so (deleted)]: No such file or directory`
fn lost_mapping(line: &str) -> Option<String> {
    let path = line.split_once("Can't open mapped [")?.1.split_once(']')?.0;
    let path = path.trim_end_matches(" (deleted)");
    Some(format!("{path} is mapped, but was deleted or replaced since: only root can save it"))
}

/// `Can't fork for 4711: File exists`
fn taken_pid(line: &str, shares_pids: bool) -> Option<String> {
    let (pid, reason) = line.split_once("Can't fork for ")?.1.split_once(": ")?;
    let pid: u32 = pid.parse().ok().filter(|_| reason.starts_with("File exists"))?;
    let holder = fs::read_to_string(format!("/proc/{pid}/comm")).ok().filter(|_| shares_pids);
    let holder = holder.map_or_else(
        || "another process or a group of processes".to_owned(),
        |name| format!("'{}'", super::failure::line(name.trim_end())),
    );
    Some(format!("pid {pid} is taken by {holder}: end it, or give the container a pid namespace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_criu_have_a_meaning() {
        let means = |line: &str, part: &str| {
            let meaning = meaning(line, true).unwrap_or_default();
            assert!(meaning.contains(part), "{line}: {meaning}");
        };
        means(
            "Error (criu/files-reg.c:1790): Can't lookup mount=27 for fd=1 path=/a b",
            "descriptor 1 is /a b, a file",
        );
        means(
            "Error (criu/files-reg.c:1790): Can't lookup mount=27 for fd=-1 path=/a",
            "a mapped file is /a, a file",
        );
        means(
            "Error (criu/mount.c:753): mnt: 2049:./dev/urandom doesn't have a proper root mount",
            "/dev/urandom shows",
        );
        means(
            "Error (criu/sk-inet.c:200): inet: Connected TCP socket, consider using --tcp-established option.",
            "--tcp-est",
        );
        means(
            "Error (criu/file-lock.c:110): Some file locks are hold by dumping tasks! You can try",
            "--file-locks",
        );
        means("Error (criu/page-pipe.c:424): page-pipe: splice: -1: Bad file descriptor", "fs.pipe-max-size");
        means(
            "Error (criu/files-ext.c:98): Can't dump file 5 of that type [600] (unknown /dev/x)",
            "(unknown /dev/x)",
        );
        means(
            "Error (criu/proc_parse.c:380): Can't open mapped [/l (deleted)]: No such file",
            "/l is mapped",
        );
        let own = std::process::id();
        means(&format!("Error (criu/cr-restore.c:1230): Can't fork for {own}: File exists"), "is taken by '");
        assert!(
            meaning("Error (criu/cr-restore.c:1230): Can't fork for 9: File exists", false)
                .unwrap()
                .contains("another")
        );
        assert_eq!(meaning("Error (criu/cr-restore.c:1230): Can't fork for 9: Out of memory", true), None);
        assert_eq!(meaning("Error (criu/cr-dump.c:2128): Dumping FAILED.", true), None);
        assert!(is_harmless(
            "Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not"
        ));
    }
}
