//! What Python says about ports: which there are, what may go there, and what leaves.

use std::os::fd::RawFd;

use msgnode_plane::port::{Framing, Room};
use msgnode_plane::slab::Key;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::os_error;
use crate::state::Plane;

#[pymethods]
impl Plane {
    /// Add a connection; its number.  It is not ready, and not read before `resume`.
    ///
    /// `fd` is -1 for one whose bytes Python reads and writes; `framing` is "websocket" or "lines", `longest`
    /// the most bytes of a message, `host` where partial input is counted ("": for nobody).
    ///
    /// `owner` has the methods `punted(data)`: decide on this message; `foreign(data) -> bool`: take these
    /// bytes, and say whether the stream stands at a message's border then; `ended()`: read yourself;
    /// `rest(data) -> bool`: send this, and say whether the socket may be written to directly then;
    /// `read_on()`, without a descriptor: nothing is left over of what was fed;
    /// `traffic()`: something came, after `watch`; `heard(count)` of an inbox, `numbers(count) -> (sid, key,
    /// number)` and `kept(key, messages, offsets) -> (messages, bytes)` of an outbox, with the bytes of each
    /// message and their offset in the records; `cut_off(is_lost)`: abort; `is_lost`: the session has not counted
    /// what was carried.
    fn add(&self, fd: RawFd, owner: Py<PyAny>, framing: &str, longest: usize, host: &str) -> PyResult<Key> {
        let framing = match framing {
            "websocket" => Framing::WebSocket,
            "lines" => Framing::Lines,
            _ => return Err(PyValueError::new_err(format!("no framing {framing:?}"))),
        };
        let state = &mut *self.state();
        let key = state.core.add_port(framing, longest, host);
        state.sockets.add(key, fd, owner);
        if let Some(port) = state.core.ports.get_mut(key) {
            port.paused = 1;
        }
        Ok(key)
    }

    /// The connection is gone; False: it was not there.
    fn remove(&self, port: Key) -> bool {
        let gone = {
            let state = &mut *self.state();
            let gone = state.sockets.remove(port);
            if let Some(socket) = &gone {
                let _ = state.interests.read_port(&self.epoll, socket.fd, None);
            }
            state.core.remove_port(port);
            gone
        };
        gone.is_some() // dropped here, which may run Python
    }

    /// Read nothing more from it; as often as this is called `resume` must be.
    fn pause(&self, port: Key) -> PyResult<()> {
        let state = &mut *self.state();
        let Some(entry) = state.core.ports.get_mut(port) else { return Ok(()) };
        entry.paused += 1;
        let Some(socket) = state.sockets.get(port).filter(|socket| socket.fd >= 0) else { return Ok(()) };
        state.interests.read_port(&self.epoll, socket.fd, None).map_err(os_error)
    }

    /// Read again.
    fn resume(&self, port: Key) -> PyResult<()> {
        let state = &mut *self.state();
        let Some(entry) = state.core.ports.get_mut(port) else { return Ok(()) };
        entry.paused = entry.paused.saturating_sub(1);
        if entry.paused > 0 {
            return Ok(());
        }
        if entry.left_over {
            state.sockets.put_last(port);
            self.wake().map_err(os_error)?;
        }
        let Some(socket) = state.sockets.get(port).filter(|socket| socket.fd >= 0) else { return Ok(()) };
        state.interests.read_port(&self.epoll, socket.fd, Some(port)).map_err(os_error)
    }

    /// May a message go there now, past nothing that waits?  `room`, for a client that acknowledges: how many
    /// messages and bytes more.
    #[pyo3(signature = (port, ready, room = None))]
    fn set_ready(&self, port: Key, ready: bool, room: Option<(u64, u64)>) {
        if let Some(port) = self.state().core.ports.get_mut(port) {
            port.ready = ready;
            port.room = room.map(|(messages, bytes)| Room { messages, bytes });
        }
    }

    /// The client that acknowledges has room for so many messages and bytes more.
    fn set_room(&self, port: Key, room: (u64, u64)) {
        if let Some(port) = self.state().core.ports.get_mut(port) {
            port.room = Some(Room { messages: room.0, bytes: room.1 });
        }
    }

    /// Does its stream stand where a message begins?
    fn set_border(&self, port: Key, at_border: bool) {
        if let Some(port) = self.state().core.ports.get_mut(port) {
            port.at_border = at_border;
        }
    }

    /// May what leaves go straight to the socket?
    fn set_direct(&self, port: Key, direct: bool) {
        if let Some(socket) = self.state().sockets.get_mut(port) {
            socket.direct = direct && socket.fd >= 0;
        }
    }

    /// Python is at work on one of its messages: nothing is carried until `unblock`, called as often.
    fn block(&self, port: Key) {
        if let Some(port) = self.state().core.ports.get_mut(port) {
            port.blocked += 1;
        }
    }

    fn unblock(&self, port: Key) {
        if let Some(port) = self.state().core.ports.get_mut(port) {
            port.blocked = port.blocked.saturating_sub(1);
        }
    }

    /// Call `traffic` of the owner when the next bytes come.
    fn watch(&self, port: Key) {
        if let Some(port) = self.state().core.ports.get_mut(port) {
            port.watched = true;
        }
    }

    /// What the owner has read, of a port without a descriptor or one that Python reads for a while.
    ///
    /// It belongs to the round that began last: one turn of a reactor may feed many times.  True: some of it is
    /// left over, and the owner reads nothing more until `read_on` is called.
    fn feed(&self, py: Python<'_>, port: Key, data: &[u8]) -> PyResult<bool> {
        self.serve_fed(py, port, data)?;
        let left_over = self.state().core.ports.get(port).is_some_and(|port| port.left_over);
        if left_over {
            self.wake().map_err(os_error)?;
        }
        Ok(left_over)
    }

    /// Take what is pending of the port: the owner goes on with it.
    fn take_pending<'py>(&self, py: Python<'py>, port: Key) -> Bound<'py, PyBytes> {
        let state = &mut *self.state();
        PyBytes::new(py, &state.core.take_pending(port))
    }

    // -- what leaves -------------------------------------------------------------

    /// Take what is held for the port; somebody else sends it.
    fn take_outgoing<'py>(&self, py: Python<'py>, port: Key) -> Bound<'py, PyBytes> {
        let state = &mut *self.state();
        let held = state.core.ports.get_mut(port).map(|port| std::mem::take(&mut port.outgoing));
        PyBytes::new(py, &held.unwrap_or_default())
    }

    /// Bytes held for the port.
    fn held(&self, port: Key) -> usize {
        self.state().core.ports.get(port).map_or(0, |port| port.outgoing.len())
    }

    // -- counts ------------------------------------------------------------------

    /// Messages and bytes carried from the port, those carried to it, and when the last one came, in nanoseconds
    /// since 1970 (0: none did); since the last call.
    fn take_traffic(&self, port: Key) -> (u64, u64, u64, u64, u64) {
        let state = &mut *self.state();
        let taken = state.core.ports.get_mut(port).map(|port| std::mem::take(&mut port.traffic));
        let taken = taken.unwrap_or_default();
        (taken.received, taken.received_bytes, taken.sent, taken.sent_bytes, taken.last)
    }

    // -- partial input -----------------------------------------------------------

    /// Bytes of what has begun and not ended: of all, and of one host; 0: any number.
    fn set_partial_limits(&self, most: u64, most_of_host: u64) {
        let partial = &mut self.state().core.partial;
        (partial.most, partial.most_of_host) = (most, most_of_host);
    }

    /// Count so many bytes more, or less, that Python keeps for this host.
    fn charge_partial(&self, host: &str, more: i64) {
        self.state().core.partial.charge(host, more);
    }

    /// Bytes that are counted of all, of this host, and of the host that has most.
    fn partial_bytes(&self, host: &str) -> (u64, u64, u64) {
        let partial = &self.state().core.partial;
        (partial.bytes, partial.of_host(host), partial.most_held())
    }

    /// Ports whose message began before that time, in nanoseconds since 1970, and has not ended.
    fn late(&self, before: u64, most: usize) -> Vec<Key> {
        let state = self.state();
        let late = state.core.ports.iter().filter(|(_, port)| (1..before).contains(&port.pending_since));
        late.take(most).map(|(key, _)| key).collect()
    }
}
