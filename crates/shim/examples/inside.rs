//! The program in the containers of the tests. It is static, so that a root file system needs no other file.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_macros, reason = "a program of tests may fail if it cannot print")]

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _, stderr, stdin, stdout};
use std::process::{Command, ExitCode, Stdio};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *words {
        ["exit", code] => return Ok(ExitCode::from(code.parse::<u8>()?)),
        // Prints these words to standard output and standard error.
        ["print", out, err] => {
            stdout().write_all(out.as_bytes())?;
            stderr().write_all(err.as_bytes())?;
        }
        // Prints that it has begun, and runs until it is killed.
        ["wait"] => {
            println!("begun");
            loop {
                std::thread::park();
            }
        }
        // Does the same, but writes to this file, because a hook has no output.
        ["hang", path] => {
            let mut file = fs::File::create(path)?;
            writeln!(file, "begun")?;
            loop {
                std::thread::park();
            }
        }
        // Copies its input, and says when the input has ended.
        ["copy"] => {
            println!("begun");
            let mut room = [0; 4096];
            loop {
                match stdin().read(&mut room)? {
                    0 => break,
                    count => stdout().write_all(&room[..count])?,
                }
                stdout().flush()?;
            }
            println!("ended");
        }
        // Writes lines of 64 bytes, which are numbered.
        ["write", lines] => {
            let mut out = stdout().lock();
            for number in 0..lines.parse::<usize>()? {
                writeln!(out, "{number:063}")?;
            }
            println!("done");
        }
        // Prints the size of its terminal for each line of input.
        ["size"] => {
            println!("begun");
            for line in stdin().lines() {
                line?;
                let size = rustix::termios::tcgetwinsize(stdin())?;
                println!("{}x{}", size.ws_col, size.ws_row);
            }
        }
        // Closes its terminal, says so in one FIFO, and opens it again when the other one says so.
        ["reopen", told, go] => {
            let null = fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdin(&null)?;
            rustix::stdio::dup2_stdout(&null)?;
            rustix::stdio::dup2_stderr(&null)?;
            fs::write(told, "closed\n")?;
            fs::read(go)?;
            fs::OpenOptions::new().write(true).open("/dev/console")?.write_all(b"again\n")?;
        }
        ["read", path] => stdout().write_all(&fs::read(path)?)?,
        // Leaves a process behind that holds no stream. Prints its pid, and exits with the next line of input.
        ["leave"] => {
            let mut child = Command::new("/inside");
            child.arg("wait").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            println!("{}", child.spawn()?.id());
            stdin().read_line(&mut String::new())?;
        }
        // Takes memory until it is killed.
        ["eat"] => {
            let mut taken: Vec<Vec<u8>> = Vec::new();
            loop {
                taken.push(vec![1; 1 << 20]);
            }
        }
        // Acts as a logging program: copies descriptors 3 and 4 to this file, and then says so.
        ["log", path] => return log(path, true),
        // Acts as a logging program that dies after the first bytes.
        ["die", path] => return log(path, false),
        // Writes a line for each line of input, so that the caller sets the pace.
        ["answer"] => {
            for (number, line) in stdin().lines().enumerate() {
                println!("{number} {}", line?);
            }
        }
        // Prints what a process of the host reveals to this one.
        ["spy", pid] => {
            for file in ["mem", "environ", "maps", "exe", "root"] {
                let path = format!("/proc/{pid}/{file}");
                let seen = if file == "exe" || file == "root" {
                    fs::read_link(&path).is_ok()
                } else {
                    fs::File::open(&path).is_ok()
                };
                println!("{file} {}", if seen { "seen" } else { "hidden" });
            }
        }
        _ => return Err(format!("unknown words {words:?}").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the pipes of a container one after the other, as a logging program of containerd's interface does.
fn log(path: &str, to_the_end: bool) -> Result<ExitCode, Box<dyn Error>> {
    let id = std::env::var("CONTAINER_ID")?;
    let namespace = std::env::var("CONTAINER_NAMESPACE")?;
    let mut file = fs::File::create(path)?;
    write!(file, "{namespace}/{id} ")?;
    let pipe = |number| husk_spawn::inherited(number).map(fs::File::from).ok_or("no pipe");
    let (mut out, mut err) = (pipe(3)?, pipe(4)?);
    if !to_the_end {
        file.write_all(&[0; 1])?;
        out.read_exact(&mut [0; 1])?;
        return Ok(ExitCode::FAILURE);
    }
    std::io::copy(&mut out, &mut file)?;
    std::io::copy(&mut err, &mut file)?;
    Ok(ExitCode::SUCCESS)
}
