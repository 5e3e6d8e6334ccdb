//! Corrects images of a CRIU without privileges over the host.
//!
//! A tmpfs has options with ids. The kernel shows them as the host's, but takes them as those of the user namespace in
//! which the file system is mounted. So husk writes the latter into the list of mounts.

use super::wire::{ProtobufMessage, WireValue, fields};
use crate::error::Error;
use crate::host::files;
use crate::store::atomic;
use husk_bundle::container::IdMapping;
use husk_plan::JoinedIds;
use rustix::fs::{Dir, Mode, ResolveFlags};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

/// Two numbers before the entries say what the file is (criu, `include/magic.h`).
const MAGIC: usize = 8;

/// The options of a file system: a field of `mnt_entry` (criu, images/mnt.proto).
const OPTIONS: u32 = 9;

/// The most that is read of a list of mounts.
const MOST: u64 = 64 << 20;

/// Replaces ids of the host by those of the container in each list of mounts.
pub(crate) fn translate(images: &OwnedFd, ids: &JoinedIds) -> Result<(), Error> {
    let failed = |errno| Error::file("read", "images", errno);
    for entry in Dir::read_from(images).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        if !entry.file_name().to_bytes().starts_with(b"mountpoints-") {
            continue;
        }
        let rewrite = || -> io::Result<()> {
            let mut bytes = Vec::new();
            files::open_regular(images, name, ResolveFlags::NO_SYMLINKS)?
                .take(MOST)
                .read_to_end(&mut bytes)?;
            let translated = list(&bytes, ids).ok_or(io::ErrorKind::InvalidData)?;
            atomic::write(images, name, Mode::RUSR | Mode::WUSR, &translated)
        };
        rewrite().map_err(|reason| Error::file("correct", name, reason))?;
    }
    Ok(())
}

/// Translates a list: entries, each after its length. `None` if it is malformed.
fn list(mut bytes: &[u8], ids: &JoinedIds) -> Option<Vec<u8>> {
    let mut translated = bytes.split_off(..MAGIC)?.to_vec();
    while !bytes.is_empty() {
        let length = u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?);
        let entry = bytes.split_off(..usize::try_from(length).ok()?)?;
        let mut message = ProtobufMessage::default();
        for (field, value) in fields(entry)? {
            match value {
                WireValue::Number(number) => message.number(field, number.cast_signed()),
                WireValue::Bytes(text) if field == OPTIONS => message.bytes(field, options(text, ids)),
                WireValue::Bytes(bytes) => message.bytes(field, bytes),
            };
        }
        translated.extend(u32::try_from(message.as_bytes().len()).ok()?.to_le_bytes());
        translated.extend(message.as_bytes());
    }
    Some(translated)
}

/// Translates the options `uid` and `gid`. An id that the container does not have stays.
fn options(text: &[u8], ids: &JoinedIds) -> Vec<u8> {
    let options = text.split(|byte| *byte == b',').map(|option| {
        let text = str::from_utf8(option).ok();
        let id = |name: &str, maps| {
            let host = text?.strip_prefix(name)?.parse().ok()?;
            Some(format!("{name}{}", inside(host, maps)?).into_bytes())
        };
        id("uid=", &ids.uids).or_else(|| id("gid=", &ids.gids)).unwrap_or_else(|| option.to_vec())
    });
    options.collect::<Vec<_>>().join(&b',')
}

fn inside(host: u32, maps: &[IdMapping]) -> Option<u32> {
    maps.iter().find_map(|map| {
        let offset = host.checked_sub(map.host_id).filter(|offset| *offset < map.size)?;
        map.container_id.checked_add(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> JoinedIds {
        let map = |container_id, host_id, size| IdMapping { container_id, host_id, size };
        JoinedIds {
            uids: vec![map(0, 1000, 1), map(1, 100_000, 10)],
            gids: vec![map(0, 100, 1)],
            may_set_groups: true,
        }
    }

    #[test]
    fn ids_of_the_host_become_the_containers() {
        let translated = |text: &str| String::from_utf8(options(text.as_bytes(), &ids())).unwrap();
        assert_eq!(translated("size=64k,uid=1000,gid=100"), "size=64k,uid=0,gid=0");
        assert_eq!(translated("uid=100009,gid=0,mode=755"), "uid=10,gid=0,mode=755");
        assert_eq!(translated("uid=100010,huid=1000"), "uid=100010,huid=1000");
        assert_eq!(translated(""), "");
    }

    #[test]
    fn other_fields_of_a_list_stay() {
        let mut entry = ProtobufMessage::default();
        entry.number(1, 11).bytes(8, "/tmp").bytes(OPTIONS, "uid=1000").number(15, 1);
        let mut bytes = b"magic!!!".to_vec();
        for _ in 0..2 {
            bytes.extend(u32::try_from(entry.as_bytes().len()).unwrap().to_le_bytes());
            bytes.extend(entry.as_bytes());
        }
        let expected = String::from_utf8_lossy(&bytes).replace("\u{8}uid=1000", "\u{5}uid=0");
        let translated = list(&bytes, &ids()).unwrap();
        assert_eq!(translated.len(), bytes.len() - 6);
        assert!(expected.contains("uid=0"));
        assert_eq!(list(&translated, &ids()).unwrap(), translated);
        assert_eq!(list(&bytes[..bytes.len() - 1], &ids()), None);
    }
}
