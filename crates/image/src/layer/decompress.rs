//! Decompresses layers: gzip, zstd, or none. The first bytes of a blob say which, because media types are often wrong.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, ErrorKind, Read};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic number of a frame to skip without its first byte, whose lower half is arbitrary (RFC 8878, 3.1.2).
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// Returns whether a file that begins so is compressed.
pub(crate) fn is_compressed(start: &[u8]) -> bool {
    start.starts_with(&GZIP) || is_zstd(start)
}

fn is_zstd(start: &[u8]) -> bool {
    let is_skippable =
        start.first().is_some_and(|first| first >> 4 == 5) && start.get(1..4) == Some(&SKIPPABLE);
    start.starts_with(&ZSTD) || is_skippable
}

/// Returns the uncompressed bytes of a layer.
pub(crate) fn decompress<'a>(mut input: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let start = input.fill_buf()?;
    Ok(if start.starts_with(&GZIP) {
        Box::new(MultiGzDecoder::new(input))
    } else if is_zstd(start) {
        Box::new(Frames { decoder: FrameDecoder::new(), input, is_inside: false })
    } else {
        Box::new(input)
    })
}

/// The frames of a zstd stream, one after the other. Layers of the kind `zstd:chunked` have many, and some to skip.
struct Frames<R> {
    decoder: FrameDecoder,
    input: R,
    /// Whether the decoder has a frame that is not at its end.
    is_inside: bool,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_inside && !self.begin()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.input, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(invalid)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.is_inside = false;
        }
    }
}

impl<R: BufRead> Frames<R> {
    /// Begins the next frame with content. Returns false at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.input.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.input) {
                Ok(()) => {
                    self.is_inside = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(&mut (&mut self.input).take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error)),
            }
        }
        Ok(false)
    }
}

fn invalid(error: FrameDecoderError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}
