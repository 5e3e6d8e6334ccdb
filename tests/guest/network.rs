//! Who can be reached from here.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};

/// Whether somebody answers at an address: a port of this machine, or the name of an abstract socket.
pub(crate) fn connect(address: &str) -> io::Result<()> {
    match address.parse::<u16>() {
        Ok(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop)?,
        Err(_) => drop(UnixStream::connect_addr(&SocketAddr::from_abstract_name(address)?)?),
    }
    println!("connected");
    Ok(())
}

/// Listens at a port, says so, and connects to itself; then waits for the end of its input.
pub(crate) fn listen(port: &str) -> io::Result<()> {
    let port = port.parse().map_err(io::Error::other)?;
    let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    connect(&port.to_string())?;
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}
