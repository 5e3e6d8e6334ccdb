//! A temporary directory for one test.

use super::program;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A new directory that every user may enter. Deleted with its contents when dropped.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        super::watch();
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("husk-test-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new directory");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its permissions");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of `name` in the directory.
    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Creates an executable file with content `bytes`.
    pub(crate) fn program(&self, name: &str, bytes: Vec<u8>) -> PathBuf {
        let path = self.join(name);
        program::install(bytes, &path);
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Tolerated: whatever remains is in a directory for temporary files.
        drop(fs::remove_dir_all(&self.0));
    }
}
