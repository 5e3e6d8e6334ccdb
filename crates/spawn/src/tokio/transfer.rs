//! Writes a process's input and reads its output at the same time.

use crate::Error;
use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::net::unix::pipe::{Receiver, Sender};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The most bytes that are read at once.
const CHUNK: usize = 16 << 10;

/// Writes all input and reads both outputs to their ends.
pub(super) async fn transfer(
    mut stdin: Option<Sender>,
    mut input: &[u8],
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
) -> Result<(Vec<u8>, Vec<u8>), Error> {
    let mut from = [stdout, stderr];
    let mut captured = [Vec::new(), Vec::new()];
    poll_fn(|context| {
        if let Poll::Ready(result) = write(&mut stdin, &mut input, context) {
            stdin = None;
            result.map_err(|error| Error::from_io("write", &error))?;
        }
        for (end, captured) in from.iter_mut().zip(&mut captured) {
            if let Poll::Ready(result) = read(end, captured, context) {
                *end = None;
                result.map_err(|error| Error::from_io("read", &error))?;
            }
        }
        let is_done = stdin.is_none() && from.iter().all(Option::is_none);
        if is_done { Poll::Ready(Ok::<(), Error>(())) } else { Poll::Pending }
    })
    .await?;
    let [stdout, stderr] = captured;
    Ok((stdout, stderr))
}

/// Writes as much as the pipe takes. Ready when all is written, or the program wants no more.
fn write(to: &mut Option<Sender>, input: &mut &[u8], context: &mut Context<'_>) -> Poll<io::Result<()>> {
    let Some(to) = to else { return Poll::Ready(Ok(())) };
    while !input.is_empty() {
        match Pin::new(&mut *to).poll_write(context, input) {
            Poll::Ready(Ok(written)) => *input = &input[written..],
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::BrokenPipe => break,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(()))
}

/// Reads what the pipe has. Ready at its end.
fn read(
    from: &mut Option<Receiver>,
    captured: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let Some(from) = from else { return Poll::Ready(Ok(())) };
    let mut space = [const { MaybeUninit::uninit() }; CHUNK];
    loop {
        let mut buffer = ReadBuf::uninit(&mut space);
        match Pin::new(&mut *from).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => return Poll::Ready(Ok(())),
            Poll::Ready(Ok(())) => captured.extend_from_slice(buffer.filled()),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
}
