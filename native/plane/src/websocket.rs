//! WebSocket frames, the server's side (RFC 6455): only what most frames are.
//!
//! A final, masked text frame of less than 64 KiB is taken.  All else is Autobahn's, from the frame's first
//! byte on: control frames, fragments, extensions, and every verdict on a frame that is wrong.

const FINAL_TEXT: u8 = 0x81;
const MASKED: u8 = 0x80;

/// Where the first frame of some bytes ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// It is not one that is taken here.
    Foreign,
    /// Its payload begins at `body`, and has not come to its end.
    Partial { body: usize },
    /// Its payload.
    Whole { body: usize, end: usize },
}

/// The frame that begins at `at`, which lies within `data`; a payload has at most `longest` bytes.
#[inline]
pub fn frame_at(data: &[u8], at: usize, longest: usize) -> Frame {
    let frame = &data[at..];
    if frame[0] != FINAL_TEXT {
        return Frame::Foreign;
    }
    let Some(length) = frame.get(1) else { return Frame::Partial { body: at + 6 } };
    let (body, size) = match length.wrapping_sub(MASKED) {
        short @ 0..=125 => (6, short as usize),
        126 => match frame.get(2..4) {
            None => return Frame::Partial { body: at + 8 },
            Some(size) => (8, usize::from(size[0]) << 8 | usize::from(size[1])),
        },
        _ => return Frame::Foreign,
    };
    if size > longest || (body == 8 && size < 126) {
        return Frame::Foreign;
    }
    let (body, end) = (at + body, at + body + size);
    if end > data.len() {
        Frame::Partial { body }
    } else {
        Frame::Whole { body, end }
    }
}

/// Take the mask off the payload between these positions, or put it on: its key stands before.
#[inline]
pub fn unmask(data: &mut [u8], body: usize, end: usize) {
    let (head, payload) = data[..end].split_at_mut(body);
    let Some(key) = head.last_chunk::<4>() else { return };
    apply_mask(*key, payload);
}

#[inline]
fn apply_mask(key: [u8; 4], payload: &mut [u8]) {
    let word = u64::from(u32::from_ne_bytes(key));
    let word = word << 32 | word;
    let mut words = payload.chunks_exact_mut(8);
    for eight in &mut words {
        if let Ok(bytes) = <[u8; 8]>::try_from(&*eight) {
            eight.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ word).to_ne_bytes());
        }
    }
    for (at, byte) in words.into_remainder().iter_mut().enumerate() {
        *byte ^= key[at & 3];
    }
}

/// Is what has come of a payload, still masked, the beginning of a text?  Nothing is changed.
pub fn begins_text(data: &[u8], body: usize) -> bool {
    if data.len() <= body {
        return true;
    }
    let mut part = data[body - 4..].to_vec();
    let end = part.len();
    unmask(&mut part, 4, end);
    match std::str::from_utf8(&part[4..]) {
        Ok(_) => true,
        Err(why) => why.error_len().is_none(),
    }
}

/// Append the payload as one unmasked text frame.
#[inline]
pub fn write_frame(out: &mut Vec<u8>, payload: &[u8]) {
    let size = payload.len();
    out.reserve(size + 10);
    match size {
        0..=125 => out.extend_from_slice(&[FINAL_TEXT, size as u8]),
        126..=65535 => out.extend_from_slice(&[FINAL_TEXT, 126, (size >> 8) as u8, size as u8]),
        _ => {
            out.extend_from_slice(&[FINAL_TEXT, 127]);
            out.extend_from_slice(&(size as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(payload: &[u8], key: [u8; 4]) -> Vec<u8> {
        let mut frame = Vec::new();
        write_frame(&mut frame, payload);
        let body = frame.len() - payload.len();
        frame[1] |= MASKED;
        frame.splice(body..body, key);
        let end = frame.len();
        unmask(&mut frame, body + 4, end);
        frame
    }

    #[test]
    fn a_short_frame_is_found_and_unmasked() {
        let mut data = masked(b"hello", [1, 2, 3, 4]);
        let Frame::Whole { body, end } = frame_at(&data, 0, 100) else { panic!("not whole") };
        unmask(&mut data, body, end);
        assert_eq!(b"hello", &data[body..end]);
    }

    #[test]
    fn the_length_of_126_bytes_is_in_two_bytes_more() {
        let data = masked(&[b'x'; 126], [9, 8, 7, 6]);
        assert_eq!(Frame::Whole { body: 8, end: 134 }, frame_at(&data, 0, 126));
        assert_eq!(Frame::Foreign, frame_at(&data, 0, 125));
        for come in 4..data.len() {
            assert_eq!(Frame::Partial { body: 8 }, frame_at(&data[..come], 0, 126));
        }
    }

    #[test]
    fn what_is_not_a_final_masked_minimal_text_frame_is_foreign() {
        for head in [
            [0x01, 0x80],
            [0x80, 0x80],
            [0x82, 0x80],
            [0x88, 0x80],
            [0x89, 0x80],
            [0xc1, 0x80],
            [0x81, 0x00],
            [0x81, 0xff],
            [0x81, 0x7f],
        ] {
            assert_eq!(Frame::Foreign, frame_at(&head, 0, 100), "{head:?}");
        }
        assert_eq!(Frame::Foreign, frame_at(&[0x81, 0xfe, 0, 125, 0, 0, 0, 0], 0, 1000));
    }

    #[test]
    fn a_beginning_that_no_end_makes_text_is_noticed() {
        let key = [3, 1, 4, 1];
        assert!(begins_text(&masked("é".as_bytes(), key)[..7], 6));
        assert!(!begins_text(&masked(b"\xff\xff", key)[..7], 6));
        assert!(!begins_text(&masked(b"\xed\xa0\x80", key)[..8], 6), "the first half of a surrogate");
    }
}
