//! Turns a bundle into a profile. A setting that a sandbox cannot apply without privileges is refused by the name of
//! its field.

use crate::error::Error;
use crate::profile::{Image, Limits, PathAccess, Profile, Root};
use husk_bundle::container::{self, Capabilities, Mount, Process, PropagationKind, Source, Terminal};
use husk_bundle::{Container, Field, Warning};
use husk_cgroup::Resources;
use husk_script::sys::mount::MountAttributes;
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The attributes of every mount in a sandbox.
pub(crate) const ALWAYS: MountAttributes = MountAttributes::NOSUID.union(MountAttributes::NODEV);

/// Mount points that every sandbox provides, whatever a bundle mounts there.
const OWN: &[&str] = &["/proc", "/dev", "/dev/pts", "/dev/shm", "/tmp", "/var/tmp", "/run"];

/// The file systems that a sandbox can mount at other mount points.
const NEW: [&str; 3] = ["tmpfs", "mqueue", "sysfs"];

/// The program of a container image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageProgram {
    /// The program and its arguments. Empty if the image names none.
    pub args: Vec<String>,
    pub env: Vec<String>,
    pub cwd: String,
    pub uid: u32,
    pub gid: u32,
}

/// Returns the profile of the bundle in a directory, and warnings about settings that are not applied as configured.
///
/// # Errors
///
/// If the configuration cannot be read, or asks for something that a sandbox cannot do.
pub fn bundle(directory: &Path) -> Result<(Profile, Vec<Warning>), Error> {
    let failed = |path: &Path| {
        let act = format!("find {}", path.display());
        move |error: std::io::Error| Error::Look { act, reason: error.into() }
    };
    let directory = directory.canonicalize().map_err(failed(directory))?;
    let (mut container, mut warnings) = husk_bundle::load(&directory, None)?;
    if !container.layers.is_empty() {
        fit_layers(&mut container, &mut warnings);
    }
    let layers = container.layers.iter().map(|layer| layer.canonicalize().map_err(failed(layer)));
    let layers = layers.collect::<Result<_, _>>()?;
    Ok((profile(container, layers, &mut warnings)?, warnings))
}

/// Returns the profile of an image that consists of these layers, from the highest to the lowest. The program may write
/// to all files; the changes are thrown away.
///
/// # Errors
///
/// If the program's settings are not valid.
pub fn image(program: &ImageProgram, layers: Vec<PathBuf>) -> Result<Profile, Error> {
    let ImageProgram { args, env, cwd, uid, gid } = program;
    // A configuration must have arguments, but the caller may give the program other ones.
    let words = if args.is_empty() { &[String::from("/")][..] } else { args };
    let config = json!({
        "ociVersion": "1.0.2",
        "root": { "path": "/" },
        "process": { "args": words, "env": env, "cwd": cwd, "user": { "uid": uid, "gid": gid } }
    });
    let (container, mut warnings) = husk_bundle::parse(config.to_string().as_bytes(), Path::new("/"))?;
    let profile = profile(container, layers, &mut warnings)?;
    Ok(if args.is_empty() { Profile { args: Vec::new(), ..profile } } else { profile })
}

/// Leaves out settings that `husk bundle` has written for a container and that a sandbox does not need. It has one user,
/// and volumes need no file system where all changes are thrown away.
fn fit_layers(container: &mut Container, warnings: &mut Vec<Warning>) {
    let maps_others = |mappings: &[container::IdMapping]| mappings.iter().any(|mapping| mapping.size > 1);
    if maps_others(&container.uid_mappings) || maps_others(&container.gid_mappings) {
        let text = "are ignored: a sandbox has one user, and the files of others belong to nobody";
        warnings.push(Warning::new(Field::new("linux.uidMappings"), text.to_owned()));
    }
    container.uid_mappings.clear();
    container.gid_mappings.clear();
    container.mounts.retain(|mount| !matches!(mount.source, Source::New { copy_up: true, .. }));
    if let Some(process) = &mut container.process
        && !process.additional_gids.is_empty()
    {
        process.additional_gids.clear();
        let text = "are ignored: a sandbox has one group";
        warnings.push(Warning::new(Field::new("process.user.additionalGids"), text.to_owned()));
    }
}

/// Returns the profile of a container. The files are those of the layers, if there are any.
fn profile(
    container: Container,
    layers: Vec<PathBuf>,
    warnings: &mut Vec<Warning>,
) -> Result<Profile, Error> {
    refuse(&container, warnings)?;
    let args = |process: &Process| process.args.iter().cloned().map(text).collect();
    let number = |limit: Option<i64>| limit.and_then(|limit| u64::try_from(limit).ok());
    let limits = Limits {
        memory: number(container.resources.memory.limit),
        processes: number(container.resources.pids_limit),
        ..Limits::default()
    };
    let root = match layers.is_empty() {
        true => Root::Directory(container.rootfs.clone()),
        false => Root::Layers(layers),
    };
    let access = match container.rootfs_access {
        container::Access::ReadOnly => PathAccess::Read,
        // Writes go to an overlay that is thrown away.
        container::Access::ReadWrite => PathAccess::Overlay,
    };
    let args = container.process.as_ref().map(args).unwrap_or_default();
    let image = Some(Image { root, access, shown: Vec::new(), bundle: Some(Box::new(container)) });
    Ok(Profile { args, limits, image, ..Profile::default() })
}

/// Converts a string of the configuration.
pub(crate) fn text(string: CString) -> OsString {
    OsString::from_vec(string.into_bytes())
}

/// Refuses settings that a sandbox cannot apply. Naming every field of a container ensures that none is forgotten.
fn refuse(container: &Container, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    let Container {
        // These settings are applied.
        bundle: _,
        rootfs: _,
        rootfs_access: _,
        hostname: _,
        domainname: _,
        uid_mappings: _,
        gid_mappings: _,
        time_offsets: _,
        masked_paths: _,
        readonly_paths: _,
        seccomp: _,
        // These fields are only information.
        annotations: _,
        unknown_calls: _,
        // Selects how a mount label is applied, and nothing else.
        mount_context: _,
        layers: _,
        pidfd_receiver,
        rootfs_propagation,
        process,
        mounts,
        namespaces,
        devices,
        sysctl,
        mount_label,
        seccomp_listener,
        personality,
        memory_policy,
        net_devices,
        intel_rdt,
        cgroups_path,
        resources,
        hooks,
    } = container;
    let is_shared = |propagation: &container::Propagation| {
        matches!(propagation.kind, PropagationKind::Shared | PropagationKind::Unbindable)
    };
    let fields = [
        ("linux.rootfsPropagation", rootfs_propagation.as_ref().is_some_and(is_shared)),
        ("linux.devices", !devices.is_empty()),
        ("linux.sysctl", !sysctl.is_empty()),
        ("linux.mountLabel", mount_label.is_some()),
        ("linux.seccomp.listenerPath", seccomp_listener.is_some()),
        ("annotations.run.oci.pidfd_receiver", pidfd_receiver.is_some()),
        ("linux.personality", personality.is_some()),
        ("linux.memoryPolicy", memory_policy.is_some()),
        ("linux.netDevices", !net_devices.is_empty()),
        ("linux.intelRdt", intel_rdt.is_some()),
        ("hooks.prestart", !hooks.prestart.is_empty()),
        ("hooks.createRuntime", !hooks.create_runtime.is_empty()),
        ("hooks.createContainer", !hooks.create_container.is_empty()),
        ("hooks.startContainer", !hooks.start_container.is_empty()),
        ("hooks.poststart", !hooks.poststart.is_empty()),
        ("hooks.poststop", !hooks.poststop.is_empty()),
    ];
    none(fields)?;
    none(of_resources(resources))?;
    let mut warn = |field, text: &str| warnings.push(Warning::new(field, text.to_owned()));
    if cgroups_path.is_some() {
        warn(Field::new("linux.cgroupsPath"), "is ignored: a sandbox has a cgroup of its own, or none");
    }
    if let Some(process) = process {
        none(of_process(process))?;
        if process.capabilities != Capabilities::default() {
            warn(Field::new("process.capabilities"), "are ignored: a sandbox has no privileges");
        }
    }
    for (index, namespace) in namespaces.iter().enumerate() {
        let field = Field::new("linux.namespaces").index(index).key("path");
        none([(field, namespace.path.is_some())])?;
    }
    mounts.iter().enumerate().try_for_each(|(index, mount)| {
        let field = Field::new("mounts").index(index);
        match &mount.source {
            Source::Cgroup { .. } => {
                warn(field, "is ignored: a sandbox shows no cgroups");
                Ok(())
            }
            _ => none(of_mount(mount, &field)),
        }
    })
}

/// Returns an error that names the first field whose flag is true.
fn none<F: ToString>(fields: impl IntoIterator<Item = (F, bool)>) -> Result<(), Error> {
    let found = fields.into_iter().find(|(_, is_there)| *is_there);
    found.map_or(Ok(()), |(field, _)| Err(Error::Bundle(field.to_string())))
}

fn of_resources(resources: &Resources) -> impl IntoIterator<Item = (&'static str, bool)> + use<> {
    let Resources { devices, memory, cpu, pids_limit: _, block_io, hugepage_limits, network, rdma, unified } =
        resources;
    [
        // Deny rules pass without effect: a sandbox has only the standard devices.
        ("linux.resources.devices", devices.iter().any(|rule| rule.allow)),
        (
            "linux.resources.memory",
            husk_cgroup::resources::Memory { limit: None, ..*memory } != Default::default(),
        ),
        ("linux.resources.cpu", *cpu != Default::default()),
        ("linux.resources.blockIO", *block_io != Default::default()),
        ("linux.resources.hugepageLimits", !hugepage_limits.is_empty()),
        ("linux.resources.network", *network != Default::default()),
        ("linux.resources.rdma", *rdma != BTreeMap::default()),
        ("linux.resources.unified", !unified.is_empty()),
    ]
}

fn of_process(process: &Process) -> impl IntoIterator<Item = (&'static str, bool)> + use<> {
    let Process {
        args: _,
        env: _,
        cwd: _,
        uid: _,
        gid: _,
        additional_gids,
        keeps_groups: _,
        umask: _,
        terminal,
        capabilities: _,
        rlimits: _,
        no_new_privileges: _,
        apparmor_profile,
        selinux_label,
        oom_score_adj,
        scheduler,
        io_priority,
        exec_affinity: _,
    } = process;
    [
        ("process.user.additionalGids", !additional_gids.is_empty()),
        // The streams, including a terminal, are the caller's.
        ("process.consoleSize", matches!(terminal, Terminal::Yes(Some(_)))),
        ("process.apparmorProfile", apparmor_profile.is_some()),
        ("process.selinuxLabel", selinux_label.is_some()),
        ("process.oomScoreAdj", oom_score_adj.is_some()),
        ("process.scheduler", scheduler.is_some()),
        ("process.ioPriority", io_priority.is_some()),
    ]
}

fn of_mount(mount: &Mount, field: &Field) -> impl IntoIterator<Item = (Field, bool)> + use<> {
    let is_refused = match &mount.source {
        Source::New { fstype, copy_up, .. } => {
            *copy_up || (!is_own(mount) && !NEW.contains(&fstype.as_str()))
        }
        Source::Bind { .. } => false,
        Source::Remount { .. } | Source::Cgroup { .. } => true,
    };
    let is_shared = mount.propagation.iter().any(|propagation| propagation.kind == PropagationKind::Shared);
    let loosens = (mount.attributes.clear | mount.recursive_attributes.clear).intersects(ALWAYS);
    let is_mapped = mount.id_mapping.is_some();
    [(field.key("type"), is_refused), (field.key("options"), is_shared || loosens || is_mapped)]
}

/// Returns whether the mount is a new file system at a mount point that the sandbox provides itself.
pub(crate) fn is_own(mount: &Mount) -> bool {
    let is_new = |fstype: &str| ["proc", "tmpfs", "devpts", "devtmpfs"].contains(&fstype);
    matches!(&mount.source, Source::New { fstype, .. } if is_new(fstype))
        && OWN.iter().any(|own| mount.destination == Path::new(own))
}
