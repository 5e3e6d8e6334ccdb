//! CRIU's messages (criu, images/rpc.proto), as far as husk uses them: field numbers, and the parsing of answers.

use super::wire::{ProtobufMessage, WireValue, fields};

/// `criu_req_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CriuRequest {
    Dump = 1,
    Restore = 2,
    PreDump = 4,
    Notify = 6,
    FeatureCheck = 9,
    Version = 10,
}

impl CriuRequest {
    const ALL: &[Self] =
        &[Self::Dump, Self::Restore, Self::PreDump, Self::Notify, Self::FeatureCheck, Self::Version];

    fn from_number(number: i32) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| *kind as i32 == number)
    }

    /// Returns its name in the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dump => "DUMP",
            Self::Restore => "RESTORE",
            Self::PreDump => "PRE_DUMP",
            Self::Notify => "NOTIFY",
            Self::FeatureCheck => "FEATURE_CHECK",
            Self::Version => "VERSION",
        }
    }
}

/// Fields of `criu_opts`. Boolean options are in [`Switch`](super::Switch).
pub(crate) mod option {
    pub(crate) const IMAGES_DIR_FD: u32 = 1;
    pub(crate) const PID: u32 = 2;
    pub(crate) const EVASIVE_DEVICES: u32 = 6;
    pub(crate) const LOG_LEVEL: u32 = 9;
    pub(crate) const LOG_FILE: u32 = 10;
    pub(crate) const PAGE_SERVER: u32 = 11;
    pub(crate) const NOTIFY_SCRIPTS: u32 = 12;
    pub(crate) const ROOT: u32 = 13;
    pub(crate) const PARENT_IMG: u32 = 14;
    pub(crate) const TRACK_MEM: u32 = 15;
    pub(crate) const WORK_DIR_FD: u32 = 17;
    pub(crate) const EXT_MNT: u32 = 23;
    pub(crate) const MANAGE_CGROUPS: u32 = 24;
    pub(crate) const CG_ROOT: u32 = 25;
    pub(crate) const RST_SIBLING: u32 = 26;
    pub(crate) const INHERIT_FD: u32 = 27;
    pub(crate) const MANAGE_CGROUPS_MODE: u32 = 34;
    pub(crate) const EXTERNAL: u32 = 37;
    pub(crate) const EMPTY_NS: u32 = 38;
    pub(crate) const JOIN_NS: u32 = 39;
    pub(crate) const FREEZE_CGROUP: u32 = 44;
    pub(crate) const ORPHAN_PTS_MASTER: u32 = 50;
    pub(crate) const CONFIG_FILE: u32 = 51;
    pub(crate) const LSM_PROFILE: u32 = 53;
    pub(crate) const LSM_MOUNT_CONTEXT: u32 = 63;
    pub(crate) const UNPRIVILEGED: u32 = 67;
    pub(crate) const IMAGES_DIR: u32 = 68;
}

/// Features to query in CRIU and the kernel: fields of `criu_features`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Tracking of pages that were written since the last dump.
    MemTrack = 1,
    /// Pages that are loaded when they are used.
    LazyPages = 2,
}

/// Encodes a request with options.
pub(crate) fn request(kind: CriuRequest, options: Option<&ProtobufMessage>) -> ProtobufMessage {
    let mut request = ProtobufMessage::default();
    request.number(1, kind as i32);
    if let Some(options) = options {
        request.message(2, options);
    }
    request
}

/// Encodes the question whether a feature is supported.
pub(crate) fn feature_request(feature: Feature) -> ProtobufMessage {
    let mut features = ProtobufMessage::default();
    features.flag(feature as u32, true);
    let mut request = request(CriuRequest::FeatureCheck, None);
    request.message(5, &features);
    request
}

/// Encodes the answer to a notification.
pub(crate) fn go_on() -> ProtobufMessage {
    let mut request = request(CriuRequest::Notify, None);
    request.flag(3, true);
    request
}

/// Encodes a pair of strings: `ext_mount_map`, `join_namespace`, `cgroup_root`.
pub(crate) fn pair(first: impl AsRef<[u8]>, second: impl AsRef<[u8]>) -> ProtobufMessage {
    let mut pair = ProtobufMessage::default();
    pair.bytes(1, first).bytes(2, second);
    pair
}

/// Encodes a string with a number: `inherit_fd`, `criu_page_server_info`.
pub(crate) fn numbered(name: impl AsRef<[u8]>, number: i32) -> ProtobufMessage {
    let mut numbered = ProtobufMessage::default();
    numbered.bytes(1, name).number(2, number);
    numbered
}

/// A message from CRIU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) kind: Option<CriuRequest>,
    pub(crate) success: bool,
    /// The name of a notification.
    pub(crate) script: String,
    /// In a notification: the first process of the tree, as a pid of husk's pid namespace.
    pub(crate) pid: Option<i32>,
    pub(crate) errno: i32,
    pub(crate) message: String,
    /// The fields of `criu_features` that are supported.
    pub(crate) features: Vec<u32>,
    /// The version as one number: 31701 is 3.17.1.
    pub(crate) version: i32,
}

impl Response {
    /// Parses a message. `None` if it is malformed.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut response = Self::default();
        let text =
            |value: WireValue<'_>| value.bytes().map(|text| String::from_utf8_lossy(text).into_owned());
        for (field, value) in fields(bytes)? {
            match field {
                1 => response.kind = CriuRequest::from_number(value.number()?),
                2 => response.success = value.number()? != 0,
                5 => {
                    for (field, value) in fields(value.bytes()?)? {
                        match field {
                            1 => response.script = text(value)?,
                            2 => response.pid = value.number(),
                            _ => {}
                        }
                    }
                }
                7 => response.errno = value.number()?,
                8 => {
                    let there = fields(value.bytes()?)?.into_iter();
                    let there = there.filter(|(_, value)| value.number().is_some_and(|value| value != 0));
                    response.features = there.map(|(field, _)| field).collect();
                }
                9 => response.message = text(value)?,
                10 => {
                    for (field, value) in fields(value.bytes()?)? {
                        let part = value.number().filter(|part| (0..100).contains(part));
                        match (field, part) {
                            (1, Some(major)) => response.version += major * 10_000,
                            (2, Some(minor)) => response.version += minor * 100,
                            (4, Some(sublevel)) => response.version += sublevel,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use super::{CriuRequest, ProtobufMessage, Response, numbered};

    #[test]
    fn response_is_parsed() {
        let mut notify = numbered("post-restore", 17);
        notify.bytes(9, "from the future");
        let mut answer = ProtobufMessage::default();
        answer.number(1, 6).flag(2, true).message(5, &notify);
        let read = Response::read(answer.as_bytes()).unwrap();
        assert_eq!((read.kind, read.success), (Some(CriuRequest::Notify), true));
        assert_eq!((read.script.as_str(), read.pid), ("post-restore", Some(17)));

        let mut version = ProtobufMessage::default();
        version.number(1, 3).number(2, 17).bytes(3, "v3.17.1").number(4, 1);
        let mut answer = ProtobufMessage::default();
        answer.number(1, 10).flag(2, true).message(10, &version);
        assert_eq!(Response::read(answer.as_bytes()).unwrap().version, 31_701);
        assert_eq!(Response::read(b"\x12"), None);
    }
}
