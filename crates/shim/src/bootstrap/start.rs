//! `start`: starts the daemon, unless another container of the pod has one, and prints its address.
//!
//! containerd executes it in the container's bundle. The input is empty or options up to containerd 2.2, and
//! `BootstrapParams` since. The answer's format follows: an address (1.6), JSON (1.7 to 2.2), or a protocol buffer.

use crate::bootstrap::options::options_of;
use crate::bootstrap::socket::{self, DIRECTORY, Socket};
use crate::flags::Flags;
use crate::wire::Any;
use crate::wire::options::{BootstrapParams, BootstrapResult, Options};
use husk_runtime::tolerate;
use husk_spawn::{Command, Stdio};
use prost::Message as _;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{getpid, getppid};
use rustix::thread::{CoreSchedulingScope, create_core_scheduling_cookie};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The most bytes of input that are read.
const MOST_INPUT: u64 = 10 << 20;
/// The highest `oom_score_adj`.
const HIGHEST_SCORE: i32 = 1000;
/// The annotations that name a container's group, in this order.
const GROUPS: [&str; 2] = ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"];

/// The variable with the address of containerd's ttrpc socket.
pub(crate) const TTRPC_ADDRESS: &str = "TTRPC_ADDRESS";

/// The file in the bundle with the socket's address. containerd 1.6 reads it after a restart, and `delete` does.
pub(super) const ADDRESS: &str = "address";

/// The format of the answer.
enum Format {
    Address,
    Json,
    Protobuf,
}

/// The request of containerd.
struct Told {
    options: Options,
    directory: PathBuf,
    address: String,
    /// The address of containerd's ttrpc socket.
    ttrpc_address: String,
    format: Format,
}

pub(crate) fn start(flags: &Flags) -> Result<(), String> {
    let mut input = Vec::new();
    let read = io::stdin().take(MOST_INPUT).read_to_end(&mut input);
    read.map_err(|error| format!("read stdin: {error}"))?;
    let told = told(flags, &input)?;
    let path = socket_of(Path::new("."), &told.directory, &told.address, flags)?;
    let address = format!("unix://{}", path.display());
    fs::write(ADDRESS, &address).map_err(|error| format!("write {ADDRESS}: {error}"))?;
    let claimed = socket::claim(&path).map_err(|error| format!("listen on {}: {error}", path.display()))?;
    if let Socket::New(listener) = claimed {
        start_daemon(flags, &told, listener).inspect_err(|_| {
            tolerate(fs::remove_file(&path), "the next shim of the group replaces it");
        })?;
    }
    print(&told.format, &address)
}

/// Returns the path of the socket of a container's group.
pub(super) fn socket_of(
    bundle: &Path,
    directory: &Path,
    address: &str,
    flags: &Flags,
) -> Result<PathBuf, String> {
    #[derive(Deserialize)]
    struct Spec {
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    let path = bundle.join("config.json");
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = fs::read(&path).map_err(|error| failed(&error))?;
    let Spec { annotations } = serde_json::from_slice(&bytes).map_err(|error| failed(&error))?;
    let group = GROUPS.iter().find_map(|group| annotations.get(*group)).unwrap_or(&flags.id);
    Ok(socket::path(directory, address, &flags.namespace, group))
}

fn told(flags: &Flags, input: &[u8]) -> Result<Told, String> {
    let params = BootstrapParams::decode(input).ok().filter(|params| {
        // Options decode as parameters, too, but do not name this container.
        !params.instance_id.is_empty()
            && params.instance_id == flags.id
            && params.namespace == flags.namespace
    });
    let options = |any: Option<&Any>| options_of(any).map_err(|failure| failure.message);
    match params {
        Some(params) => {
            // An extension of another type is not for this shim.
            let mut extensions = params.extensions.iter().filter_map(|extension| extension.value.as_ref());
            let any = extensions.find(|any| any.type_url.ends_with("Options"));
            let directory = if params.socket_dir.is_empty() { DIRECTORY } else { &*params.socket_dir }.into();
            let options = options(any)?;
            let (address, ttrpc_address) = (params.containerd_grpc_address, params.containerd_ttrpc_address);
            Ok(Told { options, directory, address, ttrpc_address, format: Format::Protobuf })
        }
        None => {
            let any = if input.is_empty() { None } else { Any::decode(input).ok() };
            let format =
                if env::var_os("MAX_SHIM_VERSION").is_some() { Format::Json } else { Format::Address };
            let options = options(any.as_ref())?;
            let (address, ttrpc_address) = (flags.address.clone(), flags.ttrpc_address.clone());
            Ok(Told { options, directory: DIRECTORY.into(), address, ttrpc_address, format })
        }
    }
}

/// Starts the daemon from a copy of this program that no container can write.
fn start_daemon(flags: &Flags, told: &Told, listener: UnixListener) -> Result<(), String> {
    let program = husk_runtime::sealed_program().map_err(|error| error.to_string())?;
    // The daemon's socket gets the number 3.
    let program =
        fcntl_dupfd_cloexec(program, 4).map_err(|errno| format!("duplicate the program: {errno}"))?;
    adjust_oom_score()?;
    if env::var_os("SCHED_CORE").is_some_and(|value| !value.is_empty()) {
        // The daemon and all its containers inherit the cookie, and share cores with nobody else.
        create_core_scheduling_cookie(getpid(), CoreSchedulingScope::ProcessGroup)
            .map_err(|errno| format!("enable sched core support: {errno}"))?;
    }
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command
        .arg0(crate::PROGRAM)
        .args(flags.of_daemon())
        .env(TTRPC_ADDRESS, &told.ttrpc_address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .fd(3, listener);
    let child = command.spawn_and_exec().map_err(|error| format!("start the shim: {error}"))?;
    let pid = child.id();
    child.let_go();
    let cgroup = &told.options.shim_cgroup;
    if cgroup.is_empty() { Ok(()) } else { join_cgroup(cgroup, pid) }
}

/// Has the OOM killer prefer the shim to containerd. The daemon inherits the score.
fn adjust_oom_score() -> Result<(), String> {
    let Some(parent) = getppid() else { return Ok(()) };
    let score = |name: &str| {
        let path = format!("/proc/{name}/oom_score_adj");
        let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        text.trim().parse::<i32>().map_err(|error| format!("{path}: {error}"))
    };
    let wanted = (score(&parent.as_raw_pid().to_string())? + 1).min(HIGHEST_SCORE);
    if score("self")? == wanted {
        return Ok(());
    }
    match fs::write("/proc/self/oom_score_adj", wanted.to_string()) {
        // Only a privileged process may lower it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        written => written.map_err(|error| format!("failed to adjust OOM score for shim: {error}")),
    }
}

/// Moves the daemon into a cgroup, which must exist.
fn join_cgroup(path: &str, pid: u32) -> Result<(), String> {
    const MOUNT: &str = "/sys/fs/cgroup";
    let relative = path.trim_start_matches('/');
    let join = |hierarchy: &Path| {
        let file = hierarchy.join(relative).join("cgroup.procs");
        fs::write(&file, pid.to_string())
            .map_err(|error| format!("failed to join cgroup {}: {error}", file.display()))
    };
    let mount = Path::new(MOUNT);
    if mount.join("cgroup.controllers").exists() {
        return join(mount);
    }
    let entries = fs::read_dir(mount).map_err(|error| format!("{MOUNT}: {error}"))?;
    let hierarchies = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut joined = false;
    for hierarchy in hierarchies.filter(|hierarchy| hierarchy.join(relative).is_dir()) {
        join(&hierarchy)?;
        joined = true;
    }
    if joined { Ok(()) } else { Err(format!("failed to load cgroup {path}: it does not exist")) }
}

fn print(format: &Format, address: &str) -> Result<(), String> {
    let result =
        |version| BootstrapResult { version, address: address.to_owned(), protocol: "ttrpc".to_owned() };
    let bytes = match format {
        Format::Address => address.as_bytes().to_vec(),
        // containerd 1.7 supports no later version than 2, and says so to 2.2, too.
        Format::Json => serde_json::to_vec(&result(2)).map_err(|error| error.to_string())?,
        Format::Protobuf => result(3).encode_to_vec(),
    };
    crate::print(&bytes)
}

#[cfg(test)]
mod tests {
    use super::{Format, socket_of, told};
    use crate::flags::Flags;
    use crate::wire::Any;
    use crate::wire::options::{BootstrapParams, Extension, Options};
    use prost::Message as _;
    use std::fs;
    use std::path::Path;

    fn flags() -> Flags {
        Flags { id: "c".to_owned(), namespace: "n".to_owned(), ..Flags::default() }
    }

    fn any() -> Any {
        Any::new(Options::TYPE, &Options { shim_cgroup: "/shims".to_owned(), ..Options::default() })
    }

    #[test]
    fn input_is_options_or_parameters() {
        let old = told(&flags(), &any().encode_to_vec()).unwrap();
        assert_eq!(old.options.shim_cgroup, "/shims");
        assert!(!matches!(old.format, Format::Protobuf));
        let other = Any { type_url: "another.Extension".to_owned(), value: vec![0xff] };
        let params = BootstrapParams {
            instance_id: "c".to_owned(),
            namespace: "n".to_owned(),
            containerd_grpc_address: "/c.sock".to_owned(),
            containerd_ttrpc_address: "/t.sock".to_owned(),
            socket_dir: "/s".to_owned(),
            extensions: vec![Extension { value: Some(other) }, Extension { value: Some(any()) }],
        };
        let new = told(&flags(), &params.encode_to_vec()).unwrap();
        assert_eq!((&*new.options.shim_cgroup, &*new.address), ("/shims", "/c.sock"));
        assert_eq!(new.ttrpc_address, "/t.sock");
        assert_eq!(new.directory, Path::new("/s"));
        assert!(matches!(new.format, Format::Protobuf));
        assert!(told(&flags(), &[]).is_ok());
    }

    #[test]
    fn containers_of_a_pod_share_a_socket() {
        let bundle = |annotations: &str| {
            let directory = tempfile::tempdir().unwrap();
            let text = format!("{{\"annotations\":{{{annotations}}}}}");
            fs::write(directory.path().join("config.json"), text).unwrap();
            socket_of(directory.path(), Path::new("/s"), "/c.sock", &flags()).unwrap()
        };
        let pod = bundle("\"io.kubernetes.cri.sandbox-id\":\"p\"");
        assert_eq!(
            pod,
            bundle("\"io.containerd.runc.v2.group\":\"p\",\"io.kubernetes.cri.sandbox-id\":\"q\"")
        );
        assert_ne!(pod, bundle(""));
        assert_eq!(bundle(""), bundle("\"io.kubernetes.cri.sandbox-id\":\"c\""));
    }
}
