//! Options of a mount, as in fstab(5).

use crate::failure::{Code, Failure};
use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes};
use husk_spawn::IdMap;
use rustix::mount::{MountFlags, MountPropagationFlags};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) flags: MountFlags,
    /// How much of the source's tree is bind mounted; `None` for a new file system.
    pub(super) bind: Option<Extent>,
    pub(super) propagation: Option<MountPropagationFlags>,
    /// Options that the file system parses.
    pub(super) data: Vec<String>,
    /// How the ids of files are mapped.
    pub(super) ids: Option<Ids>,
}

/// The ids of a user namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) uids: Vec<IdMap>,
    pub(super) gids: Vec<IdMap>,
}

/// Options that set a flag, and those that clear one.
const FLAGS: [(&str, bool, MountFlags); 27] = [
    ("ro", true, MountFlags::RDONLY),
    ("rw", false, MountFlags::RDONLY),
    ("nosuid", true, MountFlags::NOSUID),
    ("suid", false, MountFlags::NOSUID),
    ("nodev", true, MountFlags::NODEV),
    ("dev", false, MountFlags::NODEV),
    ("noexec", true, MountFlags::NOEXEC),
    ("exec", false, MountFlags::NOEXEC),
    ("sync", true, MountFlags::SYNCHRONOUS),
    ("async", false, MountFlags::SYNCHRONOUS),
    ("dirsync", true, MountFlags::DIRSYNC),
    ("mand", true, MountFlags::PERMIT_MANDATORY_FILE_LOCKING),
    ("nomand", false, MountFlags::PERMIT_MANDATORY_FILE_LOCKING),
    ("noatime", true, MountFlags::NOATIME),
    ("atime", false, MountFlags::NOATIME),
    ("nodiratime", true, MountFlags::NODIRATIME),
    ("diratime", false, MountFlags::NODIRATIME),
    ("relatime", true, MountFlags::RELATIME),
    ("norelatime", false, MountFlags::RELATIME),
    ("strictatime", true, MountFlags::STRICTATIME),
    ("nostrictatime", false, MountFlags::STRICTATIME),
    ("lazytime", true, MountFlags::LAZYTIME),
    ("nolazytime", false, MountFlags::LAZYTIME),
    ("nosymfollow", true, MountFlags::NOSYMFOLLOW),
    ("symfollow", false, MountFlags::NOSYMFOLLOW),
    ("silent", true, MountFlags::SILENT),
    ("loud", false, MountFlags::SILENT),
];

const PROPAGATIONS: [(&str, MountPropagationFlags); 4] = [
    ("shared", MountPropagationFlags::SHARED),
    ("private", MountPropagationFlags::PRIVATE),
    ("slave", MountPropagationFlags::DOWNSTREAM),
    ("unbindable", MountPropagationFlags::UNBINDABLE),
];

/// Parses options. The last of several that contradict each other counts.
pub(super) fn parse(options: &[String]) -> Result<Options, Failure> {
    let mut parsed =
        Options { flags: MountFlags::empty(), bind: None, propagation: None, data: Vec::new(), ids: None };
    let (mut uids, mut gids) = (None, None);
    for option in options {
        if let Some((_, is_set, flag)) = FLAGS.iter().find(|(name, ..)| name == option) {
            parsed.flags.set(*flag, *is_set);
        } else if let Some(propagation) = propagation(option) {
            parsed.propagation = Some(propagation);
        } else if let Some(ids) = option.strip_prefix("uidmap=") {
            uids = Some(id_maps(ids)?);
        } else if let Some(ids) = option.strip_prefix("gidmap=") {
            gids = Some(id_maps(ids)?);
        } else {
            match option.as_str() {
                "" | "defaults" => {}
                "bind" => parsed.bind = Some(Extent::Top),
                "rbind" => parsed.bind = Some(Extent::All),
                "loop" => return Err(unsupported(option, "loop devices are not supported")),
                "remount" => return Err(unsupported(option, "a mount of the root file system is new")),
                internal if internal.starts_with("X-containerd.") => {
                    return Err(unsupported(option, "containerd's mount manager should have consumed it"));
                }
                data => parsed.data.push(data.to_owned()),
            }
        }
    }
    parsed.ids = match (uids, gids) {
        (Some(uids), Some(gids)) => Some(Ids { uids, gids }),
        (None, None) => None,
        _ => return Err(invalid("uidmap= and gidmap= need each other")),
    };
    Ok(parsed)
}

impl Options {
    /// Returns the attributes that a bind mount gets. Its other attributes are those of its source. Flags that concern
    /// the whole file system have no effect.
    pub(super) fn attributes(&self) -> AttributeChange {
        let table = [
            (MountFlags::RDONLY, MountAttributes::RDONLY),
            (MountFlags::NOSUID, MountAttributes::NOSUID),
            (MountFlags::NODEV, MountAttributes::NODEV),
            (MountFlags::NOEXEC, MountAttributes::NOEXEC),
            (MountFlags::NODIRATIME, MountAttributes::NODIRATIME),
            (MountFlags::NOSYMFOLLOW, MountAttributes::NOSYMFOLLOW),
        ];
        let set = table.into_iter().filter(|(flag, _)| self.flags.contains(*flag));
        let set = set.fold(MountAttributes::EMPTY, |all, (_, attribute)| all | attribute);
        let access_times = [
            (MountFlags::NOATIME, MountAttributes::NOATIME),
            (MountFlags::STRICTATIME, MountAttributes::STRICTATIME),
            (MountFlags::RELATIME, MountAttributes::RELATIME),
        ];
        match access_times.into_iter().find(|(flag, _)| self.flags.contains(*flag)) {
            Some((_, time)) => AttributeChange { set: set | time, clear: MountAttributes::ATIME },
            None => AttributeChange::set(set),
        }
    }
}

fn propagation(option: &str) -> Option<MountPropagationFlags> {
    let find = |name: &str| PROPAGATIONS.iter().find(|(known, _)| *known == name).map(|(_, flags)| *flags);
    let recursive =
        || option.strip_prefix('r').and_then(find).map(|flags| flags | MountPropagationFlags::REC);
    find(option).or_else(recursive)
}

/// Parses ranges of ids: `INSIDE:OUTSIDE:COUNT[,INSIDE:OUTSIDE:COUNT]`.
fn id_maps(text: &str) -> Result<Vec<IdMap>, Failure> {
    let map = |text: &str| {
        let mut numbers = text.split(':').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        let map = IdMap { inside: next()?, outside: next()?, count: next()? };
        numbers.next().is_none().then_some(map)
    };
    let maps: Option<Vec<IdMap>> = text.split(',').map(map).collect();
    maps.ok_or_else(|| invalid(&format!("{text:?} is not INSIDE:OUTSIDE:COUNT")))
}

fn invalid(reason: &str) -> Failure {
    Failure::new(Code::InvalidArgument, reason)
}

fn unsupported(option: &str, reason: &str) -> Failure {
    Failure::new(Code::Unimplemented, format!("mount option {option:?}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::{Ids, Options, parse};
    use crate::failure::Code;
    use husk_script::sys::mount::{AttributeChange, Extent, MountAttributes};
    use husk_spawn::IdMap;
    use rustix::mount::{MountFlags, MountPropagationFlags};

    fn parsed(text: &str) -> Options {
        parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn last_option_counts() {
        assert_eq!(parsed("ro nosuid rw").flags, MountFlags::NOSUID);
        assert_eq!(parsed("rw ro").flags, MountFlags::RDONLY);
        assert_eq!(parsed("bind rbind").bind, Some(Extent::All));
        assert_eq!(parsed("defaults").bind, None);
    }

    #[test]
    fn options_of_the_file_system_are_kept_in_order() {
        let overlay = parsed("index=off workdir=/w upperdir=/u lowerdir=/b:/a volatile ro");
        assert_eq!(overlay.data, ["index=off", "workdir=/w", "upperdir=/u", "lowerdir=/b:/a", "volatile"]);
        assert_eq!(overlay.flags, MountFlags::RDONLY);
    }

    #[test]
    fn propagation_may_be_recursive() {
        let recursive = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        assert_eq!(parsed("private rslave").propagation, Some(recursive));
        assert_eq!(parsed("rw").propagation, None);
    }

    #[test]
    fn bind_mount_gets_attributes() {
        let (ro, nodev) = (MountAttributes::RDONLY, MountAttributes::NODEV);
        assert_eq!(parsed("rbind ro nodev sync").attributes(), AttributeChange::set(ro | nodev));
        let noatime = AttributeChange { set: MountAttributes::NOATIME, clear: MountAttributes::ATIME };
        assert_eq!(parsed("bind noatime").attributes(), noatime);
        assert_eq!(parsed("bind rw").attributes(), AttributeChange::NONE);
    }

    #[test]
    fn ids_are_ranges() {
        let range = |inside, outside, count| IdMap { inside, outside, count };
        let ids = parsed("uidmap=0:1000:10,10:5000:5 gidmap=0:2000:10").ids.unwrap();
        assert_eq!(
            ids,
            Ids { uids: vec![range(0, 1000, 10), range(10, 5000, 5)], gids: vec![range(0, 2000, 10)] }
        );
    }

    #[test]
    fn unusable_options_are_refused() {
        for (option, code) in [
            ("loop", Code::Unimplemented),
            ("remount", Code::Unimplemented),
            ("X-containerd.mkdir.path=/x", Code::Unimplemented),
            ("uidmap=0:1000:10", Code::InvalidArgument),
            ("uidmap=0:1000", Code::InvalidArgument),
            ("gidmap=0:1000:10:3", Code::InvalidArgument),
            ("gidmap=0:-1:10", Code::InvalidArgument),
        ] {
            assert_eq!(parse(&[option.to_owned()]).unwrap_err().code, code, "{option}");
        }
    }
}
