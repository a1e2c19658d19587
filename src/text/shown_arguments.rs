//! Shows the arguments of a call to a person who decides about the call. No key is hidden, each cut is mentioned, and invisible
//! characters are made visible.

use serde_json::{Map, Value as Json};

use super::{is_stray_jamo, is_unseen};

/// Length in characters up to which the shown arguments are not cut.
const MAX_CHARS: usize = 4_000;
/// Length in characters up to which a value is never cut, so that a path or an address can still be read.
const MIN_VALUE_CHARS: usize = 60;
/// At most this many blanks in a row are shown unchanged. A longer row is replaced by its number of blanks.
const MAX_BLANKS: usize = 16;
/// Indentation of at most this many blanks is shown unchanged. Longer indentation is replaced by its number of blanks.
const MAX_INDENTATION: usize = 64;
/// Minimum number of items in a list that are shown.
const MIN_ITEMS: usize = 5;

/// Returns the arguments of a call as text for an approval question, and the number of values that were cut.
///
/// Every key is shown. A long value is cut, because it must not push the next key off the screen. Both ends of a long text are shown,
/// because the end of a command is as important as its start.
pub(crate) fn arguments_text(arguments: &Map<String, Json>) -> (String, usize) {
    let whole = Json::Object(arguments.clone());
    let mut limit = MAX_CHARS;
    loop {
        let mut cuts = 0;
        let text = folded(&escaped(&pretty(&shortened(&whole, limit, &mut cuts))));
        if text.chars().count() <= MAX_CHARS || limit <= MIN_VALUE_CHARS {
            return (text, cuts);
        }
        limit = (limit / 2).max(MIN_VALUE_CHARS);
    }
}

/// Returns the arguments as text without cuts. It is for a person who wants to see everything.
pub(crate) fn whole_arguments_text(arguments: &Map<String, Json>) -> String {
    folded(&escaped(&pretty(&Json::Object(arguments.clone()))))
}

fn pretty(json: &Json) -> String {
    serde_json::to_string_pretty(json).unwrap_or_else(|_| "null".to_owned())
}

/// Replaces long sequences of blanks by their number, so that they cannot push other text off the screen. Blanks at the beginning of a line
/// may be longer (`MAX_INDENTATION`): they are always indentation, because a string in JSON contains no line breaks.
fn folded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|character: char| character.is_whitespace() != first.is_whitespace()).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            let most = if rest.len() == line.len() { MAX_INDENTATION } else { MAX_BLANKS };
            match run.chars().count() {
                count if first.is_whitespace() && count > most => out.extend(["[", &count.to_string(), " blanks]"]),
                _ => out += run,
            }
            rest = after;
        }
    }
    out
}

/// Returns the value with each text cut to `limit` characters. The number of items in each list is cut in proportion to `limit`.
fn shortened(json: &Json, limit: usize, cuts: &mut usize) -> Json {
    match json {
        Json::String(text) => {
            let count = text.chars().count();
            if count <= limit {
                return json.clone();
            }
            *cuts += 1;
            let (start, end) = (limit - limit / 3, limit / 3);
            let head: String = text.chars().take(start).collect();
            let tail: String = text.chars().skip(count - end).collect();
            Json::String(format!("{head} … {} characters are not shown … {tail}", count - start - end))
        }
        Json::Array(items) => {
            let most = (limit / 10).max(MIN_ITEMS);
            let mut shown: Vec<Json> = items.iter().take(most).map(|item| shortened(item, limit, cuts)).collect();
            if items.len() > most {
                *cuts += 1;
                shown.push(Json::String(format!("… {} items are not shown", items.len() - most)));
            }
            Json::Array(shown)
        }
        Json::Object(object) => object.iter().map(|(key, value)| (key.clone(), shortened(value, limit, cuts))).collect(),
        other => other.clone(),
    }
}

/// Replaces control characters and invisible characters by their code points.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let is_stray = is_stray_jamo(out.chars().next_back().unwrap_or('\n'), character);
        if is_stray || is_unseen(character) || (character.is_control() && character != '\n') {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(json: &Json) -> (String, usize) {
        arguments_text(json.as_object().unwrap())
    }

    #[test]
    fn what_cannot_be_seen_is_written_as_its_number() {
        for hidden in ['\u{e0041}', '\u{fe0f}', '\u{61c}', '\u{180e}', '\u{202e}', '\u{200b}', '\u{3164}', '\u{2028}', '\u{9b}', '\u{7f}'] {
            let (text, cuts) = shown(&json!({ "a": format!("x{hidden}y") }));
            assert_eq!((text, cuts), (format!("{{\n  \"a\": \"x\\u{{{:x}}}y\"\n}}", u32::from(hidden)), 0));
        }
        assert_eq!(shown(&json!({ "天気": "é 👍" })).0, "{\n  \"天気\": \"é 👍\"\n}");
    }

    #[test]
    fn a_long_value_hides_no_key_and_keeps_its_end() {
        let (text, cuts) = shown(&json!({ "command": format!("echo {}; rm -rf /", "x".repeat(100_000)), "sudo": true }));
        assert!(text.chars().count() <= MAX_CHARS && cuts == 1, "{text}");
        assert!(text.contains("\"echo x") && text.contains("rm -rf /\"") && text.contains("\"sudo\": true"), "{text}");
        assert!(text.contains(" characters are not shown "), "{text}");
    }

    #[test]
    fn what_was_cut_can_be_seen_whole_with_nothing_hidden_in_it() {
        let arguments = json!({ "command": format!("{}\u{1b}[2J{}", "x".repeat(50_000), "y".repeat(50_000)) });
        let text = whole_arguments_text(arguments.as_object().unwrap());
        assert!(text.len() > 100_000 && text.contains("x\\u001b[2Jy"), "{}", &text[..99]);
        assert_eq!(whole_arguments_text(json!({ "a": 1 }).as_object().unwrap()), shown(&json!({ "a": 1 })).0);
    }

    #[test]
    fn blanks_push_nothing_off_the_screen() {
        let blanks = " ".repeat(3_600);
        let arguments = json!({ "command": format!("rm -rf ~/important; echo {blanks}"), format!("a{blanks}b"): format!("\u{3000}{}", "\u{2003}".repeat(99)) });
        for text in [shown(&arguments).0, whole_arguments_text(arguments.as_object().unwrap())] {
            assert!(text.contains("\"rm -rf ~/important; echo[3601 blanks]\"") && text.contains("\"a[3600 blanks]b\""), "{text}");
            assert!(text.contains("\"[100 blanks]\"") && text.chars().count() < 200, "{text}");
        }
        let deep = (0..100).fold(json!("x"), |inner, _| json!([inner]));
        assert!(shown(&json!({ "a": deep })).0.contains("[200 blanks]"));
    }

    #[test]
    fn a_long_list_says_how_much_of_it_is_left_out() {
        let (text, cuts) = shown(&json!({ "rows": vec!["a row"; 10_000], "last": 1 }));
        assert!(text.contains(" items are not shown\"") && text.contains("\"last\": 1") && cuts == 1, "{text}");
        assert!(text.chars().count() <= MAX_CHARS, "{text}");
    }

    #[test]
    fn many_keys_are_all_shown() {
        let many: Map<String, Json> = (0..500).map(|number| (format!("key{number}"), json!("v".repeat(200)))).collect();
        let (text, cuts) = arguments_text(&many);
        assert!((0..500).all(|number| text.contains(&format!("\"key{number}\""))) && cuts == 500);
    }
}
