//! config.json of an OCI bundle: read, checked, resolved.
//!
//! Bytes become a [`Container`]: what was asked, with every default filled in and every name looked
//! up. This is the only crate that sees oci-spec and caps. It reads one file and looks at nothing
//! else: whether the machine can do what was asked is for the planner to find.
//!
//! Every error names a field of the file. What is carried out otherwise than written is a
//! [`Warning`], returned beside the container.

#![forbid(unsafe_code)]

pub mod container;
mod crun;
mod error;
pub mod exec;
mod gaps;
mod hint;
pub mod known;
mod linux;
mod memory;
mod mounts;
mod network;
mod options;
mod problems;
mod process;
mod resctrl;
pub mod resources;
mod seccomp;
mod tree;
mod twice;
mod typed;

pub use container::Container;
pub use crun::{ANNOTATIONS as CRUN_ANNOTATIONS, PREFIX as CRUN_PREFIX};
pub use error::{Error, Field, Kind, Notice, Warning};
pub use mounts::bind_mount;
pub use problems::{Problems, problems, problems_in};

use container::{Access, Hook, HookStreams, Hooks, MountContext, UnknownCalls};
use oci_spec::runtime::Spec;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Reads the configuration of the bundle in `directory`, an absolute path: its `config.json`, if it is not in another
/// file.
///
/// # Errors
///
/// If the file cannot be read or asks for something that no machine can do.
pub fn load(directory: &Path, config: Option<&Path>) -> Result<(Container, Vec<Warning>), Error> {
    let bytes = match config {
        Some(file) => read(file).map_err(|kind| Field::new(&file.to_string_lossy()).error(kind)),
        None => read(&directory.join("config.json")).map_err(|kind| Field::new("config.json").error(kind)),
    };
    parse(&bytes?, directory)
}

/// More than this is no configuration: one with 100,000 mounts has a fifth of it.
const MOST_BYTES: u64 = 64 << 20;

fn read(path: &Path) -> Result<Vec<u8>, Kind> {
    // Opening a FIFO would wait for a writer.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path).map_err(Kind::Read)?;
    let metadata = file.metadata().map_err(Kind::Read)?;
    if !metadata.is_file() {
        return Err(Kind::NoFile);
    }
    // With room for one byte more, so that the end is seen at once. What is said to be longer than can be is
    // not believed.
    let length = usize::try_from(metadata.len().min(MOST_BYTES)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(length.min(1 << 20) + 1);
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(Kind::Read)?;
    if bytes.len() as u64 > MOST_BYTES { Err(Kind::TooLong(MOST_BYTES)) } else { Ok(bytes) }
}

/// The same of bytes that were read elsewhere.
///
/// # Errors
///
/// As [`load`].
pub fn parse(bytes: &[u8], directory: &Path) -> Result<(Container, Vec<Warning>), Error> {
    let config = serde_json::from_slice(bytes)
        .map_err(|error| Field::new("config.json").error(Kind::Json(error.to_string())))?;
    resolve(config, directory)
}

/// The same of JSON that was read elsewhere.
fn resolve(mut config: serde_json::Value, directory: &Path) -> Result<(Container, Vec<Warning>), Error> {
    let mut warnings = Vec::new();
    tree::settle(&mut config, &mut warnings)?;
    let gaps = gaps::take(&mut config, &mut warnings)?;
    let spec: Spec = typed::read(config, &Field::default())?;

    let root = spec.root().as_ref().ok_or_else(|| Field::new("root").error(Kind::Missing))?;
    if root.path().as_os_str().is_empty() {
        return Err(Field::new("root.path").error(Kind::Empty));
    }
    let process = spec.process().as_ref();
    let process = process.map(|process| process::resolve(process, &gaps)).transpose()?;
    let mut container = Container {
        bundle: directory.to_owned(),
        rootfs: directory.join(root.path()),
        rootfs_access: if root.readonly() == Some(true) { Access::ReadOnly } else { Access::ReadWrite },
        rootfs_propagation: None,
        process,
        mounts: mounts::resolve(spec.mounts().as_deref().unwrap_or_default(), directory, &mut warnings)?,
        hostname: spec.hostname().clone().filter(|name| !name.is_empty()),
        domainname: spec.domainname().clone().filter(|name| !name.is_empty()),
        namespaces: Vec::new(),
        uid_mappings: Vec::new(),
        gid_mappings: Vec::new(),
        time_offsets: Vec::new(),
        devices: Vec::new(),
        sysctl: Default::default(),
        masked_paths: Vec::new(),
        readonly_paths: Vec::new(),
        mount_label: None,
        seccomp: None,
        seccomp_listener: None,
        unknown_calls: UnknownCalls::Ignored,
        mount_context: MountContext::Whole,
        pidfd_receiver: None,
        personality: None,
        memory_policy: gaps.memory_policy,
        net_devices: Vec::new(),
        intel_rdt: None,
        cgroups_path: None,
        resources: Default::default(),
        hooks: hooks(&spec)?,
        annotations: spec.annotations().clone().unwrap_or_default().into_iter().collect(),
    };
    if let Some(linux) = spec.linux() {
        linux::resolve(linux, gaps.resources, &mut container, &mut warnings)?;
    }
    mounts::settle(&mut container, &mut warnings);
    crun::apply(&mut container, &mut warnings)?;
    Ok((container, warnings))
}

/// The kinds of hooks, in the order in which they are run.
const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

fn hooks(spec: &Spec) -> Result<Hooks, Error> {
    let Some(hooks) = spec.hooks() else { return Ok(Hooks::default()) };
    let [prestart, create_runtime, create_container, start_container, poststart, poststop] =
        HOOKS.map(|kind| Field::new("hooks").key(kind));
    Ok(Hooks {
        prestart: hook_list(hooks.prestart(), &prestart)?,
        create_runtime: hook_list(hooks.create_runtime(), &create_runtime)?,
        create_container: hook_list(hooks.create_container(), &create_container)?,
        start_container: hook_list(hooks.start_container(), &start_container)?,
        poststart: hook_list(hooks.poststart(), &poststart)?,
        poststop: hook_list(hooks.poststop(), &poststop)?,
        streams: HookStreams::default(),
    })
}

fn hook_list(hooks: &Option<Vec<oci_spec::runtime::Hook>>, field: &Field) -> Result<Vec<Hook>, Error> {
    let hooks = hooks.iter().flatten().enumerate();
    hooks.map(|(index, hook)| resolve_hook(hook, &field.index(index))).collect()
}

fn resolve_hook(hook: &oci_spec::runtime::Hook, field: &Field) -> Result<Hook, Error> {
    absolute(hook.path(), &field.key("path"))?;
    let timeout = match hook.timeout() {
        None => None,
        Some(seconds) => {
            // "timeout MUST be greater than zero" (config.md, "POSIX-platform Hooks").
            let positive = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            Some(positive.ok_or_else(|| field.key("timeout").error(Kind::Range(seconds.into())))?)
        }
    };
    Ok(Hook {
        path: hook.path().clone(),
        args: strings(hook.args().as_deref().unwrap_or_default(), &field.key("args"))?,
        env: hook.env().as_ref().map(|env| process::environment(env, &field.key("env"))).transpose()?,
        timeout_seconds: timeout,
    })
}

/// Strings as the kernel wants them.
fn strings(values: &[String], field: &Field) -> Result<Vec<CString>, Error> {
    let values = values.iter().enumerate();
    values.map(|(index, value)| string(value, &field.index(index))).collect()
}

fn string(value: &str, field: &Field) -> Result<CString, Error> {
    CString::new(value).map_err(|_| field.error(Kind::Nul))
}

/// The id of a user or a group. The highest number is none: it tells the kernel to leave the id as it
/// is, which would be root's (setresuid(2)).
fn id(id: u32, field: &Field) -> Result<u32, Error> {
    if id == u32::MAX { Err(field.error(Kind::Range(id.into()))) } else { Ok(id) }
}

fn absolute(path: &Path, field: &Field) -> Result<(), Error> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(field.error(Kind::Relative(path.display().to_string())))
}
