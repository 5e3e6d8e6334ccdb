//! Looks up users in an image's /etc/passwd and /etc/group, which are opened below its root only.

use crate::error::Error;
use crate::host::files;
use husk_bundle::Container;
use husk_plan::users::{self, fields};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat};
use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// A longer list is cut off here.
const MOST: u64 = 1 << 20;

/// The lists of one image. A list that is missing or not a regular file counts as empty.
pub(crate) struct Users {
    /// The root directories of the image's layers, from the highest to the lowest. Most images have only one.
    roots: Vec<OwnedFd>,
}

/// The user and groups that a program runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    /// The group that was given, or that the user has in the list.
    pub(crate) gid: Option<u32>,
    /// The supplementary groups of a user who was given by name.
    pub(crate) groups: Vec<u32>,
}

impl Users {
    /// Opens the lists of the image at `root`.
    pub(crate) fn below(root: &Path) -> Self {
        Self::below_all([root])
    }

    /// Opens the lists of a container that does not run yet.
    pub(crate) fn of(container: &Container) -> Self {
        if container.layers.is_empty() {
            return Self::below(&container.rootfs);
        }
        let upper = container.bundle.join(husk_bundle::LAYERS).join("upper");
        Self::below_all([&upper].into_iter().chain(&container.layers))
    }

    /// Opens the lists of an image that consists of layers.
    fn below_all(roots: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |root: &Path| openat(CWD, root, flags, Mode::empty()).ok();
        Self { roots: roots.into_iter().filter_map(|root| open(root.as_ref())).collect() }
    }

    pub(crate) fn home(&self, uid: u32) -> Option<PathBuf> {
        users::home(&self.read("etc/passwd")?, uid)
    }

    pub(crate) fn name(&self, uid: u32) -> Option<String> {
        users::name(&self.read("etc/passwd")?, uid)
    }

    /// Resolves `USER[:GROUP]`. Text that looks like a number is never taken for a name. A number that is out of
    /// range is an error, because a truncated one would be another user.
    pub(crate) fn find(&self, text: &str) -> Result<Identity, Error> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let mut identity = match number(user)? {
            Some(uid) => Identity { uid, gid: None, groups: Vec::new() },
            None => self.named(user)?,
        };
        if let Some(group) = group {
            let named = || {
                let list = self.read("etc/group").unwrap_or_default();
                let found = fields(&list).find(|fields| fields.first() == Some(&group));
                found.and_then(|fields| fields.get(2)?.parse().ok())
            };
            let gid = match number(group)? {
                Some(gid) => Some(gid),
                None => named(),
            };
            identity.gid = Some(gid.ok_or_else(|| unknown("group", group))?);
        }
        Ok(identity)
    }

    fn named(&self, name: &str) -> Result<Identity, Error> {
        let list = self.read("etc/passwd").unwrap_or_default();
        let user = fields(&list).find(|fields| fields.first() == Some(&name));
        let ids = user.and_then(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)));
        let (uid, gid) = ids.ok_or_else(|| unknown("user", name))?;
        let list = self.read("etc/group").unwrap_or_default();
        let member = |fields: &Vec<&str>| {
            fields.get(3).is_some_and(|members| members.split(',').any(|one| one == name))
        };
        let groups = fields(&list).filter(member).filter_map(|fields| fields.get(2)?.parse().ok());
        Ok(Identity { uid, gid: Some(gid), groups: groups.collect() })
    }

    /// Reads the list of the highest layer that has one. A layer that hides it has a device in its place, which is not
    /// a regular file.
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let open = |root| files::open_regular(root, path, ResolveFlags::IN_ROOT);
        let mut found = self.roots.iter().map(open);
        let file =
            found.find(|file| !file.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound))?;
        let mut text = Vec::new();
        file.ok()?.take(MOST).read_to_end(&mut text).ok()?;
        Some(text)
    }
}

/// The user that an image's program runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageUser {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub home: Option<PathBuf>,
}

/// Looks up the user of an image's configuration, `USER[:GROUP]`, in the image's own lists. `roots` are the image's
/// layers from the highest to the lowest. Without a group, the user's groups are those of the lists (config.md of the
/// image specification, "User"); a user without an entry has root's group, as in podman and Docker.
///
/// # Errors
///
/// Fails if a name is not in the image, or a number is not an id.
pub fn image_user(roots: &[PathBuf], text: &str) -> Result<ImageUser, Error> {
    let users = Users::below_all(roots);
    let text = if text.is_empty() { "0" } else { text };
    let mut identity = users.find(text)?;
    if text.contains(':') {
        identity.groups.clear();
    } else if let Some(name) = users.name(identity.uid) {
        // A number has the same groups as the name.
        identity = Identity { uid: identity.uid, ..users.named(&name)? };
    }
    let Identity { uid, gid, groups } = identity;
    Ok(ImageUser { uid, gid: gid.unwrap_or_default(), groups, home: users.home(uid) })
}

fn unknown(what: &'static str, name: &str) -> Error {
    Error::Identity { what, text: name.to_owned(), reason: "no such name in the container" }
}

/// Parses an id. `None` if the text does not look like a number.
fn number(text: &str) -> Result<Option<u32>, Error> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text.is_empty() {
        return Err(Error::Identity { what: "user or group", text: text.to_owned(), reason: "is empty" });
    }
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    // `u32::MAX` means "leave it unchanged" to the kernel.
    match text.parse() {
        Ok(id) if id != u32::MAX && digits == text => Ok(Some(id)),
        _ => {
            Err(Error::Identity { what: "user or group", text: text.to_owned(), reason: "is not a valid id" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn image() -> tempfile::TempDir {
        let image = tempfile::tempdir().unwrap();
        fs::create_dir(image.path().join("etc")).unwrap();
        let passwd =
            "root:x:0:0::/root:/bin/sh\nbroken\nwho:x:7:8::/home/who:/bin/sh\n4294967296:x:0:0::/:\n";
        fs::write(image.path().join("etc/passwd"), passwd).unwrap();
        fs::write(image.path().join("etc/group"), "staff:x:50:who,other\nwheel:x:10:other\n").unwrap();
        image
    }

    #[test]
    fn user_is_found_by_number_or_name() {
        let image = image();
        let find = |text| Users::below(image.path()).find(text).map_err(|error| error.to_string());
        let identity = |uid, gid, groups: &[u32]| Ok(Identity { uid, gid, groups: groups.to_vec() });
        assert_eq!(find("1"), identity(1, None, &[]));
        assert_eq!(find("1:2"), identity(1, Some(2), &[]));
        assert_eq!(find("who"), identity(7, Some(8), &[50]));
        assert_eq!(find("who:staff"), identity(7, Some(50), &[50]));
        for wrong in [
            "",
            ":",
            "1:",
            ":1",
            "-1",
            "+1",
            "4294967295",
            "4294967296",
            "1:-1",
            "1:4294967296",
            "nobody",
            "1:none",
        ] {
            assert!(find(wrong).is_err(), "{wrong} is nobody");
        }
    }

    #[test]
    fn user_of_an_image_is_found_in_the_highest_layer_with_a_list() {
        let (low, high) = (image(), tempfile::tempdir().unwrap());
        let find = |text| {
            image_user(&[high.path().into(), low.path().into()], text).map_err(|error| error.to_string())
        };
        let who = ImageUser { uid: 7, gid: 8, groups: vec![50], home: Some("/home/who".into()) };
        assert_eq!((find("who"), find("7")), (Ok(who.clone()), Ok(who.clone())));
        assert_eq!(find("who:9"), Ok(ImageUser { gid: 9, groups: Vec::new(), ..who }));
        assert_eq!(find(""), Ok(ImageUser { home: Some("/root".into()), ..ImageUser::default() }));
        assert_eq!(find("4711"), Ok(ImageUser { uid: 4711, ..ImageUser::default() }));
        fs::create_dir(high.path().join("etc")).unwrap();
        fs::write(high.path().join("etc/passwd"), "who:x:70:80::/new:/bin/sh\n").unwrap();
        assert_eq!(find("who").unwrap().uid, 70);
        fs::remove_file(high.path().join("etc/passwd")).unwrap();
        symlink("/dev/null", high.path().join("etc/passwd")).unwrap();
        assert_eq!(find("who").unwrap().uid, 7, "the symlink leads to nothing in its layer");
    }

    #[test]
    fn invalid_utf_8_drops_one_line() {
        let image = image();
        let mut list = b"caf\xe9:x:5:5:Ren\xe9:/home/cafe:/bin/sh\r\n".to_vec();
        list.extend(b"who:x:7:8::/home/who:/bin/sh\r\n");
        fs::write(image.path().join("etc/passwd"), list).unwrap();
        fs::write(image.path().join("etc/group"), b"\xff:x:40:who\nstaff:x:50:who\n").unwrap();
        let users = Users::below(image.path());
        assert_eq!((users.home(5), users.home(7)), (None, Some("/home/who".into())));
        assert_eq!(users.name(7).as_deref(), Some("who"));
        assert_eq!(users.find("who").unwrap(), Identity { uid: 7, gid: Some(8), groups: vec![50] });
    }

    #[test]
    fn passwd_is_read_only_inside_the_image() {
        let image = image();
        assert_eq!(Users::below(image.path()).home(7), Some("/home/who".into()));
        assert_eq!(Users::below(image.path()).home(9), None);
        fs::remove_file(image.path().join("etc/passwd")).unwrap();
        symlink("/etc/passwd", image.path().join("etc/passwd")).unwrap();
        assert_eq!(
            Users::below(image.path()).home(0),
            None,
            "the symlink is resolved below the root, where it points to itself"
        );
        assert_eq!(Users::below(&image.path().join("missing")).home(0), None);
    }
}
