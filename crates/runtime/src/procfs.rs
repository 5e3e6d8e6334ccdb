//! Files of procfs, which do not say how long they are.

use std::fs::File;
use std::io::{self, Read as _};

/// Reads a file in as few pieces as the kernel gives it in.
pub(crate) fn read(path: &str) -> io::Result<String> {
    let mut file = File::open(path)?;
    // A page is what most of these files fit in; with room left over the end is found at once.
    let mut text = vec![0; 4096];
    let mut length = 0;
    loop {
        match file.read(&mut text[length..])? {
            0 => break,
            read => length += read,
        }
        if length == text.len() {
            text.resize(2 * length, 0);
        }
    }
    text.truncate(length);
    String::from_utf8(text).map_err(io::Error::other)
}
