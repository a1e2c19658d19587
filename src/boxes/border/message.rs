//! Messages of the name server of a box (RFC 1035): reads a query, and writes its response. A query never leaves the machine.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length in bytes of a query that is read. A name has at most 255 bytes.
pub const MAX_QUERY_BYTES: usize = 1232;
const HEADER_BYTES: usize = 12;
const MAX_NAME_BYTES: usize = 255;
const MAX_LABEL_BYTES: usize = 63;
/// The bit of the flags that marks a response.
const RESPONSE: u16 = 0x8000;
/// The bits of the flags with the kind of query.
const OPCODE: u16 = 0x7800;
/// The bit of the flags with which a client asks for a recursive search.
const RECURSION_DESIRED: u16 = 0x0100;
/// The bit of the flags with which a server offers a recursive search.
const RECURSION_AVAILABLE: u16 = 0x0080;
const FORMAT_ERROR: u16 = 1;
const NO_SUCH_NAME: u16 = 3;
const NOT_IMPLEMENTED: u16 = 4;
const INTERNET: u16 = 1;
const A: u16 = 1;
const AAAA: u16 = 28;
/// The time for which a program may keep an answer. The address of a name never changes, but a name that is unknown now can be known later.
const LIFE_SECONDS: u32 = 60;

/// The type of record that a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    V4,
    V6,
    /// Any other type. No name has records of other types.
    Other,
}

/// A query.
#[derive(Debug, PartialEq, Eq)]
pub enum Query<'a> {
    Question(Question<'a>),
    /// The query cannot be answered, and gets an error.
    Wrong {
        id: u16,
        flags: u16,
        code: u16,
    },
    /// This is not a query. It gets no answer, so that two servers never answer each other.
    Nothing,
}

/// A query for one name.
#[derive(Debug, PartialEq, Eq)]
pub struct Question<'a> {
    id: u16,
    flags: u16,
    /// The name in lower case, with dots between the labels.
    pub name: String,
    pub wanted: Wanted,
    /// The bytes of the question as it was sent.
    section: &'a [u8],
}

/// The answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    /// The name exists, but has no record of the requested type.
    Empty,
    NoSuchName,
}

/// Reads a query.
#[must_use]
pub fn read_query(message: &[u8]) -> Query<'_> {
    let number = |at: usize| message.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    if message.len() < HEADER_BYTES {
        return Query::Nothing;
    }
    let (id, flags, questions) = (number(0), number(2), number(4));
    if flags & RESPONSE != 0 {
        return Query::Nothing;
    }
    let wrong = |code| Query::Wrong { id, flags, code };
    if flags & OPCODE != 0 {
        return wrong(NOT_IMPLEMENTED);
    }
    let Some((name, end)) = read_name(message).filter(|(_, end)| questions == 1 && message.len() >= end + 4) else {
        return wrong(FORMAT_ERROR);
    };
    let wanted = match (number(end), number(end + 2)) {
        (A, INTERNET) => Wanted::V4,
        (AAAA, INTERNET) => Wanted::V6,
        _ => Wanted::Other,
    };
    Query::Question(Question { id, flags, name, wanted, section: &message[HEADER_BYTES..end + 4] })
}

/// Reads the name of the first question. Returns the name, and the position of the first byte after it.
fn read_name(message: &[u8]) -> Option<(String, usize)> {
    let (mut name, mut at) = (String::new(), HEADER_BYTES);
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        // A greater length byte is a compression pointer, which the first name of a message never needs.
        if length > MAX_LABEL_BYTES || at + length - HEADER_BYTES > MAX_NAME_BYTES {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for byte in message.get(at..at + length)? {
            // A dot within a label would make the text a different name.
            name.push(if byte.is_ascii_graphic() && *byte != b'.' { char::from(byte.to_ascii_lowercase()) } else { '\u{fffd}' });
        }
        at += length;
    }
}

impl Question<'_> {
    /// Writes the response.
    #[must_use]
    pub fn response(&self, answer: Answer) -> Vec<u8> {
        let code = if answer == Answer::NoSuchName { NO_SUCH_NAME } else { 0 };
        let data = match answer {
            Answer::V4(address) => Some((A, address.octets().to_vec())),
            Answer::V6(address) => Some((AAAA, address.octets().to_vec())),
            Answer::Empty | Answer::NoSuchName => None,
        };
        let mut bytes = header(self.id, self.flags, code, [1, u16::from(data.is_some())]);
        bytes.extend(self.section);
        if let Some((kind, data)) = data {
            // A pointer to the name in the question, which begins at byte 12.
            bytes.extend([0xc0, 12]);
            bytes.extend([kind.to_be_bytes(), INTERNET.to_be_bytes()].concat());
            bytes.extend(LIFE_SECONDS.to_be_bytes());
            bytes.extend(u16::try_from(data.len()).unwrap_or_default().to_be_bytes());
            bytes.extend(data);
        }
        bytes
    }
}

/// Writes the response to a query that cannot be answered.
#[must_use]
pub fn error_response(id: u16, flags: u16, code: u16) -> Vec<u8> {
    header(id, flags, code, [0, 0])
}

fn header(id: u16, flags: u16, code: u16, [questions, answers]: [u16; 2]) -> Vec<u8> {
    let flags = RESPONSE | (flags & (OPCODE | RECURSION_DESIRED)) | RECURSION_AVAILABLE | code;
    [id, flags, questions, answers, 0, 0].into_iter().flat_map(u16::to_be_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend(*label);
        }
        bytes.extend([0, kind.to_be_bytes()[0], kind.to_be_bytes()[1], 0, 1]);
        bytes
    }

    fn question(bytes: &[u8]) -> Question<'_> {
        match read_query(bytes) {
            Query::Question(question) => question,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let bytes = query(&[b"API", b"Example", b"org"], A);
        let asked = question(&bytes);
        assert_eq!((asked.name.as_str(), asked.wanted), ("api.example.org", Wanted::V4));
        let response = asked.response(Answer::V4(Ipv4Addr::new(198, 18, 1, 0)));
        assert_eq!(response[..12], [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(response[12..bytes.len()], bytes[12..]);
        assert_eq!(response[bytes.len()..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 1, 0]);
        assert_eq!(asked.response(Answer::NoSuchName)[2..8], [0x81, 0x83, 0, 1, 0, 0]);
        assert_eq!(asked.response(Answer::Empty)[2..8], [0x81, 0x80, 0, 1, 0, 0]);
        assert_eq!(question(&query(&[b"a"], AAAA)).wanted, Wanted::V6);
        assert_eq!(question(&query(&[b"a"], 65)).wanted, Wanted::Other);
    }

    #[test]
    fn a_part_with_a_dot_is_another_name() {
        assert_eq!(question(&query(&[b"api.example", b"org"], A)).name, "api\u{fffd}example.org");
        assert_eq!(question(&query(&[b"a\0\n", b"org"], A)).name, "a\u{fffd}\u{fffd}.org");
    }

    #[test]
    fn what_is_no_question_gets_an_error_or_nothing() {
        let good = query(&[b"a", b"example"], A);
        for length in 0..good.len() {
            let read = read_query(&good[..length]);
            assert!(matches!(read, Query::Nothing | Query::Wrong { code: FORMAT_ERROR, .. }), "{length}: {read:?}");
        }
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(read_query(&changed(2, 0x81)), Query::Nothing);
        assert!(matches!(read_query(&changed(2, 0x28)), Query::Wrong { code: NOT_IMPLEMENTED, .. }));
        assert!(matches!(read_query(&changed(5, 2)), Query::Wrong { code: FORMAT_ERROR, .. }));
        assert!(matches!(read_query(&changed(12, 0xc0)), Query::Wrong { code: FORMAT_ERROR, .. }));
        let long: Vec<&[u8]> = vec![&[b'x'; 63]; 5];
        assert!(matches!(read_query(&query(&long, A)), Query::Wrong { code: FORMAT_ERROR, .. }));
        assert_eq!(error_response(1, 0x0100, NOT_IMPLEMENTED), [0, 1, 0x81, 0x84, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
