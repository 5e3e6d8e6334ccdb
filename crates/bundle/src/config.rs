//! Reads a whole config.json into a [`Container`].

use crate::container::{Access, Container, MountContext, UnknownCalls};
use crate::crun;
use crate::error::{Error, ErrorKind, Field, Warning};
use crate::fields::{hooks, linux, mounts, process, unread, version};
use crate::json::{pruned, tree, typed};
use oci_spec::runtime::Spec;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Reads the configuration of the bundle in `directory`, an absolute path: `config`, or the bundle's `config.json`
/// if `config` is `None`.
///
/// # Errors
///
/// Fails if the file cannot be read or asks for something that no machine can do.
pub fn load(directory: &Path, config: Option<&Path>) -> Result<(Container, Vec<Warning>), Error> {
    let (mut container, warnings) = parse(&read_of(directory, config)?, directory)?;
    container.layers = layers(directory)?;
    Ok((container, warnings))
}

/// Like [`load`], for another process of a container that exists. Layers, mounts, hooks, devices, and masked and read-only
/// paths are neither read nor checked.
///
/// # Errors
///
/// Fails like [`load`].
pub fn load_for_exec(directory: &Path, config: Option<&Path>) -> Result<(Container, Vec<Warning>), Error> {
    parse_for_exec(&read_of(directory, config)?, directory)
}

fn read_of(directory: &Path, config: Option<&Path>) -> Result<Vec<u8>, Error> {
    match config {
        Some(file) => read(file).map_err(|kind| Field::new(&file.to_string_lossy()).error(kind)),
        None => {
            let file = directory.join("config.json");
            read(&file).map_err(|kind| Field::new(&file.to_string_lossy()).error(kind))
        }
    }
}

/// The directory of a bundle in which `husk bundle` puts symlinks to layers, named by their numbers. It is beside
/// config.json, not in it: engines let their users set annotations, and a layer is a directory of the host.
pub const LAYERS: &str = "husk-layers";

/// Returns the layers of a bundle. A bundle without that directory has none.
pub(crate) fn layers(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let directory = directory.join(LAYERS);
    let failed = |error: std::io::Error| Field::new(LAYERS).error(ErrorKind::Read(error.into()));
    match directory.symlink_metadata() {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(Field::new(LAYERS).error(ErrorKind::Phrase("is not a directory".to_owned()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    }
    let mut layers = Vec::new();
    loop {
        let layer = directory.join(layers.len().to_string());
        match layer.symlink_metadata() {
            Ok(_) if layer.is_dir() => layers.push(layer),
            Ok(_) => {
                let text = format!(
                    "{} is not in the store of layers any more: remove the bundle and make it again with `husk bundle`",
                    fs::read_link(&layer).unwrap_or(layer).display()
                );
                return Err(Field::new(LAYERS).error(ErrorKind::Phrase(text)));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if layers.is_empty() { Err(Field::new(LAYERS).error(ErrorKind::Empty)) } else { Ok(layers) }
}

/// A longer file cannot be a configuration: one with 100,000 mounts has a fifth of this size.
const MOST_BYTES: u64 = 64 << 20;

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ErrorKind> {
    // Without this flag, opening a FIFO would wait for a writer.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open(path)
        .map_err(|error| ErrorKind::Read(error.into()))?;
    let metadata = file.metadata().map_err(|error| ErrorKind::Read(error.into()))?;
    if !metadata.is_file() {
        return Err(ErrorKind::NoFile);
    }
    // Allocates one byte more, so that the first read already sees the end of the file. A reported length above
    // the limit does not size the buffer.
    let length = usize::try_from(metadata.len().min(MOST_BYTES)).unwrap_or_default();
    let mut bytes = Vec::with_capacity(length.min(1 << 20) + 1);
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| ErrorKind::Read(error.into()))?;
    if bytes.len() as u64 > MOST_BYTES { Err(ErrorKind::TooLong(MOST_BYTES)) } else { Ok(bytes) }
}

/// Reads a configuration from bytes.
///
/// # Errors
///
/// Fails like [`load`].
pub fn parse(bytes: &[u8], directory: &Path) -> Result<(Container, Vec<Warning>), Error> {
    let config = serde_json::from_slice(bytes)
        .map_err(|error| Field::new("config.json").error(ErrorKind::Json(error.to_string())))?;
    resolve(config, directory)
}

/// Like [`load_for_exec`], from bytes.
///
/// # Errors
///
/// Fails like [`load`].
pub fn parse_for_exec(bytes: &[u8], directory: &Path) -> Result<(Container, Vec<Warning>), Error> {
    match pruned::without_files(bytes) {
        Some(config) => resolve(config, directory),
        None => parse(bytes, directory),
    }
}

/// Reads a configuration from parsed JSON.
pub(crate) fn resolve(
    mut config: serde_json::Value,
    directory: &Path,
) -> Result<(Container, Vec<Warning>), Error> {
    let mut warnings = Vec::new();
    tree::normalize(&mut config, &mut warnings)?;
    let unread = unread::take(&mut config, &mut warnings)?;
    let spec: Spec = typed::read(config, &Field::default())?;
    version::check(spec.version(), &mut warnings)?;

    let root = spec.root().as_ref().ok_or_else(|| Field::new("root").error(ErrorKind::Missing))?;
    if root.path().as_os_str().is_empty() {
        return Err(Field::new("root.path").error(ErrorKind::Empty));
    }
    let process = spec.process().as_ref();
    let process = process.map(|process| process::resolve(process, &unread)).transpose()?;
    let mut container = Container {
        bundle: directory.to_owned(),
        rootfs: directory.join(root.path()),
        layers: Vec::new(),
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
        memory_policy: unread.memory_policy,
        net_devices: Vec::new(),
        intel_rdt: None,
        cgroups_path: None,
        resources: Default::default(),
        hooks: hooks::resolve(&spec)?,
        annotations: spec.annotations().clone().unwrap_or_default().into_iter().collect(),
    };
    if let Some(linux) = spec.linux() {
        linux::resolve(linux, unread.resources, &mut container, &mut warnings)?;
    }
    mounts::normalize(&mut container, &mut warnings);
    crun::apply(&mut container, &mut warnings)?;
    Ok((container, warnings))
}
