//! Parts of the plane by themselves, so that tests can compare them with what Python does.

use msgnode_plane::header::{body_key, scan as scan_header};
use msgnode_plane::spool_records::{Journal, Numbers};
use msgnode_plane::traffic_log::{LineTemplate, LineTexts};
use msgnode_plane::websocket::{frame_at, unmask, Frame};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The header as texts, the body as bytes, the body's keys that are looked for, and the transaction.
type Scanned<'py> = (String, String, String, String, Bound<'py, PyBytes>, Vec<&'static str>, String);

/// The header of a message: id as it stands there, type, from, to, body, which body keys were found, and the
/// transaction as it stands there.
///
/// None: Python decides.
#[pyfunction]
pub fn scan<'py>(py: Python<'py>, data: &[u8]) -> Option<Scanned<'py>> {
    std::str::from_utf8(data).ok()?;
    let header = scan_header(data)?;
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let names = [
        (body_key::AUTH, "auth"),
        (body_key::ASSERTED_IDENTITY, "assertedIdentity"),
        (body_key::IDENTITY, "identity"),
        (body_key::ESCAPED, "escaped"),
    ];
    let keys = names.into_iter().filter(|(bit, _)| header.body_keys & bit != 0).map(|(_, name)| name);
    Some((
        text(header.id.of(data)),
        text(header.kind.of(data)),
        text(header.from.of(data)),
        text(header.to.of(data)),
        PyBytes::new(py, header.body.of(data)),
        keys.collect(),
        text(header.transaction.of(data)),
    ))
}

/// The payloads of the frames in `data` that are taken here, and what is left.
#[pyfunction]
pub fn frames<'py>(
    py: Python<'py>,
    data: &[u8],
    longest: usize,
) -> (Vec<Bound<'py, PyBytes>>, Bound<'py, PyBytes>) {
    let mut data = data.to_vec();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let Frame::Whole { body, end } = frame_at(&data, at, longest) else { break };
        unmask(&mut data, body, end);
        found.push(PyBytes::new(py, &data[body..end]));
        at = end;
    }
    (found, PyBytes::new(py, &data[at..]))
}

/// One line of the traffic log; `id` and `transaction` as they stand in the message.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // they are the fields of a line
pub fn traffic_line<'py>(
    py: Python<'py>,
    node: &str,
    session: &str,
    connector: &str,
    peer: &str,
    kind: &str,
    from_: &str,
    to: &str,
    recipients: usize,
    time: u64,
    id: &str,
    size: usize,
    micros: u64,
    transaction: &str,
) -> Bound<'py, PyBytes> {
    let texts = LineTexts { node, session, connector, peer, kind, from: from_, to, recipients };
    let mut line = Vec::new();
    LineTemplate::new(&texts).write(&mut line, time, id.as_bytes(), transaction.as_bytes(), size, micros);
    PyBytes::new(py, &line)
}

/// The records of messages to recipients by number: who has which sid, next key and next number is in
/// `numbers`.  Returns the records and where each recipient's messages lie, as offset in the batch and size.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn spool_records<'py>(
    py: Python<'py>,
    base: usize,
    sent: Vec<(Vec<u8>, Vec<u64>)>,
    numbers: Vec<(u64, (u64, u64, u64))>,
) -> (Bound<'py, PyBytes>, Vec<(u64, Vec<(usize, usize)>)>) {
    let mut journal = Journal::default();
    for (payload, recipients) in sent {
        journal.note(&payload, recipients.into_iter());
    }
    let recipients = journal.recipients();
    let numbers: Vec<_> = recipients
        .iter()
        .map(|(recipient, _)| {
            let (_, (sid, key, number)) = numbers.iter().find(|(each, _)| each == recipient)?;
            Some(Numbers { sid: *sid, key: *key, number: *number })
        })
        .collect();
    let batch = journal.take(base, &recipients, &numbers);
    let places = recipients.iter().zip(batch.placed).map(|((recipient, _), placed)| {
        (*recipient, placed.iter().map(|each| (each.offset, each.size)).collect())
    });
    (PyBytes::new(py, &batch.records), places.collect())
}
