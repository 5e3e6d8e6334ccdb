//! Checks which addresses can be reached.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

/// Connects to an address: a port of this machine, or the name of an abstract socket.
pub(crate) fn connect(address: &str) -> io::Result<()> {
    match address.parse::<u16>() {
        Ok(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop)?,
        Err(_) => drop(UnixStream::connect_addr(&SocketAddr::from_abstract_name(address)?)?),
    }
    println!("connected");
    Ok(())
}

/// Listens on a port, connects to itself and prints that. Then waits for the end of its input.
pub(crate) fn listen(port: &str) -> io::Result<()> {
    let port = port.parse().map_err(io::Error::other)?;
    let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    connect(&port.to_string())?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

/// Answers one question for each connection to a port, for ever:
/// - `count`: how many there have been
/// - `exists PATH`: whether it does
/// - `processes`: how many can be seen
/// - `namespaces`: which it is in
/// - `exit CODE`: none, as the process exits
pub(crate) fn serve(port: &str) -> io::Result<u8> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse().map_err(io::Error::other)?))?;
    println!("serving");
    for count in 1.. {
        let (mut asker, _) = listener.accept()?;
        let mut question = String::new();
        BufReader::new(&asker).read_line(&mut question)?;
        println!("asked {}", question.trim_end());
        let answer = match question.trim_end().split_once(' ') {
            Some(("exists", path)) => fs::exists(path)?.to_string(),
            Some(("exit", code)) => return code.parse().map_err(io::Error::other),
            _ if question == "processes\n" => processes()?.to_string(),
            _ if question == "namespaces\n" => namespaces()?,
            _ => count.to_string(),
        };
        writeln!(asker, "{answer}")?;
    }
    Ok(0)
}

fn processes() -> io::Result<usize> {
    let is_process = |entry: io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
    };
    Ok(fs::read_dir("/proc")?.filter_map(|entry| is_process(entry).then_some(())).count())
}

fn namespaces() -> io::Result<String> {
    let names = ["user", "mnt", "pid", "net", "ipc", "uts"];
    let names = names.map(|name| fs::read_link(format!("/proc/self/ns/{name}")));
    let names = names.into_iter().collect::<io::Result<Vec<_>>>()?;
    Ok(names.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(" "))
}

/// Asks a question of `serve`, and prints the answer. Without a port, answers it itself.
pub(crate) fn ask(port: &str, question: &str) -> io::Result<()> {
    if port == "itself" {
        println!("{}", namespaces()?);
        return Ok(());
    }
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port.parse().map_err(io::Error::other)?))?;
    writeln!(server, "{question}")?;
    server.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    server.read_to_string(&mut answer)?;
    print!("{answer}");
    Ok(())
}
