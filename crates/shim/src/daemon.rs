//! The shim's loop: one thread for all containers of a pod.

use crate::failure::Failure;
use crate::flags::Flags;
use crate::log::Log;
use crate::poll::{Poller, Source};
use crate::rpc::Call;
use crate::rpc::channel::{Channel, Kind};
use crate::rpc::publisher::Publisher;
use crate::service::Served;
use crate::service::jobs::Job;
use crate::service::task::{Exit, Key, Task};
use crate::streams::pump::{Pump, Waits};
use crate::wire::ttrpc::{Request, Response};
use husk_runtime::{OomWatch, tolerate};
use husk_spawn::{Signal, SignalSet, read_signalfd, signalfd};
use prost::Message as _;
use rustix::event::epoll::EventFlags;
use rustix::process::{Pid, set_child_subreaper};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// How long the shim waits for containerd to take the last events before it ends.
const LAST_EVENTS: Duration = Duration::from_secs(5);
/// How long the listener rests when a connection cannot be accepted, unless a client leaves earlier.
const REST: Duration = Duration::from_secs(1);

pub(crate) struct Daemon {
    pub(crate) flags: Flags,
    pub(crate) log: Log,
    pub(crate) poller: Poller,
    pub(crate) publisher: Publisher,
    pub(crate) tasks: BTreeMap<String, Task>,
    /// The verbs that run, by the pids of their processes.
    pub(crate) jobs: BTreeMap<u32, Job>,
    /// The processes of containers that run, by pid.
    pub(crate) pids: BTreeMap<u32, Key>,
    /// Ends of children that may turn out to be processes of containers when the verbs that run end.
    pub(crate) early: BTreeMap<u32, Exit>,
    pub(crate) pumps: BTreeMap<u32, Pump>,
    pub(crate) memory: BTreeMap<u32, (String, OomWatch)>,
    listener: UnixListener,
    /// Until when the poller does not wait for the listener.
    listener_rests: Option<Instant>,
    signals: OwnedFd,
    clients: BTreeMap<u32, Channel>,
    /// The number of the publisher's connection, and what the poller waits for there.
    publisher_polled: Option<(u32, EventFlags)>,
    last_number: Cell<u32>,
    /// Set by `Shutdown`: when to end at the latest.
    stop_at: Option<Instant>,
}

impl Daemon {
    /// Prepares to serve the clients that connect to the socket. Becomes the reaper of all processes below this one.
    pub(crate) fn new(flags: Flags, listener: UnixListener) -> io::Result<Self> {
        // Any pid enables it.
        set_child_subreaper(Some(Pid::INIT))?;
        let children = SignalSet::EMPTY.with(Signal::CHLD);
        husk_script::sys::signal::rt_sigprocmask(children).map_err(io::Error::from)?;
        let signals = signalfd(children)?;
        listener.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(&listener, Source::Listener, EventFlags::IN)?;
        poller.add(&signals, Source::Signals, EventFlags::IN)?;
        let publisher = Publisher::new(&flags.ttrpc_address, &flags.namespace);
        Ok(Self {
            flags,
            log: Log::open(),
            poller,
            publisher,
            tasks: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pids: BTreeMap::new(),
            early: BTreeMap::new(),
            pumps: BTreeMap::new(),
            memory: BTreeMap::new(),
            listener,
            listener_rests: None,
            signals,
            clients: BTreeMap::new(),
            publisher_polled: None,
            last_number: Cell::new(0),
            stop_at: None,
        })
    }

    /// Serves clients until `Shutdown`.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while !self.is_done() {
            self.poll_publisher();
            let limit = self.deadline().map(|time| time.saturating_duration_since(Instant::now()));
            for source in self.poller.wait(limit)? {
                match source {
                    Source::Listener => self.accept(),
                    Source::Signals => {
                        while read_signalfd(&self.signals).is_ok() {}
                        self.reap();
                    }
                    Source::Publisher => self.publisher.ready(),
                    Source::Client(number) => self.client_ready(number),
                    Source::Pump(number) => self.pump_ready(number),
                    Source::Memory(number) => self.memory_ready(number),
                }
            }
            self.publisher.advance();
            self.delete_waiting();
            if self.listener_rests.is_some_and(|time| time <= Instant::now()) {
                self.listen_again();
            }
        }
        Ok(())
    }

    /// Returns a number that was not used before.
    pub(crate) fn next_number(&self) -> u32 {
        self.last_number.set(self.last_number.get() + 1);
        self.last_number.get()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop_at.is_some()
    }

    /// Ends the loop once containerd has all events and every answer. Removes the socket, so that the next container of
    /// the group gets a new shim. Later it may be another shim's.
    pub(crate) fn stop(&mut self) {
        if self.is_stopping() {
            return;
        }
        self.stop_at = Some(Instant::now() + LAST_EVENTS);
        let address = self.listener.local_addr().ok();
        if let Some(path) = address.as_ref().and_then(|address| address.as_pathname()) {
            tolerate(
                fs::remove_file(path),
                "the directory may be gone, for example after containerd was removed",
            );
        }
    }

    fn is_done(&self) -> bool {
        let is_idle = || self.publisher.is_idle() && !self.clients.values().any(Channel::is_blocked);
        self.stop_at.is_some_and(|time| is_idle() || time <= Instant::now())
    }

    /// Returns when the loop must go on without an event.
    fn deadline(&self) -> Option<Instant> {
        let processes =
            self.tasks.values().flat_map(|task| task.execs.values().chain(std::iter::once(&task.first)));
        let draining = processes.filter_map(|process| process.draining.map(|(_, until)| until));
        draining.chain(self.publisher.deadline()).chain(self.stop_at).chain(self.listener_rests).min()
    }

    fn accept(&mut self) {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // There may be too many open descriptors. The listener would stay ready, so it rests.
                Err(_) => {
                    let removed = self.poller.remove(&self.listener);
                    self.listener_rests = removed.is_ok().then(|| Instant::now() + REST);
                    return;
                }
            };
            let number = self.next_number();
            let added = socket
                .set_nonblocking(true)
                .and_then(|()| self.poller.add(&socket, Source::Client(number), EventFlags::IN));
            if added.is_ok() {
                self.clients.insert(number, Channel::new(socket));
            }
        }
    }

    fn listen_again(&mut self) {
        let added = self.poller.add(&self.listener, Source::Listener, EventFlags::IN);
        self.listener_rests = added.is_err().then(|| Instant::now() + REST);
    }

    fn client_ready(&mut self, number: u32) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let was_blocked = client.is_blocked();
        let received = client.flush().and_then(|()| client.receive());
        if was_blocked && !client.is_blocked() {
            self.poll_client(number);
        }
        let Ok(frames) = received else {
            self.forget_client(number);
            return;
        };
        for frame in frames.into_iter().filter(|frame| frame.kind == Kind::Request as u8) {
            let call = Call { client: number, stream: frame.stream };
            let served = match Request::decode(&*frame.payload) {
                Ok(request) => self.serve_call(call, &request),
                Err(error) => Err(Failure::new(crate::failure::Code::InvalidArgument, error.to_string())),
            };
            self.answer(call, served);
        }
    }

    /// Answers a call, unless it is answered later or its client is gone.
    pub(crate) fn answer(&mut self, call: Call, served: Result<Served, Failure>) {
        let response = match served {
            Ok(Served::Later) => return,
            Ok(Served::Now(payload)) => Response { status: None, payload },
            Err(failure) => Response { status: Some(failure.into()), payload: Vec::new() },
        };
        let Some(client) = self.clients.get_mut(&call.client) else { return };
        let was_blocked = client.is_blocked();
        match client.send(Kind::Response, call.stream, &response) {
            Ok(()) if client.is_blocked() != was_blocked => self.poll_client(call.client),
            Ok(()) => {}
            Err(_) => self.forget_client(call.client),
        }
    }

    fn poll_client(&mut self, number: u32) {
        let Some(client) = self.clients.get(&number) else { return };
        let events = if client.is_blocked() { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        if self.poller.change(client, Source::Client(number), events).is_err() {
            self.forget_client(number);
        }
    }

    fn forget_client(&mut self, number: u32) {
        self.clients.remove(&number);
        if self.listener_rests.is_some() {
            self.listen_again();
        }
        for task in self.tasks.values_mut() {
            for process in task.execs.values_mut().chain([&mut task.first]) {
                process.waiters.retain(|call| call.client != number);
            }
        }
    }

    /// Has the poller wait for the publisher's connection, which may be a new one.
    fn poll_publisher(&mut self) {
        let Some((fd, connection, is_blocked)) = self.publisher.polled() else { return };
        let events = if is_blocked { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        let polled = match self.publisher_polled {
            Some(polled) if polled == (connection, events) => return,
            Some((polled, _)) if polled == connection => self.poller.change(fd, Source::Publisher, events),
            _ => self.poller.add(fd, Source::Publisher, events),
        };
        // Tolerated: without it the events wait for the next one.
        self.publisher_polled = polled.is_ok().then_some((connection, events));
    }

    /// Begins to copy. Returns the pump's number.
    pub(crate) fn pump(&mut self, pump: Pump) -> io::Result<u32> {
        let number = self.next_number();
        self.poller.add(pump.source(), Source::Pump(number), EventFlags::IN)?;
        self.pumps.insert(number, pump);
        Ok(number)
    }

    /// Ends a pump.
    pub(crate) fn stop_pump(&mut self, number: u32) {
        let Some(pump) = self.pumps.remove(&number) else { return };
        // Closing a descriptor does not remove it from the poller while it has duplicates, as a terminal's have. The
        // hang-up of the terminal would then keep the loop busy.
        for fd in [Some(pump.source()), pump.sink()].into_iter().flatten() {
            tolerate(self.poller.remove(fd), "the poller waits for one of them only");
        }
    }

    /// Ends the pumps of a program that has ended when all their input is copied.
    pub(crate) fn finish_pumps(&mut self, numbers: &[u32]) {
        for number in numbers {
            let Some(pump) = self.pumps.get_mut(number) else { continue };
            pump.end_when_closed();
            if pump.is_closed() {
                self.stop_pump(*number);
            }
        }
    }

    fn pump_ready(&mut self, number: u32) {
        let Some(pump) = self.pumps.get_mut(&number) else { return };
        let (was_full, was_closed) = (pump.is_full(), pump.is_closed());
        let waits = pump.turn();
        let changed = match (was_full, &waits) {
            (_, Waits::Ended) => Err(io::ErrorKind::UnexpectedEof.into()),
            (false, Waits::Room) => self.poller.remove(pump.source()).and_then(|()| {
                pump.sink()
                    .map_or(Ok(()), |sink| self.poller.add(sink, Source::Pump(number), EventFlags::OUT))
            }),
            (true, Waits::Input) => pump
                .sink()
                .map_or(Ok(()), |sink| self.poller.remove(sink))
                .and_then(|()| self.poller.add(pump.source(), Source::Pump(number), EventFlags::IN)),
            // Only a change is reported from here on.
            (false, Waits::Opened) if !was_closed => {
                self.poller.change(pump.source(), Source::Pump(number), EventFlags::IN | EventFlags::ET)
            }
            (false, Waits::Input) if was_closed => {
                self.poller.change(pump.source(), Source::Pump(number), EventFlags::IN)
            }
            _ => Ok(()),
        };
        if changed.is_err() {
            self.stop_pump(number);
        }
    }
}
