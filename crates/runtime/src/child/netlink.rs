//! Messages to and from the kernel about network devices and addresses (rtnetlink(7)).
//!
//! A message is built by appending, and its lengths are written when it is sent. Answers are read through slices, so a
//! false length only ends the reading. (CVE-2021-43784 was a length that had wrapped.)

use husk_script::sys::Errno;
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::os::fd::OwnedFd;

/// Message types (linux/rtnetlink.h).
pub(crate) const NEW_LINK: u16 = 16;
pub(crate) const GET_LINK: u16 = 18;
pub(crate) const NEW_ADDRESS: u16 = 20;
pub(crate) const GET_ADDRESS: u16 = 22;

/// Request flags (linux/netlink.h).
pub(crate) const ACKNOWLEDGE: u16 = 0x4;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const CREATE_NEW: u16 = 0x600;
const REQUEST: u16 = 0x1;

/// Message types that end an answer.
const ERROR: u16 = 2;
const DONE: u16 = 3;

const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// A message to the kernel.
pub(crate) struct NetlinkMessage {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl NetlinkMessage {
    /// Returns a message that begins with the fixed structure of its type.
    pub(crate) fn new(kind: u16, flags: u16, structure: &[u8]) -> Self {
        let mut message = Self { kind, flags: flags | REQUEST, body: Vec::new() };
        message.append(structure);
        message
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) -> Result<&mut Self, Errno> {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).map_err(|_| Errno::MSGSIZE)?;
        let [a, b] = length.to_ne_bytes();
        let [c, d] = kind.to_ne_bytes();
        self.append(&[&[a, b, c, d], value].concat());
        Ok(self)
    }

    /// Appends bytes, padded to a multiple of four.
    fn append(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    fn to_bytes(&self, sequence: u32) -> Result<Vec<u8>, Errno> {
        let length = u32::try_from(HEADER + self.body.len()).map_err(|_| Errno::MSGSIZE)?;
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend(length.to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(self.flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        // The sender's port ID, which the kernel knows.
        bytes.extend(0_u32.to_ne_bytes());
        bytes.extend(&self.body);
        Ok(bytes)
    }
}

/// A netlink socket, for the network namespace in which it was created.
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
}

impl Socket {
    pub(crate) fn open() -> Result<Self, Errno> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        // Without a protocol it is NETLINK_ROUTE, which is 0.
        let fd = socket_with(family, SocketType::RAW, flags, None)?;
        Ok(Self { fd, sequence: 0 })
    }

    /// Sends a request, and returns the bodies of all messages of the answer that are of type `kind`.
    pub(crate) fn ask(&mut self, message: &NetlinkMessage, kind: u16) -> Result<Vec<Vec<u8>>, Errno> {
        self.sequence += 1;
        let bytes = message.to_bytes(self.sequence)?;
        send(&self.fd, &bytes, SendFlags::empty())?;
        let mut found = Vec::new();
        let mut room = vec![0; 1 << 16];
        loop {
            let (length, whole) = retry_on_intr(|| recv(&self.fd, &mut room[..], RecvFlags::TRUNC))?;
            if whole > length {
                return Err(Errno::MSGSIZE);
            }
            for answer in messages(&room[..length]) {
                match answer {
                    // This message does not answer this request.
                    Answer { sequence, .. } if sequence != self.sequence => {}
                    Answer { kind: DONE, .. } => return Ok(found),
                    Answer { kind: ERROR, body, .. } => {
                        let code = number(body, 0).ok_or(Errno::PROTO)?.cast_signed();
                        return match code.checked_neg() {
                            Some(0) => Ok(found),
                            Some(errno) => Err(Errno::from_raw_os_error(errno)),
                            None => Err(Errno::PROTO),
                        };
                    }
                    Answer { body, kind: is, .. } if is == kind => found.push(body.to_vec()),
                    Answer { .. } => {}
                }
            }
        }
    }
}

struct Answer<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
}

/// Iterates over the messages of a datagram.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Answer<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(number(bytes, 0)?).ok()?;
        let answer =
            Answer { kind: short(bytes, 4)?, sequence: number(bytes, 8)?, body: bytes.get(HEADER..length)? };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(answer)
    })
}

/// Iterates over the attributes that follow `structure` bytes.
pub(crate) fn attributes(body: &[u8], structure: usize) -> impl Iterator<Item = (u16, &[u8])> {
    /// The bits of the type, without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
    const KIND: u16 = 0x3fff;
    let mut bytes = body.get(structure..).unwrap_or_default();
    std::iter::from_fn(move || {
        let length = usize::from(short(bytes, 0)?);
        let found = (short(bytes, 2)? & KIND, bytes.get(ATTRIBUTE_HEADER..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

/// Reads the number at offset `at`.
pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_message_reads_back() {
        let mut message = NetlinkMessage::new(NEW_LINK, ACKNOWLEDGE, &[1, 2, 3, 4, 5, 6, 7, 8]);
        message.attribute(3, b"eth0\0").unwrap().attribute(28, &9_u32.to_ne_bytes()).unwrap();
        let mut bytes = message.to_bytes(7).unwrap();
        assert_eq!(bytes.len(), 16 + 8 + 12 + 8);
        bytes.extend(message.to_bytes(8).unwrap());
        let found: Vec<_> = messages(&bytes).collect();
        let Answer { kind, sequence, body } = &found[0];
        assert_eq!((*kind, *sequence, &body[..8]), (NEW_LINK, 7, &[1, 2, 3, 4, 5, 6, 7, 8][..]));
        let attributes: Vec<_> = attributes(body, 8).collect();
        assert_eq!(attributes, [(3, &b"eth0\0"[..]), (28, &9_u32.to_ne_bytes()[..])]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn wrong_length_ends_parsing() {
        let whole = NetlinkMessage::new(NEW_LINK, 0, &[0; 8]).to_bytes(1).unwrap();
        for lie in [0_u32, 1, 15, 25, u32::MAX] {
            let mut bytes = whole.clone();
            bytes[..4].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(messages(&bytes).count(), 0, "{lie}");
        }
        for cut in 0..whole.len() {
            assert_eq!(messages(&whole[..cut]).count(), 0, "{cut}");
        }
        for lie in [0_u16, 3, 9, u16::MAX] {
            let body = [&lie.to_ne_bytes()[..], &[3, 0, 1, 2, 3, 4]].concat();
            assert_eq!(attributes(&body, 0).count(), 0, "{lie}");
        }
        assert_eq!(attributes(&[], 16).count(), 0);
        assert!(NetlinkMessage::new(NEW_LINK, 0, &[]).attribute(3, &vec![0; 1 << 16]).is_err());
    }
}
