//! From the name of an image to its configuration and layers.
//!
//! Everything except the index of a layout is read by its digest, and only bytes with that digest are parsed.

use crate::digest::Digest;
use crate::error::Error;
use crate::reference::Reference;
use crate::source::Source;
use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os};
use serde::Deserialize;

/// The annotation of an index that holds a tag.
const TAG: &str = "org.opencontainers.image.ref.name";
/// How deep indexes may contain each other.
const DEEPEST: usize = 4;
/// The most layers; overlayfs takes 500.
const MOST_LAYERS: usize = 500;

/// An image: where it is, what runs in it, and its layers from the lowest to the highest.
pub struct Image {
    pub(crate) source: Source,
    pub(crate) config: ImageConfiguration,
    pub(crate) layers: Vec<Layer>,
}

/// A layer of an image.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// The digest of the uncompressed archive.
    pub(crate) diff_id: Digest,
    /// The file of the layer in the image.
    pub(crate) name: String,
    /// The digest and size of that file; `None` where the image does not say.
    pub(crate) blob: Option<(Digest, u64)>,
}

impl Image {
    /// Reads the configuration of an image and the list of its layers. A name in a registry is none of a file.
    ///
    /// # Errors
    ///
    /// Fails if the image does not exist or is damaged.
    pub fn open(reference: &Reference) -> Result<Self, Error> {
        match reference {
            Reference::Layout { path, tag } => Self::of_layout(Source::directory(path), tag.as_deref()),
            Reference::LayoutArchive { path, tag } => Self::of_layout(Source::archive(path)?, tag.as_deref()),
            Reference::DockerArchive { path, tag } => Self::of_docker(Source::archive(path)?, tag.as_deref()),
            Reference::Registry(name) => Err(Error::Reference {
                text: name.clone(),
                reason: "is in a registry and must be copied first",
            }),
        }
    }

    /// Returns the digests of the layers, from the lowest to the highest.
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = Digest> + '_ {
        self.layers.iter().map(|layer| layer.diff_id)
    }

    fn of_layout(source: Source, tag: Option<&str>) -> Result<Self, Error> {
        let index: ImageIndex = parse("index.json", &source.read("index.json")?)?;
        let place = source.place().display().to_string();
        let chosen = choose(&index, tag, &place)?;
        let manifest = manifest(&source, chosen, &place, 0)?;
        let config: ImageConfiguration = read(&source, manifest.config(), "the configuration")?;
        let diff_ids = diff_ids(&config)?;
        if diff_ids.len() != manifest.layers().len() {
            let reason = format!(
                "has {} layers, but the configuration has {}",
                manifest.layers().len(),
                diff_ids.len()
            );
            return Err(Error::malformed("the manifest", reason));
        }
        let layer = |(diff_id, descriptor): (Digest, &Descriptor)| {
            let digest = digest(descriptor.digest().as_ref())?;
            Ok(Layer { diff_id, name: blob(&digest), blob: Some((digest, descriptor.size())) })
        };
        let layers = diff_ids.into_iter().zip(manifest.layers()).map(layer).collect::<Result<_, Error>>()?;
        Ok(Self { source, config, layers })
    }

    fn of_docker(source: Source, tag: Option<&str>) -> Result<Self, Error> {
        let saved: Vec<Saved> = parse("manifest.json", &source.read("manifest.json")?)?;
        let place = source.place().display().to_string();
        let has_tag = |saved: &&Saved| match tag {
            Some(tag) => saved.tags.iter().flatten().any(|known| is_same_tag(known, tag)),
            None => true,
        };
        let tags = saved.iter().flat_map(|saved| saved.tags.iter().flatten()).map(String::as_str).collect();
        let [saved] = saved.iter().filter(has_tag).collect::<Vec<_>>()[..] else {
            return Err(not_found(&place, tag, tags));
        };
        let bytes = source.read(&saved.config)?;
        // The file is named after its digest, except by programs that write another name.
        let stem = saved.config.rsplit('/').next().unwrap_or_default().trim_end_matches(".json");
        if let Some(wanted) = Digest::parse(&format!("sha256:{stem}")) {
            compare("the configuration", &bytes, wanted)?;
        }
        let config: ImageConfiguration = parse("the configuration", &bytes)?;
        let diff_ids = diff_ids(&config)?;
        if diff_ids.len() != saved.layers.len() {
            return Err(Error::malformed("manifest.json", "has not as many layers as the configuration"));
        }
        let layers = diff_ids.into_iter().zip(&saved.layers);
        let layers = layers.map(|(diff_id, name)| Layer { diff_id, name: name.clone(), blob: None });
        Ok(Self { layers: layers.collect(), source, config })
    }
}

/// An element of the manifest.json that `docker save` writes.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(rename = "RepoTags")]
    tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Whether two tags of `docker save` mean the same. Docker leaves out its own registry and `latest`.
fn is_same_tag(one: &str, other: &str) -> bool {
    fn plain(tag: &str) -> &str {
        let tag = tag.strip_prefix("docker.io/").unwrap_or(tag);
        let tag = tag.strip_prefix("library/").unwrap_or(tag);
        tag.strip_suffix(":latest").unwrap_or(tag)
    }
    plain(one) == plain(other)
}

/// Returns the entry of an index that a tag means. Without a tag the index must have only one image.
fn choose<'a>(index: &'a ImageIndex, tag: Option<&str>, place: &str) -> Result<&'a Descriptor, Error> {
    let tag_of = |entry: &Descriptor| entry.annotations().as_ref().and_then(|all| all.get(TAG).cloned());
    let entries = index.manifests().iter();
    let fitting: Vec<_> = match tag {
        Some(tag) => entries.filter(|entry| tag_of(entry).as_deref() == Some(tag)).collect(),
        None => entries.collect(),
    };
    match fitting[..] {
        [entry] => Ok(entry),
        // The index itself is the image of several machines.
        [_, ..] if tag.is_none() && fitting.iter().all(|entry| entry.platform().is_some()) => {
            fitted(fitting, place)
        }
        _ => {
            let tags: Vec<_> = index.manifests().iter().filter_map(tag_of).collect();
            Err(not_found(place, tag, tags.iter().map(String::as_str).collect()))
        }
    }
}

fn not_found(place: &str, tag: Option<&str>, tags: Vec<&str>) -> Error {
    let wanted = match tag {
        Some(tag) => format!("has the tag {tag}"),
        None => "could be meant without a tag".to_owned(),
    };
    let known =
        if tags.is_empty() { "it has no tags".to_owned() } else { format!("its tags: {}", tags.join(", ")) };
    Error::NotFound { place: place.to_owned(), wanted, known }
}

/// Returns the entry for this machine.
fn fitted<'a>(entries: Vec<&'a Descriptor>, place: &str) -> Result<&'a Descriptor, Error> {
    let machine = if cfg!(target_arch = "aarch64") { Arch::ARM64 } else { Arch::Amd64 };
    let fits = |entry: &&&Descriptor| {
        entry
            .platform()
            .as_ref()
            .is_some_and(|platform| *platform.os() == Os::Linux && *platform.architecture() == machine)
    };
    entries.iter().find(fits).copied().ok_or_else(|| {
        let platform = |entry: &&Descriptor| {
            entry.platform().as_ref().map(|platform| format!("{}/{}", platform.os(), platform.architecture()))
        };
        let known: Vec<_> = entries.iter().filter_map(platform).collect();
        Error::NotFound {
            place: place.to_owned(),
            wanted: format!("runs on linux/{machine}"),
            known: format!("it runs on: {}", known.join(", ")),
        }
    })
}

/// Reads the manifest that a descriptor means, through indexes of several machines.
fn manifest(source: &Source, at: &Descriptor, place: &str, depth: usize) -> Result<ImageManifest, Error> {
    let is_index = match at.media_type() {
        MediaType::ImageIndex => true,
        MediaType::Other(other) => other.ends_with("manifest.list.v2+json"),
        _ => false,
    };
    if !is_index {
        return read(source, at, "the manifest");
    }
    if depth == DEEPEST {
        return Err(Error::malformed("the index", "contains an index in an index in an index"));
    }
    let index: ImageIndex = read(source, at, "the index")?;
    let chosen = fitted(index.manifests().iter().collect(), place)?;
    manifest(source, chosen, place, depth + 1)
}

/// Reads and parses the blob that a descriptor means.
fn read<T: for<'de> Deserialize<'de>>(source: &Source, at: &Descriptor, part: &str) -> Result<T, Error> {
    let wanted = digest(at.digest().as_ref())?;
    let bytes = source.read(&blob(&wanted))?;
    if bytes.len() as u64 != at.size() {
        return Err(Error::Size { part: part.to_owned(), wanted: at.size(), found: bytes.len() as u64 });
    }
    compare(part, &bytes, wanted)?;
    parse(part, &bytes)
}

fn compare(part: &str, bytes: &[u8], wanted: Digest) -> Result<(), Error> {
    let found = Digest::of(bytes);
    if found == wanted { Ok(()) } else { Err(Error::Digest { part: part.to_owned(), wanted, found }) }
}

fn parse<T: for<'de> Deserialize<'de>>(part: &str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::malformed(part, error.to_string()))
}

fn diff_ids(config: &ImageConfiguration) -> Result<Vec<Digest>, Error> {
    let all = config.rootfs().diff_ids();
    if all.is_empty() || all.len() > MOST_LAYERS {
        return Err(Error::malformed("rootfs.diff_ids", "an image has between 1 and 500 layers"));
    }
    all.iter().map(|text| digest(text)).collect()
}

fn digest(text: &str) -> Result<Digest, Error> {
    Digest::parse(text).ok_or_else(|| Error::malformed(text, "is not a SHA-256 digest"))
}

/// Returns the file of a blob in a layout.
fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}
