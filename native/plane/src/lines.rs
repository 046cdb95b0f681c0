//! Lines: one message ends with LF, or CRLF.

use memchr::memchr;

/// The line that begins at `at`: where it ends without LF and CR, and where the next begins; None if it has
/// not come to its end.
#[inline]
pub fn line_at(data: &[u8], at: usize) -> Option<(usize, usize)> {
    let end = at + memchr(b'\n', &data[at..])?;
    let carriage_return = end > at && data[end - 1] == b'\r';
    Some((end - usize::from(carriage_return), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_lf_or_crlf() {
        assert_eq!(Some((2, 3)), line_at(b"ab\ncd", 0));
        assert_eq!(Some((2, 4)), line_at(b"ab\r\ncd", 0));
        assert_eq!(None, line_at(b"ab\ncd", 3));
        assert_eq!(Some((0, 1)), line_at(b"\n", 0));
        assert_eq!(Some((0, 2)), line_at(b"\r\n", 0));
    }
}
