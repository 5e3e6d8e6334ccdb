//! `linux.netDevices`: moves network devices of the host into the container.
//!
//! They keep their permanent addresses of global scope (config-linux.md, "Network Devices"), which the kernel removes
//! when a device changes its namespace.

use crate::child::netlink::{
    ACKNOWLEDGE, CREATE_NEW, DUMP, GET_ADDRESS, GET_LINK, NEW_ADDRESS, NEW_LINK, NetlinkMessage, Socket,
    attributes, number,
};
use crate::error::Error;
use husk_bundle::container::NetDevice;
use husk_listing::Cause;
use husk_script::sys::namespace::{Namespaces, setns};
use husk_script::sys::{Errno, Fd};
use husk_spawn::Child;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::thread;

/// The sizes of `struct ifinfomsg` and `struct ifaddrmsg` (linux/rtnetlink.h, linux/if_addr.h).
const LINK: usize = 16;
const ADDRESS: usize = 8;

const IFLA_IFNAME: u16 = 3;
const IFLA_NET_NS_FD: u16 = 28;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;
const IFA_F_PERMANENT: u32 = 0x80;
const IFF_UP: u32 = 1;
const RT_SCOPE_UNIVERSE: u8 = 0;

/// Moves the devices into the child's network namespace.
pub(crate) fn hand_over(child: &Child, devices: &[NetDevice]) -> Result<(), Error> {
    let path = format!("/proc/{}/ns/net", child.id());
    let namespace = File::open(&path).map_err(|reason| Error::file("open", path, reason))?;
    let failed = |errno| Error::kernel("open a netlink socket", errno);
    let mut ours = Socket::open().map_err(failed)?;
    let mut theirs = open_in(&namespace).map_err(failed)?;
    for device in devices {
        move_device(device, &namespace, &mut ours, &mut theirs).map_err(|(act, errno)| {
            let field = format!("linux.netDevices.{}", device.name);
            Error::step(field, format!("{act}: {}", Cause::from(errno)))
        })?;
    }
    Ok(())
}

/// Opens a socket in the namespace. A socket belongs to its creator's namespace, so a thread enters it.
fn open_in(namespace: &File) -> Result<Socket, Errno> {
    let namespace = Fd::of(namespace);
    let opened = thread::spawn(move || setns(namespace, Namespaces::NET).and_then(|()| Socket::open()));
    opened.join().unwrap_or(Err(Errno::CANCELED))
}

/// The operation that failed, and its error.
type Failure = (&'static str, Errno);

fn move_device(
    device: &NetDevice,
    namespace: &File,
    ours: &mut Socket,
    theirs: &mut Socket,
) -> Result<(), Failure> {
    let at = |act| move |errno| (act, errno);
    let index = find(ours, &device.name).map_err(at("find the device"))?;
    let addresses = addresses(ours, index).map_err(at("list its addresses"))?;
    // The kernel moves a device before it refuses a name that is taken (net/core/rtnetlink.c, `do_setlink`). A virtual
    // device would then be lost with the container.
    match find(theirs, &device.new_name) {
        Err(Errno::NODEV) => {}
        other => return Err(("name it in the container", other.err().unwrap_or(Errno::EXIST))),
    }
    // The kernel brings the device down for that. If the device cannot be moved, it stays as it is.
    rename_into(ours, index, &device.new_name, namespace).map_err(at("move it to the container"))?;
    let index = find(theirs, &device.new_name).map_err(at("find the device in the container"))?;
    for address in &addresses {
        add(theirs, index, address).map_err(at("set an address"))?;
    }
    set_up(theirs, index).map_err(at("set it up"))
}

/// Builds a `struct ifinfomsg` that sets the device's flags in `change` to those of `flags`.
fn link(index: u32, flags: u32, change: u32) -> [u8; LINK] {
    let mut structure = [0; LINK];
    structure[4..8].copy_from_slice(&index.to_ne_bytes());
    structure[8..12].copy_from_slice(&flags.to_ne_bytes());
    structure[12..].copy_from_slice(&change.to_ne_bytes());
    structure
}

fn name(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// Returns the index of the device with this name.
fn find(socket: &mut Socket, device: &str) -> Result<u32, Errno> {
    let mut message = NetlinkMessage::new(GET_LINK, ACKNOWLEDGE, &link(0, 0, 0));
    message.attribute(IFLA_IFNAME, &name(device))?;
    let found = socket.ask(&message, NEW_LINK)?;
    found.first().and_then(|body| number(body, 4)).ok_or(Errno::NODEV)
}

fn set_up(socket: &mut Socket, index: u32) -> Result<(), Errno> {
    let message = NetlinkMessage::new(NEW_LINK, ACKNOWLEDGE, &link(index, IFF_UP, IFF_UP));
    socket.ask(&message, NEW_LINK).map(drop)
}

fn rename_into(socket: &mut Socket, index: u32, to: &str, namespace: &File) -> Result<(), Errno> {
    let mut message = NetlinkMessage::new(NEW_LINK, ACKNOWLEDGE, &link(index, 0, 0));
    message.attribute(IFLA_IFNAME, &name(to))?;
    message.attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes())?;
    socket.ask(&message, NEW_LINK).map(drop)
}

/// An address that is set again after the move.
struct Address {
    family: u8,
    prefix: u8,
    attributes: Vec<(u16, Vec<u8>)>,
}

/// Returns the device's addresses that are permanent and of global scope.
fn addresses(socket: &mut Socket, index: u32) -> Result<Vec<Address>, Errno> {
    let found = socket.ask(&NetlinkMessage::new(GET_ADDRESS, DUMP, &[0; ADDRESS]), NEW_ADDRESS)?;
    Ok(found.iter().filter_map(|body| address(body, index)).collect())
}

fn address(body: &[u8], index: u32) -> Option<Address> {
    let [family, prefix, flags, scope] = *body.first_chunk()?;
    // Prefers the wider flags of newer kernels.
    let wide = attributes(body, ADDRESS).find(|(kind, _)| *kind == IFA_FLAGS);
    let flags = wide.and_then(|(_, value)| number(value, 0)).unwrap_or(flags.into());
    let is_kept =
        number(body, 4) == Some(index) && flags & IFA_F_PERMANENT != 0 && scope == RT_SCOPE_UNIVERSE;
    let attributes = attributes(body, ADDRESS)
        .filter(|(kind, _)| matches!(*kind, IFA_ADDRESS | IFA_LOCAL | IFA_BROADCAST))
        .map(|(kind, value)| (kind, value.to_vec()));
    is_kept.then(|| Address { family, prefix, attributes: attributes.collect() })
}

fn add(socket: &mut Socket, index: u32, address: &Address) -> Result<(), Errno> {
    let mut structure = [address.family, address.prefix, 0, RT_SCOPE_UNIVERSE, 0, 0, 0, 0];
    structure[4..].copy_from_slice(&index.to_ne_bytes());
    let mut message = NetlinkMessage::new(NEW_ADDRESS, ACKNOWLEDGE | CREATE_NEW, &structure);
    for (kind, value) in &address.attributes {
        message.attribute(*kind, value)?;
    }
    socket.ask(&message, NEW_ADDRESS).map(drop)
}
