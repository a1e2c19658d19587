//! Finds the locations of a schema's subschemas before and after normalising. The locations are needed to update references to subschemas
//! that have moved.

use std::collections::HashMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value as Json};

use super::guard::KEYWORDS;
use super::normalise::{children, location_after};

/// Characters that are percent-encoded in a reference. These are all characters except letters, digits and `/`, `~`, `$`, `-`, `_`, `.`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'~').remove(b'$').remove(b'-').remove(b'_').remove(b'.');

/// Draft of JSON Schema that a schema follows, according to its `$schema`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Draft-04 and older. The identifier of a schema is `id` instead of `$id`, and `exclusiveMaximum` and `exclusiveMinimum` are booleans.
    Draft4,
    Draft6,
    Draft7,
    Draft2019,
    /// Draft 2020-12. It is also used for schemas without `$schema`.
    Draft2020,
}

impl Dialect {
    fn of(schema: &Json) -> Self {
        let text = schema.get("$schema").and_then(Json::as_str).unwrap_or_default();
        let names = |name: &str| text.contains(name);
        match () {
            () if names("draft-03") || names("draft-04") => Self::Draft4,
            () if names("draft-06") => Self::Draft6,
            () if names("draft-07") => Self::Draft7,
            () if names("2019-09") => Self::Draft2019,
            () => Self::Draft2020,
        }
    }

    /// Returns the value of `$schema`. Returns `None` if the validator does not need it.
    pub(super) fn uri(self) -> Option<&'static str> {
        match self {
            Self::Draft4 => Some("http://json-schema.org/draft-04/schema#"),
            Self::Draft6 => Some("http://json-schema.org/draft-06/schema#"),
            Self::Draft7 => Some("http://json-schema.org/draft-07/schema#"),
            Self::Draft2019 => Some("https://json-schema.org/draft/2019-09/schema"),
            Self::Draft2020 => None,
        }
    }

    /// Returns whether all keywords next to a `$ref` are ignored.
    pub(super) fn references_are_alone(self) -> bool {
        matches!(self, Self::Draft4 | Self::Draft6 | Self::Draft7)
    }

    fn id(self) -> &'static str {
        if self == Self::Draft4 { "id" } else { "$id" }
    }

    /// Returns whether a keyword changes the meaning of references inside the subschema. Returns false for the identifier of the root
    /// schema, because all references are converted to pointers. Also returns false for an identifier that is only a fragment, because it
    /// is an anchor.
    pub(super) fn renames(self, key: &str, value: &Json, depth: usize) -> bool {
        match key {
            "$id" | "id" => key == self.id() && depth > 0 && value.as_str().is_some_and(|id| !id.starts_with('#')),
            _ => true,
        }
    }

    fn anchor(self, fields: &Map<String, Json>) -> Option<&str> {
        let text = |key: &str| fields.get(key).and_then(Json::as_str);
        match self {
            Self::Draft4 | Self::Draft6 | Self::Draft7 => text(self.id())?.strip_prefix('#').filter(|anchor| !anchor.is_empty()),
            Self::Draft2019 | Self::Draft2020 => text("$anchor"),
        }
    }
}

struct PartLocation {
    parent: usize,
    tokens: String,
    /// Length in bytes of the whole JSON Pointer to the subschema.
    bytes: usize,
}

/// The locations of all subschemas of a schema.
pub(super) struct PartLocations<'a> {
    root: &'a Json,
    pub(super) dialect: Dialect,
    pub(super) has_references: bool,
    all: Vec<PartLocation>,
    by_address: HashMap<*const Json, usize>,
    /// Index of the subschema with each anchor. `None` if two subschemas have the same anchor.
    anchors: HashMap<&'a str, Option<usize>>,
}

impl<'a> PartLocations<'a> {
    pub(super) fn new(root: &'a Json, max_depth: usize) -> Self {
        let dialect = Dialect::of(root);
        let (all, by_address, anchors) = (Vec::new(), HashMap::new(), HashMap::new());
        let mut locations = Self { root, dialect, has_references: false, all, by_address, anchors };
        let mut waiting = vec![(root, 0, String::new(), 0)];
        while let Some((part, parent, tokens, depth)) = waiting.pop() {
            let here = locations.add(part, parent, tokens);
            let Some(fields) = part.as_object().filter(|_| depth < max_depth) else { continue };
            locations.has_references |= fields.contains_key("$ref");
            if let Some(anchor) = dialect.anchor(fields) {
                locations.anchors.entry(anchor).and_modify(|known| *known = None).or_insert(Some(here));
            }
            for (key, shape, _) in KEYWORDS {
                let Some(value) = fields.get(key) else { continue };
                let inner = children(&location_after(key, fields, dialect), shape, value);
                waiting.extend(inner.into_iter().map(|(tokens, part)| (part, here, tokens, depth + 1)));
            }
        }
        locations
    }

    fn add(&mut self, part: &'a Json, parent: usize, tokens: String) -> usize {
        let location = self.all.len();
        let bytes = self.all.get(parent).map_or(0, |parent| parent.bytes + 1 + tokens.len());
        self.all.push(PartLocation { parent, tokens, bytes });
        self.by_address.insert(std::ptr::from_ref(part), location);
        location
    }

    /// Returns the reference that points to the same subschema after normalising. Returns `None` if the target is not a subschema of this
    /// schema, or if the new reference may need more than `max_bytes`.
    pub(super) fn reference(&self, reference: &str, max_bytes: usize) -> Option<String> {
        let own = self.root.get(self.dialect.id()).and_then(Json::as_str).map(|id| id.trim_end_matches('#')).unwrap_or_default();
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if !uri.is_empty() && uri != own {
            return None;
        }
        let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
        let location = if fragment.is_empty() || fragment.starts_with('/') {
            *self.by_address.get(&std::ptr::from_ref(self.root.pointer(&fragment)?))?
        } else {
            (*self.anchors.get(&*fragment)?)?
        };
        // Percent-encoding may replace one byte by three.
        (self.all[location].bytes.saturating_mul(3) < max_bytes).then(|| self.written(location))
    }

    fn written(&self, mut location: usize) -> String {
        let mut tokens = Vec::new();
        while location != 0 {
            tokens.push(self.all[location].tokens.as_str());
            location = self.all[location].parent;
        }
        let mut text = "#".to_owned();
        for tokens in tokens.into_iter().rev() {
            text.push('/');
            text.extend(utf8_percent_encode(tokens, ENCODED));
        }
        text
    }
}
