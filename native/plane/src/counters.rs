//! What the plane counts, since Python last asked.

/// Bit lengths that microseconds of 64 bits may have.
pub const BIT_LENGTHS: usize = 65;

/// Why Python decides on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Punt {
    /// Nothing is remembered for its sender, recipient and type.
    NoFlow,
    /// The header is unusual, or no header.
    Header,
    /// Something has changed since the decision.
    Stale,
    /// An earlier message of the sender is not finished.
    Blocked,
    /// A recipient is away, or takes no more.
    Recipient,
    /// Too much is on its way to a recipient.
    Room,
    /// Somebody waits for this response.
    Awaited,
    /// The body has a key that is not for others to set.
    Body,
    /// A rate limit.
    Rate,
    /// A permit that is written down.
    Sample,
    /// Its bytes, times its recipients, are more than one round carries.
    Size,
}

pub const PUNTS: usize = 11;
pub const PUNT_NAMES: [&str; PUNTS] = [
    "no-flow",
    "header",
    "stale",
    "blocked",
    "recipient",
    "room",
    "awaited",
    "body",
    "rate",
    "sample",
    "size",
];

/// Counts of messages; Python adds them to its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    pub received: u64,
    pub received_bytes: u64,
    /// Those of `received` that came as lines.
    pub received_lines: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    /// Messages by the bit length of the microseconds they took.
    pub handed_over: [u64; BIT_LENGTHS],
    pub punted: [u64; PUNTS],
    pub reads: u64,
    pub sends: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            received: 0,
            received_bytes: 0,
            received_lines: 0,
            sent: 0,
            sent_bytes: 0,
            handed_over: [0; BIT_LENGTHS],
            punted: [0; PUNTS],
            reads: 0,
            sends: 0,
        }
    }
}

impl Counters {
    #[inline]
    pub fn carried(&mut self, size: usize, sent_size: usize, recipients: usize, micros: u64) {
        self.received += 1;
        self.received_bytes += size as u64;
        self.sent += recipients as u64;
        self.sent_bytes += (recipients * sent_size) as u64;
        self.handed_over[(u64::BITS - micros.leading_zeros()) as usize] += 1;
    }

    pub fn punt(&mut self, why: Punt) {
        self.punted[why as usize] += 1;
    }
}

/// How often a decision was repeated, and when last, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub hits: u64,
    pub last: u64,
}
