//! The end of a round: outboxes count, records are written, and what is held leaves.

use std::collections::HashMap;

use msgnode_plane::port::Room;
use msgnode_plane::slab::Key;
use msgnode_plane::spool_records::{Batch, Numbers, Placed};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use rustix::net::{send, SendFlags};

use crate::descriptor::borrow;
use crate::state::{Plane, State};

impl Plane {
    /// Enter the cork, unless this round has: what Python answers leaves at the end.
    pub fn cork_in(&self, py: Python<'_>) -> PyResult<()> {
        if std::mem::replace(&mut self.state().corked, true) {
            return Ok(());
        }
        let Some(cork) = self.hook(py, |hooks| &hooks.cork) else { return Ok(()) };
        cork.call_method0(py, intern!(py, "__enter__"))?;
        Ok(())
    }

    pub fn cork_out(&self, py: Python<'_>) -> PyResult<()> {
        if !std::mem::replace(&mut self.state().corked, false) {
            return Ok(());
        }
        let Some(cork) = self.hook(py, |hooks| &hooks.cork) else { return Ok(()) };
        cork.call_method1(py, intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
        Ok(())
    }

    /// Let the outboxes know what was carried for them, before anything else happens to them.
    #[inline]
    pub fn sync(&self, py: Python<'_>) -> PyResult<()> {
        if self.state().core.owing.is_empty()
            && self.state().core.journal.is_empty()
            && self.state().core.kept.is_empty()
        {
            return Ok(());
        }
        self.cork_in(py)?;
        self.write_kept(py)?;
        for (key, owner, heard) in self.take_heard(py) {
            if let Err(why) = owner.call_method1(py, intern!(py, "heard"), (heard,)) {
                self.failed(py, why);
                self.cut_off(py, key, true);
            }
        }
        self.write_journal(py)
    }

    /// Give Python the records of what was carried of kept objects.
    fn write_kept(&self, py: Python<'_>) -> PyResult<()> {
        if self.state().core.kept.is_empty() {
            return Ok(());
        }
        let (records, entries, micros) = self.state().core.kept.take();
        let Some(ledger) = self.hook(py, |hooks| &hooks.ledger) else { return Ok(()) };
        if let Err(why) = ledger.call_method1(
            py,
            intern!(py, "keep_records"),
            (PyBytes::new(py, &records), entries, micros),
        ) {
            self.failed(py, why);
        }
        Ok(())
    }

    fn take_heard(&self, py: Python<'_>) -> Vec<(Key, Py<PyAny>, u64)> {
        let state = &mut *self.state();
        let owing = std::mem::take(&mut state.core.owing);
        let heard = owing.into_iter().filter_map(|key| {
            let port = state.core.ports.get_mut(key)?;
            port.owing = false;
            let heard = std::mem::take(&mut port.heard);
            Some((key, state.sockets.get(key)?.owner.clone_ref(py), heard))
        });
        heard.collect()
    }

    /// Give the ledger the records of what was sent, and each outbox its messages.
    fn write_journal(&self, py: Python<'_>) -> PyResult<()> {
        let recipients = self.state().core.journal.recipients();
        let Some(ledger) = self.hook(py, |hooks| &hooks.ledger) else { return Ok(()) };
        if recipients.is_empty() {
            return Ok(());
        }
        let numbers: Vec<_> = recipients.iter().map(|(key, count)| self.numbers(py, *key, *count)).collect();
        let (batch, base) = match self.append(py, &ledger, &recipients, &numbers) {
            Ok(written) => written,
            Err(why) => {
                self.state().core.journal.clear();
                self.failed(py, why);
                recipients.iter().for_each(|(key, _)| self.cut_off(py, *key, true));
                return Ok(());
            }
        };
        let mut payloads = Payloads::new(&batch.records, base, recipients.len() > 1);
        let mut failed = Vec::new();
        for (((key, _), numbers), placed) in recipients.iter().zip(&numbers).zip(&batch.placed) {
            let Some(numbers) = numbers else { continue };
            if let Err(why) = self.keep(py, *key, numbers, placed, &mut payloads) {
                self.failed(py, why);
                failed.push(*key);
            }
        }
        // Only now, for Python may send then, and its messages come after those that were carried.
        failed.into_iter().for_each(|key| self.cut_off(py, key, true));
        Ok(())
    }

    fn append(
        &self,
        py: Python<'_>,
        ledger: &Py<PyAny>,
        recipients: &[(Key, usize)],
        numbers: &[Option<Numbers>],
    ) -> PyResult<(Batch, usize)> {
        let base: usize = ledger.call_method0(py, intern!(py, "begin"))?.extract(py)?;
        let batch = self.state().core.journal.take(base, recipients, numbers);
        ledger.call_method1(py, intern!(py, "append"), (PyBytes::new(py, &batch.records), batch.live))?;
        Ok((batch, base))
    }

    /// The numbers of the next messages of this port's session.
    fn numbers(&self, py: Python<'_>, port: Key, count: usize) -> Option<Numbers> {
        let owner = self.owner(py, port)?;
        let numbers = owner
            .call_method1(py, intern!(py, "numbers"), (count,))
            .and_then(|found| found.extract::<(u64, u64, u64)>(py));
        match numbers {
            Ok((sid, key, number)) => Some(Numbers { sid, key, number }),
            Err(why) => {
                self.failed(py, why);
                self.cut_off(py, port, true);
                None
            }
        }
    }

    /// Abort a connection: a part of what came was lost or, if `is_lost`, its session has not counted what was
    /// carried.
    pub fn cut_off(&self, py: Python<'_>, port: Key, is_lost: bool) {
        {
            let state = &mut *self.state();
            if let Some(port) = state.core.ports.get_mut(port) {
                port.clear_outgoing();
                port.ready = false;
            }
            if let Some(socket) = state.sockets.get_mut(port) {
                socket.direct = false;
            }
            state.core.renew(port);
        }
        let Some(owner) = self.owner(py, port) else { return };
        if let Err(why) = owner.call_method1(py, intern!(py, "cut_off"), (is_lost,)) {
            self.failed(py, why);
        }
    }

    fn keep<'py>(
        &self,
        py: Python<'py>,
        port: Key,
        numbers: &Numbers,
        placed: &[Placed],
        payloads: &mut Payloads<'_, 'py>,
    ) -> PyResult<()> {
        let Some(owner) = self.owner(py, port) else { return Ok(()) };
        let messages: Vec<_> = placed.iter().map(|each| payloads.at(py, each)).collect();
        let offsets: Vec<_> = placed.iter().map(|each| each.offset - payloads.base).collect();
        let room = owner.call_method1(py, intern!(py, "kept"), (numbers.key, messages, offsets))?;
        let (messages, bytes): (u64, u64) = room.extract(py)?;
        if let Some(port) = self.state().core.ports.get_mut(port) {
            port.room = port.room.map(|_| Room { messages, bytes });
        }
        Ok(())
    }

    // -- what leaves -------------------------------------------------------------

    /// Send what is held for every port.
    pub fn flush_touched(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let touched = std::mem::take(&mut self.state().core.touched);
            if touched.is_empty() {
                return Ok(());
            }
            for key in &touched {
                if let Err(why) = self.flush_port(py, *key) {
                    self.failed(py, why);
                    self.cut_off(py, *key, false);
                }
            }
            let state = &mut *self.state();
            if state.core.touched.is_empty() {
                // Its memory is used again.
                state.core.touched = touched;
                state.core.touched.clear();
                return Ok(());
            }
        }
    }

    /// Send what is held for the port: what its socket does not take is its owner's.
    pub fn flush_port(&self, py: Python<'_>, key: Key) -> PyResult<()> {
        let Some(rest) = send_held(&mut self.state(), key) else { return Ok(()) };
        let Some(owner) = self.owner(py, key) else { return Ok(()) };
        let direct = owner.call_method1(py, intern!(py, "rest"), (PyBytes::new(py, &rest),))?;
        let direct: bool = direct.extract(py)?;
        if let Some(socket) = self.state().sockets.get_mut(key) {
            socket.direct = direct && socket.fd >= 0;
        }
        Ok(())
    }
}

/// The bytes of messages, as Python has them: once, also of one that goes to several recipients.
struct Payloads<'a, 'py> {
    records: &'a [u8],
    base: usize,
    /// None: each has one recipient.
    known: Option<HashMap<usize, Bound<'py, PyBytes>>>,
}

impl<'a, 'py> Payloads<'a, 'py> {
    fn new(records: &'a [u8], base: usize, shared: bool) -> Self {
        Payloads { records, base, known: shared.then(HashMap::new) }
    }

    fn at(&mut self, py: Python<'py>, placed: &Placed) -> Bound<'py, PyBytes> {
        let at = placed.offset - self.base;
        let make = || PyBytes::new(py, &self.records[at..at + placed.size]);
        match &mut self.known {
            None => make(),
            Some(known) => known.entry(at).or_insert_with(make).clone(),
        }
    }
}

/// Send what is held; what the socket does not take now, None if that is nothing.
fn send_held(state: &mut State, key: Key) -> Option<Vec<u8>> {
    let port = state.core.ports.get_mut(key)?;
    port.touched = false;
    if port.outgoing.is_empty() {
        return None;
    }
    let socket = state.sockets.get_mut(key)?;
    let mut sent = 0;
    if socket.direct {
        state.core.counters.sends += 1;
        let socket = borrow(socket.fd);
        let taken: Result<usize, Errno> =
            socket.and_then(|socket| send(socket, &port.outgoing, SendFlags::NOSIGNAL));
        // Twisted finds out what is wrong with a socket that takes nothing.
        sent = taken.unwrap_or(0);
        if sent == port.outgoing.len() {
            port.clear_outgoing();
            return None;
        }
    }
    socket.direct = false;
    let mut rest = std::mem::take(&mut port.outgoing);
    rest.drain(..sent);
    Some(rest)
}
