//! The standard streams of a process.
//!
//! A FIFO of the client becomes the program's stream itself: nothing is copied, and a program that writes much costs the
//! shim nothing. The shim keeps an end of each FIFO open, so that the program survives a restart of containerd. Only
//! terminals and log files need a [`pump`].

pub(crate) mod console;
pub(crate) mod logger;
pub(crate) mod pump;

use crate::streams::console::Console;
use crate::streams::logger::Logger;
use crate::streams::pump::{Carries, Pump};
use crate::verbs::Streams;
use rustix::fs::{FileType, Gid, Mode, OFlags, Uid, fchown, fcntl_setfl, open, stat};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The client's names for a process's streams. An empty one is /dev/null.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stdio {
    /// A FIFO.
    pub(crate) stdin: String,
    /// A FIFO, `file://PATH` or `binary://PROGRAM?NAME=VALUE`.
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) terminal: bool,
}

/// The owner of the streams of a container with a user namespace: its root.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The part of a process's streams that the shim keeps.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// A writer of standard input's FIFO, so that the program does not see its end before the client says so.
    pub(crate) stdin: Option<OwnedFd>,
    /// Readers of the output FIFOs, so that the program is not killed by SIGPIPE while no client reads.
    pub(crate) readers: Vec<OwnedFd>,
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) logger: Option<Logger>,
    /// The pumps, by their numbers in the loop.
    pub(crate) pumps: Vec<u32>,
}

/// The streams of a process that is about to be created.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) ends: Streams,
    pub(crate) kept: Kept,
    pub(crate) pumps: Vec<Pump>,
    /// Receives the terminal, in place of streams.
    pub(crate) console: Option<Console>,
}

/// The destination that `stdout` names.
#[derive(Debug, PartialEq, Eq)]
enum Output<'a> {
    Fifo(&'a str),
    File(PathBuf),
    Program { path: PathBuf, arguments: Vec<String> },
}

/// Opens the streams of a process without a terminal. Never waits for a client.
///
/// # Errors
///
/// If a FIFO or file cannot be opened, or a logging program not be started.
pub(crate) fn open_streams(stdio: &Stdio, owner: Owner, id: &str, namespace: &str) -> io::Result<Opened> {
    let mut opened = Opened::default();
    if !stdio.stdin.is_empty() {
        let (end, writer) = input(&stdio.stdin)?;
        give(&end, owner)?;
        (opened.ends.stdin, opened.kept.stdin) = (Some(end), Some(writer));
    }
    match output_of(&stdio.stdout)? {
        Output::Program { path, arguments } => {
            let (logger, stdout, stderr) = Logger::start(&path, &arguments, id, namespace)?;
            give(&stdout, owner)?;
            give(&stderr, owner)?;
            (opened.ends.stdout, opened.ends.stderr) = (Some(stdout), Some(stderr));
            opened.kept.logger = Some(logger);
        }
        Output::File(path) => {
            opened.ends.stdout = Some(log_file(&path, owner, &mut opened.pumps)?);
            opened.ends.stderr = Some(log_file(&path, owner, &mut opened.pumps)?);
        }
        Output::Fifo(_) => {
            for (name, end) in
                [(&stdio.stdout, &mut opened.ends.stdout), (&stdio.stderr, &mut opened.ends.stderr)]
            {
                if name.is_empty() {
                    continue;
                }
                *end = Some(if is_fifo(name)? {
                    let (writer, reader) = output(name)?;
                    give(&writer, owner)?;
                    opened.kept.readers.push(reader);
                    writer
                } else {
                    log_file(Path::new(name), owner, &mut opened.pumps)?
                });
            }
        }
    }
    Ok(opened)
}

/// Checks that the FIFOs for a terminal exist. They are opened once the terminal exists, when an error is too late.
pub(crate) fn check_fifos(stdio: &Stdio) -> io::Result<()> {
    let output = match output_of(&stdio.stdout)? {
        Output::Fifo(name) => name,
        Output::File(_) | Output::Program { .. } => "",
    };
    for name in [&*stdio.stdin, output] {
        if !name.is_empty() && !is_fifo(name)? {
            return Err(io::Error::other(format!("{name} is not a FIFO")));
        }
    }
    Ok(())
}

/// Connects a terminal with the client's FIFO for input, and with the destination of its output.
///
/// # Errors
///
/// If a FIFO or file cannot be opened, or a logging program not be started.
pub(crate) fn connect(
    stdio: &Stdio,
    terminal: OwnedFd,
    kept: &mut Kept,
    id: &str,
    namespace: &str,
) -> io::Result<Vec<Pump>> {
    let mut pumps = Vec::new();
    fcntl_setfl(&terminal, OFlags::NONBLOCK)?;
    if !stdio.stdin.is_empty() {
        let (from, writer) = input(&stdio.stdin)?;
        fcntl_setfl(&from, OFlags::NONBLOCK)?;
        kept.stdin = Some(writer);
        pumps.push(Pump::new(from, terminal.try_clone()?, Carries::Input));
    }
    let from = terminal.try_clone()?;
    match output_of(&stdio.stdout)? {
        // Otherwise the program would wait for room in its terminal.
        Output::Fifo("") => pumps.push(Pump::into_nowhere(from)),
        Output::Fifo(name) => {
            let (to, reader) = output(name)?;
            fcntl_setfl(&to, OFlags::NONBLOCK)?;
            kept.readers.push(reader);
            pumps.push(Pump::new(from, to, Carries::Output));
        }
        Output::File(path) => pumps.push(Pump::into_file(from, append(&path)?)),
        Output::Program { path, arguments } => {
            let (logger, to, _) = Logger::start(&path, &arguments, id, namespace)?;
            fcntl_setfl(&to, OFlags::NONBLOCK)?;
            kept.logger = Some(logger);
            pumps.push(Pump::new(from, to, Carries::Output));
        }
    }
    kept.terminal = Some(terminal);
    Ok(pumps)
}

fn output_of(name: &str) -> io::Result<Output<'_>> {
    let Some((scheme, rest)) = name.split_once("://") else { return Ok(Output::Fifo(name)) };
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = PathBuf::from(decoded(path)?);
    match scheme {
        "fifo" => Ok(Output::Fifo(rest)),
        "file" => Ok(Output::File(path)),
        "binary" | "binary-v2" => {
            let pairs = query.split('&').filter(|pair| !pair.is_empty());
            let parts = pairs.flat_map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                [key, value]
            });
            let arguments = parts.map(|part| decoded(&part.replace('+', " "))).collect::<Result<_, _>>()?;
            Ok(Output::Program { path, arguments })
        }
        _ => Err(io::Error::other(format!("unknown STDIO scheme {scheme}"))),
    }
}

/// Decodes `%XX`.
fn decoded(text: &str) -> io::Result<String> {
    let bad = || io::Error::other(format!("invalid escape in {text:?}"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let (digits, rest) = part.split_at_checked(2).ok_or_else(bad)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

fn is_fifo(path: &str) -> io::Result<bool> {
    let found = stat(path).map_err(|errno| at(path, errno))?;
    Ok(FileType::from_raw_mode(found.st_mode) == FileType::Fifo)
}

/// Opens a FIFO for a program that reads it. Returns the program's end and a writer.
fn input(path: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let reader = open_fifo(path, OFlags::RDONLY)?;
    // Succeeds without waiting, because the FIFO has a reader.
    let writer = open_fifo(path, OFlags::WRONLY)?;
    fcntl_setfl(&reader, OFlags::empty())?;
    Ok((reader, writer))
}

/// Opens a FIFO for a program that writes to it. Returns the program's end and a reader.
fn output(path: &str) -> io::Result<(OwnedFd, OwnedFd)> {
    let reader = open_fifo(path, OFlags::RDONLY)?;
    let writer = open_fifo(path, OFlags::WRONLY)?;
    fcntl_setfl(&writer, OFlags::empty())?;
    Ok((writer, reader))
}

fn open_fifo(path: &str, mode: OFlags) -> io::Result<OwnedFd> {
    let flags = mode | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(path, flags, Mode::empty()).map_err(|errno| at(path, errno))
}

/// Opens a log file, and makes its directory if necessary.
fn append(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOCTTY;
    // Does not wait for the reader of a FIFO.
    let file = open(path, flags | OFlags::NONBLOCK, Mode::from_raw_mode(0o644));
    file.map(File::from).map_err(|errno| at(&path.to_string_lossy(), errno))
}

/// Creates a pipe whose reader is pumped to a file. Returns the writer.
fn log_file(path: &Path, owner: Owner, pumps: &mut Vec<Pump>) -> io::Result<OwnedFd> {
    let file = append(path)?;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&reader, OFlags::NONBLOCK)?;
    give(&writer, owner)?;
    pumps.push(Pump::into_file(reader, file));
    Ok(writer)
}

/// Makes the container's root the owner of a stream. Otherwise that user could not open /dev/stdout again.
fn give(end: &impl AsFd, owner: Owner) -> io::Result<()> {
    if owner.uid == 0 && owner.gid == 0 {
        return Ok(());
    }
    Ok(fchown(end, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?)
}

fn at(path: &str, errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("open {path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::{Output, Owner, Stdio, open_streams, output_of};
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::path::PathBuf;

    fn fifo(directory: &tempfile::TempDir, name: &str) -> String {
        let path = directory.path().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn output_is_a_fifo_a_file_or_a_program() {
        assert_eq!(output_of("/run/out").unwrap(), Output::Fifo("/run/out"));
        assert_eq!(output_of("fifo:///run/out").unwrap(), Output::Fifo("/run/out"));
        assert_eq!(output_of("file:///a%20b").unwrap(), Output::File(PathBuf::from("/a b")));
        let program = Output::Program {
            path: PathBuf::from("/bin/log"),
            arguments: ["a", "1 2", "b", ""].map(str::to_owned).to_vec(),
        };
        assert_eq!(output_of("binary:///bin/log?a=1+2&b").unwrap(), program);
        for bad in ["tcp://host", "file:///%4", "binary:///x?%zz"] {
            assert!(output_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn opening_waits_for_no_client_and_output_outlives_the_reader() {
        let directory = tempfile::tempdir().unwrap();
        let stdio =
            Stdio { stdin: fifo(&directory, "in"), stdout: fifo(&directory, "out"), ..Stdio::default() };
        let opened = open_streams(&stdio, Owner::default(), "c", "n").unwrap();
        let mut program = File::from(opened.ends.stdout.unwrap());
        drop(File::open(&stdio.stdout).unwrap());
        // Without the shim's reader this would be SIGPIPE.
        program.write_all(b"late").unwrap();
        let mut late = File::open(&stdio.stdout).unwrap();
        drop(program);
        let mut text = String::new();
        late.read_to_string(&mut text).unwrap();
        assert_eq!(text, "late");
    }

    #[test]
    fn input_ends_when_the_client_and_the_shim_have_closed_it() {
        let directory = tempfile::tempdir().unwrap();
        let stdio = Stdio { stdin: fifo(&directory, "in"), ..Stdio::default() };
        let opened = open_streams(&stdio, Owner::default(), "c", "n").unwrap();
        let mut client = File::options().write(true).open(&stdio.stdin).unwrap();
        client.write_all(b"to the program").unwrap();
        drop(client);
        drop(opened.kept);
        let mut text = String::new();
        File::from(opened.ends.stdin.unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "to the program");
    }

    #[test]
    fn missing_fifo_is_named() {
        let stdio = Stdio { stdout: "/no/such/fifo".to_owned(), ..Stdio::default() };
        let error = open_streams(&stdio, Owner::default(), "c", "n").unwrap_err();
        assert!(error.to_string().starts_with("open /no/such/fifo: "), "{error}");
    }
}
