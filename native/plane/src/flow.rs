//! Flows: decisions of Python that the plane repeats.
//!
//! A flow holds every value of the header that the decision read; the type of the message is always one.

use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasher;

use foldhash::quality::RandomState;

use crate::generations::Stamp;
use crate::permit_sample::PermitLine;
use crate::port::Port;
use crate::slab::{Key, Leftovers, Slab};
use crate::traffic_log::LineTemplate;

/// Flows of one sender; beyond that it begins again with none.
pub const MAX_FLOWS_PER_PORT: usize = 1024;
/// Bytes of the flows of all senders.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;
/// The flows of one sender take at most this part of the bytes of all.
pub const PORT_SHARE: usize = 32;
/// Where there is no room for one more, at least this part of the bytes of all becomes free: who has most is
/// looked for among all ports, which then is rare.
pub const FREED_SHARE: usize = 16;
/// Forgotten flows that each new one, and each round, gives back.
pub const GIVEN_BACK: usize = 16;
/// Bytes of sender, recipient and type; Python decides about messages with longer ones.
pub const MAX_KEY_BYTES: usize = 1024;

const FLOW_BYTES: usize = 512; // of a flow without its texts and recipients, and of the tables that have it
const RECIPIENT_BYTES: usize = 12;

/// What to do with messages of one sender, recipient and type, as long as nothing changes.
pub struct Flow {
    pub from: Box<[u8]>,
    pub to: Box<[u8]>,
    pub kind: Box<[u8]>,
    pub recipients: Box<[Key]>,
    /// None: nothing is written to the traffic log.
    pub line: Option<LineTemplate>,
    /// The sender is a client that acknowledges, and is acknowledged.
    pub counted: bool,
    /// Body keys (header.rs) with which a message is not one of these.
    pub refused_keys: u8,
    /// What is put first into the body: `"auth":true`.
    pub member: Option<Box<[u8]>>,
    /// Token buckets that each message draws from.
    pub buckets: Box<[Key]>,
    /// Counts of decisions that each message adds to.
    pub tallies: Box<[u32]>,
    /// How often a message is looked at for the sample of the decision log.
    pub samples: u8,
    /// The line of the decision log about one that the sample takes; None: Python writes it.
    pub permit_line: Option<PermitLine>,
    /// The kept object (kept_objects.rs) whose message it is.
    pub kept: Option<u32>,
}

impl Flow {
    #[inline(always)]
    pub fn is_for(&self, from: &[u8], to: &[u8], kind: &[u8]) -> bool {
        *self.to == *to && *self.from == *from && *self.kind == *kind
    }

    fn key_bytes(&self) -> usize {
        self.from.len() + self.to.len() + self.kind.len()
    }

    /// About how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let lines = self.line.as_ref().map_or(0, LineTemplate::bytes)
            + self.permit_line.as_ref().map_or(0, PermitLine::bytes);
        let more = self.member.as_ref().map_or(0, |member| member.len()) + 8 * self.buckets.len();
        FLOW_BYTES + self.key_bytes() + lines + more + RECIPIENT_BYTES * self.recipients.len()
    }
}

/// A flow, and when it was decided on.
pub struct Remembered {
    pub flow: Flow,
    pub stamp: Stamp,
    /// The generation of each recipient's port.
    pub generations: Box<[u32]>,
}

/// The flows of all ports.
pub struct Flows {
    /// How many bytes they may take.
    pub max_bytes: usize,
    all: Slab<Remembered>,
    bytes: usize,
    /// What is not given back yet.
    forgotten: Vec<Leftovers<Remembered>>,
    hasher: RandomState,
}

impl Default for Flows {
    fn default() -> Self {
        Flows {
            max_bytes: MAX_BYTES,
            all: Slab::default(),
            bytes: 0,
            forgotten: Vec::new(),
            hasher: RandomState::default(),
        }
    }
}

impl Flows {
    /// About how many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn max_of_port(&self) -> usize {
        self.max_bytes / PORT_SHARE
    }

    /// Is it small enough to be remembered?
    fn may_keep(&self, flow: &Flow) -> bool {
        flow.key_bytes() <= MAX_KEY_BYTES && flow.bytes() <= self.max_of_port()
    }

    fn remove(&mut self, port: &mut Port, key: Key) {
        if let Some(gone) = self.all.remove(key) {
            let bytes = gone.flow.bytes();
            self.bytes -= bytes;
            port.flow_bytes -= bytes;
        }
    }

    fn hash(&self, from: &[u8], to: &[u8], kind: &[u8]) -> u64 {
        self.hasher.hash_one((from, to, kind))
    }

    /// The flow for such messages of this port.
    #[inline]
    pub fn find(&self, port: &mut Port, from: &[u8], to: &[u8], kind: &[u8]) -> Option<&Remembered> {
        if let Some(last) = self.all.get(port.last_flow) {
            if last.flow.is_for(from, to, kind) {
                return Some(last);
            }
        }
        let key = *port.flows.get(&self.hash(from, to, kind))?;
        let found = self.all.get(key)?;
        if !found.flow.is_for(from, to, kind) {
            return None;
        }
        port.last_flow = key;
        Some(found)
    }

    /// Remember it for this port.  False: it is too large, or the port is gone.
    pub fn insert(&mut self, ports: &mut Slab<Port>, key: Key, remembered: Remembered) -> bool {
        let flow = &remembered.flow;
        let (bytes, hash) = (flow.bytes(), self.hash(&flow.from, &flow.to, &flow.kind));
        if !self.may_keep(flow) {
            return false;
        }
        let Some(port) = ports.get_mut(key) else { return false };
        if let Some(before) = port.flows.remove(&hash) {
            self.remove(port, before);
        }
        if port.flows.len() >= MAX_FLOWS_PER_PORT || port.flow_bytes + bytes > self.max_of_port() {
            self.clear(port);
        }
        if self.bytes + bytes > self.max_bytes {
            self.shrink(ports, self.max_bytes - self.max_bytes / FREED_SHARE);
        }
        self.give_back(GIVEN_BACK);
        let Some(port) = ports.get_mut(key) else { return false };
        self.bytes += bytes;
        port.flow_bytes += bytes;
        port.flows.insert(hash, self.all.insert(remembered));
        true
    }

    /// Forget flows until they take no more than so many bytes: those of the connection that has most, of
    /// the host whose connections have most together; and again.
    pub fn shrink(&mut self, ports: &mut Slab<Port>, most: usize) {
        if self.bytes <= most {
            return;
        }
        let mut hosts: HashMap<&str, Vec<(usize, Key)>> = HashMap::new();
        for (key, port) in ports.iter().filter(|(_, port)| port.flow_bytes > 0) {
            hosts.entry(&port.host).or_default().push((port.flow_bytes, key));
        }
        let count = |mut ports: Vec<(usize, Key)>| {
            ports.sort_unstable();
            (ports.iter().map(|(bytes, _)| bytes).sum::<usize>(), ports)
        };
        let mut hosts: BinaryHeap<_> = hosts.into_values().map(count).collect();
        while self.bytes > most {
            let Some((bytes, mut held)) = hosts.pop() else { return };
            let Some((of_port, key)) = held.pop() else { continue };
            if let Some(port) = ports.get_mut(key) {
                self.clear(port);
            }
            hosts.push((bytes - of_port, held));
        }
    }

    /// Forget all flows.
    ///
    /// To give back the memory of 64 MiB takes 50 ms, so that `give_back` does it.
    pub fn clear_all(&mut self, ports: &mut Slab<Port>) {
        if self.is_empty() {
            return;
        }
        for port in ports.values_mut() {
            if port.flow_bytes > 0 {
                port.flows = HashMap::default();
            }
            (port.flow_bytes, port.last_flow) = (0, 0);
        }
        self.forgotten.push(self.all.take_all());
        self.bytes = 0;
    }

    /// Give back the memory of so many forgotten flows.
    pub fn give_back(&mut self, flows: usize) {
        if self.forgotten.last_mut().is_some_and(|last| !last.drop_some(flows)) {
            self.forgotten.pop();
        }
    }

    /// Forget the flow that `find` has found last for this port.
    pub fn forget_last(&mut self, port: &mut Port) {
        let key = std::mem::take(&mut port.last_flow);
        let Some(found) = self.all.get(key) else { return };
        let hash = self.hash(&found.flow.from, &found.flow.to, &found.flow.kind);
        port.flows.remove(&hash);
        self.remove(port, key);
    }

    /// Forget the flows of this port.
    pub fn clear(&mut self, port: &mut Port) {
        for (_, key) in std::mem::take(&mut port.flows) {
            self.remove(port, key);
        }
        port.last_flow = 0;
    }
}
