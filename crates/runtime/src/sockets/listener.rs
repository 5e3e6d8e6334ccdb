//! Fetches the seccomp listener from the child and sends it to the seccomp agent.
//!
//! config-linux.md, "The Container Process State", defines the message.

use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::sockets::patient::PeerSocket;
use crate::store::record::Record;
use husk_bundle::Container;
use husk_bundle::container::NamespaceKind;
use husk_plan::hooks::OCI_VERSION;
use husk_script::sys::Errno;
use husk_script::sys::process::{Dumpable, prctl_get_dumpable, prctl_set_dumpable};
use husk_spawn::{Child, Reason};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The message to the agent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerProcessState<'a> {
    oci_version: &'a str,
    /// The names of the descriptors that are sent with the message.
    fds: [&'a str; 1],
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a str>,
    state: ListenerState<'a>,
}

/// The container's state, as the specification defines it (runtime.md, "State").
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListenerState<'a> {
    oci_version: &'a str,
    id: &'a str,
    status: &'a str,
    pid: u32,
    bundle: &'a Path,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

/// Fetches the listener that the child has just announced, and sends it to the agent.
pub(crate) fn hand_over(
    child: &mut Child,
    container: &Container,
    record: &Record,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    let agent = container.seccomp_listener.as_ref();
    let agent = agent.ok_or(Error::State("seccomp listenerPath is not set"))?;
    let listener = fetch(child, container)?;
    let pid = child.id();
    let state = ContainerProcessState {
        oci_version: OCI_VERSION,
        fds: ["seccompFd"],
        pid,
        metadata: agent.metadata.as_deref(),
        state: ListenerState {
            oci_version: OCI_VERSION,
            id: &record.id,
            status: "creating",
            pid,
            bundle: &record.bundle,
            annotations: &record.annotations,
        },
    };
    let state = serde_json::to_vec(&state).map_err(Error::Record)?;
    let act = "linux.seccomp.listenerPath: failed to connect with seccomp agent at";
    let socket = PeerSocket::connect(act, &agent.path, interrupt)?;
    socket.send("linux.seccomp.listenerPath: send to", &state, &listener, interrupt)
}

fn fetch(child: &mut Child, container: &Container) -> Result<OwnedFd, Error> {
    let mut namespaces = container.namespaces.iter();
    let has_new_users =
        namespaces.any(|namespace| namespace.kind == NamespaceKind::User && namespace.path.is_none());
    match child.requested_fd() {
        // A child that changes its user makes its memory undumpable, and it shares that memory with husk. An
        // unprivileged caller cannot fetch a descriptor from such a process, even its own child. So the memory is
        // made dumpable for this one call. A new user namespace does not contain other processes yet. In an existing
        // one, a process could trace the child meanwhile.
        Err(error) if error.reason() == Reason::Errno(Errno::PERM) && has_new_users => {
            let failed = |errno| Error::kernel("fetch the seccomp listener", errno);
            let before = prctl_get_dumpable().map_err(failed)?;
            prctl_set_dumpable(Dumpable::Yes).map_err(failed)?;
            let fetched = child.requested_fd();
            if before != Dumpable::Yes {
                prctl_set_dumpable(Dumpable::No).map_err(failed)?;
            }
            Ok(fetched?)
        }
        fetched => Ok(fetched?),
    }
}
