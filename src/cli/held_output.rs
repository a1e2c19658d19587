//! Output that is held back while a person answers a question.

/// Maximum size of the output that is held back, in bytes. If there is more, the latest output is kept.
const MAX_HELD_BYTES: usize = 256 * 1024;

/// A standard stream for output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Output,
    Error,
}

/// The output that is held back, in order.
#[derive(Debug, Default)]
pub(super) struct HeldOutput {
    parts: std::collections::VecDeque<(Stream, String)>,
    bytes: usize,
    /// Number of parts that were dropped.
    dropped: usize,
}

impl HeldOutput {
    /// Keeps a text. If there is too much text, drops the oldest texts for standard error. Text for standard output, which is the value of
    /// a run, is never dropped.
    pub(super) fn keep(&mut self, stream: Stream, text: &str) {
        self.bytes += text.len();
        self.parts.push_back((stream, text.to_owned()));
        while self.bytes > MAX_HELD_BYTES {
            let Some(oldest) = self.parts.iter().position(|(stream, _)| *stream == Stream::Error) else { return };
            let (_, dropped) = self.parts.remove(oldest).unwrap_or((Stream::Error, String::new()));
            self.bytes -= dropped.len();
            self.dropped += 1;
        }
    }

    /// Returns the output in order. If some was dropped, a notice comes first.
    pub(super) fn into_parts(self) -> impl Iterator<Item = (Stream, String)> {
        let notice = (self.dropped > 0)
            .then(|| (Stream::Error, format!("({} messages came while you were asked and were too many to keep)\n", self.dropped)));
        notice.into_iter().chain(self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_comes_back_in_its_order() {
        let mut held = HeldOutput::default();
        held.keep(Stream::Error, "a");
        held.keep(Stream::Output, "b");
        held.keep(Stream::Error, "c");
        let texts: Vec<_> = held.into_parts().collect();
        assert_eq!(texts, [(Stream::Error, "a".to_owned()), (Stream::Output, "b".to_owned()), (Stream::Error, "c".to_owned())]);
    }

    #[test]
    fn a_flood_keeps_its_end_and_the_values_and_tells_what_is_missing() {
        let mut held = HeldOutput::default();
        held.keep(Stream::Output, "value");
        for number in 0..1_000 {
            held.keep(Stream::Error, &format!("{number:04}{}", "x".repeat(1_000)));
        }
        let texts: Vec<_> = held.into_parts().map(|(_, text)| text).collect();
        assert!(texts[0].contains("messages came while you were asked"), "{}", texts[0]);
        assert_eq!(texts[1], "value");
        assert!(texts.last().unwrap().starts_with("0999") && texts.iter().map(String::len).sum::<usize>() < MAX_HELD_BYTES + 100);
    }
}
