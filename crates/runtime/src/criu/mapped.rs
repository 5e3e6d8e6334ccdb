//! Opens the files that a container's processes have mapped, for a CRIU without privileges over the host.
//!
//! CRIU opens them as `/proc/PID/map_files/FROM-TO`, which needs privileges in the first user namespace. Without them
//! it opens the file that has the same path on the host, which is another one. So a seccomp filter shows husk each
//! `openat` of CRIU. husk answers such a one with a descriptor of the file, found by its path below the container's
//! root, and lets all others go on. CRIU's processes belong to the caller, so nothing here is a defence.

use crate::error::Error;
use crate::host::files;
use husk_script::Step;
use husk_script::sys::process::{
    CallAnswer, NotifiedCall, SockFilter, ioctl_seccomp_addfd, ioctl_seccomp_receive, ioctl_seccomp_send,
};
use husk_script::sys::{Errno, Fd, tolerate};
use husk_seccomp::{Abi, Action, Arch, Machine, Profile, Rule, Table};
use husk_spawn::{Child, Command, Request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat};
use rustix::io::retry_on_intr;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::thread;

#[cfg(target_arch = "x86_64")]
const NATIVE: (Abi, &[Arch]) = (Abi::X86_64, &[Arch::X86_64, Arch::X86]);
#[cfg(target_arch = "aarch64")]
const NATIVE: (Abi, &[Arch]) = (Abi::Aarch64, &[Arch::Aarch64, Arch::Arm]);

/// Makes each `openat` of the command wait for [`serve`]. The command needs CAP_SYS_ADMIN in its user namespace.
pub(crate) fn observe(command: &mut Command) -> Result<(), Error> {
    let rule = Rule { names: vec!["openat".to_owned()], action: Action::Notify, conditions: Vec::new() };
    let (abi, architectures) = NATIVE;
    let profile = Profile {
        default_action: Action::Allow,
        architectures: architectures.to_vec(),
        rules: vec![rule],
        ..Profile::default()
    };
    let unusable = |error: husk_seccomp::Error| Error::Criu(format!("the filter for CRIU: {error}"));
    let (table, _) = Table::new(&profile, &Machine::new(abi)).map_err(unusable)?;
    let program = table.program().map_err(unusable)?;
    let flags = program.flags.bits();
    let instructions = program.instructions.iter();
    let instructions: Vec<_> = instructions
        .map(|from| SockFilter { code: from.code, jt: from.jt, jf: from.jf, k: from.k })
        .collect();
    command.notify_release().final_steps(move |writer| {
        let program = writer.slice(&instructions);
        let listener = writer.register()?;
        writer.push(Step::OpenSeccompListener { flags, program, out: listener });
        // CRIU cannot be traced by this process, which therefore could not fetch the descriptor itself.
        writer.push(Step::RequestWith { what: Request::Listener, fd: listener.into() });
        Ok(())
    });
    Ok(())
}

/// Takes the listener of a started command, and serves it in a thread that ends with the command's processes.
pub(crate) fn serve(child: &mut Child) -> Result<(), Error> {
    match child.next_request()? {
        Some(Request::Listener) => {
            let listener = child.requested_fd()?;
            child.go_on()?;
            let name = thread::Builder::new().name("files for CRIU".to_owned());
            name.spawn(move || answer_all(&listener))
                .map(drop)
                .map_err(|reason| Error::kernel("start a thread", reason))
        }
        // Waiting for the exec returns the step that failed.
        _ => Ok(()),
    }
}

fn answer_all(listener: &OwnedFd) {
    let fd = Fd::of(listener);
    loop {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut polled, None)).is_err() || !polled[0].revents().contains(PollFlags::IN)
        {
            // Without IN, no process is left under the filter.
            return;
        }
        let call = match ioctl_seccomp_receive(fd) {
            Ok(call) => call,
            Err(Errno::NOENT | Errno::INTR) => continue,
            Err(_) => return,
        };
        let answered =
            mapped_file(&call).and_then(|file| ioctl_seccomp_addfd(fd, call.id, Fd::of(&file)).ok());
        if answered.is_none() {
            tolerate(ioctl_seccomp_send(fd, call.id, CallAnswer::GoOn), "CRIU may have ended");
        }
    }
}

/// Returns the file if a call opens an entry of a process's `map_files`.
fn mapped_file(call: &NotifiedCall) -> Option<File> {
    let [directory, name, ..] = call.arguments;
    let range = read_name(call.thread, name)?;
    let (from, to) = range.split_once('-')?;
    let (from, to) = (hexadecimal(from)?, hexadecimal(to)?);
    // The argument is an `int`: the kernel ignores its upper half.
    let directory = i32::from_ne_bytes(directory.to_ne_bytes().first_chunk().copied()?);
    let directory = fs::read_link(format!("/proc/{}/fd/{directory}", call.thread)).ok()?;
    let process = directory.parent().filter(|_| directory.ends_with("map_files"))?;
    let (inode, path) = mapping(&fs::read(process.join("maps")).ok()?, from, to)?;
    let root =
        openat(CWD, process.join("root"), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let below = path.strip_prefix("/").ok()?;
    let file = files::open_regular(root.ok()?, below, ResolveFlags::IN_ROOT).ok()?;
    // Another file may have been put in its place.
    (file.metadata().ok()?.ino() == inode).then_some(file)
}

/// Reads the name of an entry: two numbers with a dash. `None` for anything else.
fn read_name(thread: u32, address: u64) -> Option<String> {
    /// The longest name: two numbers of 16 digits, a dash, and the end.
    const LONGEST: usize = 34;
    let mut bytes = [0; LONGEST];
    let length = File::open(format!("/proc/{thread}/mem")).ok()?.read_at(&mut bytes, address).ok()?;
    let end = bytes.get(..length)?.iter().position(|byte| *byte == 0)?;
    String::from_utf8(bytes.get(..end)?.to_vec()).ok()
}

fn hexadecimal(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Finds a mapping of a file in the text of `/proc/PID/maps`: the file's inode and path.
fn mapping(maps: &[u8], from: u64, to: u64) -> Option<(u64, PathBuf)> {
    let range = format!("{from:08x}-{to:08x} ");
    let line = maps.split(|byte| *byte == b'\n').find(|line| line.starts_with(range.as_bytes()))?;
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let inode = str::from_utf8(fields.nth(4)?).ok()?.parse().ok()?;
    let path = fields.next()?.trim_ascii_start();
    // The kernel writes a newline in a path in this way, and nothing else.
    let path = OsString::from_vec(path.to_vec());
    let path = if path.as_bytes().windows(4).any(|part| part == b"\\012") { return None } else { path };
    Path::new(&path).is_absolute().then_some((inode, path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_a_mapping_is_found() {
        let maps = b"00400000-00401000 r--p 00000000 fe:00 1234                              /bin/a b\n\
            00600000-00601000 rw-p 00000000 00:00 0                                 [heap]\n\
            7f0000000000-7f0000001000 rw-s 00000000 00:01 77                        /bin/a\\012b\n";
        assert_eq!(mapping(maps, 0x40_0000, 0x40_1000), Some((1234, PathBuf::from("/bin/a b"))));
        assert_eq!(mapping(maps, 0x40_0000, 0x40_2000), None);
        assert_eq!(mapping(maps, 0x60_0000, 0x60_1000), None);
        assert_eq!(mapping(maps, 0x7f00_0000_0000, 0x7f00_0000_1000), None);
    }
}
