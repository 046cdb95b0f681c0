//! Flows and frames that the tests and the speed example share.

#![allow(dead_code)] // each of them uses a part

use msgnode_plane::flow::Flow;
use msgnode_plane::slab::Key;
use msgnode_plane::websocket::{unmask, write_frame};

/// A flow that is neither logged nor counted.
pub fn flow(from: &str, to: &str, kind: &str, recipients: &[Key]) -> Flow {
    Flow {
        from: from.as_bytes().into(),
        to: to.as_bytes().into(),
        kind: kind.as_bytes().into(),
        recipients: recipients.into(),
        line: None,
        counted: false,
        refused_keys: 0,
        member: None,
        buckets: Box::default(),
        tallies: Box::default(),
        samples: 0,
        permit_line: None,
        kept: None,
    }
}

/// A client's frame.
pub fn masked(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    write_frame(&mut frame, payload);
    let body = frame.len() - payload.len();
    frame[1] |= 0x80;
    frame.splice(body..body, [7, 0, 200, 31]);
    let end = frame.len();
    unmask(&mut frame, body + 4, end);
    frame
}
