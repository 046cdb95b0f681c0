//! The header of a message, scanned strictly: what is accepted here, the Python decoder accepts with the
//! same values, and by its usual ways.
//!
//! A field that matters only where a message is queued or answered by the node (`priority`, `ttl`, `bulk`,
//! `transaction`) is read and checked, and changes nothing for a message that goes at once.
//!
//! `None` is never a verdict.  It says that Python decides: on other header fields, lists of recipients,
//! escapes in the header, keys that stand twice, tokens, and on everything that is no message at all.

use memchr::memchr_iter;

use crate::json::Reader;

/// Bytes of `type`, `from` or `to`; no longer address can be bound.
pub const MAX_TEXT: usize = 2048;
/// Bytes of an `id` that is a string; the traffic log shortens longer ones.
pub const MAX_ID: usize = 512;
/// Bytes of a `transaction` that is a string: never more than its characters.
pub const MAX_TRANSACTION: usize = 64;
const MAX_TTL_DIGITS: usize = 9; // on each side of the point
const MAX_DIGITS: usize = 18; // of an `id` that is a number: it fits 64 bits with its sign

/// Top-level keys of a body that some deployments read or replace.
pub mod body_key {
    pub const AUTH: u8 = 1;
    pub const ASSERTED_IDENTITY: u8 = 2;
    pub const IDENTITY: u8 = 4;
    /// A key with an escape in it, which may be any of the others.
    pub const ESCAPED: u8 = 8;
}

/// A part of the message, from its first byte to the one after its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    #[inline(always)]
    pub fn of<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        &data[self.start..self.end]
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

/// The header of one message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// As it stands in the message: a string has its quotes.
    pub id: Span,
    pub kind: Span,
    pub from: Span,
    pub to: Span,
    /// As it stands in the message; empty if there is none.
    pub transaction: Span,
    /// The value of `body`; empty if there is none.
    pub body: Span,
    /// Bits of `body_key`.
    pub body_keys: u8,
    /// It has a field that is not here.
    pub has_further: bool,
}

impl Header {
    /// Is `body` the last field, with nothing but the closing brace behind?
    pub fn ends_with_body(&self, data: &[u8]) -> bool {
        !self.body.is_empty() && self.body.end + 1 == data.len()
    }
}

const ID: u16 = 1;
const TYPE: u16 = 2;
const FROM: u16 = 4;
const TO: u16 = 8;
const BODY: u16 = 16;
const TRANSACTION: u16 = 32;
const PRIORITY: u16 = 64;
const TTL: u16 = 128;
const BULK: u16 = 256;
const NEEDED: u16 = ID | TYPE | FROM | TO;

/// The header of the message in `data`, which is UTF-8.
pub fn scan(data: &[u8]) -> Option<Header> {
    let reader = Reader { data };
    let mut header = Header::default();
    let mut seen = 0;
    let mut at = reader.skip_space(reader.expect(b'{', 0)?);
    loop {
        let (start, end) = reader.plain_string(at)?;
        at = reader.expect(b':', reader.skip_space(end + 1))?;
        at = reader.skip_space(at);
        let key;
        (key, at) = field(&reader, &mut header, &data[start..end], at)?;
        if seen & key != 0 {
            return None;
        }
        seen |= key;
        at = reader.skip_space(at);
        match reader.byte(at)? {
            b',' => at = reader.skip_space(at + 1),
            b'}' => break,
            _ => return None,
        }
    }
    let whole = at + 1 == data.len() && seen & NEEDED == NEEDED && !header.from.is_empty();
    header.has_further = seen & (PRIORITY | TTL | BULK) != 0;
    (whole && !holds_token(data)).then_some(header)
}

/// Take the field whose value begins at `at`; which one it is, and what follows.
#[inline(always)]
fn field(reader: &Reader<'_>, header: &mut Header, name: &[u8], at: usize) -> Option<(u16, usize)> {
    match name {
        b"id" => {
            let end = id(reader, at, MAX_ID)?;
            header.id = Span { start: at, end };
            Some((ID, end))
        }
        b"type" => text(reader, &mut header.kind, at).map(|end| (TYPE, end)),
        b"from" => text(reader, &mut header.from, at).map(|end| (FROM, end)),
        b"to" => text(reader, &mut header.to, at).map(|end| (TO, end)),
        b"body" => {
            let end = match reader.byte(at)? {
                b'{' => body(reader, header, at)?,
                _ => reader.skip_word(b"null", at)?,
            };
            header.body = Span { start: at, end };
            Some((BODY, end))
        }
        _ => further_field(reader, header, name, at),
    }
}

/// The same for a field that few messages have.
fn further_field(reader: &Reader<'_>, header: &mut Header, name: &[u8], at: usize) -> Option<(u16, usize)> {
    match name {
        b"transaction" => {
            let end = id(reader, at, MAX_TRANSACTION)?;
            header.transaction = Span { start: at, end };
            Some((TRANSACTION, end))
        }
        b"priority" => reader.byte(at)?.is_ascii_digit().then_some((PRIORITY, at + 1)),
        b"ttl" => seconds(reader, at).map(|end| (TTL, end)),
        b"bulk" => {
            let word: &[u8] = if reader.byte(at)? == b't' { b"true" } else { b"false" };
            reader.skip_word(word, at).map(|end| (BULK, end))
        }
        _ => None,
    }
}

#[inline(always)]
fn text(reader: &Reader<'_>, span: &mut Span, at: usize) -> Option<usize> {
    let (start, end) = reader.plain_string(at)?;
    *span = Span { start, end };
    (end - start <= MAX_TEXT).then_some(end + 1)
}

/// What follows the number, or the string of at most so many bytes.
fn id(reader: &Reader<'_>, at: usize, longest: usize) -> Option<usize> {
    if reader.byte(at)? == b'"' {
        let (start, end) = reader.plain_string(at)?;
        return (end - start <= longest).then_some(end + 1);
    }
    let first = at + usize::from(reader.byte(at)? == b'-');
    let end = reader.skip_digits(first)?;
    // 0 alone, and never as -0.
    let canonical = reader.byte(first)? != b'0' || end == at + 1;
    (canonical && end - first <= MAX_DIGITS).then_some(end)
}

/// What follows the number of seconds, which has no sign and no exponent.
fn seconds(reader: &Reader<'_>, at: usize) -> Option<usize> {
    let mut end = reader.skip_digits(at)?;
    let canonical = reader.byte(at)? != b'0' || end == at + 1;
    let mut fits = end - at <= MAX_TTL_DIGITS;
    if reader.byte(end)? == b'.' {
        let point = end;
        end = reader.skip_digits(point + 1)?;
        fits = fits && end - point <= MAX_TTL_DIGITS;
    }
    (canonical && fits).then_some(end)
}

/// What follows the body, an object, whose keys are noted.
fn body(reader: &Reader<'_>, header: &mut Header, at: usize) -> Option<usize> {
    let data = reader.data;
    let mut at = reader.skip_space(at + 1);
    if reader.byte(at)? == b'}' {
        return Some(at + 1);
    }
    loop {
        let start = reader.expect(b'"', at)?;
        let end = reader.skip_string(start)?;
        header.body_keys |= key_bits(&data[start..end - 1]);
        at = reader.skip_member(end, 1)?;
        match reader.byte(at)? {
            b',' => at = reader.skip_space(at + 1),
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

#[inline(always)]
fn key_bits(key: &[u8]) -> u8 {
    match key {
        b"auth" => body_key::AUTH,
        b"assertedIdentity" => body_key::ASSERTED_IDENTITY,
        b"identity" => body_key::IDENTITY,
        _ if memchr::memchr(b'\\', key).is_some() => body_key::ESCAPED,
        _ => 0,
    }
}

/// May a token stand in it?  Escapes that could spell one were refused already.
fn holds_token(data: &[u8]) -> bool {
    memchr_iter(b'_', data).any(|at| at >= 3 && matches!(&data[at - 3..at], b"mns" | b"mnd"))
}
