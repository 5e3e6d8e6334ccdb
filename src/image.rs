//! Images as the root file systems of sandboxes.
//!
//! The layers are unpacked once into the caller's store, with the ids of a sandbox: all files belong to the program. So
//! subordinate ids are not needed, and it works in a sandbox too.

use anyhow::{Context as _, Result, bail};
use husk_hermetic::{ImageProgram, Profile};
use husk_image::{Held, Ids, Image, Limits, Program, Reference, Store, Use, User};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Images that are ready for sandboxes. Their layers stay in the store as long as this value exists, whatever
/// `husk bundle --prune` removes meanwhile.
#[derive(Default)]
pub(crate) struct Images {
    known: RefCell<BTreeMap<OsString, (Profile, Held)>>,
}

impl Images {
    /// Returns the profile of a sandbox whose root is an image. Its arguments are those of the image's program, or
    /// empty if the image names none. The caller may change the rest too.
    ///
    /// The image has a name as in `husk bundle`. It is unpacked if the store does not have it, and looked up once.
    ///
    /// # Errors
    ///
    /// Fails if the image does not exist, is damaged, or cannot be unpacked.
    pub(crate) fn profile(&self, name: &OsStr) -> Result<Profile> {
        if let Some((profile, _)) = self.known.borrow().get(name) {
            return Ok(profile.clone());
        }
        let (profile, held) = prepare(name).with_context(|| format!("image {}", name.display()))?;
        self.known.borrow_mut().insert(name.to_owned(), (profile.clone(), held));
        Ok(profile)
    }
}

/// Unpacks an image where that is necessary.
fn prepare(name: &OsStr) -> Result<(Profile, Held)> {
    let store = Store::open(&store_path()?, Use::Shared, Ids::of_sandboxes())?;
    let (image, pulled);
    let image = match Reference::parse(name)? {
        Reference::Registry(name) => match store.remembered(&name) {
            Some(found) => {
                image = found;
                &image
            }
            None => {
                pulled = store.pull(&name)?;
                store.unpack(&pulled.image, Limits::default())?;
                store.remember(&pulled)?;
                &pulled.image
            }
        },
        local => {
            image = Image::open(&local)?;
            store.unpack(&image, Limits::default())?;
            &image
        }
    };
    let layers = store.stack(image)?;
    let held = store.hold(&layers)?;
    let user = husk_runtime::image_user(&layers, image.user()).context("the user of the image")?;
    let home = user.home.map(|home| home.to_string_lossy().into_owned());
    let user = User { uid: user.uid, gid: user.gid, groups: user.groups, home };
    let Program { args, env, cwd } = image.program(&[], &user);
    let program = ImageProgram { args, env, cwd, uid: user.uid, gid: user.gid };
    Ok((husk_hermetic::image(&program, layers)?, held))
}

/// Returns the path of the caller's store.
pub(crate) fn store_path() -> Result<PathBuf> {
    let named = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
    match cache {
        Some(cache) => Ok(cache.join("husk")),
        None => bail!("neither XDG_CACHE_HOME nor HOME says where the store of layers is"),
    }
}
