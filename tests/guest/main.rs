//! The program inside the containers of tests. It replaces a shell and its tools, so that a test states exactly what it
//! examines and needs no image.

#![expect(clippy::disallowed_macros, reason = "a guest that cannot print fails its test")]

mod audit;
mod criu;
mod network;
mod scan;
mod stream;
mod terminal;
mod tracer;

use husk_spawn::{IdMap, Namespaces, Signal, SignalSet};
use husk_sys::keyring::{Key, keyctl_describe};
use husk_sys::signal::{rt_sigprocmask, rt_sigwait};
use std::env;
use std::error::Error;
use std::fs;
use std::io::Read;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match look(&words) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("guest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the pids of all visible processes except this one, as /proc lists them.
pub(crate) fn others() -> std::io::Result<impl Iterator<Item = String>> {
    let own = std::process::id().to_string();
    let names = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(move |name| *name != own && name.bytes().all(|byte| byte.is_ascii_digit())))
}

fn list(directory: &str) -> std::io::Result<()> {
    let names = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    names.iter().for_each(|name| println!("{}", name.display()));
    Ok(())
}

fn watch() -> Result<(), Box<dyn Error>> {
    let mut seen = std::collections::BTreeSet::new();
    println!("begun");
    loop {
        for name in others()? {
            let mut found = Vec::new();
            // The process may end at any moment.
            for line in fs::read_to_string(format!("/proc/{name}/status")).unwrap_or_default().lines() {
                let (field, value) = line.split_once(":\t").unwrap_or_default();
                if ["Uid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].contains(&field) {
                    found.push(format!("{field} {}", value.replace('\t', " ")));
                }
            }
            for fd in fs::read_dir(format!("/proc/{name}/fd")).into_iter().flatten().flatten() {
                let number: u32 = fd.file_name().to_string_lossy().parse()?;
                let target = fs::read_link(fd.path()).unwrap_or_default();
                // A program that has just started reads its own map.
                let is_own_map = target == std::path::Path::new(&format!("/proc/{name}/maps"));
                if number > 2 && target.is_absolute() && !is_own_map {
                    found.push(format!("fd {}", target.display()));
                }
            }
            for line in found {
                if seen.insert(line.clone()) {
                    println!("{line}");
                }
            }
        }
    }
}

fn look(words: &[&str]) -> Result<u8, Box<dyn Error>> {
    match words {
        // Exits with this code.
        ["exit", code] => return Ok(code.parse()?),
        // Prints that it has begun, and runs until it is killed.
        ["wait"] => {
            println!("begun");
            std::io::stdin().read_to_end(&mut Vec::new())?;
            loop {
                std::thread::park();
            }
        }
        // Prints that it has begun, and exits with 42 when it receives this signal.
        ["until", signal] => {
            let signal = SignalSet::EMPTY.with(named(signal)?);
            rt_sigprocmask(signal)?;
            println!("begun");
            rt_sigwait(signal)?;
            return Ok(42);
        }
        // Echoes each line of its input with its number, and exits with 42.
        ["echo"] => {
            for (number, line) in std::io::stdin().lines().enumerate() {
                println!("{number} {}", line?);
            }
            return Ok(42);
        }
        // Acts as CRIU.
        ["swrk", "3"] => return criu::serve(),
        // Prints for each standard stream whether its mount is in this mount namespace.
        ["streams"] => {
            let mounts = fs::read_to_string("/proc/self/mountinfo")?;
            for stream in 0..3 {
                let information = fs::read_to_string(format!("/proc/self/fdinfo/{stream}"))?;
                let mount =
                    information.lines().find_map(|line| line.strip_prefix("mnt_id:")).ok_or("no mount")?;
                let is_ours = mounts.lines().any(|line| line.split(' ').next() == Some(mount.trim()));
                println!("{}", if is_ours { "ours" } else { "another's" });
            }
        }
        // Starts a child that starts a grandchild. Prints which process adopts the grandchild after the child has
        // ended.
        ["orphan"] => return orphan(),
        ["orphan", "between"] => {
            let mut last = std::process::Command::new("/guest");
            // A process that waits for the end of our output must not wait for this child.
            last.args(["orphan", "last"])
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null());
            println!("{}", last.spawn()?.id());
        }
        ["orphan", "last"] => {
            std::io::stdin().read_to_end(&mut Vec::new())?;
        }
        // Sends each of these words to `NOTIFY_SOCKET`, and waits for the end of its input.
        ["notify", words @ ..] => {
            let socket = std::os::unix::net::UnixDatagram::unbound()?;
            socket.connect(env::var_os("NOTIFY_SOCKET").ok_or("nobody wants to hear")?)?;
            for word in words {
                socket.send(word.replace(',', "\n").as_bytes())?;
            }
            std::io::stdin().read_to_end(&mut Vec::new())?;
        }
        ["tty", words @ ..] => return terminal::look(words),
        // Connects to an address: a port of this machine, or the name of an abstract socket.
        ["connect", address] => network::connect(address)?,
        // Listens on a port, connects to itself and prints that. Then waits for the end of its input.
        ["listen", port] => network::listen(port)?,
        ["serve", port] => return Ok(network::serve(port)?),
        ["ask", port, question @ ..] => network::ask(port, &question.join(" "))?,
        ["cat", file] => print!("{}", fs::read_to_string(file)?),
        ["write", file] => fs::write(file, "written")?,
        ["list", directory] => list(directory)?,
        // The same, at the end of its input.
        ["list-later", directory] => {
            println!("begun");
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
            list(directory)?;
        }
        ["read-link", path] => println!("{}", fs::read_link(path)?.display()),
        // Prints its namespaces, by the names in /proc/self/ns.
        ["namespaces"] => {
            for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"] {
                println!("{}", fs::read_link(format!("/proc/self/ns/{name}"))?.display());
            }
        }
        // Prints what it can learn about each other process in the pid namespace: each fact once, for ever.
        ["watch"] => watch()?,
        // Prints what it can access of each other process in the pid namespace: each item once, for ever.
        ["trace"] => tracer::look()?,
        // Searches the newest processes and the first one for memory of the runtime, for ever.
        ["scan", address, bytes] => scan::look(address, bytes)?,
        // Searches only the first process, once.
        ["scan", "first", address, bytes] => return scan::look_at_first(address, bytes),
        // Prints the secrets of the runtime's caller in the memory of the first process.
        ["scan", "all"] => return scan::read_first(),
        // Writes everything that it inherits from its creator to a file.
        ["audit", file] => {
            let found = audit::audit()?;
            fs::write(file, found)?;
        }
        ["cwd"] => println!("{}", env::current_dir()?.display()),
        ["env"] => env::vars().for_each(|(name, value)| println!("{name}={value}")),
        // Prints one line of /proc/self/status.
        ["status", name] => {
            let status = fs::read_to_string("/proc/self/status")?;
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
            println!("{}", line.ok_or("no such line")?);
        }
        // Prints type and options of the mounts at a mount point.
        ["mount", target] => {
            let mounts = fs::read_to_string("/proc/self/mounts")?;
            for line in mounts.lines() {
                let fields: Vec<_> = line.split(' ').collect();
                if fields.get(1) == Some(target) {
                    println!("{} {}", fields[2], fields[3]);
                }
            }
        }
        // Appends a line to a file: a name, and the surroundings of a hook.
        ["hook", name, file] => {
            let mut told = String::new();
            std::io::stdin().read_to_string(&mut told)?;
            let line = format!("{}\n", surroundings(name, &told)?);
            std::io::Write::write_all(&mut fs::OpenOptions::new().append(true).open(file)?, line.as_bytes())?;
        }
        // Prints words to standard output and standard error.
        ["say", words, error] => {
            println!("{words}");
            eprintln!("{error}");
        }
        ["fail", code, words] => {
            println!("out {words}");
            eprintln!("err {words}");
            return Ok(code.parse()?);
        }
        // Leaves a process that holds our standard streams and waits until a fifo is opened.
        ["leave", fifo] => drop(std::process::Command::new("/proc/self/exe").args(["cat", fifo]).spawn()?),
        // Starts a process that never ends, writes its pid to a file, and never ends either.
        ["leave-hanging", file] => {
            let left = std::process::Command::new("/proc/self/exe").arg("hang").spawn()?;
            fs::write(file, left.id().to_string())?;
            loop {
                std::thread::park();
            }
        }
        // Writes a byte to a fifo to show that it has begun, and never ends.
        ["hang-at", fifo] => {
            fs::write(fifo, "x")?;
            loop {
                std::thread::park();
            }
        }
        // Stops a process that is joining the container, and reports that.
        ["stop-joining"] => tracer::stop_joining_process()?,
        // Holds a socket that is full and that no process reads.
        ["full-socket"] => tracer::hold_full_socket()?,
        // Starts this many processes that never end, and prints how many were started.
        ["crowd", count] => {
            let (mut here, count) = (0, count.parse::<u32>()?);
            while here < count {
                if let Err(error) = std::process::Command::new("/guest").arg("hang").spawn() {
                    println!("{here} {error}");
                    return Ok(0);
                }
                here += 1;
            }
            println!("{here}");
        }
        // Allocates memory until there is none.
        ["eat"] => {
            let mut eaten = Vec::new();
            loop {
                eaten.push(std::hint::black_box(vec![1_u8; 1 << 20]));
            }
        }
        // Runs for ever, even after the end of its input.
        ["hang"] => loop {
            std::thread::park();
        },
        // Spins for ever.
        ["spin"] => loop {
            std::hint::spin_loop();
        },
        ["mkdir", path] => fs::create_dir(path)?,
        ["kill-parent"] => {
            let parent = rustix::process::getppid().ok_or("no parent")?;
            rustix::process::kill_process(parent, rustix::process::Signal::KILL)?;
            // We are killed together with it.
            loop {
                std::thread::park();
            }
        }
        ["die"] => std::process::abort(),
        ["session-keyring"] => {
            let mut room = [std::mem::MaybeUninit::uninit(); 512];
            let description = keyctl_describe(Key::SESSION, &mut room)?;
            println!("{}", String::from_utf8_lossy(description).trim_end_matches('\0'));
        }
        ["owner", path] => {
            use std::os::unix::fs::MetadataExt;
            println!("{}", fs::metadata(path)?.uid());
        }
        // Tries to change owner or permissions of a file.
        ["seize", path] => {
            use std::os::unix::fs::{PermissionsExt, chown};
            let given = chown(path, Some(1000), None).is_ok();
            let closed = fs::set_permissions(path, fs::Permissions::from_mode(0o600)).is_ok();
            println!("{}", if given || closed { "seized" } else { "refused" });
        }
        // Prints how mounts below a mount point propagate: the optional fields.
        ["propagation", target] => {
            let mounts = fs::read_to_string("/proc/self/mountinfo")?;
            for line in mounts.lines() {
                let fields: Vec<_> = line.split(' ').collect();
                if fields.get(4) == Some(target) {
                    let kinds = fields.iter().skip(6).take_while(|field| **field != "-");
                    let kinds = kinds.map(|kind| kind.split(':').next().unwrap_or(kind));
                    println!("{}", kinds.collect::<Vec<_>>().join(" "));
                }
            }
        }
        // Prints the length of a file.
        ["length", path] => println!("{}", fs::metadata(path)?.len()),
        // Prints part of a file, from an offset.
        ["read-at", path, place, length] => {
            use std::os::unix::fs::FileExt;
            let mut bytes = vec![0; length.parse()?];
            fs::File::open(path)?.read_exact_at(&mut bytes, place.parse()?)?;
            println!("{}", String::from_utf8(bytes)?);
        }
        // Prints permissions, owner and group of a path, without following a symlink.
        ["stat", path] => {
            use std::os::unix::fs::MetadataExt;
            let metadata = fs::symlink_metadata(path)?;
            println!("{:o} {} {}", metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
        }
        // Runs the remaining words in its own namespaces, in which it is root.
        ["nested", rest @ ..] => {
            let me = [IdMap { inside: 0, outside: 0, count: 1 }];
            let namespaces = Namespaces::USER | Namespaces::MOUNT | Namespaces::PID;
            let mut nested = husk_spawn::Command::new("/guest");
            nested.args(rest).new_namespaces(namespaces).uid_map(&me).gid_map(&me);
            return Ok(nested.status()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX));
        }
        // Detaches a mount.
        ["umount", path] => rustix::mount::unmount(*path, rustix::mount::UnmountFlags::DETACH)?,
        // Mounts a new file system.
        ["mount-new", fstype, path] => {
            rustix::mount::mount(*fstype, *path, *fstype, rustix::mount::MountFlags::empty(), None)?;
        }
        // Tries to remove mount flags that an outer user namespace has locked.
        ["remount-dev", path] => {
            rustix::mount::mount_remount(*path, rustix::mount::MountFlags::BIND, "")?;
        }
        ["null", path] => {
            use std::os::unix::fs::MetadataExt;
            println!("{:#x}", fs::metadata(path)?.rdev());
        }
        _ => return Err(format!("what is {words:?}?").into()),
    }
    Ok(0)
}

/// Returns the surroundings of a hook.
fn surroundings(name: &str, told: &str) -> Result<serde_json::Value, Box<dyn Error>> {
    let names = |directory| -> Result<Vec<String>, std::io::Error> {
        let mut names = fs::read_dir(directory)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<Vec<_>, std::io::Error>>()?;
        names.sort();
        Ok(names)
    };
    let namespace = |kind| fs::read_link(format!("/proc/self/ns/{kind}"));
    let status = fs::read_to_string("/proc/self/status")?;
    let line = |name| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
    Ok(serde_json::json!({
        "name": name,
        "told": told,
        "arguments": env::args().collect::<Vec<_>>(),
        "environment": env::vars().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        "cwd": env::current_dir()?,
        "root": names("/")?,
        "descriptors": names("/proc/self/fd")?,
        "mnt": namespace("mnt")?,
        "pid": namespace("pid")?,
        "net": namespace("net")?,
        "uid": line("Uid"),
        "umask": line("Umask"),
        "blocked": line("SigBlk"),
        "seccomp": line("Seccomp"),
    }))
}

/// Returns the signal of this name.
fn named(name: &str) -> Result<Signal, Box<dyn Error>> {
    let known = [
        ("ABRT", Signal::ABRT),
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("TERM", Signal::TERM),
        ("TSTP", Signal::TSTP),
        ("TTIN", Signal::TTIN),
        ("USR1", Signal::USR1),
    ];
    known.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal).ok_or("no such signal".into())
}

/// Prints which process adopts a process whose parent has ended, and whether it is reaped.
fn orphan() -> Result<u8, Box<dyn Error>> {
    let (reader, keep) = std::io::pipe()?;
    let between = std::process::Command::new("/guest").args(["orphan", "between"]).stdin(reader).output()?;
    let last = format!("/proc/{}", String::from_utf8(between.stdout)?.trim());
    let runtime = rustix::process::getppid().ok_or("no parent")?.as_raw_pid();
    let status = fs::read_to_string(format!("{last}/status"))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).ok_or("no parent")?;
    let is_runtimes = parent.parse() == Ok(runtime);
    println!("adopted by {}", if is_runtimes { "the runtime" } else { "another" });
    drop(keep);
    if is_runtimes {
        while fs::exists(&last)? {
            std::thread::yield_now();
        }
        println!("reaped");
    }
    Ok(0)
}
