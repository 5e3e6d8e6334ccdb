//! Reports what a program sees of its terminal.

use crate::named;
use crate::stream::{produce, recognize};
use husk_spawn::SignalSet;
use husk_sys::process::exit_group;
use husk_sys::signal::{rt_sigprocmask, rt_sigwait};
use rustix::termios::{OptionalActions, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _, stdin, stdout};
use std::os::unix::fs::MetadataExt as _;

pub(crate) fn look(words: &[&str]) -> Result<u8, Box<dyn Error>> {
    match words {
        // Prints which streams are terminals, the terminal's name and its owner.
        [] => {
            let streams = [isatty(stdin()), isatty(stdout()), isatty(std::io::stderr())];
            let name = fs::read_link("/proc/self/fd/0")?;
            let own = fs::metadata("/proc/self/fd/0")?;
            let console = fs::metadata("/dev/console")?;
            let stat = fs::read_to_string("/proc/self/stat")?;
            let controlling: u64 = stat.split(' ').nth(6).ok_or("no field")?.parse()?;
            println!("terminals {streams:?}");
            println!("name {}", name.display());
            println!("owner {}", own.uid());
            println!("controlling {}", controlling == own.rdev());
            println!("console {}", console.rdev() == own.rdev());
        }
        ["size"] => say_size()?,
        // Prints its size, and again after the first change.
        ["resized"] => {
            let winch = SignalSet::EMPTY.with(husk_spawn::Signal::WINCH);
            rt_sigprocmask(winch)?;
            say_size()?;
            rt_sigwait(winch)?;
            say_size()?;
        }
        ["produce", length] => produce(&mut stdout(), length.parse()?)?,
        ["consume", length] => {
            let mut modes = tcgetattr(stdin())?;
            modes.make_raw();
            tcsetattr(stdin(), OptionalActions::Now, &modes)?;
            println!("ready");
            let length = length.parse()?;
            let known = recognize(&mut stdin().take(length))?;
            print!("{}", if known == length { "the same" } else { "something else" });
        }
        ["line"] => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line)?;
            print!("read {line}");
        }
        // Writes until it receives a signal. Exits with 43 if the terminal disappears.
        ["flood", signal] => {
            let signal = SignalSet::EMPTY.with(named(signal)?);
            rt_sigprocmask(signal)?;
            println!("begun");
            std::thread::spawn(|| {
                while stdout().write_all(&[b'x'; 1 << 16]).is_ok() {}
                exit_group(43);
            });
            rt_sigwait(signal)?;
            return Ok(42);
        }
        // Closes the terminal and opens it again.
        ["reopen"] => {
            println!("before");
            stdout().flush()?;
            reopen()?;
            println!("after");
        }
        _ => return Err(format!("what is tty {words:?}?").into()),
    }
    Ok(0)
}

fn say_size() -> Result<(), Box<dyn Error>> {
    let size = tcgetwinsize(stdin())?;
    println!("{} {}", size.ws_row, size.ws_col);
    Ok(())
}

/// Closes every descriptor of the terminal and opens it again as `/dev/tty`.
fn reopen() -> Result<(), Box<dyn Error>> {
    use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
    let (reader, writer) = rustix::pipe::pipe()?;
    dup2_stdin(&reader)?;
    dup2_stdout(&writer)?;
    dup2_stderr(&writer)?;
    let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    dup2_stdin(&terminal)?;
    dup2_stdout(&terminal)?;
    dup2_stderr(&terminal)?;
    Ok(())
}
