//! A fixed member put first into a body, exactly as msgnode/protocol/body_edit.py puts `auth` there.

use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::{self, Finder};

use crate::header::{Header, Span};

/// What may stand before a body where the bytes are cut and not encoded again.
const BEFORE: [&[u8]; 4] = [b",\"body\":", b",\"body\": ", b", \"body\":", b", \"body\": "];
static AUTH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"auth\""));

/// Write the message with the member first in its body; None where Python reads the body.
pub fn with_first_member(out: &mut Vec<u8>, data: &[u8], header: &Header, member: &[u8]) -> Option<()> {
    out.clear();
    out.reserve(data.len() + member.len() + b",\"body\":{}".len());
    if header.body.is_empty() {
        append(out, &[&data[..data.len() - 1], b",\"body\":{", member, b"}}"]);
        return Some(());
    }
    let (comma, rest) = rest_of_body(header.body.of(data))?;
    if !header.ends_with_body(data) {
        return encode_again(out, data, header, &[b"{", member, comma, rest]);
    }
    let before = &data[..header.body.start];
    if !BEFORE.iter().any(|each| before.ends_with(each)) {
        return None;
    }
    append(out, &[before, b"{", member, comma, rest, b"}"]);
    Some(())
}

/// What follows the member in the body.
fn rest_of_body(body: &[u8]) -> Option<(&[u8], &[u8])> {
    match body {
        b"{}" | b"null" => Some((b"", b"}")),
        [b'{', rest @ ..] if rest[0] == b'"' => {
            let may_spell = memchr(b'\\', body).is_some() && memmem::find(body, b"\\u").is_some();
            (!may_spell && AUTH.find(body).is_none()).then_some((b",", rest))
        }
        _ => None,
    }
}

/// Write all fields in their order, without spaces between them, and this body.
fn encode_again(out: &mut Vec<u8>, data: &[u8], header: &Header, body: &[&[u8]]) -> Option<()> {
    if header.has_further {
        return None; // which are not kept
    }
    let quoted = |span: Span| Span { start: span.start - 1, end: span.end + 1 };
    let mut fields: [(&[u8], Span); 6] = [
        (b"id", header.id),
        (b"type", quoted(header.kind)),
        (b"from", quoted(header.from)),
        (b"to", quoted(header.to)),
        (b"transaction", header.transaction),
        (b"body", header.body),
    ];
    fields.sort_unstable_by_key(|(_, span)| span.start);
    for (name, span) in fields.iter().filter(|(_, span)| !span.is_empty()) {
        append(out, &[if out.is_empty() { b"{\"" } else { b",\"" }, name, b"\":"]);
        match *name {
            b"body" => append(out, body),
            _ => append(out, &[span.of(data)]),
        }
    }
    out.push(b'}');
    Some(())
}

fn append(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::scan;

    fn spliced(data: &str) -> Option<String> {
        let header = scan(data.as_bytes()).expect("a plain header");
        let mut found = Vec::new();
        with_first_member(&mut found, data.as_bytes(), &header, b"\"auth\":true")?;
        Some(String::from_utf8(found).expect("text"))
    }

    const HEAD: &str = r#"{"id":1,"type":"t","from":"f","to":"t""#;

    #[test]
    fn the_member_stands_first() {
        assert_eq!(
            Some(format!(r#"{HEAD},"body":{{"auth":true,"a": 1}}}}"#)),
            spliced(&format!(r#"{HEAD},"body":{{"a": 1}}}}"#))
        );
        assert_eq!(
            Some(format!(r#"{HEAD}, "body": {{"auth":true}}}}"#)),
            spliced(&format!(r#"{HEAD}, "body": {{}}}}"#))
        );
    }

    #[test]
    fn a_message_without_a_body_gets_one() {
        let expected = Some(format!(r#"{HEAD},"body":{{"auth":true}}}}"#));
        assert_eq!(expected, spliced(&format!("{HEAD}}}")));
        assert_eq!(expected, spliced(&format!(r#"{HEAD},"body":null}}"#)));
    }

    #[test]
    fn fields_behind_the_body_are_written_without_spaces() {
        for (data, expected) in [
            (
                r#"{ "body" : {"a": 1} , "to": "t","from":"f", "type":"t","id": "x" }"#,
                r#"{"body":{"auth":true,"a": 1},"to":"t","from":"f","type":"t","id":"x"}"#,
            ),
            (
                r#"{"id":1,"type":"t","body":{},"from":"f","to":"t","transaction": -2}"#,
                r#"{"id":1,"type":"t","body":{"auth":true},"from":"f","to":"t","transaction":-2}"#,
            ),
        ] {
            assert_eq!(Some(expected.to_owned()), spliced(data));
        }
        assert_eq!(None, spliced(r#"{"body":{},"id":1,"type":"t","from":"f","to":"t","ttl":2}"#));
    }

    #[test]
    fn what_would_be_encoded_again_is_left_to_python() {
        for rest in [
            r#","body":{"auth":false}}"#,
            r#","body":{"a":{"auth":1}}}"#,
            r#","body":{"a":"\u00e9"}}"#,
            r#","body":{"a":"\\u00e9"}}"#,
            r#","body":{ "a":1}}"#,
            r#","body" :{}}"#,
        ] {
            assert_eq!(None, spliced(&format!("{HEAD}{rest}")), "{rest}");
        }
    }
}
