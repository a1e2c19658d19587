//! Reads a server's standard error. Stores its last lines, and passes lines to the listener within a rate limit.

use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::inbound::rate_limit::{MESSAGE, Pace, Rate, RateDecision, RateLimiter, STDERR};
use crate::error::ForeignText;

/// Number of last lines that are stored.
const LINES: usize = 20;
/// Maximum length in bytes of a line that is shown or reported.
const LINE_BYTES: usize = 4096;
/// Maximum size in bytes of a piece of a line. A longer line is read in several pieces.
const PIECE_BYTES: u64 = 64 * 1024;
/// Size of the read buffer in bytes.
const BUFFER_BYTES: usize = 32 * 1024;
/// Number of bytes that are read before the runtime's other tasks may run.
const TURN_BYTES: usize = 64 * 1024;
/// Time without output after which an ended process is assumed to have no more output. The limit is needed because a descendant may keep
/// the pipe open for ever.
const DRAINING: Duration = Duration::from_millis(100);
/// Maximum number of bytes that are read after the process has ended. This is the capacity of the largest pipe that an unprivileged user
/// gets by default (`pipe(7)`).
const LAST_BYTES: usize = 1 << 20;
/// Number of bytes that count as one line for the rate limit. A line with more bytes counts as several lines.
const LINE_UNIT: usize = 1024;

/// Function that removes secrets and folder paths from a text.
pub type Redact = Arc<dyn Fn(ForeignText) -> String + Send + Sync>;

/// Callback for each line of a server's standard error.
pub type StderrListener = Arc<dyn Fn(&str) + Send + Sync>;

/// The last lines of a server's standard error.
#[derive(Clone)]
pub(in crate::client) struct Tail {
    redact: Redact,
    /// Lines before redaction. They are only redacted when they are shown, because it would be too slow to redact every line of a flood.
    lines: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

impl Tail {
    pub(in crate::client) fn new(redact: Redact) -> Self {
        Self { redact, lines: Arc::default() }
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.lines.lock()
    }

    fn keep(&self, line: Vec<u8>) {
        let mut lines = self.lines();
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Returns the lines as a part of a message. Returns an empty text if there are no lines.
    pub(in crate::client) fn text(&self) -> String {
        let lines: Vec<_> = self.lines().iter().cloned().collect();
        if lines.is_empty() {
            return String::new();
        }
        let lines: Vec<_> = lines.iter().map(|line| readable(line, &self.redact)).collect();
        format!("; the last lines of its standard error: {}", lines.join(" | "))
    }
}

/// Returns a redacted line of limited length. The line is redacted before it is cut, so that no part of a secret remains in it.
fn readable(line: &[u8], redact: &Redact) -> String {
    let text = String::from_utf8_lossy(line);
    // If the line was longer than a piece, only its first piece was stored.
    let is_whole = line.ends_with(b"\n") || (line.len() as u64) < PIECE_BYTES;
    redact(if is_whole { ForeignText::cut(text.trim(), LINE_BYTES) } else { ForeignText::beginning(text.trim(), LINE_BYTES) })
}

/// Reads standard error within a rate limit. Stops at the end of the output, or when the process has ended and no more output arrives.
/// `exit` changes when the process has ended. At the end, the reader is dropped, which closes the pipe.
pub(in crate::client) async fn read<T: Clone>(
    stderr: impl AsyncRead + Unpin,
    rate: Rate,
    (server, tail, on_line): (String, Tail, StderrListener),
    mut exit: watch::Receiver<T>,
    _reading: watch::Sender<()>,
) {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, stderr);
    let mut listening = Listening { server, redact: Arc::clone(&tail.redact), on_line, limiter: RateLimiter::new(STDERR, Instant::now()) };
    let (mut pace, mut is_running) = (Pace::new(rate, Instant::now()), true);
    let (mut in_line, mut turn, mut last) = (false, 0, LAST_BYTES);
    while last > 0 {
        let mut piece = Vec::new();
        let more = if is_running {
            tokio::select! {
                biased;
                more = piece_of(&mut reader, &mut piece) => more,
                _ = exit.changed() => {
                    is_running = false;
                    pace.forgive(Instant::now());
                    // The cancelled call may already have read a part of the piece. The piece keeps this part.
                    drained(&mut reader, &mut piece).await
                }
            }
        } else {
            drained(&mut reader, &mut piece).await
        };
        if piece.is_empty() {
            break;
        }
        if !is_running {
            last = if more { last.saturating_sub(piece.len()) } else { 0 };
        }
        turn += piece.len();
        if turn > TURN_BYTES {
            turn = 0;
            tokio::task::yield_now().await;
        }
        let rest = pace.spend(piece.len() + MESSAGE, Instant::now());
        // Only the first piece of a long line is stored.
        let is_start = !in_line;
        in_line = !piece.ends_with(b"\n");
        if is_start && !piece.trim_ascii().is_empty() {
            listening.hear(&piece);
            tail.keep(piece);
        }
        if rest.is_zero() || !is_running {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            // After the process has ended, the rest is read without pauses, because callers wait for the last lines.
            _ = exit.changed() => {
                is_running = false;
                pace.forgive(Instant::now());
            }
        }
    }
    listening.end();
}

/// Reads a line, or a piece of a longer line, so that the memory is limited. Returns `false` at the end of the output.
async fn piece_of(reader: &mut (impl AsyncBufRead + Unpin), piece: &mut Vec<u8>) -> bool {
    matches!(reader.take(PIECE_BYTES).read_until(b'\n', piece).await, Ok(1..))
}

/// Reads a piece of the output of a process that has ended. Returns `false` if no more output arrives.
async fn drained(reader: &mut (impl AsyncBufRead + Unpin), piece: &mut Vec<u8>) -> bool {
    tokio::time::timeout(DRAINING, piece_of(reader, piece)).await.unwrap_or(false)
}

/// Passes lines to the listener within the rate limit.
struct Listening {
    server: String,
    redact: Redact,
    on_line: StderrListener,
    limiter: RateLimiter,
}

impl Listening {
    fn hear(&mut self, line: &[u8]) {
        let units = u32::try_from(line.len() / LINE_UNIT).unwrap_or(u32::MAX).saturating_add(1);
        let RateDecision::Pass(dropped) = self.limiter.take(units, Instant::now()) else { return };
        self.summarise(dropped);
        let text = readable(line, &self.redact);
        tracing::debug!(server = self.server, text, "stderr");
        (self.on_line)(&text);
    }

    fn end(&mut self) {
        let dropped = self.limiter.dropped();
        self.summarise(dropped);
    }

    fn summarise(&self, dropped: u64) {
        if dropped > 0 {
            let limit = STDERR.per_second;
            (self.on_line)(&format!(
                "[{dropped} lines left out: the server writes more than {limit} lines a second to its standard error]"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn redacting() -> Redact {
        Arc::new(|words: ForeignText| words.without("secret words"))
    }

    /// A rate limit that never causes a pause.
    const AT_ONCE: Rate = Rate { burst: u32::MAX, per_second: u32::MAX };

    /// Returns the lines that the listener gets if standard error contains these bytes, and the text of the stored lines.
    async fn told(bytes: &[u8]) -> (Vec<String>, String) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (heard, tail) = (Arc::clone(&told), Tail::new(redacting()));
        let on_line: StderrListener = Arc::new(move |line| heard.lock().push(line.to_owned()));
        let (_running, exit) = watch::channel(());
        read(bytes, AT_ONCE, ("s".to_owned(), tail.clone(), on_line), exit, watch::channel(()).0).await;
        let told = std::mem::take(&mut *told.lock());
        (told, tail.text())
    }

    #[tokio::test]
    async fn lines_are_told_redacted_and_the_last_of_them_are_kept() {
        let lines: Vec<_> = (0..30).map(|number| format!("line {number} secret words")).collect();
        let (told, tail) = told(format!("\n  \n{}\nno end secret words", lines.join("\n")).as_bytes()).await;
        assert_eq!(told.len(), 31);
        assert_eq!((told[0].as_str(), told[30].as_str()), ("line 0 [redacted]", "no end [redacted]"));
        assert!(
            tail.starts_with("; the last lines of its standard error: line 11 [redacted] | ") && tail.ends_with(" | no end [redacted]"),
            "{tail}"
        );
    }

    #[tokio::test]
    async fn of_a_long_line_the_start_is_kept_redacted_before_it_is_cut() {
        let before = "x".repeat(LINE_BYTES - 20);
        let (told, tail) = told(format!("{before}secret words{}\nnext\n", "y".repeat(200_000)).as_bytes()).await;
        assert_eq!(told, [format!("{before}[redacted]{}… [cut]", "y".repeat(10)), "next".to_owned()]);
        assert!(!tail.contains("sec") && tail.ends_with(" | next"));
    }

    #[tokio::test]
    async fn of_a_flood_so_many_lines_are_told_the_rest_is_counted_and_the_last_words_are_kept_all_the_same() {
        const WRITTEN: usize = 40_000;
        let flood: Vec<_> = (0..WRITTEN).map(|number| format!("{number} {}\n", "flood ".repeat(20))).collect();
        let flood = flood.concat();
        let started = Instant::now();
        let (told, tail) = told(flood.as_bytes()).await;
        let seconds = usize::try_from(started.elapsed().as_secs()).unwrap();
        let (summaries, lines): (Vec<_>, Vec<_>) = told.iter().partition(|line| line.starts_with('['));
        assert!(lines.len() <= STDERR.burst as usize + STDERR.per_second as usize * (seconds + 1), "{}", lines.len());
        assert!(summaries.len() <= seconds + 2, "at most one summary a second, and one at the end: {summaries:?}");
        let left_out = |line: &&String| line[1..].split(' ').next().unwrap().parse::<usize>().unwrap();
        assert_eq!(lines.len() + summaries.iter().map(left_out).sum::<usize>(), WRITTEN, "every line is reported or counted");
        assert!(tail.contains(&format!("| {} flood", WRITTEN - 1)), "the last line is kept: {tail}");
    }

    #[tokio::test]
    async fn it_is_read_no_faster_than_the_rate() {
        let rate = Rate { burst: 100_000, per_second: 1_000_000 };
        let (_running, exit) = watch::channel(());
        let (bytes, started) = (vec![b'x'; 200_000], Instant::now());
        read(&bytes[..], rate, ("s".to_owned(), Tail::new(redacting()), Arc::new(|_| {})), exit, watch::channel(()).0).await;
        assert!(started.elapsed() >= Duration::from_millis(100), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn what_a_process_said_before_its_end_is_not_held_back() {
        // The burst covers only a part of the output. At this rate, reading the rest would take more than a day.
        let rate = Rate { burst: 200_000, per_second: 1 };
        let (running, exit) = watch::channel(());
        running.send(()).unwrap();
        let tail = Tail::new(redacting());
        let said = [vec![b'x'; 300_000], b"\nlast\n".to_vec()].concat();
        let reading = read(&said[..], rate, ("s".to_owned(), tail.clone(), Arc::new(|_| {})), exit, watch::channel(()).0);
        tokio::time::timeout(Duration::from_mins(1), reading).await.unwrap();
        assert!(tail.text().ends_with(" | last"));
    }

    #[tokio::test]
    async fn a_descendant_that_holds_the_pipe_open_keeps_nobody_reading() {
        use tokio::io::AsyncWriteExt as _;

        let (mut pipe, stderr) = tokio::io::duplex(64);
        let (running, exit) = watch::channel(());
        let tail = Tail::new(redacting());
        let (reading, mut drained) = watch::channel(());
        let reader = tokio::spawn(read(stderr, AT_ONCE, ("s".to_owned(), tail.clone(), Arc::new(|_| {})), exit, reading));
        pipe.write_all(b"last\nwithout an end").await.unwrap();
        running.send(()).unwrap();
        tokio::time::timeout(Duration::from_mins(1), drained.changed()).await.unwrap().unwrap_err();
        reader.await.unwrap();
        assert!(tail.text().ends_with("last | without an end"), "{}", tail.text());
        assert!(pipe.write_all(b"x").await.is_err(), "the pipe is closed");
    }

    #[tokio::test]
    async fn a_descendant_that_never_stops_writing_keeps_nobody_reading() {
        let (running, exit) = watch::channel(());
        running.send(()).unwrap();
        // The reader pauses once. It then notices that the process has ended.
        let rate = Rate { burst: 1, per_second: 1 };
        let endless = tokio::io::repeat(b'x');
        let reading = read(endless, rate, ("s".to_owned(), Tail::new(redacting()), Arc::new(|_| {})), exit, watch::channel(()).0);
        tokio::time::timeout(Duration::from_mins(1), reading).await.unwrap();
    }
}
