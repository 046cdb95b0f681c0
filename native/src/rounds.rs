//! Rounds: each port that something has come for is read once, until the round has lasted long enough.

use std::os::fd::RawFd;

use msgnode_plane::slab::Key;
use msgnode_plane::walk::{Step, Walk};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use rustix::net::{recv, RecvFlags};

use crate::descriptor::borrow;
use crate::state::{now, Plane, State};

/// Bytes taken from one connection before the others have their turn.
pub const READ: usize = 16 * 1024;

/// What reading a port brought.
enum Came {
    Nothing,
    Bytes(usize),
    End,
}

impl Plane {
    /// Serve the ports that are due, the one that has waited longest first; then let everything leave.
    ///
    /// This begins a round.  What is fed until the next one begins belongs to it.
    pub fn serve(&self, py: Python<'_>) -> PyResult<()> {
        let began = now();
        let deadline = {
            let state = &mut *self.state();
            state.core.begin_round();
            state.core.round_end(began)
        };
        let mut buffer = std::mem::take(&mut self.state().buffer);
        // At least one, so that each has its turn in the end.
        let mut is_over = false;
        while let Some(key) = self.next_due(is_over) {
            if let Err(why) = self.read(py, key, &mut buffer, deadline) {
                self.failed(py, why);
                self.cut_off(py, key, false);
            }
            if let Err(why) = self.read_on(py, key) {
                self.failed(py, why);
            }
            is_over = self.state().core.is_round_over(now(), deadline);
        }
        self.state().buffer = buffer;
        let done = self.finish(py);
        self.state().core.spend(began, now());
        done
    }

    fn next_due(&self, is_over: bool) -> Option<Key> {
        if is_over {
            return None;
        }
        self.state().sockets.take_first()
    }

    /// The end of a round, and of whatever else has carried messages.
    ///
    /// In this order: outboxes count and records go to the journal, the cork has it written to the disk, and
    /// only then does a byte leave.
    pub fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.sync(py)?;
        self.cork_out(py)?;
        self.flush_touched(py)
    }

    /// Read a port once, and walk through what that brought.
    fn read(&self, py: Python<'_>, key: Key, buffer: &mut Vec<u8>, deadline: u64) -> PyResult<()> {
        let (came, watched) = {
            let state = &mut *self.state();
            (receive(state, key, buffer), take_watched(state, key))
        };
        match came {
            Came::Nothing => Ok(()),
            Came::End => self.end(py, key),
            Came::Bytes(size) => self.walk_watched(py, key, &mut buffer[..size], deadline, watched),
        }
    }

    /// Let the owner of a port without a descriptor read again, if nothing is left over of what it fed.
    fn read_on(&self, py: Python<'_>, key: Key) -> PyResult<()> {
        let owner = {
            let state = &mut *self.state();
            let is_left_over = state.core.ports.get(key).is_some_and(|port| port.left_over);
            let socket = state.sockets.get(key).filter(|socket| socket.fd < 0 && !is_left_over);
            let Some(socket) = socket else { return Ok(()) };
            socket.owner.clone_ref(py)
        };
        owner.call_method0(py, intern!(py, "read_on"))?;
        Ok(())
    }

    /// Walk through what the owner of a port has read, behind what is pending, and let everything leave.
    pub fn serve_fed(&self, py: Python<'_>, key: Key, data: &[u8]) -> PyResult<()> {
        let began = now();
        let deadline = {
            let state = &mut *self.state();
            state.core.counters.reads += 1;
            state.core.round_bytes += data.len();
            if state.core.leave_over(key, data) {
                return Ok(());
            }
            state.core.round_end(began)
        };
        if let Err(why) = self.walk_fed(py, key, data, deadline) {
            self.failed(py, why);
            self.cut_off(py, key, false);
        }
        let done = self.finish(py);
        self.state().core.spend(began, now());
        done
    }

    fn walk_fed(&self, py: Python<'_>, key: Key, data: &[u8], deadline: u64) -> PyResult<()> {
        let (mut buffer, size) = {
            let state = &mut *self.state();
            let Some(port) = state.core.ports.get_mut(key) else { return Ok(()) };
            let mut buffer = std::mem::take(&mut state.buffer);
            let kept = port.move_pending(&mut buffer, data.len());
            let size = kept + data.len();
            buffer[kept..size].copy_from_slice(data);
            (buffer, size)
        };
        let watched = take_watched(&mut self.state(), key);
        let done = self.walk_watched(py, key, &mut buffer[..size], deadline, watched);
        self.state().buffer = buffer;
        done
    }

    /// The same, after telling the owner that something came, if it wants to know.
    fn walk_watched(
        &self,
        py: Python<'_>,
        key: Key,
        data: &mut [u8],
        deadline: u64,
        watched: bool,
    ) -> PyResult<()> {
        if watched {
            if let Some(owner) = self.owner(py, key) {
                owner.call_method0(py, intern!(py, "traffic"))?;
            }
        }
        self.walk(py, key, data, deadline)
    }

    /// Walk through these bytes, of which nothing is left then.
    fn walk(&self, py: Python<'_>, key: Key, data: &mut [u8], deadline: u64) -> PyResult<()> {
        let mut walk = Walk::new(now(), deadline);
        loop {
            let step = self.state().core.walk(key, data, &mut walk, &mut || now());
            match step {
                Step::Done => return Ok(()),
                Step::Over => {
                    let state = &mut *self.state();
                    let goes_on = state.core.ports.get(key).is_some_and(|port| port.paused == 0);
                    if goes_on {
                        state.sockets.put_last(key);
                    }
                    return Ok(());
                }
                Step::Foreign { start } => return self.hand_over(py, key, &data[start..]),
                Step::Punt { start, end } => {
                    self.punt(py, key, &data[start..end])?;
                    walk.go_on(now());
                }
            }
        }
    }

    /// Let Python decide on a message.
    fn punt(&self, py: Python<'_>, key: Key, message: &[u8]) -> PyResult<()> {
        self.sync(py)?;
        self.cork_in(py)?;
        let Some(owner) = self.owner(py, key) else { return Ok(()) };
        if let Err(why) = owner.call_method1(py, intern!(py, "punted"), (PyBytes::new(py, message),)) {
            self.failed(py, why);
        }
        Ok(())
    }

    /// The bytes from here on are Python's, until it says that the stream stands at a message's border.
    fn hand_over(&self, py: Python<'_>, key: Key, data: &[u8]) -> PyResult<()> {
        self.sync(py)?;
        self.cork_in(py)?;
        let Some(owner) = self.owner(py, key) else { return Ok(()) };
        if let Some(port) = self.state().core.ports.get_mut(key) {
            port.at_border = false;
        }
        let at_border: bool =
            owner.call_method1(py, intern!(py, "foreign"), (PyBytes::new(py, data),))?.extract(py)?;
        if let Some(port) = self.state().core.ports.get_mut(key) {
            port.at_border = at_border;
        }
        Ok(())
    }

    /// Nothing more comes: the owner reads by itself, and finds out why.
    fn end(&self, py: Python<'_>, key: Key) -> PyResult<()> {
        {
            let state = &mut *self.state();
            let Some(fd) = state.sockets.get(key).map(|socket| socket.fd) else { return Ok(()) };
            // A descriptor that is closed already has left by itself.
            let _ = state.interests.read_port(&self.epoll, fd, None);
        }
        self.sync(py)?;
        self.cork_in(py)?;
        let Some(owner) = self.owner(py, key) else { return Ok(()) };
        owner.call_method0(py, intern!(py, "ended"))?;
        Ok(())
    }
}

fn take_watched(state: &mut State, key: Key) -> bool {
    state.core.ports.get_mut(key).is_some_and(|port| std::mem::take(&mut port.watched))
}

/// Take what is left over of the last round, or what the socket has, behind what is pending.
fn receive(state: &mut State, key: Key, buffer: &mut Vec<u8>) -> Came {
    let Some(fd) = state.sockets.get(key).map(|socket| socket.fd) else { return Came::Nothing };
    let Some(port) = state.core.ports.get_mut(key) else { return Came::Nothing };
    if port.paused > 0 {
        return Came::Nothing;
    }
    if port.left_over {
        return Came::Bytes(port.move_pending(buffer, 0));
    }
    if fd < 0 {
        return Came::Nothing;
    }
    let kept = port.pending.len();
    if buffer.len() < kept + READ {
        buffer.resize(kept + READ, 0);
    }
    match take(fd, &mut buffer[kept..kept + READ]) {
        Ok(0) => Came::End,
        Ok(size) => {
            state.core.counters.reads += 1;
            state.core.round_bytes += size;
            port.move_pending(buffer, 0);
            Came::Bytes(kept + size)
        }
        Err(Errno::AGAIN | Errno::INTR) => Came::Nothing,
        Err(_) => Came::End,
    }
}

fn take(fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    Ok(recv(borrow(fd)?, buffer, RecvFlags::empty())?.0)
}
