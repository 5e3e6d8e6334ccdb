//! What the child asks of us on its way.

use crate::error::Error;
use crate::listener;
use crate::net_devices;
use crate::record::Record;
use husk_bundle::Container;
use husk_spawn::{Child, Request};

/// Whether a child has come to where it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It has, and waits for an answer to that.
    Ready,
    /// It failed before; its wait says at what.
    Failed,
}

/// Does what the child asks for until all is done that it needs us for.
///
/// # Errors
///
/// If something cannot be done. The child still waits for the answer.
pub(crate) fn serve(child: &mut Child, container: &Container, record: &Record) -> Result<Arrival, Error> {
    loop {
        match child.next_request()? {
            Some(Request::Parked) => return Ok(Arrival::Ready),
            None => return Ok(Arrival::Failed),
            Some(Request::Listener) => listener::hand_over(child, container, record)?,
            Some(Request::NetDevices) => net_devices::hand_over(child, &container.net_devices)?,
            // Answered by whoever made the child.
            Some(Request::IdMaps) => {
                return Err(Error::State("the container's process asks for what it has"));
            }
        }
        child.go_on()?;
    }
}
