//! Tests of mounting, which need root.

use super::{below, unmount_root, with_root};
use crate::failure::{Code, Failure};
use crate::wire::Mount;
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A bundle, and directories for the layers of an overlay. Unmounts what a failed test leaves.
struct Bundle {
    directory: TempDir,
}

impl Bundle {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["bundle", "lower/1/fs", "lower/2/fs", "upper", "work"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("lower/1/fs/one"), "").unwrap();
        fs::write(directory.path().join("lower/2/fs/two"), "").unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.path("bundle/rootfs")
    }

    /// Mounts the root file system, which stays.
    fn mount(&self, mounts: &[Mount]) -> Result<(), Failure> {
        with_root(&self.path("bundle"), mounts, || Ok(()))
    }

    fn bind(&self, source: &str, target: &str, options: &[&str]) -> Mount {
        let source = self.path(source).to_str().unwrap().to_owned();
        mount("bind", &source, target, options.iter().map(|option| (*option).to_owned()).collect())
    }

    /// An overlay whose lower directories are named this often.
    fn overlay(&self, more: &[&str], times: usize) -> Mount {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        // One path may occur only once, so the others are made.
        let mut lower = vec![path("lower/2/fs"), path("lower/1/fs")];
        for number in 0..times {
            let layer = format!("lower/{number:0>60}");
            fs::create_dir(self.path(&layer)).unwrap();
            lower.push(path(&layer));
        }
        let mut options = vec![
            format!("workdir={}", path("work")),
            format!("upperdir={}", path("upper")),
            format!("lowerdir={}", lower.join(":")),
        ];
        options.extend(more.iter().map(|option| (*option).to_owned()));
        mount("overlay", "overlay", "", options)
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        unmount_root(&self.root()).unwrap();
    }
}

fn mount(kind: &str, source: &str, target: &str, options: Vec<String>) -> Mount {
    Mount { r#type: kind.to_owned(), source: source.to_owned(), target: target.to_owned(), options }
}

fn is_mounted(path: &Path) -> bool {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
    !below(path.parent().unwrap(), &mountinfo).iter().all(|point| point != path)
}

fn failure() -> Failure {
    Failure::new(Code::Unknown, "expected")
}

#[test]
fn mount_points_below_a_directory_are_found_last_first() {
    let mountinfo = "1 0 0:1 / / rw - ext4 a rw\n\
        2 1 0:2 / /b/rootfs/x rw - tmpfs a rw\n\
        3 2 0:3 / /b/rootfs/x/with\\040space rw - tmpfs a rw\n\
        4 1 0:4 / /b/rootfs2 rw - tmpfs a rw\n";
    let found = below(Path::new("/b/rootfs"), mountinfo);
    assert_eq!(found, [Path::new("/b/rootfs/x/with space"), Path::new("/b/rootfs/x")]);
}

#[test]
fn root_without_mounts_is_not_touched() {
    let bundle = Bundle::new();
    bundle.mount(&[]).unwrap();
    assert!(!bundle.root().exists());
    unmount_root(&bundle.root()).unwrap();
}

#[test]
fn bind_mount_gets_its_options() {
    if !geteuid().is_root() {
        return;
    }
    let bundle = Bundle::new();
    let mounts = vec![bundle.bind("lower/1/fs", "", &["rbind", "ro", "nosuid"])];
    bundle.mount(&mounts).unwrap();
    assert!(bundle.root().join("one").exists());
    let flags = statvfs(bundle.root()).unwrap().f_flag;
    assert!(flags.contains(StatVfsMountFlags::RDONLY | StatVfsMountFlags::NOSUID));
    unmount_root(&bundle.root()).unwrap();
    assert!(!is_mounted(&bundle.root()));
    assert_eq!(fs::metadata(bundle.root()).unwrap().mode() & 0o777, 0o711);
}

#[test]
fn overlay_with_more_layers_than_fit_in_a_page_is_mounted() {
    if !geteuid().is_root() {
        return;
    }
    for times in [0, 60] {
        let bundle = Bundle::new();
        let mounts = vec![bundle.overlay(&[], times)];
        let before = std::env::current_dir().unwrap();
        bundle.mount(&mounts).unwrap();
        assert_eq!(std::env::current_dir().unwrap(), before);
        assert!(bundle.root().join("one").exists() && bundle.root().join("two").exists());
    }
}

#[test]
fn owners_of_an_overlays_files_are_mapped() {
    if !geteuid().is_root() {
        return;
    }
    let bundle = Bundle::new();
    let mounts = vec![bundle.overlay(&["uidmap=0:100000:65536", "gidmap=0:200000:65536"], 0)];
    bundle.mount(&mounts).unwrap();
    let one = fs::metadata(bundle.root().join("one")).unwrap();
    assert_eq!((one.uid(), one.gid()), (100_000, 200_000));
    assert!(!bundle.path("bundle/mapped-layers").exists());
}

#[test]
fn target_is_resolved_within_the_root() {
    if !geteuid().is_root() {
        return;
    }
    let bundle = Bundle::new();
    // The image's symlink names a directory of the host.
    symlink(bundle.path("work"), bundle.path("lower/1/fs/link")).unwrap();
    let root = bundle.bind("lower/1/fs", "", &["bind"]);
    let outside = vec![root.clone(), bundle.bind("lower/2/fs", "/link", &["bind"])];
    let refused = bundle.mount(&outside).unwrap_err();
    assert!(refused.message.contains("no such file or directory"), "{refused:?}");
    assert!(!is_mounted(&bundle.root()));
    fs::create_dir(bundle.path("lower/1/fs/inside")).unwrap();
    let inside = vec![root, bundle.bind("lower/2/fs", "/inside", &["bind"])];
    bundle.mount(&inside).unwrap();
    assert!(bundle.root().join("inside/two").exists());
    unmount_root(&bundle.root()).unwrap();
    assert!(!is_mounted(&bundle.root()));
}

#[test]
fn failed_creation_unmounts_the_root() {
    if !geteuid().is_root() {
        return;
    }
    let bundle = Bundle::new();
    let mounts = vec![bundle.bind("lower/1/fs", "", &["bind"])];
    let failed = with_root(&bundle.path("bundle"), &mounts, || {
        assert!(is_mounted(&bundle.root()));
        Err::<(), _>(failure())
    });
    assert_eq!(failed, Err(failure()));
    assert!(!is_mounted(&bundle.root()));
    // Mounts that were there before stay.
    bundle.mount(&mounts).unwrap();
    with_root(&bundle.path("bundle"), &mounts, || Err::<(), _>(failure())).unwrap_err();
    assert!(is_mounted(&bundle.root()));
    unmount_root(&bundle.root()).unwrap();
    let missing: Vec<_> = mounts.into_iter().chain([bundle.bind("missing", "", &["bind"])]).collect();
    let failed = bundle.mount(&missing).unwrap_err();
    assert!(failed.message.starts_with("failed to mount rootfs component: mount bind "), "{failed:?}");
    let lonely = vec![bundle.bind("lower/1/fs", "/work", &["bind"])];
    assert_eq!(bundle.mount(&lonely).unwrap_err().code, Code::InvalidArgument);
    assert!(!is_mounted(&bundle.root()));
}

#[test]
fn every_mount_is_unmounted_and_no_symlink_is_followed() {
    if !geteuid().is_root() {
        return;
    }
    let bundle = Bundle::new();
    let mounts = [bundle.bind("lower/1/fs", "", &["bind"])];
    // Two mounts on top of each other.
    bundle.mount(&mounts).unwrap();
    bundle.mount(&mounts).unwrap();
    let link = bundle.path("bundle/link");
    symlink(bundle.root(), &link).unwrap();
    unmount_root(&link).unwrap();
    assert!(is_mounted(&bundle.root()));
    unmount_root(&bundle.root()).unwrap();
    assert!(!is_mounted(&bundle.root()));
}
