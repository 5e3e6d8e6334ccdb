//! Mount options (config.md, "Linux mount options").

use crate::container::{Attributes, Propagation, PropagationKind};

/// The effect of a mount option.
#[derive(Clone, Copy)]
pub(crate) enum MountOption {
    /// Sets attributes of the mount, or clears them in `Clear`; with `Tree::All` also of mounts below it.
    Set(u64, Tree),
    Clear(u64, Tree),
    /// Resets access time handling if this value was chosen; other values stay.
    Undo(u64),
    Propagation(PropagationKind, Tree),
    Bind(Tree),
    IdMap(Tree),
    CopyUp,
    /// Changes an existing mount. The other options say what changes.
    Remount,
    /// An option of the file system, which the mount API passes on by name (fs/fs_context.c, `common_set_sb_flag`
    /// and `common_clear_sb_flag`).
    FileSystem,
    /// No effect: either it is always true, or it only silences the log and the mount API cannot express it.
    Nothing,
}

/// Whether an option covers the mount only or also mounts below it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    Top,
    All,
}

/// `MOUNT_ATTR_*` of linux/mount.h.
pub(crate) mod attr {
    pub(crate) const RDONLY: u64 = 0x01;
    pub(super) const NOSUID: u64 = 0x02;
    pub(super) const NODEV: u64 = 0x04;
    pub(super) const NOEXEC: u64 = 0x08;
    /// The bits of the field that holds one of the next three values.
    pub(super) const ATIME: u64 = 0x70;
    pub(super) const RELATIME: u64 = 0x00;
    pub(super) const NOATIME: u64 = 0x10;
    pub(super) const STRICTATIME: u64 = 0x20;
    pub(super) const NODIRATIME: u64 = 0x80;
    pub(super) const NOSYMFOLLOW: u64 = 0x0020_0000;
}

/// Every known option. All others belong to the file system, such as `size=64k`.
pub(crate) const MEANINGS: [(&str, MountOption); 62] = {
    use MountOption::{Bind, Clear, CopyUp, FileSystem, IdMap, Nothing, Propagation, Remount, Set, Undo};
    use PropagationKind::{Private, Shared, Slave, Unbindable};
    use Tree::{All, Top};
    [
        ("defaults", Nothing),
        ("remount", Remount),
        ("bind", Bind(Top)),
        ("rbind", Bind(All)),
        ("idmap", IdMap(Top)),
        ("ridmap", IdMap(All)),
        ("tmpcopyup", CopyUp),
        ("ro", Set(attr::RDONLY, Top)),
        ("rw", Clear(attr::RDONLY, Top)),
        ("nosuid", Set(attr::NOSUID, Top)),
        ("suid", Clear(attr::NOSUID, Top)),
        ("nodev", Set(attr::NODEV, Top)),
        ("dev", Clear(attr::NODEV, Top)),
        ("noexec", Set(attr::NOEXEC, Top)),
        ("exec", Clear(attr::NOEXEC, Top)),
        ("nodiratime", Set(attr::NODIRATIME, Top)),
        ("diratime", Clear(attr::NODIRATIME, Top)),
        ("nosymfollow", Set(attr::NOSYMFOLLOW, Top)),
        ("symfollow", Clear(attr::NOSYMFOLLOW, Top)),
        ("relatime", Set(attr::RELATIME, Top)),
        ("norelatime", Undo(attr::RELATIME)),
        ("noatime", Set(attr::NOATIME, Top)),
        ("atime", Undo(attr::NOATIME)),
        ("strictatime", Set(attr::STRICTATIME, Top)),
        ("nostrictatime", Undo(attr::STRICTATIME)),
        ("rro", Set(attr::RDONLY, All)),
        ("rrw", Clear(attr::RDONLY, All)),
        ("rnosuid", Set(attr::NOSUID, All)),
        ("rsuid", Clear(attr::NOSUID, All)),
        ("rnodev", Set(attr::NODEV, All)),
        ("rdev", Clear(attr::NODEV, All)),
        ("rnoexec", Set(attr::NOEXEC, All)),
        ("rexec", Clear(attr::NOEXEC, All)),
        ("rnodiratime", Set(attr::NODIRATIME, All)),
        ("rdiratime", Clear(attr::NODIRATIME, All)),
        ("rnosymfollow", Set(attr::NOSYMFOLLOW, All)),
        ("rsymfollow", Clear(attr::NOSYMFOLLOW, All)),
        ("rrelatime", Set(attr::RELATIME, All)),
        ("rnorelatime", Clear(attr::ATIME, All)),
        ("rnoatime", Set(attr::NOATIME, All)),
        ("ratime", Clear(attr::ATIME, All)),
        ("rstrictatime", Set(attr::STRICTATIME, All)),
        ("rnostrictatime", Clear(attr::ATIME, All)),
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
    pub(crate) attributes: Attributes,
    pub(crate) recursive_attributes: Attributes,
    pub(crate) propagation: Vec<Propagation>,
    /// Set for a bind mount: whether mounts below the source are included.
    pub(crate) bind: Option<Recursive>,
    /// Set for an idmapped mount: whether mounts below it are included.
    pub(crate) id_map: Option<Recursive>,
    pub(crate) copy_up: bool,
    pub(crate) remount: bool,
    /// The remaining options, for the file system.
    pub(crate) file_system: Vec<String>,
}

/// Whether an option covers a whole tree.
pub(crate) type Recursive = bool;

impl Options {
    /// Sorts options by their effect. A later option overrides an earlier one that contradicts it.
    pub(crate) fn sort(options: impl IntoIterator<Item = String>) -> Self {
        let mut sorted = Self::default();
        for option in options.into_iter().flat_map(split) {
            let known = MEANINGS.iter().find(|(name, _)| *name == option);
            match known.map(|(_, meaning)| *meaning) {
                None | Some(MountOption::FileSystem) => sorted.file_system.push(option),
                Some(MountOption::Nothing) => {}
                Some(MountOption::Set(bits, tree)) => set(sorted.attributes(tree), bits),
                Some(MountOption::Clear(bits, tree)) => clear(sorted.attributes(tree), bits),
                Some(MountOption::Undo(bits)) => undo(&mut sorted.attributes, bits),
                Some(MountOption::Propagation(kind, tree)) => {
                    sorted.propagation.push(Propagation { kind, recursive: tree == Tree::All });
                }
                // `bind` and `rbind` add up, unlike `idmap` and `ridmap`: `bind` does not undo an earlier `rbind`.
                Some(MountOption::Bind(tree)) => {
                    sorted.bind = Some(sorted.bind == Some(true) || tree == Tree::All);
                }
                Some(MountOption::IdMap(tree)) => sorted.id_map = Some(tree == Tree::All),
                Some(MountOption::CopyUp) => sorted.copy_up = true,
                Some(MountOption::Remount) => sorted.remount = true,
            }
        }
        sorted
    }

    fn attributes(&mut self, tree: Tree) -> &mut Attributes {
        match tree {
            Tree::Top => &mut self.attributes,
            Tree::All => &mut self.recursive_attributes,
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

/// Sets attributes. Access time handling is one value in two bits, not two flags, so both bits are cleared before
/// it is set (mount_setattr(2)).
fn set(attributes: &mut Attributes, bits: u64) {
    let is_atime = bits == attr::RELATIME || bits & attr::ATIME != 0;
    let field = if is_atime { attr::ATIME } else { bits };
    attributes.set = attributes.set & !field | bits;
    attributes.clear = attributes.clear & !field | if is_atime { attr::ATIME } else { 0 };
}

fn undo(attributes: &mut Attributes, bits: u64) {
    let is_chosen = attributes.clear & attr::ATIME != 0 && attributes.set & attr::ATIME == bits;
    if is_chosen {
        clear(attributes, attr::ATIME);
        attributes.clear &= !attr::ATIME;
    }
}

fn clear(attributes: &mut Attributes, bits: u64) {
    attributes.set &= !bits;
    attributes.clear |= bits;
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
        assert_eq!(attributes(&["ro", "rw"]), Attributes { set: 0, clear: attr::RDONLY });
        assert_eq!(attributes(&["rw", "ro"]), Attributes { set: attr::RDONLY, clear: 0 });
        assert_eq!(
            attributes(&["noatime", "strictatime"]),
            Attributes { set: attr::STRICTATIME, clear: attr::ATIME }
        );
        assert_eq!(attributes(&["noatime", "relatime"]), Attributes { set: 0, clear: attr::ATIME });
        assert_eq!(attributes(&["noatime", "atime"]), Attributes::default());
        let noatime = Attributes { set: attr::NOATIME, clear: attr::ATIME };
        assert_eq!(attributes(&["noatime", "norelatime"]), noatime);
    }

    #[test]
    fn recursive_attributes_are_kept_separate() {
        let options = sorted(&["nosuid", "rro", "rnoatime"]);
        assert_eq!(options.attributes, Attributes { set: attr::NOSUID, clear: 0 });
        let recursive = Attributes { set: attr::RDONLY | attr::NOATIME, clear: attr::ATIME };
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
        assert_eq!(options.attributes, Attributes { set: attr::NOSUID, clear: 0 });
        let whole = ["context=\"a:s0:c1,c2\"", "lowerdir=/a\\,b:/c", "x=\\\\"];
        assert_eq!(sorted(&whole).file_system, whole);
        assert_eq!(sorted(&["x=\\\\,y"]).file_system, ["x=\\\\", "y"]);
    }

    #[test]
    fn rbind_stays_recursive_before_and_after_bind() {
        for options in [&["rbind", "rprivate", "ro", "bind"][..], &["bind", "rbind"], &["rbind"]] {
            assert_eq!(sorted(options).bind, Some(true), "{options:?}");
        }
        // Recursive propagation does not make the bind mount recursive.
        assert_eq!(sorted(&["bind", "rprivate"]).bind, Some(false));
        assert_eq!(sorted(&["rprivate"]).bind, None);
    }

    #[test]
    fn last_of_idmap_and_ridmap_counts() {
        assert_eq!(sorted(&["ridmap", "idmap"]).id_map, Some(false));
        assert_eq!(sorted(&["idmap", "ridmap"]).id_map, Some(true));
    }

    #[test]
    fn propagation_options_keep_their_order() {
        let kinds = sorted(&["rslave", "shared"]).propagation;
        let wanted = [(PropagationKind::Slave, true), (PropagationKind::Shared, false)];
        assert_eq!(kinds, wanted.map(|(kind, recursive)| Propagation { kind, recursive }));
    }

    #[test]
    fn option_names_are_unique() {
        let mut names = MEANINGS.map(|(name, _)| name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
