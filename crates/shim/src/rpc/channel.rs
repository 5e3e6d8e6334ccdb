//! One end of a connection: splits what arrives into frames, and keeps what could not be written yet.

use prost::Message;
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The most bytes of a message that ttrpc allows.
const MOST_BYTES: usize = 4 << 20;
/// The most unread bytes that a peer may leave. A peer that reads nothing loses its connection.
const MOST_UNREAD: usize = 4 * MOST_BYTES;
const HEADER: usize = 10;
/// Buffers that have grown beyond this are freed when they are empty.
const KEPT: usize = 4 << 10;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request = 1,
    Response = 2,
}

/// A message as it arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) stream: u32,
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

/// A connection that never blocks.
pub(crate) struct Channel {
    socket: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Channel {
    /// Takes over a socket, which must not block.
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self { socket, input: Vec::new(), output: Vec::new() }
    }

    /// Reads what has arrived, and returns the messages that are complete.
    ///
    /// # Errors
    ///
    /// If the peer has closed the connection, or sent a message that is too long.
    pub(crate) fn receive(&mut self) -> io::Result<Vec<Frame>> {
        let mut frames = Vec::new();
        let mut room = [0; KEPT];
        loop {
            match self.socket.read(&mut room) {
                Ok(0) if frames.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
                // The next call reports the end.
                Ok(0) => break,
                Ok(count) => self.input.extend_from_slice(room.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            while let Some((frame, length)) = first_frame(&self.input)? {
                frames.push(frame);
                self.input.drain(..length);
            }
        }
        if self.input.is_empty() && self.input.capacity() > KEPT {
            self.input = Vec::new();
        }
        Ok(frames)
    }

    /// Sends a message, or keeps it until the peer reads.
    ///
    /// # Errors
    ///
    /// If the connection is broken, or the peer has left too much unread.
    pub(crate) fn send(&mut self, kind: Kind, stream: u32, message: &impl Message) -> io::Result<()> {
        let length = u32::try_from(message.encoded_len()).map_err(|_| Errno::MSGSIZE)?;
        self.output.reserve(HEADER + message.encoded_len());
        self.output.extend_from_slice(&length.to_be_bytes());
        self.output.extend_from_slice(&stream.to_be_bytes());
        self.output.extend_from_slice(&[kind as u8, 0]);
        message.encode(&mut self.output).map_err(io::Error::other)?;
        self.flush()?;
        if self.output.len() > MOST_UNREAD { Err(Errno::NOBUFS.into()) } else { Ok(()) }
    }

    /// Writes what was kept.
    ///
    /// # Errors
    ///
    /// If the connection is broken.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let result = loop {
            // Even a write of nothing fails if the peer is gone, whose last messages are still to be received.
            let rest = self.output.get(sent..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(());
            }
            match self.socket.write(rest) {
                Ok(0) => break Ok(()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.output.drain(..sent);
        if self.output.is_empty() && self.output.capacity() > KEPT {
            self.output = Vec::new();
        }
        result
    }

    /// Whether something waits until the peer reads.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.output.is_empty()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the first message in `bytes` and its length with the header, or `None` if it is incomplete.
fn first_frame(bytes: &[u8]) -> io::Result<Option<(Frame, usize)>> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h, kind, _flags] = *header;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if length > MOST_BYTES {
        return Err(Errno::MSGSIZE.into());
    }
    let stream = u32::from_be_bytes([e, f, g, h]);
    Ok(rest.get(..length).map(|payload| (Frame { stream, kind, payload: payload.to_vec() }, HEADER + length)))
}

#[cfg(test)]
mod tests {
    use super::{Channel, Kind, MOST_BYTES, MOST_UNREAD};
    use crate::wire::ttrpc::{Request, Response};
    use prost::Message as _;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (Channel::new(one), Channel::new(other))
    }

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let (mut client, mut server) = pair();
        for stream in [1, 3, 5] {
            let request = Request { method: format!("M{stream}"), ..Request::default() };
            client.send(Kind::Request, stream, &request).unwrap();
        }
        let frames = server.receive().unwrap();
        assert_eq!(frames.iter().map(|frame| frame.stream).collect::<Vec<_>>(), [1, 3, 5]);
        assert_eq!(Request::decode(&*frames[2].payload).unwrap().method, "M5");
    }

    #[test]
    fn header_is_ten_bytes_in_network_order() {
        let (mut client, server) = pair();
        client.send(Kind::Request, 7, &Request { method: "M".to_owned(), ..Request::default() }).unwrap();
        let mut bytes = [0; 64];
        let count = rustix::io::read(&server, &mut bytes).unwrap();
        assert_eq!(bytes[..count], [0, 0, 0, 3, 0, 0, 0, 7, 1, 0, 0x12, 1, b'M']);
    }

    #[test]
    fn split_message_is_kept_until_it_is_complete() {
        let (one, other) = UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        let mut server = Channel::new(other);
        let bytes = [0, 0, 0, 3, 0, 0, 0, 7, 1, 0, 0x12, 1, b'M'];
        for byte in &bytes[..12] {
            (&one).write_all(&[*byte]).unwrap();
            assert!(server.receive().unwrap().is_empty());
        }
        (&one).write_all(&bytes[12..]).unwrap();
        assert_eq!(server.receive().unwrap().len(), 1);
    }

    #[test]
    fn message_beyond_the_limit_is_refused() {
        let (one, other) = UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        let length = u32::try_from(MOST_BYTES + 1).unwrap().to_be_bytes();
        (&one).write_all(&[&length[..], &[0, 0, 0, 1, 1, 0]].concat()).unwrap();
        assert!(Channel::new(other).receive().is_err());
    }

    #[test]
    fn peer_that_reads_nothing_is_given_up() {
        let (mut client, _server) = pair();
        let response = Response { payload: vec![0; 1 << 20], ..Response::default() };
        let sent = (0..).take_while(|_| client.send(Kind::Response, 1, &response).is_ok()).count();
        assert!(sent <= 1 + MOST_UNREAD / (1 << 20));
        assert!(client.is_blocked());
    }

    #[test]
    fn closed_connection_is_reported_after_its_last_message() {
        let (mut client, mut server) = pair();
        client.send(Kind::Request, 1, &Request::default()).unwrap();
        drop(client);
        server.flush().unwrap();
        assert_eq!(server.receive().unwrap().len(), 1);
        assert!(server.receive().is_err());
    }
}
