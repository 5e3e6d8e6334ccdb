//! Plays containerd's events service, and records what the shim tells it.

use crate::engine::PATIENCE;
use crate::wire::events::{Envelope, ForwardRequest, TaskExit};
use crate::wire::ttrpc::{Request, Response};
use prost::Message;
use rustix::net::{Shutdown, shutdown};
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// The events of a container's whole life, without what is between them.
pub(crate) const LIFE: [&str; 4] = ["create", "start", "exit", "delete"];

pub(crate) struct Events {
    path: PathBuf,
    sender: Sender<Envelope>,
    receiver: Receiver<Envelope>,
    service: Option<Service>,
}

/// A service that listens.
struct Service {
    listener: UnixListener,
    connections: Arc<Mutex<Vec<UnixStream>>>,
    thread: JoinHandle<()>,
}

impl Events {
    pub(crate) fn new(path: &Path) -> Self {
        let (sender, receiver) = channel();
        let mut events = Self { path: path.to_owned(), sender, receiver, service: None };
        events.revive();
        events
    }

    /// Begins to listen.
    pub(crate) fn revive(&mut self) {
        let listener = UnixListener::bind(&self.path).expect("a socket");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let (accepting, kept) = (listener.try_clone().expect("a socket"), Arc::clone(&connections));
        let sender = self.sender.clone();
        let thread = thread::spawn(move || {
            // It ends when the listener or a connection is shut down. There is one shim, and so one connection.
            while let Ok((connection, _)) = accepting.accept() {
                kept.lock().expect("connections").push(connection.try_clone().expect("a socket"));
                serve(&connection, &sender);
            }
        });
        self.service = Some(Service { listener, connections, thread });
    }

    /// Ends the service and removes its socket.
    pub(crate) fn die(&mut self) {
        let Some(service) = self.service.take() else { return };
        fs::remove_file(&self.path).expect("the socket");
        shutdown(&service.listener, Shutdown::Both).expect("a listener");
        for connection in &*service.connections.lock().expect("connections") {
            // Tolerated: the shim may have closed it.
            let _closed = connection.shutdown(std::net::Shutdown::Both).is_err();
        }
        service.thread.join().expect("the service");
    }

    /// Waits for the next event.
    #[track_caller]
    pub(crate) fn next(&self) -> Event {
        let envelope = self.receiver.recv_timeout(PATIENCE).expect("an event");
        assert_eq!(envelope.namespace, "tests");
        assert!(envelope.timestamp.is_some_and(|time| time.seconds > 0), "an event has a time");
        let any = envelope.event.expect("an event");
        Event { topic: envelope.topic, name: any.type_url, bytes: any.value }
    }

    /// Waits for events of these topics, in this order. Returns them.
    #[track_caller]
    pub(crate) fn expect(&self, topics: &[&str]) -> Vec<Event> {
        topics
            .iter()
            .map(|topic| {
                let event = self.next();
                assert_eq!(event.topic, format!("/tasks/{topic}"));
                event
            })
            .collect()
    }

    /// Whether every event was looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.receiver.try_recv().is_err()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.die();
    }
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) topic: String,
    name: String,
    bytes: Vec<u8>,
}

impl Event {
    /// Returns the message, which has this name.
    #[track_caller]
    pub(crate) fn message<M: Message + Default>(&self, name: &str) -> M {
        assert_eq!(self.name, format!("containerd.events.{name}"));
        M::decode(&*self.bytes).expect("a message of the event's type")
    }

    /// Returns the process that has ended, and its status.
    #[track_caller]
    pub(crate) fn exit(&self) -> (String, u32) {
        let exit: TaskExit = self.message("TaskExit");
        (exit.id, exit.exit_status)
    }
}

/// Answers the events of a connection until it is closed.
fn serve(connection: &UnixStream, sender: &Sender<Envelope>) {
    let mut connection = connection;
    let mut header = [0; 10];
    while connection.read_exact(&mut header).is_ok() {
        let [a, b, c, d, stream @ .., kind, _] = header;
        assert_eq!(kind, 1, "the shim sends requests only");
        let mut payload = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
        if connection.read_exact(&mut payload).is_err() {
            return;
        }
        let request = Request::decode(&*payload).expect("a request");
        assert_eq!(request.service, "containerd.services.events.ttrpc.v1.Events");
        assert_eq!(request.method, "Forward");
        let namespace = request.metadata.iter().find(|pair| pair.key == "containerd-namespace-ttrpc");
        assert_eq!(namespace.map(|pair| &*pair.value), Some("tests"));
        let forwarded = ForwardRequest::decode(&*request.payload).expect("an event");
        let response = Response::default().encode_to_vec();
        let length = u32::try_from(response.len()).expect("a length").to_be_bytes();
        if connection.write_all(&[&length[..], &stream, &[2, 0], &response].concat()).is_err() {
            return;
        }
        // The shim repeats an event without an answer, so one that was not answered is not recorded.
        if sender.send(forwarded.envelope.expect("an envelope")).is_err() {
            return;
        }
    }
}
