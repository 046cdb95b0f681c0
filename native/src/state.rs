//! The state of one plane, shared by everything that Python may call.
//!
//! It is borrowed between two calls of Python, and never across one: Python may call the plane again from
//! wherever it is called.

use std::cell::{RefCell, RefMut};
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use msgnode_plane::clock::Clock;
use msgnode_plane::plane::Plane as Core;
use msgnode_plane::slab::Key;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::PyTraverseError;
use rustix::time::{clock_gettime, ClockId};

use crate::errors::os_error;
use crate::interests::{self, Interests};
use crate::poll::Carried;
use crate::sockets::Sockets;

/// Nanoseconds since 1970.
#[inline]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// Seconds of a clock that nobody sets.
fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// What a round needs of Python, beside the owners of ports.
pub struct Hooks {
    /// Entered before Python is asked for the first time in a round, left at its end.
    pub cork: Py<PyAny>,
    /// Takes the records of what was sent to clients that acknowledge.
    pub ledger: Py<PyAny>,
    /// Is told what an owner has raised.
    pub failed: Py<PyAny>,
}

/// Everything that changes.
pub struct State {
    pub core: Core,
    pub sockets: Sockets,
    pub interests: Interests,
    pub hooks: Option<Hooks>,
    pub corked: bool,
    /// The buffer of the round; taken while it is in use.
    pub buffer: Vec<u8>,
    /// Nanoseconds to wait for more where reads hold several messages.
    pub gather: u64,
    /// What had been carried when the last round began.
    pub before: Carried,
}

/// The data plane: reads the ports that were added, carries the messages of flows, and gives all others to
/// the owners of the ports, in order.
#[pyclass(unsendable, module = "msgnode_native")]
pub struct Plane {
    pub state: RefCell<State>,
    pub epoll: OwnedFd,
    /// Makes the epoll object readable, for a reactor that watches it from outside.
    wakeup: OwnedFd,
}

impl Plane {
    #[inline]
    pub fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Something is due that no descriptor tells of.
    pub fn wake(&self) -> rustix::io::Result<()> {
        rustix::io::write(&self.wakeup, &1u64.to_ne_bytes()).map(drop)
    }

    pub fn owner(&self, py: Python<'_>, port: Key) -> Option<Py<PyAny>> {
        self.state().sockets.get(port).map(|socket| socket.owner.clone_ref(py))
    }

    /// One of the objects that were given at the beginning; none after the end.
    pub fn hook(&self, py: Python<'_>, which: impl FnOnce(&Hooks) -> &Py<PyAny>) -> Option<Py<PyAny>> {
        self.state().hooks.as_ref().map(|hooks| which(hooks).clone_ref(py))
    }

    /// Tell Python of something that an owner has raised; the round goes on.
    pub fn failed(&self, py: Python<'_>, why: PyErr) {
        let Some(failed) = self.hook(py, |hooks| &hooks.failed) else { return };
        if let Err(again) = failed.call1(py, (why.value(py),)) {
            again.write_unraisable(py, None);
        }
    }
}

#[pymethods]
impl Plane {
    /// `cork` is entered before Python is asked for the first time in a round and left at its end; `ledger`
    /// takes the records of what was sent to clients that acknowledge; `failed` is told of exceptions.
    #[new]
    fn new(cork: Py<PyAny>, ledger: Py<PyAny>, failed: Py<PyAny>) -> PyResult<Self> {
        let epoll = interests::create().map_err(os_error)?;
        let wakeup = interests::create_wakeup(&epoll).map_err(os_error)?;
        let state = State {
            core: Core { clock: Clock::Running(monotonic), ..Core::default() },
            sockets: Sockets::default(),
            interests: Interests::new(),
            hooks: Some(Hooks { cork, ledger, failed }),
            corked: false,
            buffer: Vec::new(),
            gather: 0,
            before: Carried::default(),
        };
        Ok(Plane { state: RefCell::new(state), epoll, wakeup })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(state) = self.state.try_borrow() else { return Ok(()) };
        for owner in state.sockets.owners() {
            visit.call(owner)?;
        }
        if let Some(hooks) = &state.hooks {
            visit.call(&hooks.cork)?;
            visit.call(&hooks.ledger)?;
            visit.call(&hooks.failed)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let gone = {
            let mut state = self.state();
            (state.sockets.clear(), state.hooks.take())
        };
        drop(gone); // which may run Python
    }
}
