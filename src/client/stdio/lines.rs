//! Reads a server's output line by line. A line is read directly into the buffer that the caller gets.

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::Instant;

use crate::client::inbound::rate_limit::{Pace, SKIPPED};

/// Number of bytes that are kept from each end of an oversized line. They are searched for the message's id.
pub(super) const ID_WINDOW: usize = 512;
/// Size in bytes of the buffer for the start of a line. Most lines are short.
const FIRST_PIECE: usize = 8 * 1024;
/// Size in bytes of the buffer for each further part of a line. It is the usual capacity of a pipe.
const PIECE: usize = 64 * 1024;

/// A line that was read.
pub(in crate::client) enum Line {
    Whole(Vec<u8>),
    /// A line that exceeds the limit. Contains its first bytes, its last bytes and its length.
    Oversize {
        head: Vec<u8>,
        tail: Vec<u8>,
        bytes: usize,
    },
}

pub(in crate::client) struct Lines<R> {
    read: R,
    limit: usize,
    /// Bytes that were read after the end of the last line. The next line begins with these bytes.
    ahead: Vec<u8>,
    start: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(in crate::client) fn new(read: R, limit: usize) -> Self {
        Self { read, limit, ahead: Vec::new(), start: 0 }
    }

    /// Returns the next line, or `None` at the end of the stream. If the last line has no line end, it is dropped.
    pub(in crate::client) async fn next(&mut self) -> Option<Line> {
        if let Some(length) = find_end(&self.ahead[self.start..]) {
            let line = self.ahead[self.start..self.start + length].to_vec();
            self.start += length + 1;
            return Some(self.whole(line));
        }
        let mut line = self.ahead.split_off(self.start);
        loop {
            if line.len() > self.limit {
                return self.skip(line).await;
            }
            let seen = line.len();
            line.reserve(if seen == 0 { FIRST_PIECE } else { PIECE });
            if self.read.read_buf(&mut line).await.ok()? == 0 {
                return None;
            }
            if let Some(end) = find_end(&line[seen..]).map(|end| seen + end) {
                self.keep_ahead(&mut line, end);
                return Some(self.whole(line));
            }
        }
    }

    fn whole(&self, line: Vec<u8>) -> Line {
        if line.len() <= self.limit { Line::Whole(line) } else { oversize(line) }
    }

    /// Moves the bytes after a line's end to the buffer for the next line.
    fn keep_ahead(&mut self, line: &mut Vec<u8>, end: usize) {
        (self.ahead, self.start) = (line.split_off(end + 1), 0);
        line.truncate(end);
    }

    /// Reads an oversized line to its end, and keeps only its first and last bytes.
    async fn skip(&mut self, mut head: Vec<u8>) -> Option<Line> {
        let mut bytes = head.len();
        let mut tail = tail_of(&head);
        head.truncate(ID_WINDOW);
        head.shrink_to_fit();
        // The reading is limited in its rate, because the line may never end.
        let mut pace = Pace::new(SKIPPED, Instant::now());
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            if self.read.read_buf(&mut piece).await.ok()? == 0 {
                return None;
            }
            let end = find_end(&piece);
            if let Some(end) = end {
                self.keep_ahead(&mut piece, end);
            }
            bytes += piece.len();
            let rest = pace.spend(piece.len(), Instant::now());
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
            tail.extend_from_slice(&piece);
            tail = tail_of(&tail);
            if end.is_some() {
                return Some(Line::Oversize { head, tail, bytes });
            }
        }
    }
}

fn oversize(mut line: Vec<u8>) -> Line {
    let (bytes, tail) = (line.len(), tail_of(&line));
    line.truncate(ID_WINDOW);
    line.shrink_to_fit();
    Line::Oversize { head: line, tail, bytes }
}

fn tail_of(bytes: &[u8]) -> Vec<u8> {
    bytes[bytes.len().saturating_sub(ID_WINDOW)..].to_vec()
}

/// Returns the position of the first line end, if there is one. `memchr` is fast even in development builds, because `Cargo.toml` sets its own
/// optimisation level.
fn find_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that returns at most a given number of bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl AsyncRead for Slow<'_> {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            buffer: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            let (now, later) = self.0.split_at(self.1.min(self.0.len()).min(buffer.remaining()));
            buffer.put_slice(now);
            self.0 = later;
            std::task::Poll::Ready(Ok(()))
        }
    }

    async fn read(bytes: &[u8], at_once: usize, limit: usize) -> Vec<String> {
        let mut lines = Lines::new(Slow(bytes, at_once), limit);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next().await {
            all.push(match line {
                Line::Whole(line) => text(line),
                Line::Oversize { head, tail, bytes } => format!("{bytes}:{}:{}", text(head).len(), text(tail)),
            });
        }
        all
    }

    #[tokio::test]
    async fn lines_are_the_same_however_they_come() {
        let long = "y".repeat(100);
        let bytes = format!("a\n\n{long}\nlast\nno end");
        for at_once in [1, 2, 7, 31, 32, 33, 64, 1_000] {
            assert_eq!(read(bytes.as_bytes(), at_once, 100).await, ["a", "", long.as_str(), "last"], "{at_once}");
        }
    }

    #[tokio::test]
    async fn of_a_line_over_the_limit_the_ends_are_kept_and_the_next_line_is_read() {
        let bytes = format!("{}tail\nnext\n", "z".repeat(2_000));
        for at_once in [1, 100, 600, 10_000] {
            let all = read(bytes.as_bytes(), at_once, 50).await;
            assert_eq!(all.len(), 2, "{at_once}");
            assert!(all[0].starts_with("2004:") && all[0].ends_with("ztail") && all[1] == "next", "{at_once}: {all:?}");
            let tail = all[0].rsplit(':').next().unwrap();
            assert_eq!(tail.len(), ID_WINDOW);
        }
    }
}
