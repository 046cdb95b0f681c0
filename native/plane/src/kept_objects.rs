//! Objects whose messages are kept: each message gets the next version of its object, and a record for the
//! journal, as msgnode/storage/objects/records.py writes it.

use crc32fast::Hasher;

const ENTRY: u8 = 1; // the kind of a record: "<BQQH": kind, version, microseconds, bytes of the address
const FRAME_BYTES: usize = 8; // "<II": length, CRC-32
const HEAD_BYTES: usize = 19;
/// Records that wait for the end of a round.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// One object: its address, and the last version that was given.
struct KeptObject {
    address: Box<[u8]>,
    version: u64,
}

/// A record: its object by number, the version, and the bytes of the record.
pub type Entry = (u32, u64, usize);

/// All objects of which messages are carried, by number, and the records that Python has not taken.
#[derive(Default)]
pub struct KeptObjects {
    objects: Vec<KeptObject>,
    micros: u64,
    records: Vec<u8>,
    entries: Vec<Entry>,
}

impl KeptObjects {
    /// One more object, of which no version is known; its number.
    pub fn add(&mut self, address: &[u8]) -> u32 {
        self.objects.push(KeptObject { address: address.into(), version: 0 });
        (self.objects.len() - 1) as u32
    }

    /// Python has given this version, at that time.
    pub fn set_version(&mut self, object: u32, version: u64, micros: u64) {
        if let Some(object) = self.objects.get_mut(object as usize) {
            object.version = version;
        }
        self.micros = self.micros.max(micros);
    }

    /// Forget all objects: their numbers are given again.
    pub fn clear(&mut self) {
        self.objects.clear();
    }

    /// The next version of an object; None if Python has to decide.
    pub fn next_version(&self, object: u32) -> Option<u64> {
        let object = self.objects.get(object as usize)?;
        (object.version > 0 && self.records.len() < MAX_BYTES).then_some(object.version + 1)
    }

    /// Give the message, which came at `came` nanoseconds, its version.
    pub fn keep(&mut self, number: u32, message: &[u8], came: u64) {
        let Some(object) = self.objects.get_mut(number as usize) else { return };
        object.version += 1;
        self.micros = (self.micros + 1).max(came / 1000);
        let length = HEAD_BYTES + object.address.len() + message.len();
        let start = self.records.len();
        let out = &mut self.records;
        out.reserve(FRAME_BYTES + length);
        out.extend_from_slice(&(length as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.push(ENTRY);
        out.extend_from_slice(&object.version.to_le_bytes());
        out.extend_from_slice(&self.micros.to_le_bytes());
        out.extend_from_slice(&(object.address.len() as u16).to_le_bytes());
        out.extend_from_slice(&object.address);
        out.extend_from_slice(message);
        let mut hasher = Hasher::new();
        hasher.update(&out[start + FRAME_BYTES..]);
        out[start + 4..start + FRAME_BYTES].copy_from_slice(&hasher.finalize().to_le_bytes());
        self.entries.push((number, object.version, FRAME_BYTES + length));
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The records since the last call, the entries among them, and the time of the last one.
    pub fn take(&mut self) -> (Vec<u8>, Vec<Entry>, u64) {
        (std::mem::take(&mut self.records), std::mem::take(&mut self.entries), self.micros)
    }
}

/// Write the message with its version at the end of its header; None if it does not end with that.
pub fn with_version(out: &mut Vec<u8>, data: &[u8], version: u64) -> Option<()> {
    let (last, before) = data.split_last()?;
    if *last != b'}' {
        return None;
    }
    out.clear();
    out.extend_from_slice(before);
    out.extend_from_slice(b",\"version\":");
    let mut digits = [0; 20];
    let (mut at, mut left) = (digits.len(), version);
    while left > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
    }
    out.extend_from_slice(&digits[at..]);
    out.push(b'}');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_stands_at_the_end_of_the_header() {
        let mut out = Vec::new();

        for (version, expected) in
            [(0, &b"{\"a\":{},\"version\":0}"[..]), (1208, b"{\"a\":{},\"version\":1208}")]
        {
            assert_eq!(Some(()), with_version(&mut out, b"{\"a\":{}}", version));
            assert_eq!(expected, out);
        }
        assert_eq!(None, with_version(&mut out, b"{} ", 1));
    }

    #[test]
    fn versions_go_on_where_python_has_left_off() {
        let mut kept = KeptObjects::default();
        let number = kept.add(b"comm://d/1");
        assert_eq!(None, kept.next_version(number)); // Python has not said which one is next
        kept.set_version(number, 7, 50);
        assert_eq!(Some(8), kept.next_version(number));

        kept.keep(number, b"{}", 40_000);
        kept.keep(number, b"{}", 90_000);

        let (records, entries, micros) = kept.take();
        let length = FRAME_BYTES + HEAD_BYTES + 10 + 2;
        assert_eq!(vec![(number, 8, length), (number, 9, length)], entries);
        assert_eq!((2 * length, 90), (records.len(), micros));
        assert_eq!(51u64.to_le_bytes(), records[FRAME_BYTES + 9..FRAME_BYTES + 17]);
        assert!(kept.is_empty());
    }
}
