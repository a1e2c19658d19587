//! Parser of server-sent events as defined by the HTML standard. The crate `sse-stream` is not used, because it does not limit the size
//! of an event.

/// The fields of one event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) data: String,
    /// Id of the event. `Some("")` deletes the last id.
    pub(super) id: Option<String>,
    /// Delay before the client reconnects, in milliseconds.
    pub(super) retry: Option<u64>,
}

/// Error for an event with more bytes than the limit. The parser cannot continue after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge {
    pub(super) bytes: u64,
}

pub(super) struct Parser {
    limit: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    event: Event,
    /// True if the current event has at least one known field so far.
    begun: bool,
    first_line: bool,
    /// True if the last byte was CR. If LF follows, both bytes form one line end.
    after_cr: bool,
}

impl Parser {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), data: Vec::new(), event: Event::default(), begun: false, first_line: true, after_cr: false }
    }

    /// Returns the number of bytes that are stored for the unfinished event.
    pub(super) fn unfinished(&self) -> usize {
        // The fields `event` and `id` count too, because they may be as long as `data`.
        self.line.len() + self.data.len() + self.event.kind.len() + self.event.id.as_ref().map_or(0, String::len)
    }

    /// Parses more bytes, and returns the events that they complete. Events without data are included, because they may have an id.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let size = self.unfinished() + part.len();
            if size > self.limit {
                return Err(TooLarge { bytes: size as u64 });
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.end_line());
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<Event> {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.first_line) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let (name, value) = match line.iter().position(|&byte| byte == b':') {
            Some(0) => return None,
            Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
            None => (&line[..], &b""[..]),
        };
        match name {
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"event" => self.event.kind = String::from_utf8_lossy(value).into_owned(),
            b"id" if !value.contains(&0) => self.event.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                // On overflow, the longest delay is used.
                self.event.retry = Some(String::from_utf8_lossy(value).parse().unwrap_or(u64::MAX));
            }
            _ => return None,
        }
        self.begun = true;
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        if !std::mem::take(&mut self.begun) {
            return None;
        }
        let mut event = std::mem::take(&mut self.event);
        let mut data = std::mem::take(&mut self.data);
        data.pop();
        event.data = String::from_utf8(data).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(bytes: &[u8]) -> Vec<Event> {
        Parser::new(1000).push(bytes).unwrap()
    }

    fn data(text: &str) -> Event {
        Event { data: text.into(), ..Event::default() }
    }

    #[test]
    fn events_are_separated_by_blank_lines_of_any_kind() {
        for text in ["data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata:b\r\r", "\n\ndata: a\n\n\n\ndata: b\n\n"]
        {
            assert_eq!(events(text.as_bytes()), [data("a"), data("b")], "{text:?}");
        }
    }

    #[test]
    fn an_event_that_is_not_finished_is_none() {
        assert_eq!(events(b"data: a\n\ndata: b\n"), [data("a")]);
    }

    #[test]
    fn a_bom_comments_and_unknown_fields_are_skipped() {
        assert_eq!(events(b"\xef\xbb\xbfdata: a\n: note\nunknown: x\nnonsense\n\n: alone\n\n"), [data("a")]);
    }

    #[test]
    fn lines_of_data_are_joined_and_only_one_blank_is_dropped() {
        assert_eq!(events(b"data:  a\ndata\ndata:b\n\n"), [data(" a\n\nb")]);
    }

    #[test]
    fn an_event_without_data_still_tells_its_id_and_delay() {
        let expected = Event { id: Some("7".into()), retry: Some(500), ..Event::default() };
        assert_eq!(events(b"id: 7\nretry: 500\nretry: soon\ndata:\n\n"), [expected]);
    }

    #[test]
    fn an_id_with_a_zero_byte_is_none() {
        assert_eq!(events(b"id: a\0b\ndata: x\n\n"), [data("x")]);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_end_the_stream() {
        let found = events(b"data: \xff\xfe\n\ndata: b\n\n");
        assert_eq!(found[1], data("b"));
    }

    #[test]
    fn an_event_of_just_the_limit_comes_through_and_one_byte_more_does_not() {
        let mut parser = Parser::new(20);
        assert_eq!(parser.push(b"data: 01234567890123\n\n").unwrap().len(), 1);
        assert_eq!(parser.push(b"data: 012345678901234\n\n"), Err(TooLarge { bytes: 21 }));
        let mut lines = Parser::new(20);
        assert!((0..10).try_for_each(|_| lines.push(b"data: 0123\n").map(drop)).is_err(), "the limit covers the sum of many short lines");
    }

    #[test]
    fn a_kind_and_an_id_are_part_of_their_unfinished_event() {
        let mut parser = Parser::new(40);
        assert!(parser.push(b"event: 0123456789\nid: 0123456789\n").is_ok());
        assert_eq!(parser.unfinished(), 20);
        assert!(parser.push(b"data: 01234567890123\n").is_ok());
        assert!(parser.push(b"data: 0123\n").is_err());
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_makes_no_difference(text in "(data: [a-z]{0,5}|id: [0-9]|\r\n|\n|\r|:x){0,30}", cut in 0_usize..100) {
            let bytes = text.as_bytes();
            let mut parser = Parser::new(1000);
            let cut = cut.min(bytes.len());
            let mut found = parser.push(&bytes[..cut]).unwrap();
            found.extend(parser.push(&bytes[cut..]).unwrap());
            prop_assert_eq!(found, events(bytes));
        }
    }
}
