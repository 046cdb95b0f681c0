//! The compiled data plane of msgnode, as a Python module.
//!
//! `plane/` has the plane itself, without Python and without system calls.  Here are the system calls, and
//! what Python may ask for: `rounds.rs` reads ports and walks through what came, `settle.rs` lets everything
//! leave, `poll.rs` is the reactor's poller; `ports.rs`, `flows.rs` and `limits.rs` are what Python says.
#![deny(unsafe_code)]

mod descriptor;
mod errors;
mod flows;
mod interests;
mod limits;
mod poll;
mod ports;
mod rounds;
mod settle;
mod sockets;
mod state;
mod testing;

use pyo3::prelude::*;

#[pymodule]
mod msgnode_native {
    #[pymodule_export]
    use crate::state::Plane;
    #[pymodule_export]
    use crate::testing::{frames, scan, spool_records, traffic_line};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
