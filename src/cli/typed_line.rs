//! Reads one line that a person types. If a question is withdrawn, the reading of its answer ends. Otherwise, this reading would take the
//! answer to the next question.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// Maximum size of one answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// A guard that ends the reading when it is dropped.
struct EndOfReading(Arc<OwnedFd>);

impl Drop for EndOfReading {
    fn drop(&mut self) {
        // Writing to the counter of a new eventfd does not block.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// Reads a line from standard input. Returns `None` if the input has ended. Dropping the future ends the reading.
pub(super) async fn read() -> Option<String> {
    let ended = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?);
    let end = EndOfReading(Arc::clone(&ended));
    let (sender, answer) = tokio::sync::oneshot::channel();
    // A separate thread is used, because it may wait for a person forever and nothing may wait for it.
    let work = move || {
        let _ = sender.send(line_of(io::stdin().as_fd(), ended.as_fd()));
    };
    std::thread::Builder::new().name("hyperlight-mcp-ask".to_owned()).spawn(work).ok()?;
    let line = answer.await.ok().flatten();
    drop(end);
    line
}

/// Reads until the first line break. Reads byte by byte, so that nothing of the next line is taken. Returns `None` if the input or the
/// reading ends before anything was read.
fn line_of(input: BorrowedFd<'_>, ended: BorrowedFd<'_>) -> Option<String> {
    let mut line = Vec::new();
    while line.len() < MAX_ANSWER_BYTES {
        let mut both = [PollFd::new(&ended, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
        match poll(&mut both, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => break,
            Ok(_) => {}
        }
        // The end of the reading is checked first. If a question was withdrawn, a line that is typed afterwards belongs to the next
        // question.
        if !both[0].revents().is_empty() {
            return None;
        }
        let mut byte = [0];
        match rustix::io::read(input, &mut byte) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Ok(1) => {
                line.push(byte[0]);
                if byte[0] == b'\n' {
                    break;
                }
            }
            Ok(_) | Err(_) => break,
        }
    }
    (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn never() -> OwnedFd {
        eventfd(0, EventfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn one_line_is_taken_and_the_next_one_stays() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all("yes\nno\nlast".as_bytes()).unwrap();
        drop(writer);
        let next = || line_of(reader.as_fd(), never().as_fd());
        assert_eq!([next(), next(), next(), next()], [Some("yes\n".to_owned()), Some("no\n".to_owned()), Some("last".to_owned()), None]);
    }

    #[test]
    fn a_withdrawn_question_takes_no_line() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"for the next question\n").unwrap();
        let ended = Arc::new(never());
        drop(EndOfReading(Arc::clone(&ended)));
        assert_eq!(line_of(reader.as_fd(), ended.as_fd()), None);
        assert_eq!(line_of(reader.as_fd(), never().as_fd()).as_deref(), Some("for the next question\n"));
    }

    #[test]
    fn a_line_without_an_end_is_cut() {
        let (reader, mut writer) = io::pipe().unwrap();
        let writing = std::thread::spawn(move || drop(writer.write_all(&vec![b'x'; MAX_ANSWER_BYTES + 10])));
        assert_eq!(line_of(reader.as_fd(), never().as_fd()).map(|line| line.len()), Some(MAX_ANSWER_BYTES));
        drop(reader);
        writing.join().unwrap();
    }
}
