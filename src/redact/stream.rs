//! Replaces secrets in bytes that come in chunks, where each secret has its own replacement.

use std::sync::Arc;

use secrecy::SecretString;

use super::search::{Known, Secret};

/// Number of digits of base64 that a form may have around it, on both sides together.
const EDGE_BYTES: usize = 2;

/// Secrets and their replacements.
pub(crate) struct Replacements {
    known: Vec<(Known, Vec<u8>)>,
    /// Number of bytes that are held back at the end of the data that has arrived. A form of a secret may begin in these bytes and end in
    /// bytes that have not arrived yet.
    held: usize,
}

impl Replacements {
    /// Returns the search data of secrets, each with the text that replaces it. Returns `None` if a secret is too long to be searched for.
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = (&'a SecretString, &'a str)>) -> Option<Self> {
        let base = Known::default().base();
        let known = |(secret, replacement): (&SecretString, &str)| {
            let known = Known::new(base, vec![Arc::new(Secret::new(base, secret, usize::MAX))]);
            known.spans_in(b"").map(|_| (known, replacement.as_bytes().to_vec()))
        };
        let known: Vec<_> = secrets.into_iter().map(known).collect::<Option<_>>()?;
        let longest = known.iter().map(|(known, _)| known.longest()).max().unwrap_or(0);
        Some(Self { held: if longest == 0 { 0 } else { longest + EDGE_BYTES }, known })
    }

    /// Returns bytes that are complete, with all secrets replaced.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Vec<u8> {
        let mut replaced = Vec::with_capacity(bytes.len());
        self.step(bytes, bytes.len(), Covered::default(), &mut replaced);
        replaced
    }

    /// Writes the bytes before `end`, in which secrets are replaced. `covered` is the part at the beginning of `bytes` that was already
    /// written. Returns the part that is written now. It reaches beyond `end` if a secret begins before `end` and ends after it.
    fn step(&self, bytes: &[u8], end: usize, mut covered: Covered, out: &mut Vec<u8>) -> Covered {
        let mut spans: Vec<_> = Vec::new();
        for (which, (known, _)) in self.known.iter().enumerate() {
            spans.extend(known.spans_in(bytes).unwrap_or_default().into_iter().map(|(start, end)| (start, end, which)));
        }
        spans.sort_unstable();
        for (start, until, which) in spans.into_iter().filter(|(start, ..)| *start < end) {
            // Forms that overlap or touch become one, so that no part of either is left.
            if !covered.touches(start) {
                out.extend_from_slice(&bytes[covered.until..start]);
                out.extend_from_slice(&self.known[which].1);
            }
            covered = Covered { until: covered.until.max(until), by_secret: true };
        }
        if covered.until < end {
            out.extend_from_slice(&bytes[covered.until..end]);
            covered = Covered { until: end, by_secret: false };
        }
        covered
    }
}

/// The part at the beginning of the held data that is already written.
#[derive(Debug, Clone, Copy, Default)]
struct Covered {
    until: usize,
    /// True if the last bytes before `until` belong to a secret. The replacement of this secret is already written.
    by_secret: bool,
}

impl Covered {
    fn touches(self, start: usize) -> bool {
        start < self.until || self.by_secret && start == self.until
    }
}

/// One stream of bytes in which secrets are replaced. The last bytes are held back until the next chunk arrives. Their number is always the
/// same, so the timing does not reveal whether they are a part of a secret.
pub(crate) struct SecretStream {
    replacements: Arc<Replacements>,
    data: Vec<u8>,
    covered: Covered,
}

impl SecretStream {
    pub(crate) fn new(replacements: Arc<Replacements>) -> Self {
        Self { replacements, data: Vec::new(), covered: Covered::default() }
    }

    /// Adds a chunk, and returns the bytes that need not be held back any more.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.data.extend_from_slice(chunk);
        self.write(self.data.len().saturating_sub(self.replacements.held))
    }

    /// Returns the bytes that were held back, because no chunk follows.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.write(self.data.len())
    }

    fn write(&mut self, end: usize) -> Vec<u8> {
        let mut out = Vec::new();
        if end == 0 {
            return out;
        }
        let covered = self.replacements.step(&self.data, end, self.covered, &mut out);
        self.data.drain(..end);
        self.covered = Covered { until: covered.until - end, ..covered };
        out
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "s3cret/Value+with \"quotes\"";

    fn replacements(secrets: &[(&str, &str)]) -> Arc<Replacements> {
        let secrets: Vec<_> = secrets.iter().map(|(secret, mark)| (SecretString::from(*secret), *mark)).collect();
        Arc::new(Replacements::new(secrets.iter().map(|(secret, mark)| (secret, *mark))).unwrap())
    }

    fn streamed<'a>(replacements: &Arc<Replacements>, chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut stream = SecretStream::new(Arc::clone(replacements));
        let mut out: Vec<u8> = chunks.into_iter().flat_map(|chunk| stream.push(chunk)).collect();
        out.extend(stream.finish());
        out
    }

    #[test]
    fn the_usual_forms_of_a_secret_are_replaced_in_text_and_in_bytes() {
        let known = replacements(&[(SECRET, "<A>")]);
        let quoted = serde_json::to_string(SECRET).unwrap();
        let forms = [
            SECRET.to_owned(),
            quoted[1..quoted.len() - 1].to_owned(),
            STANDARD.encode(SECRET),
            "s3cret%2FValue%2Bwith%20%22quotes%22".to_owned(),
            "s3cret%2FValue%2Bwith+%22quotes%22".to_owned(),
            hex::encode(SECRET),
        ];
        for form in forms {
            let text = [b"\xff\x00before ", form.as_bytes(), b" after\xfe"].concat();
            let replaced = known.replace(&text);
            assert!(replaced.starts_with(b"\xff\x00before <A>") && replaced.ends_with(b" after\xfe"), "{form}");
        }
        let within = STANDARD.encode(format!("user:{SECRET}:more"));
        assert!(known.replace(within.as_bytes()).windows(3).any(|part| part == b"<A>"));
    }

    #[test]
    fn a_secret_across_chunks_is_replaced_and_a_part_of_it_is_not() {
        let known = replacements(&[("0123456789abcdef", "<A>")]);
        let text = b"x=0123456789abcdef;y=0123456789abcde";
        for cut in 0..text.len() {
            assert_eq!(streamed(&known, [&text[..cut], &text[cut..]]), b"x=<A>;y=0123456789abcde", "{cut}");
        }
        assert_eq!(streamed(&known, text.chunks(1)), b"x=<A>;y=0123456789abcde");
    }

    #[test]
    fn the_time_at_which_bytes_come_does_not_depend_on_them() {
        let known = replacements(&[("0123456789abcdef", "<A>")]);
        let lengths = |text: &[u8]| {
            let mut stream = SecretStream::new(Arc::clone(&known));
            text.chunks(10).map(|chunk| stream.push(chunk).len()).collect::<Vec<_>>()
        };
        let (near, far) = ([b"0123456789abcde?".repeat(20)].concat(), b"----------------".repeat(20));
        assert_eq!(lengths(&near), lengths(&far));
        assert!(lengths(&far).iter().sum::<usize>() > 0);
    }

    #[test]
    fn a_secret_that_repeats_itself_leaves_nothing_and_takes_no_time() {
        let known = replacements(&[("aaaaaaaa", "<A>")]);
        let text = vec![b'a'; 300_000];
        assert_eq!(streamed(&known, text.chunks(60_000)), b"<A>");
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_the_chunks(pieces in prop::collection::vec(prop_oneof![Just("secret-one"), Just("one-secret-two"), Just("secret-on"), Just("x"), Just("c2VjcmV0LW9uZQ==")], 0..40), size in 1_usize..50) {
            let known = replacements(&[("secret-one", "<A>"), ("one-secret-two", "<B>")]);
            let text = pieces.concat();
            let whole = known.replace(text.as_bytes());
            prop_assert_eq!(streamed(&known, text.as_bytes().chunks(size)), whole.clone());
            let whole = String::from_utf8(whole).unwrap();
            prop_assert!(!whole.contains("secret-one") && !whole.contains("one-secret-two"), "{}", whole);
        }
    }
}
