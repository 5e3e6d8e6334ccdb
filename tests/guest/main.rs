//! What runs inside the containers of tests: one static program instead of a shell and its tools, so
//! that a test says exactly what is looked at and needs no image.

use husk_spawn::sys::keyring::{Key, keyctl_describe};
use husk_spawn::sys::signal::{rt_sigprocmask, rt_sigwait};
use husk_spawn::{Signal, SignalSet};
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

fn look(words: &[&str]) -> Result<u8, Box<dyn Error>> {
    match words {
        // Ends with this code.
        ["exit", code] => return Ok(code.parse()?),
        // Says that it has begun, and runs until it is killed.
        ["wait"] => {
            println!("begun");
            std::io::stdin().read_to_end(&mut Vec::new())?;
            loop {
                std::thread::park();
            }
        }
        // Says that it has begun, and ends with 42 when it gets SIGHUP.
        ["until", "HUP"] => {
            let hangup = SignalSet::EMPTY.with(Signal::HUP);
            rt_sigprocmask(hangup)?;
            println!("begun");
            rt_sigwait(hangup)?;
            return Ok(42);
        }
        ["cat", file] => print!("{}", fs::read_to_string(file)?),
        ["write", file] => fs::write(file, "written")?,
        ["list", directory] => {
            let names = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name()));
            let mut names = names.collect::<Result<Vec<_>, _>>()?;
            names.sort();
            names.iter().for_each(|name| println!("{}", name.display()));
        }
        ["read-link", path] => println!("{}", fs::read_link(path)?.display()),
        ["cwd"] => println!("{}", env::current_dir()?.display()),
        ["env"] => env::vars().for_each(|(name, value)| println!("{name}={value}")),
        // One line of /proc/self/status.
        ["status", name] => {
            let status = fs::read_to_string("/proc/self/status")?;
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
            println!("{}", line.ok_or("no such line")?);
        }
        // Where something is mounted and with which options.
        ["mount", target] => {
            let mounts = fs::read_to_string("/proc/self/mounts")?;
            for line in mounts.lines() {
                let fields: Vec<_> = line.split(' ').collect();
                if fields.get(1) == Some(target) {
                    println!("{} {}", fields[2], fields[3]);
                }
            }
        }
        ["session-keyring"] => {
            let mut room = [std::mem::MaybeUninit::uninit(); 512];
            let description = keyctl_describe(Key::SESSION, &mut room)?;
            println!("{}", String::from_utf8_lossy(description).trim_end_matches('\0'));
        }
        ["owner", path] => {
            use std::os::unix::fs::MetadataExt;
            println!("{}", fs::metadata(path)?.uid());
        }
        ["null", path] => {
            use std::os::unix::fs::MetadataExt;
            println!("{:#x}", fs::metadata(path)?.rdev());
        }
        _ => return Err(format!("what is {words:?}?").into()),
    }
    Ok(0)
}
