//! Lists all texts that reveal a secret. These are the secret and its secret parts, each in every encoding that other programs use.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use super::base64;
use super::composite::secrets_within;
use super::secret_rules::FEWEST_CHARACTERS;
use crate::text::{escape_comment_end, sanitise_line, sanitise_text};

pub(super) fn is_long_enough(text: &str) -> bool {
    text.chars().nth(FEWEST_CHARACTERS - 1).is_some()
}

/// Returns the secret and its parts that are secrets themselves. These parts are each line, and everything that [`secrets_within`] finds.
pub(super) fn parts(secret: &str) -> BTreeSet<String> {
    let mut parts: BTreeSet<String> = secret.lines().map(str::trim).chain([secret, secret.trim()]).map(str::to_owned).collect();
    parts.extend(secrets_within(secret));
    parts.retain(|part| is_long_enough(part));
    parts
}

const fn without(set: &AsciiSet, kept: &[u8]) -> AsciiSet {
    let mut set = set.remove(kept[0]);
    let mut index = 1;
    while index < kept.len() {
        set = set.remove(kept[index]);
        index += 1;
    }
    set
}

const UNRESERVED: AsciiSet = without(NON_ALPHANUMERIC, b"-_.~");
const COMPONENT: AsciiSet = without(&UNRESERVED, b"!*'()");
const QUERY: AsciiSet = CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');
pub(super) const PATH: AsciiSet = QUERY.add(b'?').add(b'`').add(b'{').add(b'}');
const LOGIN: AsciiSet = PATH.add(b'/').add(b':').add(b';').add(b'=').add(b'@').add(b'[').add(b'\\').add(b']').add(b'^').add(b'|');
/// Sets of characters that are escaped in URLs. In order: all possible characters, `encodeURIComponent`, RFC 3986, Python, HTML forms,
/// `encodeURI`, and the parts of a URL as browsers escape them.
const ESCAPED: &[&AsciiSet] = &[
    NON_ALPHANUMERIC,
    &COMPONENT,
    &UNRESERVED,
    &without(&UNRESERVED, b"/"),
    &without(NON_ALPHANUMERIC, b"*-._"),
    &without(&COMPONENT, b";/?:@&=+$,#"),
    &LOGIN,
    &PATH,
    &QUERY,
];
/// The ways in which a quotation mark, an apostrophe and a slash are written in HTML.
const HTML: &[(&str, &str, &str)] = &[
    ("\"", "'", "/"),
    ("&quot;", "'", "/"),
    ("&quot;", "&#39;", "/"),
    ("&quot;", "&apos;", "/"),
    ("&#34;", "&#39;", "/"),
    ("&quot;", "&#x27;", "/"),
    ("&quot;", "&#x27;", "&#x2F;"),
];
/// Characters that template engines and libraries write as entities, beside `&amp;`, `&lt;` and `&gt;`. In order: Mustache, Handlebars, .NET,
/// PHP, and Go.
const ENTITIES: &[&[(char, &str)]] = &[
    &[('"', "&quot;"), ('\'', "&#39;"), ('/', "&#x2F;"), ('`', "&#x60;"), ('=', "&#x3D;")],
    &[('"', "&quot;"), ('\'', "&#x27;"), ('`', "&#x60;"), ('=', "&#x3D;")],
    &[('"', "&quot;"), ('\'', "&#x27;"), ('+', "&#x2B;"), ('`', "&#x60;")],
    &[('"', "&quot;"), ('\'', "&#039;")],
    &[('"', "&#34;"), ('\'', "&#39;"), ('+', "&#43;")],
];
/// Characters that writers of JSON escape although JSON does not require it. In order: none, Python (all except ASCII), Go, Gson, PHP (two), .NET,
/// and writers that escape everything except letters and digits.
const RARE: &[fn(char) -> bool] = &[
    |_| false,
    |character| !character.is_ascii(),
    |character| "<>&\u{2028}\u{2029}".contains(character),
    |character| "<>&'=\u{2028}\u{2029}".contains(character),
    |character| "<>&'".contains(character),
    |character| "<>&'\"".contains(character),
    |character| !character.is_ascii() || "<>&'\"+`\u{7f}".contains(character),
    |character| !character.is_ascii_alphanumeric(),
];

/// Returns all forms in which other programs write a text.
pub(super) fn encodings(plain: &str) -> BTreeSet<String> {
    let rust = format!("{plain:?}");
    let mut forms = BTreeSet::from([plain.to_owned(), rust[1..rust.len() - 1].to_owned()]);
    for set in ESCAPED {
        let upper = utf8_percent_encode(plain, set).to_string();
        let lower = lowercase_escapes(&upper);
        forms.extend([upper.replace("%20", "+"), lower.replace("%20", "+"), upper, lower]);
    }
    let html = plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    forms.extend(HTML.iter().map(|(quote, apostrophe, slash)| html.replace('"', quote).replace('\'', apostrophe).replace('/', slash)));
    forms.extend(ENTITIES.iter().map(|entities| {
        html_form(&html, |character| entities.iter().find(|(of, _)| *of == character).map(|(_, entity)| (*entity).to_owned()))
    }));
    // Some encoders write all characters except letters and digits as numbers.
    for number in [|code: u32| format!("&#{code};"), |code: u32| format!("&#x{code:x};"), |code: u32| format!("&#x{code:X};")] {
        forms.insert(html_form(plain, |character| (!character.is_ascii_alphanumeric()).then(|| number(character.into()))));
    }
    let once: BTreeSet<String> = json_forms(plain).collect();
    forms.extend(once.iter().flat_map(|form| json_forms(form)));
    forms.extend(once);
    forms.extend(base64::on_its_own(plain.as_bytes()));
    let hex = |upper: bool| plain.bytes().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect::<String>();
    let percent = |digits: &str| digits.as_bytes().chunks(2).flat_map(|pair| [b'%', pair[0], pair[1]]).map(char::from).collect::<String>();
    forms.extend([hex(false), hex(true), percent(&hex(false)), percent(&hex(true))]);
    // A text is quoted three times if a log line contains a JSON message that contains a JSON document. Most programs quote it in this
    // way.
    let quoted = |text: &str| json_form(text, |_| false, false, false);
    forms.insert(quoted(&quoted(&quoted(plain))));
    // URL parsers convert hosts and schemes to lower case. Programs also convert names of HTTP headers to lower case, to compare them.
    forms.insert(plain.to_ascii_lowercase());
    // A text is sanitised before it is searched, so the sanitised forms of the secret are needed too.
    let sanitised = |form: &String| [sanitise_text(form, usize::MAX), sanitise_line(form, usize::MAX)];
    let shown: Vec<String> = forms.iter().flat_map(sanitised).collect();
    forms.extend(shown);
    // Declarations escape the ends of comments.
    let in_comments: Vec<String> = forms.iter().filter(|form| form.contains("*/")).map(|form| escape_comment_end(form)).collect();
    forms.extend(in_comments);
    forms
}

/// Returns a text with the entities of some characters.
fn html_form(text: &str, entity: impl Fn(char) -> Option<String>) -> String {
    text.chars().map(|character| entity(character).unwrap_or_else(|| character.to_string())).collect()
}

fn lowercase_escapes(text: &str) -> String {
    let (first, rest) = text.split_once('%').unwrap_or((text, ""));
    let piece = |piece: &str| {
        piece.split_at_checked(2).map_or(format!("%{piece}"), |(digits, rest)| format!("%{}{rest}", digits.to_ascii_lowercase()))
    };
    if first.len() == text.len() { text.to_owned() } else { first.to_owned() + &rest.split('%').map(piece).collect::<String>() }
}

fn json_forms(plain: &str) -> impl Iterator<Item = String> {
    RARE.iter().flat_map(move |rare| {
        [(false, false), (false, true), (true, false), (true, true)].map(|(slash, upper)| json_form(plain, *rare, slash, upper))
    })
}

fn json_form(plain: &str, rare: fn(char) -> bool, slash: bool, upper: bool) -> String {
    let mut form = String::new();
    for character in plain.chars() {
        let short = match character {
            '"' | '\\' => Some(character),
            '/' if slash => Some('/'),
            '\n' => Some('n'),
            '\r' => Some('r'),
            '\t' => Some('t'),
            '\u{8}' => Some('b'),
            '\u{c}' => Some('f'),
            _ => None,
        };
        if let Some(short) = short.filter(|_| !rare(character)) {
            form.extend(['\\', short]);
        } else if rare(character) || character < ' ' {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                let _ = if upper { write!(form, "\\u{unit:04X}") } else { write!(form, "\\u{unit:04x}") };
            }
        } else {
            form.push(character);
        }
    }
    form
}
