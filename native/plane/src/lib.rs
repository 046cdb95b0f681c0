//! The data plane of msgnode: it repeats decisions that the control plane, in Python, has made.
//!
//! Nothing here calls Python or the operating system, so that all of it is tested by itself.  Start reading
//! at `walk.rs`: what one read brought is walked through, `plane.rs` carries each message that a flow says
//! how to carry, and everything else goes to Python, untouched and in its order.
#![forbid(unsafe_code)]

pub mod awaited;
pub mod clock;
pub mod counters;
pub mod flow;
pub mod generations;
pub mod header;
pub mod json;
pub mod kept_objects;
pub mod lines;
pub mod partial_input;
pub mod permit_sample;
pub mod plane;
pub mod port;
pub mod slab;
pub mod splice;
pub mod spool_records;
pub mod token_bucket;
pub mod traffic_log;
pub mod walk;
pub mod websocket;
