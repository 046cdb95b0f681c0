//! The walk through what one read of a port brought.

use crate::flow::GIVEN_BACK;
use crate::lines::line_at;
use crate::plane::Plane;
use crate::port::Framing;
use crate::slab::Key;
use crate::websocket::{begins_text, frame_at, unmask, Frame};

/// Messages of one port that Python is given in one round; the others wait for the next.
pub const MAX_PUNTS: u32 = 128;
/// Bytes of an unfinished message that are kept here; Python keeps more.
pub const MAX_PENDING: usize = 16 * 1024;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Everything is carried, or kept.
    Done,
    /// Python decides on the message between these positions; then the walk goes on.
    Punt { start: usize, end: usize },
    /// The bytes from here on are Python's.
    Foreign { start: usize },
    /// The round is over, or the port is paused; what is left waits.
    Over,
}

/// A position in what one read brought.
pub struct Walk {
    pub at: usize,
    came: u64,
    deadline: u64,
    punts: u32,
}

impl Walk {
    /// From the beginning, at `now`; when the round ends.
    pub fn new(now: u64, deadline: u64) -> Self {
        Walk { at: 0, came: now, deadline, punts: 0 }
    }

    /// Python has done what a step asked for; it is later now.
    pub fn go_on(&mut self, now: u64) {
        self.came = now;
    }
}

/// What was found at one position.
enum Found {
    Message { start: usize, end: usize, next: usize },
    Empty { next: usize },
    Partial,
    Foreign,
}

impl Plane {
    /// Go on to the next thing that Python has to do something about.
    pub fn walk(
        &mut self,
        key: Key,
        data: &mut [u8],
        walk: &mut Walk,
        now: &mut impl FnMut() -> u64,
    ) -> Step {
        loop {
            let Some(port) = self.ports.get(key) else { return Step::Done };
            if walk.at == data.len() {
                self.set_pending(key, &[], false, 0);
                return Step::Done;
            }
            if !port.at_border {
                return self.foreign(key, walk.at);
            }
            if port.paused > 0 || walk.punts == MAX_PUNTS || self.is_round_over(walk.came, walk.deadline) {
                self.set_pending(key, &data[walk.at..], true, 0);
                return Step::Over;
            }
            match find(port.framing, data, walk.at, port.longest) {
                Found::Empty { next } => walk.at = next,
                Found::Foreign => return self.foreign(key, walk.at),
                Found::Partial => {
                    let since =
                        if walk.at > 0 || port.pending_since == 0 { walk.came } else { port.pending_since };
                    if self.set_pending(key, &data[walk.at..], false, since) {
                        return Step::Done;
                    }
                    return self.foreign(key, walk.at);
                }
                Found::Message { start, end, next } => {
                    walk.at = next;
                    match self.carry(key, &data[start..end], walk.came, &mut *now) {
                        Ok(done) => walk.came = done,
                        Err(why) => {
                            self.counters.punt(why);
                            walk.punts += 1;
                            return Step::Punt { start, end };
                        }
                    }
                }
            }
        }
    }

    /// Begin a round.
    pub fn begin_round(&mut self) {
        self.round_bytes = 0;
        self.round_nanoseconds = 0;
        self.flows.give_back(GIVEN_BACK);
    }

    /// When this round ends if it goes on from `now` on.  What passes before it goes on again is not its time.
    pub fn round_end(&self, now: u64) -> u64 {
        now + self.limits.round_nanoseconds.saturating_sub(self.round_nanoseconds)
    }

    /// The round has gone on from one time to the other.
    pub fn spend(&mut self, from: u64, to: u64) {
        self.round_nanoseconds += to.saturating_sub(from);
    }

    /// Put this behind what is left over of the port; false: nothing is.
    pub fn leave_over(&mut self, key: Key, data: &[u8]) -> bool {
        let is_left_over = self.ports.get(key).is_some_and(|port| port.left_over);
        if is_left_over {
            let Some(port) = self.ports.get_mut(key) else { return true };
            let size = port.pending.len() + data.len();
            self.partial.recount(&port.host, port.counted, size, true);
            port.counted = size;
            port.pending.extend_from_slice(data);
        }
        is_left_over
    }

    /// Has this round carried enough, or lasted long enough?
    pub fn is_round_over(&self, now: u64, deadline: u64) -> bool {
        now >= deadline || self.round_bytes >= self.limits.round_bytes
    }

    fn foreign(&mut self, key: Key, start: usize) -> Step {
        self.set_pending(key, &[], false, 0);
        Step::Foreign { start }
    }

    /// What is pending of the port; nothing is then.
    pub fn take_pending(&mut self, key: Key) -> Vec<u8> {
        let Some(port) = self.ports.get_mut(key) else { return Vec::new() };
        let pending = std::mem::take(&mut port.pending);
        self.set_pending(key, &[], false, 0);
        pending
    }

    /// Keep this of what came; false: that is more than may be kept, and nothing is.
    fn set_pending(&mut self, key: Key, data: &[u8], left_over: bool, since: u64) -> bool {
        let Some(port) = self.ports.get_mut(key) else { return true };
        // What is left over has come whole, and is no more than one read: it is counted, and never refused.
        let fits = self.partial.recount(&port.host, port.counted, data.len(), left_over);
        let kept: &[u8] = if fits { data } else { &[] };
        port.counted = kept.len();
        port.pending.extend_from_slice(kept);
        port.left_over = left_over && !kept.is_empty();
        port.pending_since = since;
        fits
    }
}

/// What begins at this position.
#[inline]
fn find(framing: Framing, data: &mut [u8], at: usize, longest: usize) -> Found {
    match framing {
        Framing::WebSocket => find_frame(data, at, longest),
        Framing::Lines => find_line(data, at, longest),
    }
}

#[inline]
fn find_frame(data: &mut [u8], at: usize, longest: usize) -> Found {
    match frame_at(data, at, longest) {
        Frame::Foreign => Found::Foreign,
        Frame::Partial { body } => {
            // Autobahn fails at the first bad byte, also in a frame that has not ended.
            if data.len() - at > MAX_PENDING || !begins_text(data, body) {
                return Found::Foreign;
            }
            Found::Partial
        }
        Frame::Whole { body, end } => {
            unmask(data, body, end);
            if simdutf8::basic::from_utf8(&data[body..end]).is_err() {
                unmask(data, body, end); // as it came
                return Found::Foreign;
            }
            Found::Message { start: body, end, next: end }
        }
    }
}

#[inline]
fn find_line(data: &[u8], at: usize, longest: usize) -> Found {
    let Some((end, next)) = line_at(data, at) else {
        // Python throws away what no end could save.
        let fits = data.len() - at <= MAX_PENDING.min(longest);
        return if fits { Found::Partial } else { Found::Foreign };
    };
    let line = &data[at..end];
    if line.is_empty() {
        return Found::Empty { next };
    }
    if line.len() > longest || simdutf8::basic::from_utf8(line).is_err() {
        return Found::Foreign;
    }
    Found::Message { start: at, end, next }
}
