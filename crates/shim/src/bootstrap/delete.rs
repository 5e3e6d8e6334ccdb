//! `delete`: removes what is left of a container whose shim has been killed.

use crate::bootstrap::options::{kept_options, state_directory};
use crate::bootstrap::socket::{DIRECTORY, remove_dead};
use crate::bootstrap::start::{ADDRESS, socket_of};
use crate::flags::Flags;
use crate::verbs::{Verb, VerbRequest, carry_out};
use crate::wire::Timestamp;
use crate::wire::task::DeleteResponse;
use husk_runtime::{Signal, Store, tolerate};
use prost::Message as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

pub(crate) fn delete(flags: &Flags) -> Result<(), String> {
    let bundle = if flags.bundle.is_empty() { PathBuf::from(".") } else { PathBuf::from(&flags.bundle) };
    let bundle = std::path::absolute(&bundle).map_err(|error| format!("{}: {error}", bundle.display()))?;
    let options = kept_options(&bundle);
    let root = state_directory(&options, &flags.namespace);
    // Tolerated: the container may not have been created.
    let pid = husk_runtime::state(&Store::new(root.clone()), &flags.id).map_or(0, |state| state.pid);
    let verb = Verb::Delete { id: flags.id.clone(), force: true, rootfs: Some(bundle.join("rootfs")) };
    let outcome = carry_out(VerbRequest { root, systemd_cgroup: options.systemd_cgroup, verb });
    let failure = outcome.result.err().map(|failure| failure.message);
    // containerd logs this as a warning.
    for text in outcome.warnings.into_iter().chain(failure) {
        tolerate(writeln!(io::stderr(), "{text}"), "there is nowhere else to report it");
    }
    remove_socket(&bundle, flags);
    let response = DeleteResponse {
        pid: pid.unsigned_abs(),
        exit_status: 128 + Signal::KILL.number().unsigned_abs(),
        exited_at: Some(Timestamp::now()),
    };
    crate::print(&response.encode_to_vec())
}

/// Removes the socket of the shim that was killed, unless another container's shim has taken it.
fn remove_socket(bundle: &Path, flags: &Flags) {
    // Only the kept address tells the directory if containerd has chosen one.
    let kept = fs::read_to_string(bundle.join(ADDRESS)).unwrap_or_default();
    let path = match kept.strip_prefix("unix://") {
        Some(path) => Ok(PathBuf::from(path)),
        None => socket_of(bundle, Path::new(DIRECTORY), &flags.address, flags),
    };
    // Tolerated: without config.json the shim never had a socket.
    let Ok(path) = path else { return };
    tolerate(remove_dead(&path), "the next shim of the group replaces it");
}
