//! The plane: it carries the messages of flows, and leaves all others to Python.

use crate::awaited::Awaited;
use crate::clock::Clock;
use crate::counters::{Counters, Punt, Tally};
use crate::flow::{Flow, Flows, Remembered};
use crate::generations::Generations;
use crate::header::{self, Header};
use crate::kept_objects::{self, KeptObjects};
use crate::partial_input::PartialInput;
use crate::permit_sample::{Sample, WRITTEN_TOGETHER};
use crate::port::{Framing, Port, Room};
use crate::slab::{Key, Slab};
use crate::splice;
use crate::spool_records::Journal;
use crate::token_bucket::TokenBucket;
use crate::traffic_log::LogBuffer;

const LOG_BYTES: usize = 64 * 1024 * 1024; // of lines that wait for the disk
/// What else a round does for a recipient takes as long as so many bytes: one system call for each port, and
/// the record and the counts of a message to a client that acknowledges, which took 7 to 12 microseconds.
const TOUCH_BYTES: usize = 128;
const RECORD_BYTES: usize = 1024;

/// Limits of the plane, in bytes and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Held for one connection.
    pub unsent_bytes: usize,
    /// That one round reads and writes.
    pub round_bytes: usize,
    /// That one round lasts.
    pub round_nanoseconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { unsent_bytes: 1024 * 1024, round_bytes: 1024 * 1024, round_nanoseconds: 5_000_000 }
    }
}

/// The data plane of one node.
#[derive(Default)]
pub struct Plane {
    pub limits: Limits,
    pub ports: Slab<Port>,
    pub flows: Flows,
    pub generations: Generations,
    pub awaited: Awaited,
    pub buckets: Slab<TokenBucket>,
    /// What all buckets go by, whoever draws from them.
    pub clock: Clock,
    pub tallies: Vec<Tally>,
    pub sample: Sample,
    pub counters: Counters,
    pub partial: PartialInput,
    pub journal: Journal,
    pub log: LogBuffer,
    /// Lines of the decision log.
    pub decision_log: LogBuffer,
    /// The message with what policies put into it.
    pub spliced: Vec<u8>,
    pub kept: KeptObjects,
    /// The message with the version of its object.
    pub versioned: Vec<u8>,
    /// Ports that something is to leave for.
    pub touched: Vec<Key>,
    /// Ports that messages came by which their outboxes have not counted.
    pub owing: Vec<Key>,
    /// Bytes that this round has read and written.
    pub round_bytes: usize,
    /// Nanoseconds that this round has taken.
    pub round_nanoseconds: u64,
}

impl Default for LogBuffer {
    fn default() -> Self {
        LogBuffer::new(LOG_BYTES)
    }
}

impl Plane {
    // -- ports -----------------------------------------------------------------

    pub fn add_port(&mut self, framing: Framing, longest: usize, host: &str) -> Key {
        self.ports.insert(Port::new(framing, longest, host))
    }

    /// The connection is gone, with all that is held for it.
    pub fn remove_port(&mut self, port: Key) -> bool {
        self.clear_flows(port);
        let Some(gone) = self.ports.remove(port) else { return false };
        self.partial.grow(&gone.host, gone.counted, 0);
        true
    }

    /// Let something be done to a port, for which something is to leave then.
    pub fn touch(&mut self, key: Key, change: impl FnOnce(&mut Port)) -> bool {
        let Some(port) = self.ports.get_mut(key) else { return false };
        change(port);
        if !port.touched {
            port.touched = true;
            self.touched.push(key);
        }
        true
    }

    // -- flows -----------------------------------------------------------------

    /// Repeat this decision from now on for what comes by the port.
    pub fn install(&mut self, port: Key, flow: Flow) -> bool {
        if flow.recipients.contains(&port) || flow.recipients.is_empty() {
            return false;
        }
        let generation = |port: &Key| self.ports.get(*port).map(|port| port.generation);
        let Some(generations) = flow.recipients.iter().map(generation).collect() else { return false };
        let stamp = self.generations.stamp(&flow.from, &flow.to);
        self.flows.insert(&mut self.ports, port, Remembered { flow, stamp, generations })
    }

    /// Something has changed on which every decision may depend: none is remembered.
    pub fn change_all(&mut self) {
        self.generations.change_all();
        self.flows.clear_all(&mut self.ports);
    }

    /// How many bytes the flows of all may take from now on.
    pub fn set_flow_limit(&mut self, bytes: usize) {
        self.flows.max_bytes = bytes;
        self.flows.shrink(&mut self.ports, bytes);
    }

    /// Is a flow remembered for such messages, and would it still be followed?
    pub fn has_flow(&mut self, port: Key, from: &[u8], to: &[u8], kind: &[u8]) -> bool {
        let Some(port) = self.ports.get_mut(port) else { return false };
        let Some(found) = self.flows.find(port, from, to, kind) else { return false };
        let mut recipients = found.flow.recipients.iter().zip(&found.generations);
        self.generations.holds(&found.stamp)
            && found.flow.buckets.iter().all(|bucket| self.buckets.get(*bucket).is_some())
            && recipients.all(|(port, then)| {
                self.ports.get(*port).is_some_and(|port| port.ready && port.generation == *then)
            })
    }

    /// The session of a port is another: its flows end, and those that lead to it.
    pub fn renew(&mut self, port: Key) {
        self.clear_flows(port);
        if let Some(port) = self.ports.get_mut(port) {
            port.generation = port.generation.wrapping_add(1);
        }
    }

    /// Forget the flows of a port.
    pub fn clear_flows(&mut self, port: Key) {
        if let Some(port) = self.ports.get_mut(port) {
            self.flows.clear(port);
        }
    }

    // -- messages --------------------------------------------------------------

    /// Carry the message, which came at `came`, if a flow says how.
    ///
    /// Nothing has happened where it is refused.
    #[inline]
    pub fn carry(
        &mut self,
        key: Key,
        data: &[u8],
        came: u64,
        now: impl FnOnce() -> u64,
    ) -> Result<u64, Punt> {
        let port = self.ports.get_mut(key).ok_or(Punt::NoFlow)?;
        if port.flows.is_empty() {
            return Err(Punt::NoFlow);
        }
        if port.blocked > 0 {
            return Err(Punt::Blocked);
        }
        let header = header::scan(data).ok_or(Punt::Header)?;
        let (from, to, kind) = (header.from.of(data), header.to.of(data), header.kind.of(data));
        if self.awaited.takes(kind, to, header.id.of(data)) {
            return Err(Punt::Awaited);
        }
        let found = self.flows.find(port, from, to, kind).ok_or(Punt::NoFlow)?;
        if !self.generations.holds(&found.stamp) {
            self.flows.forget_last(port);
            return Err(Punt::Stale);
        }
        let flow = &found.flow;
        if header.body_keys & flow.refused_keys != 0 {
            return Err(Punt::Body);
        }
        if data.len() > self.limits.round_bytes {
            return Err(Punt::Size);
        }
        let sent = match &flow.member {
            None => data,
            Some(member) => {
                splice::with_first_member(&mut self.spliced, data, &header, member).ok_or(Punt::Body)?;
                &self.spliced
            }
        };
        let sent = match flow.kept {
            None => sent,
            Some(_) if header.has_further => return Err(Punt::Header),
            Some(object) => {
                let version = self.kept.next_version(object).ok_or(Punt::Stale)?;
                kept_objects::with_version(&mut self.versioned, sent, version).ok_or(Punt::Header)?;
                &self.versioned
            }
        };
        let acknowledging = check_recipients(&self.ports, found, sent.len(), self.limits.unsent_bytes)?;
        let whole = sent.len().saturating_mul(flow.recipients.len()) + acknowledging * RECORD_BYTES;
        if whole > self.limits.round_bytes {
            return Err(Punt::Size);
        }
        let (sample, is_due) = count_permit(self.sample, flow, self.decision_log.lines)?;
        draw(&mut self.buckets, flow, data.len(), self.clock)?;

        // Decided: from here on nothing fails.
        self.sample = sample;
        if let Some(object) = flow.kept {
            self.kept.keep(object, sent, came);
        }
        let (ports, touched) = (&mut self.ports, &mut self.touched);
        let mut touches = 0;
        for recipient in &flow.recipients {
            let Some(port) = ports.get_mut(*recipient) else { continue };
            port.write(sent);
            port.traffic.sent += 1;
            port.traffic.sent_bytes += sent.len() as u64;
            if let Some(room) = &mut port.room {
                room.take(sent.len());
            }
            if !port.touched {
                port.touched = true;
                touched.push(*recipient);
                touches += 1;
            }
        }
        if acknowledging > 0 {
            let acknowledges = |each: &Key| ports.get(*each).is_some_and(|port| port.room.is_some());
            self.journal.note(sent, flow.recipients.iter().copied().filter(acknowledges));
        }
        if let Some(port) = ports.get_mut(key) {
            port.traffic.received += 1;
            self.counters.received_lines += u64::from(port.framing == Framing::Lines);
            port.traffic.received_bytes += data.len() as u64;
            port.traffic.last = came;
            if flow.counted {
                port.heard += 1;
                if !port.owing {
                    port.owing = true;
                    self.owing.push(key);
                }
            }
        }
        for tally in &flow.tallies {
            if let Some(tally) = self.tallies.get_mut(*tally as usize) {
                tally.hits += 1;
                tally.last = came;
            }
        }
        let done = now();
        let micros = done.saturating_sub(came) / 1000;
        self.counters.carried(data.len(), sent.len(), flow.recipients.len(), micros);
        self.round_bytes += whole + touches * TOUCH_BYTES;
        if let Some(line) = &flow.line {
            let (id, transaction) = (header.id.of(data), header.transaction.of(data));
            self.log.add(came, |out| line.write(out, came, id, transaction, sent.len(), micros));
        }
        if let (true, Some(line)) = (is_due, &flow.permit_line) {
            self.decision_log.add(came, |out| line.write(out, came, header.id.of(data)));
        }
        Ok(done)
    }
}

/// May the message go to all of them now?  How many of them acknowledge.
#[inline]
fn check_recipients(ports: &Slab<Port>, found: &Remembered, size: usize, most: usize) -> Result<usize, Punt> {
    let mut acknowledging = 0;
    for (recipient, generation) in found.flow.recipients.iter().zip(&found.generations) {
        let port = ports.get(*recipient).ok_or(Punt::Recipient)?;
        if port.generation != *generation {
            return Err(Punt::Stale);
        }
        if !port.ready {
            return Err(Punt::Recipient);
        }
        if port.outgoing.len() + size > most || port.room.is_some_and(|room: Room| !room.has(size)) {
            return Err(Punt::Room);
        }
        acknowledging += usize::from(port.room.is_some());
    }
    Ok(acknowledging)
}

/// The sample with the permits of one message counted, and whether a line about it is to be written here;
/// `lines` of the decision log wait.
#[inline]
fn count_permit(mut sample: Sample, flow: &Flow, lines: u64) -> Result<(Sample, bool), Punt> {
    let is_due = (0..flow.samples).fold(false, |any, _| sample.is_due() || any);
    match &flow.permit_line {
        _ if !is_due => Ok((sample, false)),
        Some(line) if line.is_empty() => Ok((sample, false)),
        Some(_) if (lines + 1) % WRITTEN_TOGETHER != 0 => Ok((sample, true)),
        _ => Err(Punt::Sample),
    }
}

/// Draw from all token buckets of the flow, or from none.
fn draw(buckets: &mut Slab<TokenBucket>, flow: &Flow, size: usize, clock: Clock) -> Result<(), Punt> {
    if flow.buckets.is_empty() {
        return Ok(());
    }
    let now = clock.seconds();
    for bucket in &flow.buckets {
        if !buckets.get_mut(*bucket).ok_or(Punt::Stale)?.has_room(now) {
            return Err(Punt::Rate);
        }
    }
    for bucket in &flow.buckets {
        if let Some(bucket) = buckets.get_mut(*bucket) {
            bucket.take(size);
        }
    }
    Ok(())
}

/// The header of a message, for tests and tools.
pub fn scan_header(data: &[u8]) -> Option<Header> {
    std::str::from_utf8(data).ok()?;
    header::scan(data)
}
