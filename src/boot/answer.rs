//! Finds the requested part in a model's answer: JSON in prose, or a refusal.

use serde_json::{Deserializer, Value as Json};

use super::fences::fences;
use crate::text::sanitise_line;

/// The largest answer that is read, in bytes.
pub const MAX_ANSWER_BYTES: usize = 1024 * 1024;
/// The largest number of places at which the search for JSON starts.
const MAX_ATTEMPTS: usize = 256;
/// The largest number of bytes that the search for JSON reads, from all places together.
const MAX_BYTES_READ: usize = 16 * 1024 * 1024;
/// The maximum length of a refusal in prose, in bytes.
const MAX_REFUSAL_BYTES: usize = 4_000;
const SHOWN_CHARS: usize = 300;

/// The beginnings of sentences with which models refuse.
const REFUSALS: [&str; 12] = [
    "i can't",
    "i cannot",
    "i can not",
    "i won't",
    "i will not",
    "i'm sorry",
    "i am sorry",
    "sorry",
    "i'm unable",
    "i am unable",
    "i'm not able",
    "i am not able",
];

/// The JSON that was found in an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FoundJson {
    /// The values that the check accepts, in the order of the answer.
    Values(Vec<Json>),
    /// The answer ends in the middle of JSON.
    CutOff,
    /// No JSON was accepted. Contains the parser's message about the most likely place of the JSON.
    Nothing(String),
}

/// Returns the JSON values in an answer for which `accepts` returns true. Searches the fences first, and the prose if the fences contain no such
/// value.
pub(super) fn json_in(text: &str, accepts: &dyn Fn(&Json) -> bool) -> FoundJson {
    let fences = fences(text);
    let mut values: Vec<Json> =
        fences.iter().filter_map(|fence| serde_json::from_str(fence.content).ok()).filter(|value| accepts(value)).collect();
    if !values.is_empty() {
        return FoundJson::Values(values);
    }
    let (mut from, mut budget, mut message, mut is_cut) = (0, MAX_BYTES_READ, None, false);
    for _ in 0..MAX_ATTEMPTS {
        let Some(start) = text[from..].find(['{', '[']).map(|at| at + from) else { break };
        let rest = &text[start..];
        if rest.len() > budget {
            break;
        }
        let mut stream = Deserializer::from_str(rest).into_iter::<Json>();
        from = match stream.next() {
            Some(Ok(value)) => {
                let end = start + stream.byte_offset();
                if accepts(&value) {
                    values.push(value);
                }
                // The search continues after each value, accepted or not. `accepts` looks into values such as `{"plan": {"tools": …}}`.
                budget = budget.saturating_sub(end - start);
                end
            }
            Some(Err(error)) => {
                budget -= rest.len();
                is_cut |= error.is_eof() && message.is_none() && looks_like_json(rest);
                message.get_or_insert_with(|| error.to_string());
                start + 1
            }
            None => break,
        };
    }
    match (values.is_empty(), is_cut) {
        (false, _) => FoundJson::Values(values),
        (true, true) => FoundJson::CutOff,
        (true, false) => FoundJson::Nothing(message.unwrap_or_else(|| "it has no JSON".to_owned())),
    }
}

fn looks_like_json(text: &str) -> bool {
    let inside = text[1..].trim_start();
    inside.is_empty() || inside.starts_with(['"', '{', '}', '[', ']'])
}

/// Returns the problem of an answer that cannot be used at all: it is too large, empty, or a web page.
pub(super) fn unreadable(answer: &str) -> Option<String> {
    let start = answer.trim_start();
    let start = start[..start.floor_char_boundary(20)].to_ascii_lowercase();
    if answer.len() > MAX_ANSWER_BYTES {
        Some(format!("the answer has {} bytes, and at most {MAX_ANSWER_BYTES} are read", answer.len()))
    } else if start.is_empty() {
        Some("the answer is empty".to_owned())
    } else if start.starts_with("<!doctype") || start.starts_with("<html") {
        Some("the answer is a web page; the address of the model may be wrong".to_owned())
    } else {
        None
    }
}

/// Returns the model's reason if the answer is a refusal: `{"refusal": "…"}`, or a few sentences that begin like a refusal.
pub(super) fn refusal(answer: &str) -> Option<String> {
    if answer.len() > MAX_ANSWER_BYTES {
        return None;
    }
    let declared =
        |value: &Json| value.as_object().is_some_and(|fields| fields.len() == 1 && fields.get("refusal").is_some_and(Json::is_string));
    if answer.contains("\"refusal\"")
        && let FoundJson::Values(values) = json_in(answer, &declared)
    {
        return values.first()?["refusal"].as_str().map(|reason| sanitise_line(reason, SHOWN_CHARS));
    }
    let prose = answer.trim().replace('’', "'");
    let start = prose[..prose.floor_char_boundary(40)].to_lowercase();
    let is_prose = prose.len() <= MAX_REFUSAL_BYTES && !prose.contains("```") && !prose.contains(['{', ';']);
    (is_prose && REFUSALS.iter().any(|refusal| start.starts_with(refusal))).then(|| sanitise_line(&prose, SHOWN_CHARS))
}

/// Converts a value to a type. If a field has a wrong type, the error names the field.
pub(super) fn typed<T: for<'de> serde::Deserialize<'de>>(value: &Json) -> Result<T, String> {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    T::deserialize(tracked).map_err(|error| match track.path().to_string().as_str() {
        "." => error.to_string(),
        path => format!("{path}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn has_tools(value: &Json) -> bool {
        value.get("tools").is_some()
    }

    fn found(text: &str) -> FoundJson {
        json_in(text, &has_tools)
    }

    #[test]
    fn json_is_found_in_prose_and_in_fences() {
        let value = || FoundJson::Values(vec![serde_json::json!({ "tools": [1] })]);
        for text in [
            "{\"tools\":[1]}",
            "Here you are: {\"tools\":[1]} Good luck!",
            "Sets {a, b} are in [brackets]: {\"tools\":[1]}",
            "```json\n{\"tools\":[1]}\n```",
            "First:\n~~~\n{\"x\":1}\n~~~\nthen\n````json\n{\"tools\":[1]}\n````\nDone.",
            "```json\n{\"tools\":[1]}",
        ] {
            assert_eq!(found(text), value(), "{text}");
        }
        let two = found("```json\n{\"tools\":[1]}\n```\nOr better:\n```json\n{\"tools\":[2]}\n```");
        assert_eq!(two, FoundJson::Values(vec![serde_json::json!({ "tools": [1] }), serde_json::json!({ "tools": [2] })]));
    }

    #[test]
    fn an_answer_without_the_json_says_what_is_wrong() {
        assert_eq!(found("{\"tools\": [{\"name\": \"a\", \"desc"), FoundJson::CutOff);
        assert_eq!(found("```json\n{\"tools\": [{\"name\": \"a\"},"), FoundJson::CutOff);
        assert_eq!(found("no tools"), FoundJson::Nothing("it has no JSON".to_owned()));
        let FoundJson::Nothing(message) = found("{\"tools\": [1,]}") else { panic!() };
        assert!(message.contains("line 1 column 14"), "{message}");
        assert!(matches!(found("{\"other\": 1}"), FoundJson::Nothing(_)));
    }

    #[test]
    fn an_answer_that_is_none_is_recognised() {
        assert!(unreadable(&"x".repeat(10 * 1024 * 1024)).unwrap().contains("10485760 bytes"));
        assert!(unreadable(" <!DOCTYPE html><p>502").unwrap().contains("web page"));
        assert!(unreadable(" \n").unwrap().contains("empty"));
        assert_eq!(unreadable("{}"), None);
    }

    #[test]
    fn a_refusal_is_told_from_an_answer() {
        assert_eq!(refusal("I’m sorry, but I can’t help with that.").as_deref(), Some("I'm sorry, but I can't help with that."));
        assert_eq!(refusal("```json\n{\"refusal\": \"not this\"}\n```").as_deref(), Some("not this"));
        assert_eq!(refusal("I cannot see the page, so here is a guess: {\"tools\": []}"), None);
        assert_eq!(refusal("return args.a + args.b"), None);
    }

    #[test]
    fn an_answer_that_is_made_to_take_long_is_read_soon() {
        for part in ["{", "[", "{\"a\":", "[{\"", "```\n", "{\"a\":1}", "{}"] {
            let _ = found(&part.repeat(MAX_ANSWER_BYTES / part.len()));
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read(text in "(\\{|\\}|\\[|\\]|\"tools\"|:|1|,|```|\n| |json|~~~){0,60}") {
            let _ = (found(&text), refusal(&text), unreadable(&text));
        }
    }
}
