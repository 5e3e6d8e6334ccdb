//! The shim's socket. All containers of a pod share one shim, so its name is made of the pod's.

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::process::umask;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The directory of the sockets, unless containerd names one.
pub(super) const DIRECTORY: &str = "/run/containerd/s";

/// The socket of a group of containers.
pub(super) enum Socket {
    /// A new one, on which nobody listens yet.
    New(UnixListener),
    /// Another shim of the group listens.
    Served,
}

/// Returns the path that all shims of the group share, whichever shim made it.
pub(super) fn path(directory: &Path, address: &str, namespace: &str, group: &str) -> PathBuf {
    let digest =
        Sha256::digest(Path::new(address).join(namespace).join(group).as_os_str().as_encoded_bytes());
    let name = digest.iter().fold(String::new(), |mut name, byte| {
        // Writing to a string cannot fail.
        let _written = write!(name, "{byte:02x}").is_ok();
        name
    });
    directory.join(name)
}

/// Makes the socket, or finds that another shim has it. The caller's containers may start at the same time, so the
/// directory is locked meanwhile.
pub(super) fn claim(path: &Path) -> io::Result<Socket> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let lock = File::open(directory)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    let before = umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let bound = bind(path);
    umask(before);
    bound
}

/// Removes the socket of a shim that was killed, unless another shim has taken its place.
pub(super) fn remove_dead(path: &Path) -> io::Result<()> {
    let lock = File::open(path.parent().unwrap_or(Path::new("/")))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    match UnixStream::connect(path) {
        Ok(_) => Ok(()),
        Err(_) => fs::remove_file(path),
    }
}

fn bind(path: &Path) -> io::Result<Socket> {
    match UnixListener::bind(path) {
        Err(error) if error.raw_os_error() == Some(Errno::ADDRINUSE.raw_os_error()) => {
            if UnixStream::connect(path).is_ok() {
                return Ok(Socket::Served);
            }
            // Its shim was killed.
            fs::remove_file(path)?;
            UnixListener::bind(path).map(Socket::New)
        }
        bound => bound.map(Socket::New),
    }
}

#[cfg(test)]
mod tests {
    use super::{Socket, claim, path, remove_dead};
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    #[test]
    fn path_is_that_of_the_shim_for_runc() {
        // The name in containerd's own shim: sha256("/run/containerd/containerd.sock/default/c").
        let found = path(Path::new("/s"), "/run/containerd/containerd.sock", "default", "c");
        assert_eq!(found, Path::new("/s/9cb583b155a36d5eb6ede9fb14dbf6eb7e8a23b3e803e95a337ba133e3043d85"),);
    }

    #[test]
    fn second_shim_of_a_group_finds_the_first_and_replaces_a_dead_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s/socket");
        let Socket::New(first) = claim(&path).unwrap() else { panic!("nobody listened") };
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(claim(&path).unwrap(), Socket::Served));
        remove_dead(&path).unwrap();
        assert!(path.exists());
        drop(first);
        assert!(matches!(claim(&path).unwrap(), Socket::New(_)));
        remove_dead(&path).unwrap();
        assert!(!path.exists());
    }
}
