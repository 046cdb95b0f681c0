//! Records of messages that clients have to acknowledge, as msgnode/storage/spool.py writes them.
//!
//! What one round sends is written with one call: message by message, and the bytes of a message that goes
//! to several recipients once.

use crate::slab::Key;

const KEEP: u8 = 1; // "<BQQIIdBQQ": sid, key, offset in the batch, size, until, priority, asker, number
const KEEP_HERE: u8 = 8; // "<BQQIdBQQ": the same without the offset; the bytes follow
/// Bytes of a record before the bytes of its message.
pub const KEEP_HERE_SIZE: usize = 46;
const PRIORITY: u8 = 5;

/// The numbers of the first message for one recipient: its session, and by key and by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    pub sid: u64,
    pub key: u64,
    pub number: u64,
}

/// A message to one recipient: where its bytes begin in the batch, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub offset: usize,
    pub size: usize,
}

/// One message to one recipient.
struct Sent {
    port: Key,
    start: usize,
    size: usize,
}

/// What was sent since the last batch of records to clients that acknowledge.
#[derive(Default)]
pub struct Journal {
    payloads: Vec<u8>,
    sent: Vec<Sent>,
}

/// Records for the spool, and where they put the messages of each recipient.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub records: Vec<u8>,
    /// Bytes of all messages.
    pub live: u64,
    /// For each recipient, in the order of `recipients`.
    pub placed: Vec<Vec<Placed>>,
}

impl Journal {
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Forget what was sent.
    pub fn clear(&mut self) {
        self.payloads.clear();
        self.sent.clear();
    }

    /// The message is sent to these recipients, too.
    pub fn note(&mut self, payload: &[u8], recipients: impl Iterator<Item = Key>) {
        let start = self.payloads.len();
        let before = self.sent.len();
        let size = payload.len();
        self.sent.extend(recipients.map(|port| Sent { port, start, size }));
        if self.sent.len() > before {
            self.payloads.extend_from_slice(payload);
        }
    }

    /// Who was sent something, in the order of the first, and how many messages each.
    pub fn recipients(&self) -> Vec<(Key, usize)> {
        let mut counts: Vec<(Key, usize)> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for sent in &self.sent {
            let at = *places.entry(sent.port).or_insert_with(|| {
                counts.push((sent.port, 0));
                counts.len() - 1
            });
            counts[at].1 += 1;
        }
        counts
    }

    /// The records of all that was sent, which begin at `base` of the spool's batch; nothing is left.
    ///
    /// `numbers` are those of each recipient, in the order of `recipients`; None where nothing is owed any more.
    pub fn take(&mut self, base: usize, recipients: &[(Key, usize)], numbers: &[Option<Numbers>]) -> Batch {
        let places: std::collections::HashMap<Key, usize> =
            recipients.iter().enumerate().map(|(at, (port, _))| (*port, at)).collect();
        let mut batch = Batch {
            records: Vec::with_capacity(self.payloads.len() + self.sent.len() * (KEEP_HERE_SIZE + 4)),
            live: 0,
            placed: recipients.iter().map(|(_, count)| Vec::with_capacity(*count)).collect(),
        };
        let mut last: Option<(usize, usize)> = None; // where the last payload began here, and in the batch
        for sent in &self.sent {
            let at = places[&sent.port];
            let before = batch.placed[at].len() as u64;
            let Some(Numbers { sid, key, number }) = numbers[at] else { continue };
            let numbers = Numbers { sid, key: key + before, number: number + before };
            let offset = match last {
                Some((start, offset)) if start == sent.start => {
                    write_record(&mut batch.records, KEEP, numbers, Some(offset), sent.size);
                    offset
                }
                _ => {
                    write_record(&mut batch.records, KEEP_HERE, numbers, None, sent.size);
                    let offset = base + batch.records.len();
                    let payload = &self.payloads[sent.start..sent.start + sent.size];
                    batch.records.extend_from_slice(payload);
                    offset
                }
            };
            last = Some((sent.start, offset));
            batch.placed[at].push(Placed { offset, size: sent.size });
            batch.live += sent.size as u64;
        }
        self.clear();
        batch
    }
}

fn write_record(out: &mut Vec<u8>, kind: u8, numbers: Numbers, offset: Option<usize>, size: usize) {
    out.push(kind);
    out.extend_from_slice(&numbers.sid.to_le_bytes());
    out.extend_from_slice(&numbers.key.to_le_bytes());
    if let Some(offset) = offset {
        out.extend_from_slice(&(offset as u32).to_le_bytes());
    }
    out.extend_from_slice(&(size as u32).to_le_bytes());
    out.extend_from_slice(&f64::INFINITY.to_le_bytes());
    out.push(PRIORITY);
    out.extend_from_slice(&0u64.to_le_bytes()); // nobody asked for a receipt
    out.extend_from_slice(&numbers.number.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_message_to_several_are_written_once() {
        let mut journal = Journal::default();
        journal.note(b"one", [7, 9].into_iter());
        journal.note(b"three", [7].into_iter());
        journal.note(b"none", [].into_iter());
        let recipients = journal.recipients();
        assert_eq!(vec![(7, 2), (9, 1)], recipients);

        let numbers = [Numbers { sid: 1, key: 10, number: 4 }, Numbers { sid: 2, key: 5, number: 1 }];
        let numbers = numbers.map(Some);
        let batch = journal.take(100, &recipients, &numbers);

        assert_eq!(KEEP_HERE_SIZE + 3 + (KEEP_HERE_SIZE + 4) + KEEP_HERE_SIZE + 5, batch.records.len());
        assert_eq!(11, batch.live);
        let shared = Placed { offset: 100 + KEEP_HERE_SIZE, size: 3 };
        assert_eq!(shared, batch.placed[0][0]);
        assert_eq!(vec![shared], batch.placed[1]);
        let last = batch.placed[0][1];
        assert_eq!(b"three", &batch.records[last.offset - 100..][..last.size]);
        assert!(journal.is_empty());
    }
}
