//! Checks which addresses can be reached.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
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
