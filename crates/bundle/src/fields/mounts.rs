//! Resolves `mounts`.

use crate::container::{Container, IdMapping, Mount, MountIdMapping, NamespaceKind, Reconfiguration, Source};
use crate::error::{Error, ErrorKind, Field, Warning};
use crate::fields::linux::mappings;
use crate::fields::options::{self, Options};
use husk_sys::mount::{Extent, MountAttributes};
use oci_spec::runtime as oci;
use std::path::Path;

pub(crate) fn resolve(
    mounts: &[oci::Mount],
    bundle: &Path,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<Mount>, Error> {
    let mounts = mounts.iter().enumerate();
    mounts.map(|(index, mount)| one(mount, bundle, &Field::new("mounts").index(index), warnings)).collect()
}

/// Returns a bind mount for the runtime's own use, with options as in a configuration.
#[must_use]
pub fn bind_mount<const N: usize>(source: &Path, destination: &Path, options: [&str; N]) -> Mount {
    let options = Options::sort(options.map(str::to_owned));
    let extent = options.bind.unwrap_or(Extent::Top);
    Mount {
        destination: destination.to_owned(),
        source: Source::Bind { path: source.to_owned(), extent },
        attributes: options.attributes,
        recursive_attributes: options.recursive_attributes,
        propagation: options.propagation,
        id_mapping: None,
    }
}

/// Adjusts the mounts that depend on the container's namespaces.
pub(crate) fn normalize(container: &mut Container, warnings: &mut Vec<Warning>) {
    let has = |kind| container.namespaces.iter().any(|namespace| namespace.kind == kind);
    let has_cgroups = has(NamespaceKind::Cgroup);
    let has_no_sysfs = has(NamespaceKind::User) && !has(NamespaceKind::Network);
    for (index, mount) in container.mounts.iter_mut().enumerate() {
        let field = Field::new("mounts").index(index);
        if !has_cgroups
            && let Some(options) = options_of_cgroups(&mut mount.source).filter(|options| !options.is_empty())
        {
            let text = "are ignored without a cgroup namespace: the host's cgroups keep the host's options";
            warnings.push(Warning::new(field.key("options"), text.to_owned()));
            options.clear();
        }
        match &mut mount.source {
            // A new sysfs needs privileges over the network namespace (fs/sysfs/mount.c, `sysfs_init_fs_context`).
            Source::New { fstype, .. } if fstype == "sysfs" && has_no_sysfs => {
                let text = "is the host's /sys, read-only: without a network namespace of its own a user namespace \
                            cannot mount a new sysfs";
                warnings.push(Warning::new(field, text.to_owned()));
                mount.source = Source::Bind { path: "/sys".into(), extent: Extent::All };
                options::set(&mut mount.recursive_attributes, MountAttributes::RDONLY);
            }
            _ => {}
        }
    }
}

fn options_of_cgroups(source: &mut Source) -> Option<&mut Vec<String>> {
    match source {
        Source::Cgroup { options } => Some(options),
        Source::New { fstype, options, .. } if fstype == "cgroup2" => Some(options),
        _ => None,
    }
}

fn one(
    mount: &oci::Mount,
    bundle: &Path,
    field: &Field,
    warnings: &mut Vec<Warning>,
) -> Result<Mount, Error> {
    let mut options = Options::sort(mount.options().clone().unwrap_or_default());
    let destination = field.key("destination");
    if mount.destination().as_os_str().is_empty() {
        return Err(destination.error(ErrorKind::Empty));
    }
    if !mount.destination().is_absolute() {
        warnings.push(Warning::new(destination, "is relative and is resolved below the root".to_owned()));
    }
    let fstype = mount.typ().as_deref().unwrap_or_default();
    let bind = options.bind.or((fstype == "bind").then_some(Extent::Top));
    let uids = mappings(mount.uid_mappings());
    let gids = mappings(mount.gid_mappings());
    let id_mapping = id_mapping(&options, uids, gids, bind.is_some(), field)?;
    let source = source(mount, &mut options, bind, bundle, field, warnings)?;
    Ok(Mount {
        destination: Path::new("/").join(mount.destination()),
        source,
        attributes: options.attributes,
        recursive_attributes: options.recursive_attributes,
        propagation: options.propagation,
        id_mapping,
    })
}

fn source(
    mount: &oci::Mount,
    options: &mut Options,
    bind: Option<Extent>,
    bundle: &Path,
    field: &Field,
    warnings: &mut Vec<Warning>,
) -> Result<Source, Error> {
    let name = mount.source().as_deref().unwrap_or(Path::new(""));
    if bind.is_some() {
        bind_options(options, field, warnings)?;
    }
    let fstype = mount.typ().as_deref().unwrap_or_default();
    if options.remount {
        let options = std::mem::take(&mut options.file_system);
        let file_system = Reconfiguration { fstype: fstype.to_owned(), options };
        return Ok(Source::Remount { file_system: bind.is_none().then_some(file_system) });
    }
    if options.copy_up && (bind.is_some() || fstype != "tmpfs") {
        return Err(field.key("options").error(ErrorKind::Conflict("tmpcopyup is only valid for a tmpfs")));
    }
    if let Some(extent) = bind {
        if name.as_os_str().is_empty() {
            return Err(field.key("source").error(ErrorKind::Missing));
        }
        return Ok(Source::Bind { path: bundle.join(name), extent });
    }
    match fstype {
        "" => Err(field.key("type").error(ErrorKind::Missing)),
        "cgroup" => Ok(Source::Cgroup { options: std::mem::take(&mut options.file_system) }),
        fstype => Ok(Source::New {
            fstype: fstype.to_owned(),
            name: name.display().to_string(),
            options: std::mem::take(&mut options.file_system),
            copy_up: options.copy_up,
        }),
    }
}

/// Checks the file system options of a bind mount, whose file system is configured already. The kernel ignores
/// options that every file system has, so they only cause a warning. Other options are errors, because the user
/// may rely on them.
fn bind_options(options: &Options, field: &Field, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    const EVERY: &[&str] = &["sync", "async", "dirsync", "mand", "nomand", "lazytime", "nolazytime"];
    let field = field.key("options");
    for option in &options.file_system {
        if !EVERY.contains(&option.as_str()) {
            let reason = "bind mounts cannot have any filesystem-specific options applied";
            return Err(field.error(ErrorKind::Conflict(reason)));
        }
        let text = format!("{option:?} has no effect on a bind mount and is ignored");
        warnings.push(Warning::new(field.clone(), text));
    }
    Ok(())
}

fn id_mapping(
    options: &Options,
    uids: Vec<IdMapping>,
    gids: Vec<IdMapping>,
    is_bind: bool,
    field: &Field,
) -> Result<Option<MountIdMapping>, Error> {
    // Mappings make an idmapped mount even without the option, which only SHOULD accompany them (config.md,
    // "mounts").
    if options.id_map.is_none() && uids.is_empty() && gids.is_empty() {
        return Ok(None);
    }
    if !is_bind {
        return Err(field.error(ErrorKind::Conflict("id-mapped mounts are only supported for bind-mounts")));
    }
    if uids.is_empty() != gids.is_empty() {
        return Err(field
            .error(ErrorKind::Conflict("id-mapped mounts must have both uid and gid mappings specified")));
    }
    Ok(Some(MountIdMapping { extent: options.id_map.unwrap_or(Extent::Top), uids, gids }))
}
