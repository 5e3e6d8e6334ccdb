//! A client of the shim, as containerd is one. It blocks, and gives up on a shim that does not answer.

use crate::engine::{Bundle, PATIENCE};
use crate::wire::task::{
    ConnectResponse, CreateRequest, DeleteResponse, ExecRequest, KillRequest, PidResponse, ProcessRequest,
    StateResponse, WaitResponse,
};
use crate::wire::ttrpc::{Request, Response};
use crate::wire::{Any, Empty};
use prost::Message;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The names of the task service in its two versions.
pub(crate) const SERVICES: [&str; 2] = ["containerd.task.v2.Task", "containerd.task.v3.Task"];

// The codes of errors, as gRPC numbers them.
pub(crate) const INVALID_ARGUMENT: i32 = 3;
pub(crate) const NOT_FOUND: i32 = 5;
pub(crate) const ALREADY_EXISTS: i32 = 6;
pub(crate) const FAILED_PRECONDITION: i32 = 9;
pub(crate) const UNIMPLEMENTED: i32 = 12;

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) message: String,
}

/// The client's names for the streams of a process. An empty one is not connected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams {
    pub(crate) stdin: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) terminal: bool,
}

impl Streams {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn to(stdout: impl Into<String>) -> Self {
        Self { stdout: stdout.into(), ..Self::default() }
    }

    pub(crate) fn with_input(self, stdin: impl Into<String>) -> Self {
        Self { stdin: stdin.into(), ..self }
    }

    pub(crate) fn with_errors(self, stderr: impl Into<String>) -> Self {
        Self { stderr: stderr.into(), ..self }
    }

    pub(crate) fn at_terminal(self) -> Self {
        Self { terminal: true, ..self }
    }
}

pub(crate) struct Client {
    socket: UnixStream,
    last: u32,
    /// The answers to calls that were not asked for yet.
    arrived: BTreeMap<u32, Response>,
    pub(crate) service: &'static str,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        let socket = UnixStream::connect(path).expect("the shim listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self { socket, last: u32::MAX, arrived: BTreeMap::new(), service: SERVICES[0] }
    }

    /// Sends bytes that may not be a message.
    pub(crate) fn send_raw(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.socket).write_all(bytes)
    }

    /// Sends a request with any content. Returns its stream.
    pub(crate) fn send(&mut self, service: &str, method: &str, payload: Vec<u8>) -> io::Result<u32> {
        let request =
            Request { service: service.to_owned(), method: method.to_owned(), payload, ..Request::default() };
        // Streams of clients are odd.
        self.last = self.last.wrapping_add(2);
        self.send_raw(&frame(self.last, &request.encode_to_vec()))?;
        Ok(self.last)
    }

    /// Makes a call without waiting for its answer.
    pub(crate) fn begin(&mut self, method: &str, request: &impl Message) -> u32 {
        self.send(self.service, method, request.encode_to_vec()).expect("a connection")
    }

    /// Waits for the answer to a call.
    pub(crate) fn answer<M: Message + Default>(&mut self, stream: u32) -> Result<M, Refusal> {
        let response = loop {
            if let Some(response) = self.arrived.remove(&stream) {
                break response;
            }
            let (stream, response) = self.receive().expect("an answer");
            assert!(self.arrived.insert(stream, response).is_none(), "a second answer to stream {stream}");
        };
        match response.status.filter(|status| status.code != 0) {
            Some(status) => Err(Refusal { code: status.code, message: status.message }),
            None => Ok(M::decode(&*response.payload).expect("a message of the answer's type")),
        }
    }

    fn receive(&mut self) -> io::Result<(u32, Response)> {
        let mut header = [0; 10];
        self.socket.read_exact(&mut header)?;
        let [a, b, c, d, e, f, g, h, kind, _] = header;
        assert_eq!(kind, 2, "the shim sends responses only");
        let mut payload = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
        self.socket.read_exact(&mut payload)?;
        let response = Response::decode(&*payload).expect("a response");
        Ok((u32::from_be_bytes([e, f, g, h]), response))
    }

    pub(crate) fn call<M: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
    ) -> Result<M, Refusal> {
        let stream = self.begin(method, request);
        self.answer(stream)
    }

    /// Makes a call that is refused. Returns the code.
    #[track_caller]
    pub(crate) fn refused(&mut self, method: &str, request: &impl Message) -> i32 {
        self.call::<Empty>(method, request).expect_err("an error").code
    }

    /// Reads until the shim closes the connection.
    pub(crate) fn until_closed(mut self) {
        let mut room = [0; 4096];
        loop {
            match self.socket.read(&mut room) {
                Ok(0) => return,
                Ok(_) => {}
                // Unread input remains in the shim.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("the connection stays open: {error}"),
            }
        }
    }
}

/// Returns a request as it is sent.
pub(crate) fn frame(stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a length").to_be_bytes();
    [&length[..], &stream.to_be_bytes(), &[1, 0], payload].concat()
}

/// Names a process. `exec` is empty for a container's first one.
pub(crate) fn named(id: &str, exec: &str) -> ProcessRequest {
    ProcessRequest { id: id.to_owned(), exec_id: exec.to_owned() }
}

/// Returns a container's process that runs these words in the program of the tests.
pub(crate) fn process(words: &str) -> Value {
    let args: Vec<_> = std::iter::once("/inside").chain(words.split_whitespace()).collect();
    json!({ "user": { "uid": 0, "gid": 0 }, "args": args, "cwd": "/", "noNewPrivileges": true })
}

/// Returns a request of `Exec`.
pub(crate) fn exec_of(id: &str, exec: &str, words: &str, streams: Streams) -> ExecRequest {
    let spec = Any {
        type_url: "types.containerd.io/opencontainers/runtime-spec/1/Process".to_owned(),
        value: process(words).to_string().into_bytes(),
    };
    ExecRequest {
        id: id.to_owned(),
        exec_id: exec.to_owned(),
        terminal: streams.terminal,
        stdin: streams.stdin,
        stdout: streams.stdout,
        stderr: streams.stderr,
        spec: Some(spec),
    }
}

/// The calls that most tests make. Each must succeed unless a result is returned.
impl Client {
    #[track_caller]
    pub(crate) fn create(&mut self, bundle: &Bundle, streams: Streams) -> u32 {
        self.try_create(&bundle.request(streams)).expect("a container")
    }

    pub(crate) fn try_create(&mut self, request: &CreateRequest) -> Result<u32, Refusal> {
        self.call::<PidResponse>("Create", request).map(|response| response.pid)
    }

    #[track_caller]
    pub(crate) fn start(&mut self, id: &str, exec: &str) -> u32 {
        self.call::<PidResponse>("Start", &named(id, exec)).expect("a process").pid
    }

    #[track_caller]
    pub(crate) fn exec(&mut self, id: &str, exec: &str, words: &str, streams: Streams) {
        self.call::<Empty>("Exec", &exec_of(id, exec, words, streams)).expect("an exec");
    }

    /// Waits for the end of a process. Returns its status.
    #[track_caller]
    pub(crate) fn wait(&mut self, id: &str, exec: &str) -> u32 {
        let response: WaitResponse = self.call("Wait", &named(id, exec)).expect("an end");
        assert!(response.exited_at.is_some_and(|time| time.seconds > 0), "the end has a time");
        response.exit_status
    }

    #[track_caller]
    pub(crate) fn delete(&mut self, id: &str, exec: &str) -> DeleteResponse {
        self.call("Delete", &named(id, exec)).expect("an end")
    }

    pub(crate) fn try_kill(&mut self, id: &str, exec: &str, signal: u32) -> Result<Empty, Refusal> {
        let request = KillRequest { id: id.to_owned(), exec_id: exec.to_owned(), signal, all: false };
        self.call("Kill", &request)
    }

    #[track_caller]
    pub(crate) fn kill(&mut self, id: &str, exec: &str) {
        self.try_kill(id, exec, 9).expect("a process that runs");
    }

    #[track_caller]
    pub(crate) fn state(&mut self, id: &str, exec: &str) -> StateResponse {
        self.call("State", &named(id, exec)).expect("a state")
    }

    #[track_caller]
    pub(crate) fn close_input(&mut self, id: &str, exec: &str) {
        self.call::<Empty>("CloseIO", &named(id, exec)).expect("a process");
    }

    pub(crate) fn shim_pid(&mut self) -> u32 {
        self.call::<ConnectResponse>("Connect", &named("", "")).expect("the shim").shim_pid
    }

    #[track_caller]
    pub(crate) fn shutdown(&mut self) {
        self.call::<Empty>("Shutdown", &named("", "")).expect("an answer before the end");
    }
}
