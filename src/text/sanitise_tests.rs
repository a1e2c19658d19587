use super::*;
use proptest::prelude::*;
use serde_json::json;

fn text(input: &str) -> String {
    sanitise_text(input, 1000)
}

#[test]
fn every_form_of_escape_sequence_is_removed() {
    for input in [
        "a\u{1b}[1;31mb",
        "a\u{1b}[?25lb",
        "a\u{9b}2Jb",
        "a\u{1b}]0;title\u{7}b",
        "a\u{1b}]8;;http://x\u{1b}\\b",
        "a\u{9d}8;;x\u{9c}b",
        "a\u{1b}Pq#0\u{1b}\\b",
        "a\u{1b}_hi\u{1b}\\b",
        "a\u{1b}^hi\u{1b}\\b",
        "a\u{1b}Xhi\u{1b}\\b",
        "a\u{1b}cb",
        "a\u{1b}(Bb",
        "a\u{90}x\u{9c}b",
        "a\u{8d}b",
        "a\u{1b}]x\u{18}b",
    ] {
        assert_eq!(text(input), "ab", "{input:?}");
    }
}

#[test]
fn an_unterminated_string_sequence_takes_no_more_than_its_line() {
    assert_eq!(text("a\u{1b}]0;hidden\nshown"), "a\nshown");
    assert_eq!(text("a\u{1b}Phidden"), "a");
    assert_eq!(text("a\u{1b}"), "a");
    assert_eq!(text("a\u{1b}["), "a");
    assert_eq!(text("a\u{1b}\u{1b}[31mb"), "ab");
}

#[test]
fn line_breaks_become_one_kind() {
    assert_eq!(text("a\r\nb\rc\u{2028}d\u{2029}e\u{85}f"), "a\nb\nc\nd\ne\nf");
    assert_eq!(sanitise_line("a\r\n\tb\u{2028}c", 100), "a b c");
}

#[test]
fn what_cannot_be_seen_is_removed() {
    let invisible = "\u{202e}\u{2066}\u{200f}\u{61c}\u{200b}\u{2060}\u{feff}\u{ad}\u{180e}\u{115f}\u{3164}\u{ffa0}\u{fffa}\u{fe0f}\u{e0100}\u{e0041}\0\u{7f}\u{1160}\u{13430}\u{1343f}\u{1d159}\u{13441}\u{13442}\u{16fe4}\u{1161}\u{11a7}\u{11a8}\u{11ff}\u{d7b0}\u{d7c6}\u{d7cb}\u{d7fb}";
    for character in invisible.chars() {
        assert_eq!(text(&format!("a{character}b")), "ab", "{character:?}");
        assert!(has_invisible(&format!("a{character}b")), "{character:?}");
    }
}

#[test]
fn writing_that_needs_joiners_is_not_called_invisible() {
    for ordinary in ["⚠\u{fe0f} careful", "1\u{fe0f}\u{20e3}", "می\u{200c}خواهم", "क्\u{200d}ष", "tab\tand\r\nline", "naïve, 東京"]
    {
        assert_eq!(hidden(ordinary), Hidden::default(), "{ordinary:?}");
    }
}

#[test]
fn hangul_of_single_letters_stays_and_a_letter_without_a_syllable_does_not() {
    // "한글" and "가" of single letters, syllables of one character, one with a separate end, and an old letter.
    for ordinary in
        ["\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}", "\u{1100}\u{1161}", "한글", "\u{ac00}\u{11a8}", "\u{a960}\u{d7b0}\u{d7cb}"]
    {
        assert_eq!((text(ordinary), has_invisible(ordinary)), (ordinary.to_owned(), false), "{ordinary:?}");
    }
    for (stray, left) in [
        ("a\u{1161}\u{11a8}b", "ab"),
        ("\u{1100}\u{1161}\u{1161}", "\u{1100}\u{1161}"),
        ("\u{ac01}\u{11a8}", "\u{ac01}"),
        ("\u{115f}\u{1161}", ""),
    ] {
        assert_eq!((text(stray), has_invisible(stray)), (left.to_owned(), true), "{stray:?}");
    }
    assert_eq!(text("\u{1100}\u{200b}\u{1161}"), "\u{1100}\u{1161}");
}

#[test]
fn patterns_and_backticks_stay_as_they_are() {
    assert_eq!(text("'**/*.ext' */ `x` *\u{200b}/"), "'**/*.ext' */ `x` */");
    assert_eq!(sanitise_line("`**/*.ext`\n*/", 20), "`**/*.ext` */");
    assert_eq!(sanitise_json(&json!({ "`k`": "**/*" }), 20), json!({ "`k`": "**/*" }));
}

#[test]
fn a_cut_keeps_graphemes_whole_and_ends_in_an_ellipsis_within_the_limit() {
    assert_eq!(sanitise_text("e\u{301}e\u{301}e\u{301}", 4), "e\u{301}…");
    assert_eq!(sanitise_text("abc", 3), "abc");
    assert_eq!(sanitise_text("abcd", 3), "ab…");
    assert_eq!(sanitise_text("abcd", 1), "…");
    assert_eq!(sanitise_text("abcd", 0), "");
}

#[test]
fn equal_keys_get_numbers_and_none_is_lost() {
    let object = json!({ "a\u{200b}": 1, "a\u{200c}": 2, "a_2": 3, "a": 4 });
    assert_eq!(sanitise_json(&object, 100), json!({ "a_3": 1, "a_4": 2, "a_2": 3, "a": 4 }));
    let long = |end: &str| format!("{}{end}", "k".repeat(100));
    let object = json!({ long("1"): 1, long("2"): 2 });
    let keys: Vec<usize> = sanitise_json(&object, 40).as_object().unwrap().keys().map(|key| key.chars().count()).collect();
    assert_eq!(keys, [40, 40]);
}

#[test]
fn too_deep_a_schema_ends_in_true() {
    let mut value = json!("deep");
    for _ in 0..200 {
        value = json!([value]);
    }
    let mut level = &sanitise_json(&value, 10);
    for _ in 0..MAX_LEVELS {
        level = &level[0];
    }
    assert_eq!(level, &json!(true));
}

/// Generates texts from the characters that the sanitiser treats specially, and some letters.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "a",
        "Z",
        "*",
        "/",
        "`",
        " ",
        "\n",
        "\r",
        "\t",
        "\u{1b}",
        "[",
        "]",
        "P",
        "\\",
        "3",
        ";",
        "m",
        "\u{7}",
        "\u{9b}",
        "\u{9d}",
        "\u{9c}",
        "\u{18}",
        "\u{200b}",
        "\u{202e}",
        "\u{e0041}",
        "\u{2028}",
        "e\u{301}",
        "👩\u{200d}👧",
        "…",
        "_2",
        "\0",
        "(",
        "\u{1100}",
        "\u{1161}",
        "\u{11a8}",
    ]);
    prop::collection::vec(prop_oneof![4 => pieces.prop_map(str::to_owned), 1 => any::<char>().prop_map(String::from)], 0..40)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn sanitised_text_is_safe_short_and_stable(input in hostile(), max_chars in 0_usize..50) {
        for (sanitise, line) in [(sanitise_text as fn(&str, usize) -> String, false), (sanitise_line, true)] {
            let output = sanitise(&input, max_chars);
            prop_assert!(output.chars().count() <= max_chars);
            prop_assert!(!output.chars().any(|character| character.is_control() && (line || !matches!(character, '\n' | '\t'))));
            prop_assert!(!output.chars().any(|character| is_invisible(character) || is_direction(character) || is_tag(character)));
            prop_assert_eq!(sanitise(&output, max_chars), output.clone());
        }
    }

    #[test]
    fn ordinary_text_is_left_as_it_is(input in "[ -~\n]{0,60}") {
        prop_assert_eq!(sanitise_text(&input, 60), input);
    }

    #[test]
    fn no_key_is_lost_and_a_second_pass_changes_nothing(keys in prop::collection::hash_set(hostile(), 0..8), max_chars in 0_usize..40) {
        let object = Json::Object(keys.iter().map(|key| (key.clone(), json!(key))).collect());
        let output = sanitise_json(&object, max_chars);
        prop_assert_eq!(output.as_object().map(Map::len), Some(keys.len()));
        prop_assert_eq!(sanitise_json(&output, max_chars), output.clone());
    }
}
