//! `husk bundle`: makes a bundle of an image.
//!
//! A user's files must belong to the ids that they will have in containers. So as a user, husk starts itself once more in
//! a user namespace with those ids, where it is root, whenever something must be unpacked or removed.

use super::spec;
use crate::exit::Exit;
use crate::image;
use crate::output;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Context as _, Result};
use husk_image::{Draft, Ids, Image, Limits, Pulled, Reference, Store, Unpacked, Use, User};
use husk_runtime::{LAYERS, RootlessMaps, image_user};
use husk_spawn::{Command, IdMap, Namespaces};
use serde_json::{Value, json};
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) const MORE: &str = "
IMAGE is one of:
  oci:DIRECTORY[:TAG]          a directory in the OCI image layout
  oci-archive:FILE[:TAG]       the same in a tar archive
  docker-archive:FILE[:TAG]    a file that 'docker save' or 'podman save' has written
  NAME[:TAG]                   an image in a registry, which skopeo copies

Layers are verified and unpacked once, into $XDG_CACHE_HOME/husk or ~/.cache/husk. 'husk run' makes the container's root
of them, and keeps in DIRECTORY what the container writes. Other runtimes need a bundle made with --flat.

EXAMPLES:
  {husk} bundle docker.io/library/alpine alpine    make a bundle of an image in a registry
  {husk} run --bundle alpine a1                    run its program, a shell
  {husk} bundle --flat oci:layout:v1 web           make a bundle for every runtime
  {husk} bundle --prune                            remove the layers that no bundle uses
";

/// Set in the process that husk starts in a user namespace.
const INSIDE: &str = "_HUSK_BUNDLE_INSIDE";

/// Tells skopeo in a user namespace whose credentials for registries it should use. podman sets it too.
const USER_OF_SKOPEO: &str = "_CONTAINERS_ROOTLESS_UID";

/// Make a bundle of a container image
#[derive(Debug, clap::Args)]
pub(crate) struct Bundle {
    /// Unpack the image into the bundle, for any runtime
    #[arg(long)]
    flat: bool,
    /// Ask the registry again, even if an earlier copy of the image is in the store
    #[arg(long)]
    pull: bool,
    /// Refuse images that unpack to more than this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().bytes)]
    max_bytes: u64,
    /// Refuse images with more than this many files
    #[arg(long, value_name = "COUNT", default_value_t = Limits::default().entries)]
    max_files: u64,
    /// Remove the layers that no bundle uses
    #[arg(long, conflicts_with_all = ["image", "directory", "flat", "pull"])]
    prune: bool,
    /// Image to make the bundle of
    #[arg(required_unless_present = "prune")]
    image: Option<OsString>,
    /// Directory of the new bundle
    #[arg(required_unless_present = "prune")]
    directory: Option<PathBuf>,
}

impl Perform for Bundle {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let caller = Caller::new();
        let store = image::store_path()?;
        let (Some(image), Some(directory)) = (&self.image, &self.directory) else {
            return match caller {
                Caller::User(maps) => inside(&maps),
                Caller::Root | Caller::Inside => prune(&store),
            };
        };
        let reference = Reference::parse(image)?;
        let directory = absolute(directory)?;
        let ids = caller.ids()?;
        if let Caller::User(maps) = &caller {
            let is_quick = !self.flat && !self.pull && {
                let store = Store::open(&store, Use::Shared, ids.clone())?;
                let image = match &reference {
                    Reference::Registry(name) => store.remembered(name),
                    local => Some(Image::open(local)?),
                };
                image.is_some_and(|image| store.serves(&image))
            };
            if !is_quick {
                return inside(maps);
            }
        }
        let store = Store::open(&store, Use::Shared, ids.clone())?;
        self.make(session, &caller, &store, &ids, &reference, &directory)?;
        Ok(Exit::Success)
    }
}

impl Bundle {
    fn make(
        &self,
        session: &Session<'_>,
        caller: &Caller,
        store: &Store,
        ids: &Ids,
        reference: &Reference,
        directory: &Path,
    ) -> Result<()> {
        let found = match reference {
            Reference::Registry(name) => match store.remembered(name).filter(|_| !self.pull && !self.flat) {
                Some(image) => Found::Here(image),
                None => Found::Pulled(store.pull(name)?),
            },
            local => Found::Here(Image::open(local)?),
        };
        let image = found.image();
        // Before the work begins, not after.
        let mut draft = Draft::begin(directory, LAYERS)?;
        let limits = Limits { bytes: self.max_bytes, entries: self.max_files };
        let (roots, unpacked) = if self.flat {
            let (rootfs, unpacked) = draft.flatten(image, ids, limits)?;
            (vec![rootfs], unpacked)
        } else {
            let unpacked = store.unpack(image, limits)?;
            if let Found::Pulled(pulled) = &found {
                store.remember(pulled)?;
            }
            (draft.stack(image, store)?, unpacked)
        };
        warn(session, ids, unpacked);
        let user = image_user(&roots, image.user()).context("the user of the image")?;
        let home = user.home.map(|home| home.to_string_lossy().into_owned());
        let user = User { uid: user.uid, gid: user.gid, groups: user.groups, home };
        draft.finish(&caller.config(image, &user)?)?;
        Ok(())
    }
}

/// An image, and where it comes from.
enum Found {
    Here(Image),
    Pulled(Pulled),
}

impl Found {
    fn image(&self) -> &Image {
        match self {
            Self::Here(image) => image,
            Self::Pulled(pulled) => &pulled.image,
        }
    }
}

/// Warns once for an image, and only when something was unpacked.
fn warn(session: &Session<'_>, ids: &Ids, unpacked: Unpacked) {
    if unpacked.layers > 0 && ids.are_one() {
        session.log.warning(
            &"all files of the image belong to you, because you have no subordinate ids: see `husk doctor`",
        );
    }
    if unpacked.skipped_devices > 0 {
        let count = unpacked.skipped_devices;
        session.log.warning(&format!(
            "devices of the image were left out, because only root can make them: {count}"
        ));
    }
}

fn prune(store: &Path) -> Result<Exit> {
    let store = Store::open(store, Use::Alone, Ids::of_this_process()?)?;
    let pruned = store.prune(|bundle| husk_image::layers(&bundle.join(LAYERS)))?;
    let count = |number, noun| format!("{number} {noun}{}", if number == 1 { "" } else { "s" });
    output::print(format!("removed {}\n", count(pruned.layers, "unused layer")))?;
    Ok(Exit::Success)
}

/// The process that makes the bundle.
enum Caller {
    /// Root, perhaps of a user namespace that somebody else made.
    Root,
    /// A user with these ids.
    User(RootlessMaps),
    /// Root of the user namespace that husk made for a user.
    Inside,
}

impl Caller {
    fn new() -> Self {
        if !rustix::process::geteuid().is_root() {
            Self::User(RootlessMaps::of_caller())
        } else if env::var_os(INSIDE).is_some() {
            Self::Inside
        } else {
            Self::Root
        }
    }

    fn ids(&self) -> Result<Ids> {
        match self {
            Self::User(maps) => Ok(Ids::of_maps(&text(&maps.uids), &text(&maps.gids))),
            Self::Root | Self::Inside => Ok(Ids::of_this_process()?),
        }
    }

    /// Returns the text of config.json.
    fn config(&self, image: &Image, user: &User) -> Result<String> {
        let maps = match self {
            Self::Root => None,
            Self::User(maps) => Some(maps.clone()),
            Self::Inside => {
                Some(RootlessMaps { uids: read("/proc/self/uid_map")?, gids: read("/proc/self/gid_map")? })
            }
        };
        let text = spec::text(maps.as_ref().map(|_| (0, 0)));
        let mut config: Value = serde_json::from_str(&text).context("config.json")?;
        if let Some(maps) = maps {
            let entry =
                |map: &IdMap| json!({ "containerID": map.inside, "hostID": map.outside, "size": map.count });
            config["linux"]["uidMappings"] = maps.uids.iter().map(entry).collect();
            config["linux"]["gidMappings"] = maps.gids.iter().map(entry).collect();
        }
        image.apply(&mut config, user);
        Ok(serde_json::to_string_pretty(&config).context("config.json")? + "\n")
    }
}

/// Formats maps as `/proc/PID/uid_map` has them.
fn text(maps: &[IdMap]) -> String {
    maps.iter().map(|map| format!("{} {} {}\n", map.inside, map.outside, map.count)).collect()
}

/// Reads the maps of this process's user namespace.
fn read(path: &'static str) -> Result<Vec<IdMap>> {
    let map = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(IdMap { inside: next()?, outside: next()?, count: next()? })
    };
    let text = std::fs::read_to_string(path).context(path)?;
    text.lines().map(map).collect::<Option<_>>().with_context(|| format!("{path}: is not a map of ids"))
}

/// Runs this command again as root of a user namespace with these ids.
fn inside(maps: &RootlessMaps) -> Result<Exit> {
    let mut command = Command::new("/proc/self/exe");
    command.args(husk_runtime::arguments().iter().skip(1)).env(INSIDE, "1").new_namespaces(Namespaces::USER);
    command.env(USER_OF_SKOPEO, rustix::process::getuid().to_string());
    command.uid_map(&maps.uids).gid_map(&maps.gids);
    let status = command.status().context("start husk in a user namespace")?;
    Ok(Exit::Program(status))
}
