//! Mount options (config.md, "Linux mount options").

use crate::container::{Propagation, PropagationKind};
use husk_sys::mount::{AttributeChange, Extent, MountAttributes};

/// The effect of a mount option.
#[derive(Clone, Copy)]
pub(crate) enum MountOption {
    /// Sets attributes of the mount, or clears them in `Clear`; with `Extent::All` also of mounts below it.
    Set(MountAttributes, Extent),
    Clear(MountAttributes, Extent),
    /// Resets access time handling if this value was chosen; other values stay.
    Undo(MountAttributes),
    Propagation(PropagationKind, Extent),
    Bind(Extent),
    IdMap(Extent),
    CopyUp,
    /// Changes an existing mount. The other options say what changes.
    Remount,
    /// An option of the file system, which the mount API passes on by name (fs/fs_context.c, `common_set_sb_flag`
    /// and `common_clear_sb_flag`).
    FileSystem,
    /// No effect: either it is always true, or it only silences the log and the mount API cannot express it.
    Nothing,
}

/// Every known option. All others belong to the file system, such as `size=64k`.
pub(crate) const MEANINGS: &[(&str, MountOption)] = {
    use Extent::{All, Top};
    use MountOption::{Bind, Clear, CopyUp, FileSystem, IdMap, Nothing, Propagation, Remount, Set, Undo};
    use PropagationKind::{Private, Shared, Slave, Unbindable};
    &[
        ("defaults", Nothing),
        ("remount", Remount),
        ("bind", Bind(Top)),
        ("rbind", Bind(All)),
        ("idmap", IdMap(Top)),
        ("ridmap", IdMap(All)),
        ("tmpcopyup", CopyUp),
        ("ro", Set(MountAttributes::RDONLY, Top)),
        ("rw", Clear(MountAttributes::RDONLY, Top)),
        ("nosuid", Set(MountAttributes::NOSUID, Top)),
        ("suid", Clear(MountAttributes::NOSUID, Top)),
        ("nodev", Set(MountAttributes::NODEV, Top)),
        ("dev", Clear(MountAttributes::NODEV, Top)),
        ("noexec", Set(MountAttributes::NOEXEC, Top)),
        ("exec", Clear(MountAttributes::NOEXEC, Top)),
        ("nodiratime", Set(MountAttributes::NODIRATIME, Top)),
        ("diratime", Clear(MountAttributes::NODIRATIME, Top)),
        ("nosymfollow", Set(MountAttributes::NOSYMFOLLOW, Top)),
        ("symfollow", Clear(MountAttributes::NOSYMFOLLOW, Top)),
        ("relatime", Set(MountAttributes::RELATIME, Top)),
        ("norelatime", Undo(MountAttributes::RELATIME)),
        ("noatime", Set(MountAttributes::NOATIME, Top)),
        ("atime", Undo(MountAttributes::NOATIME)),
        ("strictatime", Set(MountAttributes::STRICTATIME, Top)),
        ("nostrictatime", Undo(MountAttributes::STRICTATIME)),
        ("rro", Set(MountAttributes::RDONLY, All)),
        ("rrw", Clear(MountAttributes::RDONLY, All)),
        ("rnosuid", Set(MountAttributes::NOSUID, All)),
        ("rsuid", Clear(MountAttributes::NOSUID, All)),
        ("rnodev", Set(MountAttributes::NODEV, All)),
        ("rdev", Clear(MountAttributes::NODEV, All)),
        ("rnoexec", Set(MountAttributes::NOEXEC, All)),
        ("rexec", Clear(MountAttributes::NOEXEC, All)),
        ("rnodiratime", Set(MountAttributes::NODIRATIME, All)),
        ("rdiratime", Clear(MountAttributes::NODIRATIME, All)),
        ("rnosymfollow", Set(MountAttributes::NOSYMFOLLOW, All)),
        ("rsymfollow", Clear(MountAttributes::NOSYMFOLLOW, All)),
        ("rrelatime", Set(MountAttributes::RELATIME, All)),
        ("rnorelatime", Clear(MountAttributes::ATIME, All)),
        ("rnoatime", Set(MountAttributes::NOATIME, All)),
        ("ratime", Clear(MountAttributes::ATIME, All)),
        ("rstrictatime", Set(MountAttributes::STRICTATIME, All)),
        ("rnostrictatime", Clear(MountAttributes::ATIME, All)),
        ("shared", Propagation(Shared, Top)),
        ("rshared", Propagation(Shared, All)),
        ("slave", Propagation(Slave, Top)),
        ("rslave", Propagation(Slave, All)),
        ("private", Propagation(Private, Top)),
        ("rprivate", Propagation(Private, All)),
        ("unbindable", Propagation(Unbindable, Top)),
        ("runbindable", Propagation(Unbindable, All)),
        ("sync", FileSystem),
        ("async", FileSystem),
        ("dirsync", FileSystem),
        ("lazytime", FileSystem),
        ("nolazytime", FileSystem),
        ("mand", FileSystem),
        ("nomand", FileSystem),
        // MS_I_VERSION and MS_SILENT. The new mount API cannot express them (fs/fs_context.c,
        // `vfs_parse_sb_flag`), and each file system now decides about their effect itself.
        ("iversion", Nothing),
        ("noiversion", Nothing),
        ("silent", Nothing),
        ("loud", Nothing),
    ]
};

/// The options of one mount, sorted by their effect.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) attributes: AttributeChange,
    pub(crate) recursive_attributes: AttributeChange,
    pub(crate) propagation: Vec<Propagation>,
    /// Whether mounts below the source are included; `None` unless it is a bind mount.
    pub(crate) bind: Option<Extent>,
    /// Whether mounts below it are included; `None` unless it is an idmapped mount.
    pub(crate) id_map: Option<Extent>,
    pub(crate) copy_up: bool,
    pub(crate) remount: bool,
    /// The remaining options, for the file system.
    pub(crate) file_system: Vec<String>,
}

impl Options {
    /// Sorts options by their effect. A later option overrides an earlier one that contradicts it.
    pub(crate) fn sort(options: impl IntoIterator<Item = String>) -> Self {
        let mut sorted = Self::default();
        for option in options.into_iter().flat_map(split) {
            let known = MEANINGS.iter().find(|(name, _)| *name == option);
            match known.map(|(_, meaning)| *meaning) {
                None | Some(MountOption::FileSystem) => sorted.file_system.push(option),
                Some(MountOption::Nothing) => {}
                Some(MountOption::Set(bits, extent)) => set(sorted.attributes(extent), bits),
                Some(MountOption::Clear(bits, extent)) => clear(sorted.attributes(extent), bits),
                Some(MountOption::Undo(bits)) => undo(&mut sorted.attributes, bits),
                Some(MountOption::Propagation(kind, extent)) => {
                    sorted.propagation.push(Propagation { kind, extent });
                }
                // `bind` and `rbind` add up, unlike `idmap` and `ridmap`: `bind` does not undo an earlier `rbind`.
                Some(MountOption::Bind(extent)) => sorted.bind = sorted.bind.max(Some(extent)),
                Some(MountOption::IdMap(extent)) => sorted.id_map = Some(extent),
                Some(MountOption::CopyUp) => sorted.copy_up = true,
                Some(MountOption::Remount) => sorted.remount = true,
            }
        }
        sorted
    }

    fn attributes(&mut self, extent: Extent) -> &mut AttributeChange {
        match extent {
            Extent::Top => &mut self.attributes,
            Extent::All => &mut self.recursive_attributes,
        }
    }
}

/// Splits a string into options. An engine may pass several as `size=1m,mode=700`, or an empty string, as podman 5
/// does in systemd mode. A comma in double quotes (`context="...c1,c2"`) or after a backslash belongs to the
/// value, as in mount(2).
fn split(string: String) -> Vec<String> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = string.split(|char| {
        let is_end = char == ',' && !is_quoted && !is_escaped;
        is_quoted ^= char == '"' && !is_escaped;
        is_escaped = char == '\\' && !is_escaped;
        is_end
    });
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Sets attributes. The way in which access times are updated is one value, not a set of flags, so all its bits are
/// cleared before it is set (mount_setattr(2)).
pub(super) fn set(change: &mut AttributeChange, attributes: MountAttributes) {
    let is_atime = attributes == MountAttributes::RELATIME || attributes.intersects(MountAttributes::ATIME);
    let field = if is_atime { MountAttributes::ATIME } else { attributes };
    change.set = change.set.without(field) | attributes;
    change.clear = change.clear.without(field);
    if is_atime {
        change.clear |= MountAttributes::ATIME;
    }
}

fn undo(change: &mut AttributeChange, value: MountAttributes) {
    const ATIME: MountAttributes = MountAttributes::ATIME;
    if change.clear.intersects(ATIME) && change.set.intersection(ATIME) == value {
        change.set = change.set.without(ATIME);
        change.clear = change.clear.without(ATIME);
    }
}

fn clear(change: &mut AttributeChange, attributes: MountAttributes) {
    change.set = change.set.without(attributes);
    change.clear |= attributes;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(options: &[&str]) -> Options {
        Options::sort(options.iter().map(|option| (*option).to_owned()))
    }

    #[test]
    fn last_of_two_contradicting_options_counts() {
        let attributes = |options| sorted(options).attributes;
        assert_eq!(
            attributes(&["ro", "rw"]),
            AttributeChange { set: MountAttributes::EMPTY, clear: MountAttributes::RDONLY }
        );
        assert_eq!(attributes(&["rw", "ro"]), AttributeChange::set(MountAttributes::RDONLY));
        assert_eq!(
            attributes(&["noatime", "strictatime"]),
            AttributeChange { set: MountAttributes::STRICTATIME, clear: MountAttributes::ATIME }
        );
        assert_eq!(
            attributes(&["noatime", "relatime"]),
            AttributeChange { set: MountAttributes::EMPTY, clear: MountAttributes::ATIME }
        );
        assert_eq!(attributes(&["noatime", "atime"]), AttributeChange::default());
        let noatime = AttributeChange { set: MountAttributes::NOATIME, clear: MountAttributes::ATIME };
        assert_eq!(attributes(&["noatime", "norelatime"]), noatime);
    }

    #[test]
    fn recursive_attributes_are_kept_separate() {
        let options = sorted(&["nosuid", "rro", "rnoatime"]);
        assert_eq!(options.attributes, AttributeChange::set(MountAttributes::NOSUID));
        let recursive = AttributeChange {
            set: MountAttributes::RDONLY | MountAttributes::NOATIME,
            clear: MountAttributes::ATIME,
        };
        assert_eq!(options.recursive_attributes, recursive);
    }

    #[test]
    fn unknown_options_go_to_the_file_system() {
        let options = sorted(&["nosuid", "mode=755", "sync", "size=64k", "silent"]);
        assert_eq!(options.file_system, ["mode=755", "sync", "size=64k"]);
    }

    #[test]
    fn empty_options_are_skipped_and_joined_options_are_split() {
        let options = sorted(&["", "size=1m,mode=700", ",,nosuid,", ","]);
        assert_eq!(options.file_system, ["size=1m", "mode=700"]);
        assert_eq!(options.attributes, AttributeChange::set(MountAttributes::NOSUID));
        let whole = ["context=\"a:s0:c1,c2\"", "lowerdir=/a\\,b:/c", "x=\\\\"];
        assert_eq!(sorted(&whole).file_system, whole);
        assert_eq!(sorted(&["x=\\\\,y"]).file_system, ["x=\\\\", "y"]);
    }

    #[test]
    fn rbind_stays_recursive_before_and_after_bind() {
        for options in [&["rbind", "rprivate", "ro", "bind"][..], &["bind", "rbind"], &["rbind"]] {
            assert_eq!(sorted(options).bind, Some(Extent::All), "{options:?}");
        }
        // Recursive propagation does not make the bind mount recursive.
        assert_eq!(sorted(&["bind", "rprivate"]).bind, Some(Extent::Top));
        assert_eq!(sorted(&["rprivate"]).bind, None);
    }

    #[test]
    fn last_of_idmap_and_ridmap_counts() {
        assert_eq!(sorted(&["ridmap", "idmap"]).id_map, Some(Extent::Top));
        assert_eq!(sorted(&["idmap", "ridmap"]).id_map, Some(Extent::All));
    }

    #[test]
    fn propagation_options_keep_their_order() {
        let kinds = sorted(&["rslave", "shared"]).propagation;
        let wanted = [(PropagationKind::Slave, Extent::All), (PropagationKind::Shared, Extent::Top)];
        assert_eq!(kinds, wanted.map(|(kind, extent)| Propagation { kind, extent }));
    }

    #[test]
    fn option_names_are_unique() {
        let mut names: Vec<_> = MEANINGS.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
