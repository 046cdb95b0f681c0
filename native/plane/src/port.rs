//! A port: one connection, as the plane knows it.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::slab::Key;
use crate::websocket::write_frame;

/// How messages are marked off in the bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    WebSocket,
    Lines,
}

/// How much more may be sent to a client that acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Messages, of which Python sends the last itself: it has the session wait then.
    pub messages: u64,
    pub bytes: u64,
}

impl Room {
    /// Is one more message of that size not the last for which there is room?
    #[inline(always)]
    pub fn has(&self, size: usize) -> bool {
        self.messages > 1 && self.bytes > size as u64
    }

    #[inline(always)]
    pub fn take(&mut self, size: usize) {
        self.messages -= 1;
        self.bytes -= size as u64;
    }
}

/// What was carried from a port and to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub received: u64,
    pub received_bytes: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    /// When the last message came, in nanoseconds since 1970; 0 for none.
    pub last: u64,
}

/// One connection.
///
/// Everything here is small while nothing is on its way: a node has ten thousand of them.
pub struct Port {
    pub framing: Framing,
    /// Bytes of one message.
    pub longest: usize,
    /// Does its stream stand where a message begins, and is it the plane's?
    pub at_border: bool,
    /// May a message go there now, past nothing that waits?
    pub ready: bool,
    /// How often its session has changed: what was decided to go there before goes there no longer.
    pub generation: u32,
    /// How many of its messages Python is not finished with.
    pub blocked: u32,
    /// How many want nothing more to be read from it.
    pub paused: u32,
    /// Python wants to know of the next bytes that come.
    pub watched: bool,
    /// It stands in the list of those that something is to leave for.
    pub touched: bool,
    /// It stands in the list of those whose outbox has to count what came.
    pub owing: bool,
    /// For a client that acknowledges: what may still be sent.
    pub room: Option<Room>,
    /// Messages that came of a client that acknowledges, and its outbox has not counted.
    pub heard: u64,
    /// Messages and bytes that were carried from it and to it, which its session has not counted.
    pub traffic: Traffic,
    /// The host it counts for.
    pub host: Box<str>,
    /// What has come of a message that has not ended.
    pub pending: Vec<u8>,
    /// Since when, in nanoseconds since 1970; 0 while nothing is pending.
    pub pending_since: u64,
    /// Bytes of it that are counted as partial input, the free ones included.
    pub counted: usize,
    /// Whole messages that were left over when a round ended are in `pending`, too.
    pub left_over: bool,
    /// What is to leave, framed.
    pub outgoing: Vec<u8>,
    /// Its flows by the hash of their keys.
    pub flows: HashMap<u64, Key, RandomState>,
    /// Their bytes.
    pub flow_bytes: usize,
    /// The flow that was used last.
    pub last_flow: Key,
}

const KEPT_CAPACITY: usize = 512; // bytes of a buffer that an idle connection keeps

impl Port {
    pub fn new(framing: Framing, longest: usize, host: &str) -> Self {
        Port {
            framing,
            longest,
            at_border: true,
            ready: false,
            generation: 0,
            blocked: 0,
            paused: 0,
            watched: false,
            touched: false,
            owing: false,
            room: None,
            heard: 0,
            traffic: Traffic::default(),
            host: host.into(),
            pending: Vec::new(),
            pending_since: 0,
            counted: 0,
            left_over: false,
            outgoing: Vec::new(),
            flows: HashMap::default(),
            flow_bytes: 0,
            last_flow: 0,
        }
    }

    /// Append one message to what is to leave.
    #[inline]
    pub fn write(&mut self, payload: &[u8]) {
        match self.framing {
            Framing::WebSocket => write_frame(&mut self.outgoing, payload),
            Framing::Lines => {
                self.outgoing.reserve(payload.len() + 1);
                self.outgoing.extend_from_slice(payload);
                self.outgoing.push(b'\n');
            }
        }
    }

    /// What is to leave has left.
    pub fn clear_outgoing(&mut self) {
        clear(&mut self.outgoing);
    }

    /// Copy what is pending to the front of the buffer, where it is enlarged if need be; how much it is.
    pub fn move_pending(&mut self, buffer: &mut Vec<u8>, room: usize) -> usize {
        let size = self.pending.len();
        if buffer.len() < size + room {
            buffer.resize(size + room, 0);
        }
        buffer[..size].copy_from_slice(&self.pending);
        clear(&mut self.pending);
        size
    }
}

/// Empty the buffer, and give its memory back if it is more than a little.
fn clear(buffer: &mut Vec<u8>) {
    if buffer.capacity() > KEPT_CAPACITY {
        *buffer = Vec::new();
    } else {
        buffer.clear();
    }
}
