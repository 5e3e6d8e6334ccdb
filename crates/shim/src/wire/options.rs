//! The shim's options, and the messages that containerd and the shim exchange when it starts.
//!
//! Sources: api/types/runc/options/oci.proto, api/types/runtimeoptions/v1/api.proto, api/runtime/bootstrap/v1 (since
//! containerd 2.3) and api/types/introspection.proto.

use crate::wire::Any;
use prost::Message;
use serde::{Deserialize, Serialize};

/// `containerd.runc.v1.Options`. In TOML, as in containerd's own configuration, the keys are in Pascal case.
#[derive(Clone, PartialEq, Eq, Message, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Options {
    #[prost(bool, tag = "1")]
    pub(crate) no_pivot_root: bool,
    #[prost(bool, tag = "2")]
    pub(crate) no_new_keyring: bool,
    /// The cgroup for the shim itself.
    #[prost(string, tag = "3")]
    pub(crate) shim_cgroup: String,
    /// The owner of the container's streams, for a container with a user namespace.
    #[prost(uint32, tag = "4")]
    pub(crate) io_uid: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) io_gid: u32,
    /// The program that the shim for runc would call. This shim calls none.
    #[prost(string, tag = "6")]
    pub(crate) binary_name: String,
    /// The directory for the state of containers. Each namespace of containerd has a directory below it.
    #[prost(string, tag = "7")]
    pub(crate) root: String,
    #[prost(string, tag = "8")]
    pub(crate) criu_path: String,
    #[prost(bool, tag = "9")]
    pub(crate) systemd_cgroup: bool,
    #[prost(string, tag = "10")]
    pub(crate) criu_image_path: String,
    #[prost(string, tag = "11")]
    pub(crate) criu_work_path: String,
}

impl Options {
    pub(crate) const TYPE: &str = "containerd.runc.v1.Options";
}

/// `containerd.linux.runc.CreateOptions`, which clients of containerd 1.x send to a shim that is not runc's, for example
/// `ctr run --uidmap` (runtime/linux/runctypes/runc.proto).
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct OldOptions {
    #[prost(bool, tag = "1")]
    pub(crate) no_pivot_root: bool,
    #[prost(bool, tag = "8")]
    pub(crate) no_new_keyring: bool,
    #[prost(string, tag = "9")]
    pub(crate) shim_cgroup: String,
    #[prost(uint32, tag = "10")]
    pub(crate) io_uid: u32,
    #[prost(uint32, tag = "11")]
    pub(crate) io_gid: u32,
    #[prost(string, tag = "12")]
    pub(crate) criu_work_path: String,
    #[prost(string, tag = "13")]
    pub(crate) criu_image_path: String,
}

impl OldOptions {
    pub(crate) const TYPE: &str = "containerd.linux.runc.CreateOptions";
}

impl From<OldOptions> for Options {
    fn from(old: OldOptions) -> Self {
        let OldOptions {
            no_pivot_root,
            no_new_keyring,
            shim_cgroup,
            io_uid,
            io_gid,
            criu_work_path,
            criu_image_path,
        } = old;
        Self {
            no_pivot_root,
            no_new_keyring,
            shim_cgroup,
            io_uid,
            io_gid,
            criu_work_path,
            criu_image_path,
            ..Self::default()
        }
    }
}

/// `runtimeoptions.v1.Options`, which Kubernetes' interface sends to a runtime that it does not know: the options are
/// TOML text, or a file of it.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct TextOptions {
    #[prost(string, tag = "2")]
    pub(crate) config_path: String,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) config_body: Vec<u8>,
}

impl TextOptions {
    pub(crate) const TYPE: &str = "runtimeoptions.v1.Options";
}

/// `containerd.runc.v1.CheckpointOptions`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct CheckpointOptions {
    /// The container ends after the checkpoint.
    #[prost(bool, tag = "1")]
    pub(crate) exit: bool,
    #[prost(bool, tag = "2")]
    pub(crate) open_tcp: bool,
    #[prost(bool, tag = "3")]
    pub(crate) external_unix_sockets: bool,
    #[prost(bool, tag = "4")]
    pub(crate) terminal: bool,
    #[prost(bool, tag = "5")]
    pub(crate) file_locks: bool,
    #[prost(string, repeated, tag = "6")]
    pub(crate) empty_namespaces: Vec<String>,
    #[prost(string, tag = "7")]
    pub(crate) cgroups_mode: String,
    #[prost(string, tag = "9")]
    pub(crate) work_path: String,
    #[prost(string, tag = "10")]
    pub(crate) parent_path: String,
}

impl CheckpointOptions {
    pub(crate) const TYPE: &str = "containerd.runc.v1.CheckpointOptions";
}

/// `containerd.runc.v1.ProcessDetails`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ProcessDetails {
    #[prost(string, tag = "1")]
    pub(crate) exec_id: String,
}

impl ProcessDetails {
    pub(crate) const TYPE: &str = "containerd.runc.v1.ProcessDetails";
}

/// The input of `start` since containerd 2.3.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BootstrapParams {
    #[prost(string, tag = "1")]
    pub(crate) instance_id: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(string, tag = "5")]
    pub(crate) containerd_ttrpc_address: String,
    #[prost(string, tag = "6")]
    pub(crate) containerd_grpc_address: String,
    #[prost(message, repeated, tag = "8")]
    pub(crate) extensions: Vec<Extension>,
    #[prost(string, tag = "9")]
    pub(crate) socket_dir: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Extension {
    #[prost(message, optional, tag = "1")]
    pub(crate) value: Option<Any>,
}

/// The answer of `start`: a protocol buffer since containerd 2.3, JSON for 1.7 to 2.2.
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub(crate) struct BootstrapResult {
    #[prost(int32, tag = "1")]
    pub(crate) version: i32,
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    #[prost(string, tag = "3")]
    pub(crate) protocol: String,
}

/// `containerd.types.RuntimeInfo`, the answer of `-info`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuntimeInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) version: Option<RuntimeVersion>,
    #[prost(message, optional, tag = "3")]
    pub(crate) options: Option<Any>,
    /// The OCI features document, as JSON.
    #[prost(message, optional, tag = "4")]
    pub(crate) features: Option<Any>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct RuntimeVersion {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "2")]
    pub(crate) revision: String,
}
