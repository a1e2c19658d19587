//! Decompresses bodies, with a limit on the decompressed size.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;

use super::body::Encoding;

/// Number of compressed bytes that are decompressed in one step. Deflate expands one byte to at most 1,032 bytes.
const STEP_BYTES: usize = 256;
/// Number of decompressed bytes after which a step ends. So a body with a high compression ratio takes little memory until its next part is
/// read.
const ENOUGH_BYTES: usize = 64 * 1024;

/// Decompresses one body. Each part is decompressed only when it is read.
pub(super) struct Decoder {
    kind: Kind,
    /// Bytes from the server that are not decompressed yet.
    waiting: Bytes,
}

enum Kind {
    Identity,
    Gzip { decoder: Box<MultiGzDecoder<Capped>>, has_begun: bool },
}

/// The next bytes of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Bytes(Bytes),
    TooLarge,
}

/// Stores decompressed bytes, up to a limit.
#[derive(Default)]
pub(super) struct Capped {
    data: Vec<u8>,
    room: usize,
    is_full: bool,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.room {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.room -= bytes.len();
        self.data.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reason why a body cannot be decompressed. In the error message, this text follows the name of the host.
const BROKEN: &str = "sent a body that cannot be decompressed";

impl Decoder {
    pub(super) fn of(encoding: Encoding) -> Self {
        let kind = match encoding {
            Encoding::Identity => Kind::Identity,
            Encoding::Gzip => Kind::Gzip { decoder: Box::new(MultiGzDecoder::new(Capped::default())), has_begun: false },
        };
        Self { kind, waiting: Bytes::new() }
    }

    /// Adds bytes from the server. May only be called if no bytes are waiting.
    pub(super) fn feed(&mut self, chunk: Bytes) {
        self.waiting = chunk;
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the next bytes of the body, possibly none. Returns [`Decoded::TooLarge`] if there are more than `room` bytes.
    pub(super) fn pull(&mut self, room: usize) -> Result<Decoded, &'static str> {
        let Kind::Gzip { decoder, has_begun } = &mut self.kind else {
            let chunk = std::mem::take(&mut self.waiting);
            return Ok(if chunk.len() > room { Decoded::TooLarge } else { Decoded::Bytes(chunk) });
        };
        decoder.get_mut().room = room;
        let mut written = Ok(());
        while written.is_ok() && !self.waiting.is_empty() && decoder.get_ref().data.len() < ENOUGH_BYTES {
            *has_begun = true;
            let step = self.waiting.split_to(self.waiting.len().min(STEP_BYTES));
            written = decoder.write_all(&step);
        }
        // Without a flush, the decoder would keep some output until its next step. That step takes place only after the server has sent
        // more bytes.
        if self.waiting.is_empty() {
            written = written.and_then(|()| decoder.flush());
        }
        let sink = decoder.get_mut();
        match written {
            Ok(()) => Ok(Decoded::Bytes(std::mem::take(&mut sink.data).into())),
            Err(_) if sink.is_full => Ok(Decoded::TooLarge),
            Err(_) => Err(BROKEN),
        }
    }

    /// Fails if the body is not complete.
    pub(super) fn finish(&mut self) -> Result<(), &'static str> {
        match &mut self.kind {
            // An empty body is complete, with any compression.
            Kind::Identity | Kind::Gzip { has_begun: false, .. } => Ok(()),
            Kind::Gzip { decoder, .. } => decoder.try_finish().map_err(|_| BROKEN),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unzipped(zipped: &[u8], size: usize) -> Result<Vec<u8>, &'static str> {
        let mut decoder = Decoder::of(Encoding::Gzip);
        let mut all = Vec::new();
        for chunk in zipped.chunks(size) {
            decoder.feed(Bytes::copy_from_slice(chunk));
            while decoder.has_waiting() {
                let Decoded::Bytes(bytes) = decoder.pull(1 << 20)? else { panic!("there is room") };
                all.extend(bytes);
            }
        }
        decoder.finish().map(|()| all)
    }

    #[test]
    fn a_body_is_decompressed_however_it_is_cut_and_of_however_many_parts() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        for size in [1000, 7, 1 << 20] {
            assert!(unzipped(&zipped(&text), size).unwrap() == text, "{size}");
        }
        assert_eq!(unzipped(&[zipped(b"one "), zipped(b"two")].concat(), 3).unwrap(), b"one two");
        assert_eq!(unzipped(b"", 1).unwrap(), b"");
    }

    #[test]
    fn a_body_that_is_cut_off_or_no_gzip_fails() {
        let whole = zipped(b"something that is worth to be compressed");
        assert!(unzipped(&whole[..whole.len() - 1], 9).is_err());
        assert!(unzipped(b"plain text", 4).is_err());
    }

    #[test]
    fn a_bomb_is_unfolded_a_little_at_a_time_and_not_beyond_the_limit() {
        let bomb = zipped(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100_000);
        let (mut decoder, mut room) = (Decoder::of(Encoding::Gzip), 1 << 20);
        decoder.feed(bomb.into());
        while let Decoded::Bytes(bytes) = decoder.pull(room).unwrap() {
            assert!(decoder.has_waiting() && bytes.len() <= ENOUGH_BYTES + STEP_BYTES * 1032, "{}", bytes.len());
            room -= bytes.len();
        }
        assert!(room < 1 << 20);
    }
}
