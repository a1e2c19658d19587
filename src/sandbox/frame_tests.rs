use serde_json::Number;

use super::*;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::sandbox::Wire;

fn values() -> impl Strategy<Value = Value> {
    let text = prop_oneof![any::<String>(), "[\\x00-\\x7f]{0,80}", Just(MARK.to_owned()), "[a-z\"\\\\\n\u{7f}\u{2028}ß😀]{0,100}",];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|number| Value::Number(number.into())),
        any::<f64>().prop_map(|number| Number::from_f64(number).map_or(Value::Null, Value::Number)),
        text.clone().prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            prop::collection::btree_map(text.clone(), inner, 0..6).prop_map(|fields| Value::Record(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_frame_is_what_the_crate_of_the_guest_would_write(value in values()) {
        let wire = value.to_wire();
        let parts: Vec<&[u8]> = std::iter::once(wire.json.as_bytes()).chain(wire.blobs.iter().map(Vec::as_slice)).collect();
        let frame = value_frame(&value).unwrap();
        prop_assert_eq!(&frame, &hyperlight_js_common::encode_binaries(&parts).unwrap());
        prop_assert_eq!(value.wire_size(), wire.size());
        prop_assert_eq!(Wire::from_frame(&frame).unwrap(), wire.clone());
        prop_assert_eq!(Value::from_wire(wire).unwrap(), value);
    }

    #[test]
    fn arguments_survive_and_what_is_no_frame_is_an_error(value in values(), noise in prop::collection::vec(any::<u8>(), 0..64)) {
        let frame = value_frame(&Value::List(vec![value.clone()])).unwrap();
        prop_assert!(matches!(parse_arguments(&frame), Arguments::Given(given) if given == [value]));
        // Neither call panics.
        let _ = parse_arguments(&noise);
        let _ = parse_arguments(&frame[..frame.len() / 2]);
    }
}

#[test]
fn how_large_arguments_were_and_what_is_no_list_are_told() {
    let arguments = |json: Json| parse_arguments(&hyperlight_js_common::encode_binaries(&[json.to_string().into_bytes()]).unwrap());
    assert!(matches!(arguments(json!({ "oversize": 7 })), Arguments::Oversize(7)));
    assert!(matches!(arguments(json!({ "a": 1 })), Arguments::Invalid(problem) if problem == "the arguments are not a list"));
    assert!(matches!(arguments(json!([1])), Arguments::Given(given) if given == [Value::from(json!(1))]));
}

#[test]
fn what_is_thrown_is_cut_and_has_what_was_given() {
    let message = "ß".repeat(MAX_THROWN_BYTES);
    let frame = encode_reply(HostReply::Throw { name: Some("TypeError".into()), message, code: None });
    let (json, blobs) = parts_of(&frame).unwrap();
    let thrown: Json = serde_json::from_str(json).unwrap();
    assert_eq!(thrown["thrown"]["message"], json!({ "$bytes": "0" }));
    assert!(blobs.len() == 1 && str::from_utf8(blobs[0]).unwrap().ends_with("… [cut]"));
    assert_eq!((thrown["thrown"]["name"].as_str(), thrown["thrown"].get("code")), (Some("TypeError"), None));
}

#[test]
fn a_value_of_bytes_is_a_reference_and_its_blob() {
    let frame = encode_reply(HostReply::Value(Value::Bytes(vec![1, 2, 3])));
    assert_eq!(parts_of(&frame).unwrap(), (r#"{"value":{"$bytes":0}}"#, vec![&[1, 2, 3][..]]));
}

#[test]
fn a_long_text_goes_into_the_guest_beside_the_json_and_nothing_a_server_sends_looks_like_it() {
    let long = "ß\"\\\n".repeat(LONG_TEXT_BYTES / 5 + 1);
    let value = Value::List(vec![
        Value::from(long.as_str()),
        Value::Bytes(vec![1, 2]),
        Value::from("short"),
        Value::from(json!({ "$bytes": "0" })),
        Value::from("{\"$bytes\":\"1\"}"),
    ]);
    let frame = encode_reply(HostReply::Value(value));
    let (json, parts) = parts_of(&frame).unwrap();
    let expected = r#"{"value":[{"$bytes":"0"},{"$bytes":1},"short",{"$bytes":[["$bytes","0"]]},"{\"$bytes\":\"1\"}"]}"#;
    assert_eq!(json, expected);
    assert_eq!(parts, [long.as_bytes(), &[1, 2]]);
    assert_eq!(json.matches(r#"{"$bytes":"0"}"#).count(), 1);
    assert!(!json.contains(r#"{"$bytes":"1"}"#));
}
