//! The header scan, against all that a client may send.

use msgnode_plane::header::{body_key, scan, Header};
use msgnode_plane::plane::scan_header;
use proptest::prelude::*;

const PLAIN: &str = r#"{"id":1,"type":"update","from":"a://b/c","to":"d://e/f","body":{"value":"x"}}"#;

fn header(data: &str) -> Option<Header> {
    scan_header(data.as_bytes())
}

#[test]
fn a_plain_header_is_found_with_and_without_spaces() {
    let spaced = PLAIN.replace(':', ": ").replace(',', ", ").replace(": //", "://");
    for data in [PLAIN, &spaced] {
        let found = header(data).expect(data);
        let bytes = data.as_bytes();
        assert_eq!(b"1", found.id.of(bytes));
        assert_eq!(b"update", found.kind.of(bytes));
        assert_eq!(b"a://b/c", found.from.of(bytes));
        assert_eq!(b"d://e/f", found.to.of(bytes));
        assert!(found.body.of(bytes).starts_with(b"{\"value\":"));
    }
}

#[test]
fn unusual_headers_are_left_to_python() {
    for (from, to) in [
        (r#""id":1"#, r#""id":1.0"#),
        (r#""id":1"#, r#""id":01"#),
        (r#""id":1"#, r#""id":-0"#),
        (r#""id":1"#, r#""id":1e3"#),
        (r#""id":1"#, r#""id":1234567890123456789"#),
        (r#""id":1"#, r#""id":null"#),
        (r#""id":1"#, r#""id":1,"id":1"#),
        (r#""id":1"#, r#""id":1,"priority":10"#),
        (r#""id":1"#, r#""id":1,"priority":-1"#),
        (r#""id":1"#, r#""id":1,"priority":5.0"#),
        (r#""id":1"#, r#""id":1,"priority":null"#),
        (r#""id":1"#, r#""id":1,"priority":1,"priority":1"#),
        (r#""id":1"#, r#""id":1,"ttl":-1"#),
        (r#""id":1"#, r#""id":1,"ttl":1e3"#),
        (r#""id":1"#, r#""id":1,"ttl":01"#),
        (r#""id":1"#, r#""id":1,"ttl":1."#),
        (r#""id":1"#, r#""id":1,"ttl":1234567890"#),
        (r#""id":1"#, r#""id":1,"bulk":1"#),
        (r#""id":1"#, r#""id":1,"receipt":true"#),
        (r#""id":1"#, r#""id":1,"log":false"#),
        (r#""id":1"#, r#""id":1,"forward":true"#),
        (r#""id":1"#, r#""id":1,"transaction":null"#),
        (r#""id":1"#, r#""id":1,"transaction":1.5"#),
        (r#""id":1"#, r#""id":1,"transaction":"a\u0062""#),
        (r#""id":1"#, r#""id":1,"transaction":{}"#),
        (r#""id":1"#, r#""id":1,"other":1"#),
        (r#""id":1"#, r#""id":1,"token":"x""#),
        (r#""id":1,"#, ""),
        (r#""id":1"#, r#""\u0069d":1"#),
        (r#""id":1"#, r#""id":"a\"b""#),
        (r#""to":"d://e/f""#, r#""to":["d://e/f"]"#),
        (r#""from":"a://b/c""#, r#""from":"""#),
        (r#""from":"a://b/c""#, r#""from":"a://\u0062/c""#),
        (r#""body":{"value":"x"}"#, r#""body":[]"#),
        (r#""body":{"value":"x"}"#, r#""body":"x""#),
        (r#""body":{"value":"x"}"#, r#""body":{"value":"x",}"#),
        (r#""x""#, r#""mns_x""#),
        (r#""x""#, r#""mnd_x""#),
        (r#""x""#, r#""\u006dns_x""#),
        (r#""x""#, r#""\u005f""#),
        (r#""x""#, r#""\ud83d""#),
        (r#""x""#, r#""\ude00\ud83d""#),
        (r#""x""#, r#""\x""#),
        (r#""x""#, r#"01"#),
        (r#""x""#, r#"1."#),
        (r#""x""#, r#"NaN"#),
        (r#""x""#, "\"\t\""),
        ("}}", "}} "),
        ("{\"id\"", " {\"id\""),
        ("}}", "}"),
        ("}}", "}}}"),
    ] {
        let data = PLAIN.replacen(from, to, 1);
        assert_ne!(PLAIN, data, "{from}");
        assert_eq!(None, header(&data), "{data}");
    }
}

#[test]
fn usual_bodies_and_ids_are_taken() {
    for (from, to) in [
        (r#""id":1"#, r#""id":0"#),
        (r#""id":1"#, r#""id":-12"#),
        (r#""id":1"#, r#""id":"a b""#),
        (r#""id":1"#, r#""id":"""#),
        (r#""id":1"#, r#""id":1,"priority":9"#),
        (r#""id":1"#, r#""id":1,"ttl":0"#),
        (r#""id":1"#, r#""id":1,"ttl":60.25"#),
        (r#""id":1"#, r#""id":1,"bulk":true,"priority":0"#),
        (r#""id":1"#, r#""id":1,"bulk":false"#),
        (r#""id":1"#, r#""id":1,"transaction":"é-1""#),
        (r#""id":1"#, r#""id":1,"transaction":-7"#),
        (r#""type":"update""#, r#""type":"""#),
        (r#""body":{"value":"x"}"#, r#""body":null"#),
        (r#""body":{"value":"x"}"#, r#""body":{}"#),
        (r#","body":{"value":"x"}"#, ""),
        (r#""x""#, r#""\u00e9 \ud83d\ude00 \\u006dns \/ mns""#),
        (r#""x""#, r#"[1,-2.5e-3,true,null,{"b":["é",{}]},[]]"#),
        (r#""x""#, r#""x","value":2"#),
    ] {
        let data = PLAIN.replacen(from, to, 1);
        assert_ne!(PLAIN, data, "{from}");
        assert!(header(&data).is_some(), "{data}");
    }
}

#[test]
fn body_keys_are_reported_at_the_top_of_the_body_only() {
    for (body, keys) in [
        (r#"{"auth":1}"#, body_key::AUTH),
        (r#"{"a":{"auth":1}}"#, 0),
        (r#"{"assertedIdentity":null,"identity":{}}"#, body_key::ASSERTED_IDENTITY | body_key::IDENTITY),
        (r#"{"\u00e9":1}"#, body_key::ESCAPED),
        (r#"{"a\\":1}"#, body_key::ESCAPED),
        (r#"{"Auth":"auth"}"#, 0),
    ] {
        let data = PLAIN.replacen(r#"{"value":"x"}"#, body, 1);
        assert_eq!(Some(keys), header(&data).map(|found| found.body_keys), "{data}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        header(&PLAIN.replacen("\"x\"", &value, 1)).is_some()
    };
    assert!(nested(90));
    assert!(!nested(110));
    assert!(!nested(100_000));
}

/// Pieces that headers are made of, and what is put between them by those who look for gaps.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(PLAIN.to_owned()),
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\\",
            " ",
            "\n",
            "0",
            "-",
            "1",
            ".",
            "e",
            "null",
            "true",
            "id",
            "type",
            "from",
            "to",
            "body",
            "\"id\":2",
            "\"to\":\"x\"",
            "\\u0041",
            "\\ud83d",
            "\\ude00",
            "mns_",
            "\u{0}",
            "\u{7f}",
            "é",
            "\u{10ffff}",
        ])
        .prop_map(str::to_owned),
        "[ -~]{0,12}",
    ]
}

proptest! {
    #[test]
    fn no_text_makes_it_fail(pieces in prop::collection::vec(piece(), 0..12)) {
        let data = pieces.concat();
        if let Some(found) = header(&data) {
            for span in [found.id, found.kind, found.from, found.to, found.body] {
                prop_assert!(span.start <= span.end && span.end <= data.len());
            }
        }
    }

    #[test]
    fn no_bytes_make_it_fail(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = scan(&data);
    }

    #[test]
    fn no_single_change_makes_it_fail(at in 0..PLAIN.len(), byte in any::<u8>()) {
        let mut data = PLAIN.as_bytes().to_vec();
        data[at] = byte;
        let _ = scan(&data);
    }

    #[test]
    fn the_end_of_a_string_is_found_wherever_it_is(before in 0usize..300, after in 0usize..100) {
        let data = PLAIN.replacen("\"x\"", &format!("\"{}\\n{}\"", "y".repeat(before), "é".repeat(after)), 1);
        let found = header(&data).expect("a usual body");
        prop_assert_eq!(found.body.end + 1, data.len());
    }
}
