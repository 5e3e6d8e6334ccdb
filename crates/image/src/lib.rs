//! Container images: read, verified, unpacked into a store of layers, and made into bundles.
//!
//! An [`Image`] is found by its [`Reference`]. Its layers are unpacked into a [`Store`], each once. This crate knows no
//! registry: skopeo copies images from there.
//!
//! Every byte of an image comes from strangers. A document is parsed only after its digest was verified. An archive is
//! unpacked below a descriptor, where no entry can reach anything else, and counts only once its digests are verified.

#![forbid(unsafe_code)]

mod bundle;
mod config;
mod digest;
mod error;
mod held;
mod layer;
mod limits;
mod manifest;
mod reference;
mod registry;
mod source;
mod store;

pub use bundle::{Draft, layers};
pub use config::{Program, User};
pub use digest::Digest;
pub use error::{Error, Problem};
pub use held::{Held, hold};
pub use limits::Limits;
pub use manifest::Image;
pub use reference::Reference;
pub use registry::Pulled;
pub use store::{Ids, Pruned, Store, Unpacked, Use};
