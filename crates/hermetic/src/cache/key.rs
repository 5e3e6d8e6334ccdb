//! The key of a run: the digest of everything that its program can see, except the arguments.

use super::digest::{Digest, Fields};
use super::index::{Identity, Index};
use super::layers::Layers;
use super::system::digest_entries;
use super::view::View;
use crate::host::Host;
use crate::outputs::VARIABLES;
use crate::plan::{environment, image};
use crate::profile::{Image, Net, PathAccess, Profile, Root};
use rustix::fs::stat;
use rustix::process::{Resource, getrlimit};
use rustix::system::uname;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::thread;

/// Limits that the program inherits unless the profile sets them.
const INHERITED: [Resource; 15] = [
    Resource::As,
    Resource::Core,
    Resource::Cpu,
    Resource::Data,
    Resource::Fsize,
    Resource::Locks,
    Resource::Memlock,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Nofile,
    Resource::Nproc,
    Resource::Rtprio,
    Resource::Rttime,
    Resource::Sigpending,
    Resource::Stack,
];

/// Lines of /proc/self/status about properties that the program inherits.
const STATUS: [&str; 8] = [
    "Groups:",
    "SigIgn:",
    "CapBnd:",
    "NoNewPrivs:",
    "Seccomp:",
    "Seccomp_filters:",
    "Cpus_allowed:",
    "Mems_allowed:",
];

/// The files that a program sees.
pub(super) enum Seen {
    /// Those of a view, and the digest of the system's.
    Inputs(Arc<View>, Digest),
    Image(Layers),
}

/// Returns why the result of a profile's program cannot be remembered.
pub(super) fn unsuited(profile: &Profile, host: &Host) -> Option<String> {
    match &profile.image {
        Some(image) => {
            if let Some(reason) = unsuited_image(image) {
                return Some(reason.to_owned());
            }
        }
        None if profile.inputs.is_empty() => return Some("no inputs are declared (--inputs)".to_owned()),
        None => {}
    }
    let reasons = [
        (profile.net == Net::Host, "--net host shows the machine's network"),
        (profile.nested, "--nested allows mounts that show more of the machine"),
        (profile.keeps_files, "--keep needs the files of a run"),
        (profile.observed, "the program is observed"),
        (!profile.services.is_empty(), "its services may answer differently"),
    ];
    if let Some((_, reason)) = reasons.into_iter().find(|(is, _)| *is) {
        return Some(reason.to_owned());
    }
    let variables = environment::variables(profile, host);
    if let Some(name) = VARIABLES.iter().find(|name| variables.contains_key(OsStr::new(name))) {
        return Some(format!("{name} is set, and a test that is not run writes no coverage"));
    }
    profile.shown.iter().find_map(|show| {
        let what = match show.access {
            PathAccess::Write => "is writable",
            // A path of the image, which has only layers.
            _ if profile.image.is_some() => return None,
            PathAccess::Overlay => "is shown with everything in it",
            PathAccess::Read if !is_ordinary(show) => "is not a file or directory",
            PathAccess::Read | PathAccess::Hide => return None,
        };
        Some(format!("{} {what}", show.path.display()))
    })
}

/// Returns why the files of an image are not all that its program sees.
fn unsuited_image(image: &Image) -> Option<&'static str> {
    if !image.has_layers() {
        return Some("the root directory is not an image of layers");
    }
    if !image.shown.is_empty() {
        return Some("the image also shows the repository and the test binary");
    }
    image::mounts(image).next().map(|_| "the image's bundle has mounts")
}

fn is_ordinary(show: &crate::Show) -> bool {
    fs::metadata(&show.path).is_ok_and(|found| found.is_file() || found.is_dir())
}

/// Returns the digest of a profile on a host, with the files that its program sees.
pub(super) fn digest(
    profile: &Profile,
    host: &Host,
    seen: &Seen,
    index: &mut Index,
) -> Result<Digest, String> {
    let mut digest = Fields::default();
    digest.add("husk test").add(env!("CARGO_PKG_VERSION"));
    digest.add(own_file(index).map_err(|error| format!("read husk's own file: {error}"))?.0);
    for (name, value) in environment::variables(profile, host) {
        digest.add(name.as_bytes()).add(value.as_bytes());
    }
    // The digest of husk's own file is part of the key, so the format of these may change.
    digest.add(format!("{:?} {:?}", of_profile(profile), of_host(host)));
    let owner = (host.uid, host.gid);
    match seen {
        Seen::Inputs(view, system) => {
            digest.add(format!("{:?} {:?} {:?}", view.trees, view.links, view.empty));
            digest_entries(&view.entries, index, owner, &mut digest)?;
            digest.add(system.0);
        }
        Seen::Image(layers) => layers.add_to(&mut digest, index, owner)?,
    }
    let kernel = uname();
    for field in [kernel.sysname(), kernel.release(), kernel.version(), kernel.machine()] {
        digest.add(field.to_bytes());
    }
    for resource in INHERITED {
        digest.add(format!("{:?}", getrlimit(resource)));
    }
    let status = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let lines = status.lines().filter(|line| STATUS.iter().any(|name| line.starts_with(name)));
    digest.add_all(lines);
    digest.add(fs::read("/proc/self/personality").unwrap_or_default());
    digest.add(format!("{:?}", thread::available_parallelism().ok()));
    Ok(digest.finish())
}

/// Returns the part of a profile that nothing else in the key contains.
fn of_profile(profile: &Profile) -> Profile {
    let shown = if profile.image.is_some() { profile.shown.clone() } else { Vec::new() };
    let of_image = |image: &Image| Image { root: Root::Layers(Vec::new()), ..image.clone() };
    Profile {
        args: Vec::new(),
        env: Vec::new(),
        shown,
        image: profile.image.as_ref().map(of_image),
        tools: Vec::new(),
        links: Vec::new(),
        inputs: Vec::new(),
        excluded: Vec::new(),
        ..profile.clone()
    }
}

/// Returns the facts about the host that reach a program with captured output.
fn of_host(host: &Host) -> Host {
    // In an image, these are the paths of its own files.
    let found = if host.view.is_some() { Vec::new() } else { host.found.clone() };
    Host {
        project: host.cwd.clone(),
        environment: Arc::default(),
        found,
        clocks: Default::default(),
        cgroup: false,
        written: [false; 3],
        null_streams: Vec::new(),
        view: None,
        ..host.clone()
    }
}

/// Returns the digest of this program's file.
fn own_file(index: &mut Index) -> std::io::Result<Digest> {
    const SELF: &str = "/proc/self/exe";
    let (path, identity) = (fs::read_link(SELF)?, Identity::of(&stat(SELF)?));
    match index.digest(&path, identity) {
        // Another file is now at this path, or none.
        Err(_) => Ok(Digest::of_stream(File::open(SELF)?)?.0),
        digest => digest,
    }
}
