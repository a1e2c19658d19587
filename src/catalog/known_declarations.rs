//! Keeps the declarations of servers until their sources change. The declarations of a server with thousands of tools take long to make,
//! and a host may read them often.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::declarations::{DeclarationStyle, Failures, declare_server};
use super::manifest::Manifest;
use super::shapes::SeenResults;

/// The maximum total size in bytes of the declarations that are kept.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The maximum number of servers, with one style each, whose declarations are kept.
const MAX_KEPT: usize = 256;

/// The declarations of servers that were made last.
#[derive(Default)]
pub struct KnownDeclarations(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The declarations, with those that were used last at the front.
    entries: VecDeque<(Source, Arc<str>)>,
    bytes: usize,
}

/// Everything on which the declarations of a server depend, apart from the fixed functions that sanitise texts.
struct Source {
    server: String,
    /// The manifest. It is never modified: a change creates a new manifest. The weak reference keeps its address in use.
    manifest: Weak<Manifest>,
    failures: Failures,
    max_chars: usize,
    seen: SeenResults,
}

impl Source {
    fn new(server: &str, manifest: &Arc<Manifest>, style: &DeclarationStyle) -> Self {
        let DeclarationStyle { wording, failures, seen } = style;
        let manifest = Arc::downgrade(manifest);
        Self { server: server.to_owned(), manifest, failures: *failures, max_chars: wording.max_chars, seen: seen.clone() }
    }

    fn is(&self, other: &Self) -> bool {
        let Self { server, manifest, failures, max_chars, seen } = self;
        Weak::ptr_eq(manifest, &other.manifest)
            && *server == other.server
            && *failures == other.failures
            && *max_chars == other.max_chars
            && *seen == other.seen
    }
}

impl KnownDeclarations {
    /// Returns the declarations of a server's module, and makes them if they are not known.
    pub(super) fn of(&self, server: &str, manifest: &Arc<Manifest>, style: &DeclarationStyle) -> Arc<str> {
        self.known_or(Source::new(server, manifest, style), || declare_server(server, manifest, style))
    }

    fn known_or(&self, source: Source, declare: impl FnOnce() -> String) -> Arc<str> {
        if let Some(text) = self.0.lock().find(&source) {
            return text;
        }
        let text: Arc<str> = declare().into();
        let mut kept = self.0.lock();
        // Another request may have made the same declarations in the meantime.
        if let Some(known) = kept.find(&source) {
            return known;
        }
        let surplus = kept.insert(source, &text);
        drop(kept);
        drop(surplus);
        text
    }
}

impl Kept {
    fn find(&mut self, source: &Source) -> Option<Arc<str>> {
        let at = self.entries.iter().position(|(known, _)| known.is(source))?;
        let found = self.entries.remove(at)?;
        let text = Arc::clone(&found.1);
        self.entries.push_front(found);
        Some(text)
    }

    /// Adds declarations, and returns those that are not kept any more.
    fn insert(&mut self, source: Source, text: &Arc<str>) -> Vec<(Source, Arc<str>)> {
        if text.len() > MAX_BYTES {
            return vec![(source, Arc::clone(text))];
        }
        self.bytes += text.len();
        self.entries.push_front((source, Arc::clone(text)));
        let mut surplus = Vec::new();
        while (self.bytes > MAX_BYTES || self.entries.len() > MAX_KEPT)
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes -= oldest.1.len();
            surplus.push(oldest);
        }
        surplus
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalog::{SeenTool, Wording};
    use crate::text::{sanitise_line, sanitise_text};

    fn manifest() -> Arc<Manifest> {
        let tool = json!({ "name": "t", "inputSchema": { "type": "object" } });
        let manifest = json!({ "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [tool] });
        Arc::new(serde_json::from_value(manifest).unwrap())
    }

    fn style(failures: Failures) -> DeclarationStyle {
        let wording = Wording { text: sanitise_text, line: sanitise_line, max_chars: 100 };
        DeclarationStyle { wording, failures, seen: SeenResults::default() }
    }

    #[test]
    fn declarations_are_made_once_until_something_in_them_is_another() {
        let (known, made, of_server) = (KnownDeclarations::default(), std::cell::Cell::new(0), manifest());
        let of = |server: &str, manifest: &Arc<Manifest>, style: &DeclarationStyle| {
            known.known_or(Source::new(server, manifest, style), || {
                made.set(made.get() + 1);
                made.get().to_string()
            })
        };
        let thrown = style(Failures::Thrown);
        assert_eq!((&*of("a", &of_server, &thrown), &*of("a", &of_server, &thrown)), ("1", "1"));
        assert_eq!(&*of("b", &of_server, &thrown), "2");
        assert_eq!(&*of("a", &manifest(), &thrown), "3");
        assert_eq!(&*of("a", &of_server, &style(Failures::Returned)), "4");
        let shorter = DeclarationStyle { wording: Wording { max_chars: 50, ..thrown.wording }, ..thrown.clone() };
        assert_eq!(&*of("a", &of_server, &shorter), "5");
        let tool = &of_server.tools[0];
        let learnt = SeenTool::of_a_text();
        let seen = DeclarationStyle { seen: [(tool.name.clone(), learnt)].into_iter().collect(), ..thrown.clone() };
        assert_eq!((&*of("a", &of_server, &seen), &*of("a", &of_server, &seen)), ("6", "6"));
        assert_eq!(&*of("a", &of_server, &thrown), "1");
    }

    #[test]
    fn the_bytes_that_are_kept_are_bounded_and_what_is_used_stays() {
        let (known, of_server, style) = (KnownDeclarations::default(), manifest(), style(Failures::Thrown));
        let of = |server: &str, bytes: usize| known.known_or(Source::new(server, &of_server, &style), || "x".repeat(bytes));
        let first = of("first", 1000);
        for number in 0..40 {
            of(&number.to_string(), MAX_BYTES / 8);
            assert!(Arc::ptr_eq(&first, &of("first", 1000)));
            let kept = known.0.lock();
            assert!(kept.bytes <= MAX_BYTES && kept.bytes == kept.entries.iter().map(|(_, text)| text.len()).sum::<usize>());
        }
        of("too large", MAX_BYTES + 1);
        assert!(Arc::ptr_eq(&first, &of("first", 1000)));
        (0..2 * MAX_KEPT).for_each(|number| drop(of(&format!("small {number}"), 1)));
        assert_eq!(known.0.lock().entries.len(), MAX_KEPT);
    }
}
