//! A strict reader of JSON: it says where a value ends, or nothing where anything is unusual.
//!
//! Whatever it accepts, every JSON decoder accepts.  It refuses what only some decoders take, what is
//! nested more than `MAX_DEPTH` deep, and text that spells a letter, digit, `_` or `-` by an escape:
//! no encoder writes that, and it could hide a token.

/// Levels of objects and lists in one message.
pub const MAX_DEPTH: u32 = 100;

const ONES: u64 = 0x0101_0101_0101_0101;
const BLOCK: usize = 64; // bytes that the compiler looks at together

/// Reads one message; positions are indices into `data`.
pub struct Reader<'a> {
    pub data: &'a [u8],
}

impl Reader<'_> {
    /// The byte at `at`, None at the end.
    #[inline(always)]
    pub fn byte(&self, at: usize) -> Option<u8> {
        self.data.get(at).copied()
    }

    /// `at`, if that byte is there; else None.
    #[inline(always)]
    pub fn expect(&self, byte: u8, at: usize) -> Option<usize> {
        (self.byte(at)? == byte).then_some(at + 1)
    }

    /// The first position from `at` on that is no white space.
    #[inline(always)]
    pub fn skip_space(&self, mut at: usize) -> usize {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte(at) {
            at += 1;
        }
        at
    }

    /// The position of the next `"`, `\` or control character; the end if there is none.
    #[inline]
    pub fn next_special(&self, mut at: usize) -> usize {
        let data = self.data;
        let short_end = at + BLOCK;
        while let Some(word) = data.get(at..at + 8) {
            let found = specials(u64::from_le_bytes(word.try_into().unwrap_or_default()));
            if found != 0 {
                return at + (found.trailing_zeros() / 8) as usize;
            }
            at += 8;
            if at >= short_end {
                while let Some(block) = data.get(at..at + BLOCK) {
                    if block.iter().fold(false, |any, b| any | is_special(*b)) {
                        break;
                    }
                    at += BLOCK;
                }
            }
        }
        while at < data.len() && !is_special(data[at]) {
            at += 1;
        }
        at
    }

    /// The string without escapes whose opening quote is at `at`: where it begins and ends, without quotes.
    #[inline(always)]
    pub fn plain_string(&self, at: usize) -> Option<(usize, usize)> {
        let start = self.expect(b'"', at)?;
        let end = self.next_special(start);
        (self.byte(end)? == b'"').then_some((start, end))
    }

    /// What follows the string whose first character, after the quote, is at `at`.
    #[inline]
    pub fn skip_string(&self, mut at: usize) -> Option<usize> {
        loop {
            at = self.next_special(at);
            match self.byte(at)? {
                b'"' => return Some(at + 1),
                b'\\' => at = self.skip_escape(at + 1)?,
                _ => return None,
            }
        }
    }

    /// What follows the escape after whose backslash is `at`.
    fn skip_escape(&self, at: usize) -> Option<usize> {
        match self.byte(at)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 1),
            b'u' => {
                let unit = self.hex_unit(at + 1)?;
                match unit {
                    0xd800..=0xdbff => {
                        // The other half has to follow at once.
                        let low = self.expect(b'u', self.expect(b'\\', at + 5)?)?;
                        matches!(self.hex_unit(low)?, 0xdc00..=0xdfff).then_some(low + 4)
                    }
                    0xdc00..=0xdfff => None,
                    _ => (!is_token_char(unit)).then_some(at + 5),
                }
            }
            _ => None,
        }
    }

    fn hex_unit(&self, at: usize) -> Option<u32> {
        let digits = self.data.get(at..at + 4)?;
        digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | (*digit as char).to_digit(16)?))
    }

    /// What follows the number that begins at `at`.
    pub fn skip_number(&self, mut at: usize) -> Option<usize> {
        if self.byte(at)? == b'-' {
            at += 1;
        }
        at = match self.byte(at)? {
            b'0' => at + 1,
            b'1'..=b'9' => self.skip_digits(at)?,
            _ => return None,
        };
        if self.byte(at) == Some(b'.') {
            at = self.skip_digits(at + 1)?;
        }
        if let Some(b'e' | b'E') = self.byte(at) {
            let sign = matches!(self.byte(at + 1), Some(b'+' | b'-'));
            at = self.skip_digits(at + 1 + usize::from(sign))?;
        }
        Some(at)
    }

    /// What follows the digits at `at`, of which there must be one.
    #[inline]
    pub fn skip_digits(&self, at: usize) -> Option<usize> {
        let mut end = at;
        while self.byte(end).is_some_and(|b| b.is_ascii_digit()) {
            end += 1;
        }
        (end > at).then_some(end)
    }

    /// What follows the value that begins at `at`; `depth` counts what it lies in.
    pub fn skip_value(&self, at: usize, depth: u32) -> Option<usize> {
        match self.byte(at)? {
            b'"' => self.skip_string(at + 1),
            b'{' => self.skip_object(at, depth),
            b'[' => self.skip_list(at, depth),
            b't' => self.skip_word(b"true", at),
            b'f' => self.skip_word(b"false", at),
            b'n' => self.skip_word(b"null", at),
            b'-' | b'0'..=b'9' => self.skip_number(at),
            _ => None,
        }
    }

    pub fn skip_word(&self, word: &[u8], at: usize) -> Option<usize> {
        self.data.get(at..)?.starts_with(word).then_some(at + word.len())
    }

    fn skip_object(&self, at: usize, depth: u32) -> Option<usize> {
        if depth == MAX_DEPTH {
            return None;
        }
        let mut at = self.skip_space(at + 1);
        if self.byte(at)? == b'}' {
            return Some(at + 1);
        }
        loop {
            at = self.expect(b'"', at)?;
            at = self.skip_string(at)?;
            at = self.skip_member(at, depth)?;
            match self.byte(at)? {
                b',' => at = self.skip_space(at + 1),
                b'}' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// What follows the colon after a key, its value and white space.
    #[inline]
    pub fn skip_member(&self, at: usize, depth: u32) -> Option<usize> {
        let at = self.expect(b':', self.skip_space(at))?;
        let at = self.skip_value(self.skip_space(at), depth + 1)?;
        Some(self.skip_space(at))
    }

    fn skip_list(&self, at: usize, depth: u32) -> Option<usize> {
        if depth == MAX_DEPTH {
            return None;
        }
        let mut at = self.skip_space(at + 1);
        if self.byte(at)? == b']' {
            return Some(at + 1);
        }
        loop {
            at = self.skip_value(at, depth + 1)?;
            at = self.skip_space(at);
            match self.byte(at)? {
                b',' => at = self.skip_space(at + 1),
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }
}

#[inline(always)]
fn is_special(byte: u8) -> bool {
    (byte == b'"') | (byte == b'\\') | (byte < 0x20)
}

/// Marks the bytes of the word that are special: the high bit of the first one is set, and of no earlier one.
#[inline(always)]
fn specials(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let found = (quote.wrapping_sub(ONES) & !quote)
        | (backslash.wrapping_sub(ONES) & !backslash)
        | (word.wrapping_sub(ONES * 0x20) & !word);
    found & (ONES << 7)
}

/// Is it one of the characters that tokens are made of?
fn is_token_char(unit: u32) -> bool {
    char::from_u32(unit).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
