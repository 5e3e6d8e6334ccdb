//! Builds images in the OCI layout, hostile ones too.

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

/// The entries of a layer.
#[derive(Default)]
pub(crate) struct Archive {
    builder: Option<Builder<Vec<u8>>>,
    owner: (u64, u64),
    mode: u32,
    records: Vec<(String, Vec<u8>)>,
}

impl Archive {
    pub(crate) fn new() -> Self {
        Self { builder: Some(Builder::new(Vec::new())), mode: 0o644, ..Self::default() }
    }

    /// Sets the owner of the next entries.
    pub(crate) fn owned(mut self, uid: u64, gid: u64) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// Sets the permissions of the next entries.
    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Gives the next entry a record in a PAX header.
    pub(crate) fn record(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.records.push((key.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn file(self, name: impl AsRef<[u8]>, content: &[u8]) -> Self {
        self.entry(EntryType::Regular, name, b"", content)
    }

    /// Appends a directory, which may be entered by everybody who may read files.
    pub(crate) fn directory(mut self, name: impl AsRef<[u8]>) -> Self {
        let mode = self.mode;
        self.mode |= (mode & 0o444) >> 2;
        self = self.entry(EntryType::Directory, name, b"", b"");
        self.mode(mode)
    }

    pub(crate) fn symlink(self, name: impl AsRef<[u8]>, target: &str) -> Self {
        self.entry(EntryType::Symlink, name, target.as_bytes(), b"")
    }

    pub(crate) fn link(self, name: impl AsRef<[u8]>, target: &str) -> Self {
        self.entry(EntryType::Link, name, target.as_bytes(), b"")
    }

    /// Appends an entry as it is given, however wrong.
    pub(crate) fn entry(
        mut self,
        kind: EntryType,
        name: impl AsRef<[u8]>,
        target: &[u8],
        content: &[u8],
    ) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(self.mode);
        header.set_uid(self.owner.0);
        header.set_gid(self.owner.1);
        header.set_mtime(1_000_000_000);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            // The number of the null device, or that of a whiteout.
            let number = if content.is_empty() { (1, 3) } else { (0, 0) };
            header.set_size(0);
            header.set_device_major(number.0).unwrap();
            header.set_device_minor(number.1).unwrap();
        }
        let content = if header.size().unwrap() == 0 { b"" } else { content };
        let builder = self.builder.as_mut().unwrap();
        if !self.records.is_empty() {
            let records = self.records.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
            builder.append_pax_extensions(records).unwrap();
            self.records.clear();
        }
        // `set_path` and `append_data` would refuse or clean names that a hostile archive may have.
        let mut long = |kind, text: &[u8], most| {
            if text.len() > most {
                let mut header = Header::new_gnu();
                header.set_entry_type(kind);
                header.set_size(text.len() as u64 + 1);
                header.as_gnu_mut().unwrap().name[..13].copy_from_slice(b"././@LongLink");
                header.set_cksum();
                builder.append(&header, &[text, b"\0"].concat()[..]).unwrap();
            }
        };
        let name = name.as_ref();
        long(EntryType::GNULongName, name, 100);
        long(EntryType::GNULongLink, target, 100);
        let old = header.as_old_mut();
        let fit = |field: &mut [u8; 100], text: &[u8]| {
            let length = text.len().min(100);
            field[..length].copy_from_slice(&text[..length]);
        };
        fit(&mut old.name, name);
        fit(&mut old.linkname, target);
        header.set_cksum();
        builder.append(&header, content).unwrap();
        self
    }

    pub(crate) fn bytes(mut self) -> Vec<u8> {
        self.builder.take().unwrap().into_inner().unwrap()
    }
}

/// How a layer is compressed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Plain,
    Gzip,
    Zstd,
}

/// An image in a directory.
pub(crate) struct Layout {
    directory: TempDir,
    layers: Vec<Value>,
    diff_ids: Vec<String>,
}

impl Layout {
    /// Returns an image that consists of one layer, with the tag `v1`.
    pub(crate) fn of(archive: Archive) -> Self {
        Self::new().layer(How::Gzip, archive).tagged("v1", json!({}))
    }

    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        fs::create_dir_all(directory.path().join("blobs/sha256")).unwrap();
        fs::write(directory.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { directory, layers: Vec::new(), diff_ids: Vec::new() }
    }

    /// Adds a layer on top.
    pub(crate) fn layer(self, how: How, archive: Archive) -> Self {
        self.layer_of(how, &archive.bytes())
    }

    /// Adds a layer of any bytes.
    pub(crate) fn layer_of(mut self, how: How, bytes: &[u8]) -> Self {
        self.diff_ids.push(digest(bytes));
        let (bytes, media) = match how {
            How::Plain => (bytes.to_vec(), "tar"),
            How::Gzip => {
                let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
                gzip.write_all(bytes).unwrap();
                (gzip.finish().unwrap(), "tar+gzip")
            }
            How::Zstd => (compress_to_vec(bytes, CompressionLevel::Fastest), "tar+zstd"),
        };
        let layer = self.blob(&format!("application/vnd.oci.image.layer.v1.{media}"), &bytes);
        self.layers.push(layer);
        self
    }

    /// Lets the configuration give the last layer another digest.
    pub(crate) fn renaming_layer(mut self, diff_id: &str) -> Self {
        *self.diff_ids.last_mut().unwrap() = diff_id.to_owned();
        self
    }

    /// Writes the configuration and the manifest, with these settings of the program.
    pub(crate) fn tagged(self, tag: &str, settings: Value) -> Self {
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": settings,
            "rootfs": { "type": "layers", "diff_ids": self.diff_ids }
        });
        let config = self.blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": self.layers });
        let manifest = manifest.to_string();
        let mut manifest = self.blob("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        fs::write(self.path().join("index.json"), index.to_string()).unwrap();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of the blob of a layer.
    pub(crate) fn blob_of(&self, layer: usize) -> std::path::PathBuf {
        let digest = self.layers[layer]["digest"].as_str().unwrap();
        self.path().join("blobs/sha256").join(digest.trim_start_matches("sha256:"))
    }

    /// Writes a blob and returns its descriptor.
    fn blob(&self, media: &str, bytes: &[u8]) -> Value {
        let digest = digest(bytes);
        let path = self.path().join("blobs/sha256").join(digest.trim_start_matches("sha256:"));
        fs::write(path, bytes).unwrap();
        json!({ "mediaType": media, "digest": digest, "size": bytes.len() })
    }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("sha256:{digits}")
}
