//! Forwards events to containerd, one after the other, so that they arrive in order.
//!
//! While containerd is away, for example during its restart, events wait in a queue. The queue is bounded.

use crate::rpc::channel::{Channel, Kind};
use crate::wire::events::{Envelope, ForwardRequest};
use crate::wire::ttrpc::{KeyValue, Request, Response};
use crate::wire::{Any, Timestamp};
use prost::Message;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The most events that wait. The oldest are dropped first.
const MOST_WAITING: usize = 2048;
/// How often containerd may refuse an event before it is dropped.
const MOST_REFUSALS: u32 = 5;
const RETRY: Duration = Duration::from_secs(1);

pub(crate) struct Publisher {
    /// The path of containerd's ttrpc socket. Empty if there is none: then events are dropped.
    path: String,
    namespace: String,
    channel: Option<Channel>,
    /// How many connections there were.
    connections: u32,
    /// Whether containerd has answered on this connection.
    is_proven: bool,
    waiting: VecDeque<ForwardRequest>,
    /// The stream of the event that containerd has not answered yet: the first in `waiting`.
    in_flight: Option<u32>,
    next_stream: u32,
    refusals: u32,
    retry_at: Option<Instant>,
}

impl Publisher {
    pub(crate) fn new(address: &str, namespace: &str) -> Self {
        Self {
            path: address.strip_prefix("unix://").unwrap_or(address).to_owned(),
            namespace: namespace.to_owned(),
            channel: None,
            connections: 0,
            is_proven: false,
            waiting: VecDeque::new(),
            in_flight: None,
            // Clients use odd streams.
            next_stream: 1,
            refusals: 0,
            retry_at: None,
        }
    }

    /// Queues an event and sends it if none is in flight.
    pub(crate) fn publish(&mut self, topic: &str, name: &str, event: &impl Message) {
        if self.path.is_empty() {
            return;
        }
        if self.waiting.len() >= MOST_WAITING {
            // The first may be in flight.
            let oldest = usize::from(self.in_flight.is_some());
            self.waiting.remove(oldest);
        }
        let envelope = Envelope {
            timestamp: Some(Timestamp::now()),
            namespace: self.namespace.clone(),
            topic: topic.to_owned(),
            event: Some(Any::new(&format!("containerd.events.{name}"), event)),
        };
        self.waiting.push_back(ForwardRequest { envelope: Some(envelope) });
        self.advance();
    }

    /// Whether every event has arrived or been dropped.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the connection and its number, and whether to wait until it can be written.
    pub(crate) fn polled(&self) -> Option<(BorrowedFd<'_>, u32, bool)> {
        self.channel.as_ref().map(|channel| (channel.as_fd(), self.connections, channel.is_blocked()))
    }

    /// Returns when to call [`advance`](Self::advance) again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Reads answers and writes what was kept.
    pub(crate) fn ready(&mut self) {
        let Some(channel) = &mut self.channel else { return };
        let frames = channel.flush().and_then(|()| channel.receive());
        let Ok(frames) = frames else {
            // The event in flight is sent again on the next connection. A daemon that accepts connections and closes
            // them must not keep the shim busy.
            self.disconnect(if self.is_proven { Duration::ZERO } else { RETRY });
            self.advance();
            return;
        };
        for frame in frames.into_iter().filter(|frame| frame.kind == Kind::Response as u8) {
            if self.in_flight != Some(frame.stream) {
                continue;
            }
            self.in_flight = None;
            self.is_proven = true;
            let refused = Response::decode(&*frame.payload)
                .map_or(true, |response| response.status.is_some_and(|status| status.code != 0));
            self.refusals = if refused { self.refusals + 1 } else { 0 };
            if !refused || self.refusals > MOST_REFUSALS {
                self.waiting.pop_front();
                self.refusals = 0;
            } else {
                self.retry_at = Some(Instant::now() + RETRY);
            }
        }
        self.advance();
    }

    /// Sends the next event, unless one is in flight or it is too early for another attempt.
    pub(crate) fn advance(&mut self) {
        if self.in_flight.is_some() || self.retry_at.is_some_and(|time| time > Instant::now()) {
            return;
        }
        self.retry_at = None;
        let Some(event) = self.waiting.front() else { return };
        let namespace =
            KeyValue { key: "containerd-namespace-ttrpc".to_owned(), value: self.namespace.clone() };
        let request = Request {
            service: "containerd.services.events.ttrpc.v1.Events".to_owned(),
            method: "Forward".to_owned(),
            payload: event.encode_to_vec(),
            timeout_nano: 0,
            metadata: vec![namespace],
        };
        let stream = self.next_stream;
        let sent = self.connected().and_then(|channel| channel.send(Kind::Request, stream, &request));
        match sent {
            Ok(()) => {
                self.in_flight = Some(stream);
                self.next_stream = stream.wrapping_add(2);
            }
            Err(_) => self.disconnect(RETRY),
        }
    }

    fn connected(&mut self) -> io::Result<&mut Channel> {
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                connect(&socket, &SocketAddrUnix::new(&*self.path)?)?;
                self.connections = self.connections.wrapping_add(1);
                Channel::new(UnixStream::from(socket))
            }
        };
        Ok(self.channel.insert(channel))
    }

    fn disconnect(&mut self, delay: Duration) {
        self.channel = None;
        self.is_proven = false;
        self.in_flight = None;
        self.retry_at = (!self.waiting.is_empty()).then(|| Instant::now() + delay);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_REFUSALS, MOST_WAITING, Publisher};
    use crate::rpc::channel::{Channel, Frame, Kind};
    use crate::wire::events::{ForwardRequest, TaskOom};
    use crate::wire::ttrpc::{Request, Response, Status};
    use prost::Message as _;
    use std::os::unix::net::UnixListener;

    fn event(id: &str) -> TaskOom {
        TaskOom { container_id: id.to_owned() }
    }

    /// A stand-in for containerd.
    struct Daemon {
        listener: UnixListener,
        channel: Option<Channel>,
        _directory: tempfile::TempDir,
        path: String,
    }

    impl Daemon {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("s").to_str().unwrap().to_owned();
            let listener = UnixListener::bind(&path).unwrap();
            Self { listener, channel: None, path, _directory: directory }
        }

        fn receive(&mut self) -> Vec<Frame> {
            let channel = self.channel.get_or_insert_with(|| {
                let (socket, _) = self.listener.accept().unwrap();
                socket.set_nonblocking(true).unwrap();
                Channel::new(socket)
            });
            channel.receive().unwrap()
        }

        fn answer(&mut self, stream: u32, response: &Response) {
            self.channel.as_mut().unwrap().send(Kind::Response, stream, response).unwrap();
        }
    }

    fn id(frame: &Frame) -> String {
        let request = Request::decode(&*frame.payload).unwrap();
        let forwarded = ForwardRequest::decode(&*request.payload).unwrap();
        let event = forwarded.envelope.unwrap().event.unwrap();
        assert_eq!(event.type_url, "containerd.events.TaskOOM");
        TaskOom::decode(&*event.value).unwrap().container_id
    }

    #[test]
    fn next_event_waits_for_the_answer_to_the_last() {
        let mut daemon = Daemon::new();
        let mut publisher = Publisher::new(&format!("unix://{}", daemon.path), "n");
        publisher.publish("/tasks/oom", "TaskOOM", &event("a"));
        publisher.publish("/tasks/oom", "TaskOOM", &event("b"));
        let first = daemon.receive();
        assert_eq!(first.iter().map(id).collect::<Vec<_>>(), ["a"]);
        daemon.answer(first[0].stream, &Response::default());
        publisher.ready();
        let second = daemon.receive();
        assert_eq!(second.iter().map(id).collect::<Vec<_>>(), ["b"]);
        daemon.answer(second[0].stream, &Response::default());
        publisher.ready();
        assert!(publisher.is_idle());
    }

    #[test]
    fn event_in_flight_is_sent_again_after_the_connection_broke() {
        let mut daemon = Daemon::new();
        let mut publisher = Publisher::new(&daemon.path, "n");
        publisher.publish("/tasks/oom", "TaskOOM", &event("a"));
        publisher.publish("/tasks/oom", "TaskOOM", &event("b"));
        let stream = daemon.receive()[0].stream;
        daemon.answer(stream, &Response::default());
        publisher.ready();
        assert_eq!(daemon.receive().iter().map(id).collect::<Vec<_>>(), ["b"]);
        daemon.channel = None;
        publisher.ready();
        assert_eq!(daemon.receive().iter().map(id).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn daemon_that_closes_connections_at_once_is_not_tried_again_at_once() {
        let mut daemon = Daemon::new();
        let mut publisher = Publisher::new(&daemon.path, "n");
        publisher.publish("/tasks/oom", "TaskOOM", &event("a"));
        daemon.receive();
        daemon.channel = None;
        publisher.ready();
        assert!(publisher.polled().is_none());
        assert!(publisher.deadline().is_some());
    }

    #[test]
    fn events_wait_while_containerd_is_away_and_the_oldest_are_dropped() {
        let mut publisher = Publisher::new("/no/such/socket", "n");
        for number in 0..MOST_WAITING + 2 {
            publisher.publish("/tasks/oom", "TaskOOM", &event(&number.to_string()));
        }
        assert_eq!(publisher.waiting.len(), MOST_WAITING);
        assert!(publisher.deadline().is_some());
        let first = publisher.waiting.front().unwrap().envelope.clone().unwrap().event.unwrap();
        assert_eq!(TaskOom::decode(&*first.value).unwrap().container_id, "2");
    }

    #[test]
    fn event_that_containerd_refuses_is_dropped_in_the_end() {
        let mut daemon = Daemon::new();
        let mut publisher = Publisher::new(&daemon.path, "n");
        publisher.publish("/tasks/oom", "TaskOOM", &event("a"));
        let refused =
            Response { status: Some(Status { code: 2, message: String::new() }), payload: Vec::new() };
        for _ in 0..=MOST_REFUSALS {
            let stream = daemon.receive()[0].stream;
            daemon.answer(stream, &refused);
            publisher.ready();
            publisher.retry_at = None;
            publisher.advance();
        }
        assert!(publisher.is_idle());
    }
}
