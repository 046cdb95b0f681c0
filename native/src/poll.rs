//! The poller: an epoll object with the methods of Python's, which serves the plane's ports by itself.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use pyo3::prelude::*;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::errors::os_error;
use crate::interests::TwistedEvent;
use crate::rounds::READ;
use crate::state::Plane;

const MAX_EVENTS: usize = 256;
const MIN_EVENTS: usize = 64;
const MAX_MILLISECONDS: f64 = 1e9;
const SEVERAL: u64 = 2; // messages carried for each read, from which on it is worth gathering
const MUCH: u64 = READ as u64 / 2; // bytes carried for each read, from which on it is not: few more would fit

#[pymethods]
impl Plane {
    /// The descriptor of the epoll object: it can be read when a port can.
    fn fileno(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    fn register(&self, fd: RawFd, events: u32) -> PyResult<()> {
        self.state().interests.register(&self.epoll, fd, events).map_err(os_error)
    }

    fn modify(&self, fd: RawFd, events: u32) -> PyResult<()> {
        self.state().interests.modify(&self.epoll, fd, events).map_err(os_error)
    }

    fn unregister(&self, fd: RawFd) -> PyResult<()> {
        self.state().interests.unregister(&self.epoll, fd).map_err(os_error)
    }

    /// Wait, serve the ports that something has come for, and return the events of all other descriptors.
    ///
    /// `timeout` in seconds, below 0: for ever.
    #[pyo3(signature = (timeout = -1.0, maxevents = -1))]
    fn poll(&self, py: Python<'_>, timeout: f64, maxevents: isize) -> PyResult<Vec<(RawFd, u32)>> {
        let most = usize::try_from(maxevents).unwrap_or(MAX_EVENTS).clamp(MIN_EVENTS, MAX_EVENTS);
        let others = match self.wait_for_events(py, timeout, most)? {
            Some(others) => others,
            None => {
                py.check_signals()?;
                Vec::new()
            }
        };
        self.serve(py)?;
        let interests = &self.state().interests;
        let current = others.into_iter().filter(|event| interests.is_current(event));
        Ok(current.map(|event| (event.fd, event.flags)).collect())
    }

    /// Serve the ports that something has come for, once.  True: there is more to do at once.
    ///
    /// This is what a reactor calls that watches `fileno`.
    fn round(&self, py: Python<'_>) -> PyResult<bool> {
        self.wait_for_events(py, 0.0, MAX_EVENTS)?;
        self.serve(py)?;
        Ok(self.state().sockets.is_any_due())
    }
}

impl Plane {
    /// Note which ports are due, and return the events of other descriptors; None: a signal came.
    fn wait_for_events(
        &self,
        py: Python<'_>,
        timeout: f64,
        most: usize,
    ) -> PyResult<Option<Vec<TwistedEvent>>> {
        let mut events = [(-1, 0); MAX_EVENTS];
        let events = &mut events[..most];
        let gather = self.time_to_gather();
        let timeout = if self.state().sockets.is_any_due() { Some(0) } else { milliseconds(timeout) };
        let epoll = self.epoll.as_fd();
        let found = if timeout == Some(0) && gather.is_zero() {
            fetch(epoll, events, timeout)
        } else {
            py.detach(|| {
                if !gather.is_zero() {
                    std::thread::sleep(gather);
                }
                fetch(epoll, events, timeout)
            })
        };
        let count = match found {
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(None),
            Err(errno) => return Err(os_error(errno)),
        };
        let state = &mut *self.state();
        let mut others = Vec::new();
        for (fd, flags) in &events[..count] {
            let ready = state.interests.ready(*fd, *flags);
            if let Some(port) = ready.port {
                state.sockets.put_last(port);
            }
            others.extend(ready.twisted);
        }
        Ok(Some(others))
    }

    /// How long to let more come before the next reads: only where the reads of the last round held several
    /// messages on average and had room for more, and nothing is due that has come already.
    ///
    /// Such senders have more under way: a moment later one read has more, and so has one write.  Where a read
    /// holds one message, its sender may wait for the answer, and waiting would only delay it.
    fn time_to_gather(&self) -> Duration {
        let state = &mut *self.state();
        let counters = &state.core.counters;
        let now =
            Carried { messages: counters.received, bytes: counters.received_bytes, reads: counters.reads };
        let round = now.since(std::mem::replace(&mut state.before, now));
        let is_worth_it = round.messages >= SEVERAL * round.reads && round.bytes < MUCH * round.reads;
        if is_worth_it && !state.sockets.is_any_due() {
            Duration::from_nanos(state.gather)
        } else {
            Duration::ZERO
        }
    }
}

/// What had been carried at a moment, and with how many reads.
#[derive(Clone, Copy, Default)]
pub struct Carried {
    messages: u64,
    bytes: u64,
    reads: u64,
}

impl Carried {
    fn since(self, before: Carried) -> Carried {
        Carried {
            messages: self.messages.saturating_sub(before.messages),
            bytes: self.bytes.saturating_sub(before.bytes),
            reads: self.reads.saturating_sub(before.reads),
        }
    }
}

/// Wait for events, at most as many as there is room for: descriptors and flags.
fn fetch(epoll: BorrowedFd<'_>, found: &mut [(RawFd, u32)], timeout: Option<u64>) -> Result<usize, Errno> {
    let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; MAX_EVENTS];
    let count = epoll::wait(epoll, &mut events[..found.len()], timeout.map(timespec).as_ref())?;
    for (place, event) in found.iter_mut().zip(&events[..count]) {
        let (flags, data) = (event.flags, event.data);
        *place = (data.u64() as RawFd, flags.bits());
    }
    Ok(count)
}

/// As Python's own epoll object rounds it: never shorter than asked.
fn milliseconds(seconds: f64) -> Option<u64> {
    (seconds >= 0.0).then(|| (seconds * 1000.0).ceil().min(MAX_MILLISECONDS) as u64)
}

fn timespec(milliseconds: u64) -> Timespec {
    Timespec { tv_sec: (milliseconds / 1000) as i64, tv_nsec: (milliseconds % 1000 * 1_000_000) as _ }
}
