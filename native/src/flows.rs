//! What Python decides, and takes back.

use msgnode_plane::counters::PUNT_NAMES;
use msgnode_plane::flow::Flow;
use msgnode_plane::header::body_key;
use msgnode_plane::permit_sample::PermitLine;
use msgnode_plane::slab::Key;
use msgnode_plane::traffic_log::{HourOfLines, LineTemplate, LineTexts, LogBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyString};

use crate::poll::Carried;
use crate::state::Plane;

/// The texts of a traffic line: node, session, connector and peer.
type Texts = (String, String, String, String);

/// A line of the decision log: what stands before its time, before its id, and after its id.
type Parts = (Vec<u8>, Vec<u8>, Vec<u8>);

#[pymethods]
impl Plane {
    /// Repeat a decision: such a message goes from this port to those, from now on until something changes.
    ///
    /// `line`: node, session, connector and peer of its traffic line; None: none is written.  `counted`: the
    /// sender acknowledges.  `refused`: body keys with which a message is none of these: "auth",
    /// "assertedIdentity", "identity"; with any, a key that is spelt in escapes is refused, too.  `member` is
    /// put first into the body.  `buckets` are drawn from, `tallies` counted, and the decision log's sample
    /// is asked `samples` times.  `permit_line`: what is written about each that it takes; None: Python does.
    /// `kept`: the number of the object that gives it a version.
    #[pyo3(signature = (port, from_, to, type_, recipients, *, line = None, counted = false,
                        refused = Vec::new(), member = None, buckets = Vec::new(), tallies = Vec::new(),
                        samples = 0, permit_line = None, kept = None))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn install(
        &self,
        port: Key,
        from_: &str,
        to: &str,
        type_: &str,
        recipients: Vec<Key>,
        line: Option<Texts>,
        counted: bool,
        refused: Vec<String>,
        member: Option<Vec<u8>>,
        buckets: Vec<Key>,
        tallies: Vec<u32>,
        samples: u8,
        permit_line: Option<Parts>,
        kept: Option<u32>,
    ) -> PyResult<bool> {
        let line = line.map(|(node, session, connector, peer)| {
            LineTemplate::new(&LineTexts {
                node: &node,
                session: &session,
                connector: &connector,
                peer: &peer,
                kind: type_,
                from: from_,
                to,
                recipients: recipients.len(),
            })
        });
        let flow = Flow {
            from: from_.as_bytes().into(),
            to: to.as_bytes().into(),
            kind: type_.as_bytes().into(),
            recipients: recipients.into(),
            line,
            counted,
            refused_keys: key_bits(&refused)?,
            member: member.map(Into::into),
            buckets: buckets.into(),
            tallies: tallies.into(),
            samples,
            permit_line: permit_line.map(|(time, id, rest)| PermitLine::new(&time, &id, &rest)),
            kept,
        };
        Ok(self.state().core.install(port, flow))
    }

    /// One more object whose messages are kept; its number.
    fn add_kept(&self, address: &str) -> u32 {
        self.state().core.kept.add(address.as_bytes())
    }

    /// Python has given this version of a kept object, at that time in microseconds.
    fn set_version(&self, object: u32, version: u64, micros: u64) {
        self.state().core.kept.set_version(object, version, micros);
    }

    /// Forget all kept objects, and all decisions.
    fn forget_kept(&self) {
        let state = &mut *self.state();
        state.core.change_all();
        state.core.kept.clear();
    }

    /// Is a flow remembered for such messages of the port, and would it still be followed?
    fn has_flow(&self, port: Key, from_: &str, to: &str, type_: &str) -> bool {
        self.state().core.has_flow(port, from_.as_bytes(), to.as_bytes(), type_.as_bytes())
    }

    /// The session of a port is another: its flows end, and those that lead to it.
    fn renew(&self, port: Key) {
        self.state().core.renew(port);
    }

    /// Something has changed at this address: who is bound to it, or who may send from there.
    fn change(&self, address: &str) {
        self.state().core.generations.change(address.as_bytes());
    }

    /// Who hears everything at and below this name has changed.
    fn change_name(&self, name: &str) {
        self.state().core.generations.change_name(name.as_bytes());
    }

    /// Something has changed on which every decision may depend: none is remembered.
    fn change_all(&self) {
        self.state().core.change_all();
    }

    /// How many flows are remembered.
    fn flows(&self) -> usize {
        self.state().core.flows.len()
    }

    /// About how many bytes they take.
    fn flow_bytes(&self) -> usize {
        self.state().core.flows.bytes()
    }

    /// How many bytes they may take; one connection's a part of them.
    fn set_flow_limit(&self, bytes: usize) {
        self.state().core.set_flow_limit(bytes);
    }

    /// Somebody waits for the response with this id to this address: Python hands it over.
    fn await_response(&self, address: &str, id: &Bound<'_, PyAny>) -> PyResult<()> {
        self.state().core.awaited.add(address.as_bytes(), &id_token(id)?);
        Ok(())
    }

    fn forget_response(&self, address: &str, id: &Bound<'_, PyAny>) -> PyResult<()> {
        self.state().core.awaited.remove(address.as_bytes(), &id_token(id)?);
        Ok(())
    }

    // -- counts and logs -----------------------------------------------------------

    /// What was counted since the last call; `handed_over` by the bit length of microseconds.
    fn take_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = &mut *self.state();
        let counts = std::mem::take(&mut state.core.counters);
        state.before = Carried::default();
        let found = PyDict::new(py);
        for (name, count) in [
            ("received", counts.received),
            ("received_bytes", counts.received_bytes),
            ("received_lines", counts.received_lines),
            ("sent", counts.sent),
            ("sent_bytes", counts.sent_bytes),
            ("reads", counts.reads),
            ("sends", counts.sends),
            ("lost_lines", std::mem::take(&mut state.core.log.lost)),
        ] {
            found.set_item(name, count)?;
        }
        found.set_item("handed_over", counts.handed_over.to_vec())?;
        let punted = PyDict::new(py);
        for (name, count) in PUNT_NAMES.iter().zip(counts.punted) {
            punted.set_item(name, count)?;
        }
        found.set_item("punted", punted)?;
        Ok(found)
    }

    /// A line of Python's for the traffic log, without its end; `time` in nanoseconds since 1970.
    fn log(&self, time: u64, line: &[u8]) {
        add_line(&mut self.state().core.log, time, line);
    }

    /// Lines that are not taken yet.
    fn lines(&self) -> u64 {
        self.state().core.log.lines
    }

    /// How many lines there are, and their bytes by hours since 1970.
    fn take_log<'py>(&self, py: Python<'py>) -> (u64, Vec<(u64, Bound<'py, PyBytes>)>) {
        let (lines, hours) = self.state().core.log.take();
        (lines, as_bytes(py, &hours))
    }

    /// A line of Python's for the decision log, without its end; how many lines wait now.
    fn log_decision(&self, time: u64, line: &[u8]) -> u64 {
        let log = &mut self.state().core.decision_log;
        add_line(log, time, line);
        log.lines
    }

    /// Lines of the decision log that are not taken yet.
    fn decision_lines(&self) -> u64 {
        self.state().core.decision_log.lines
    }

    /// How many lines of the decision log were lost since the last call; how many there are, and their bytes
    /// by hours since 1970.
    fn take_decision_log<'py>(&self, py: Python<'py>) -> (u64, u64, Vec<(u64, Bound<'py, PyBytes>)>) {
        let log = &mut self.state().core.decision_log;
        let (lines, hours) = log.take();
        (std::mem::take(&mut log.lost), lines, as_bytes(py, &hours))
    }
}

fn add_line(log: &mut LogBuffer, time: u64, line: &[u8]) {
    log.add(time, |out| {
        out.extend_from_slice(line);
        out.push(b'\n');
    });
}

fn as_bytes<'py>(py: Python<'py>, hours: &[HourOfLines]) -> Vec<(u64, Bound<'py, PyBytes>)> {
    hours.iter().map(|(hour, lines)| (*hour, PyBytes::new(py, lines))).collect()
}

fn key_bits(names: &[String]) -> PyResult<u8> {
    let mut bits = 0;
    for name in names {
        bits |= body_key::ESCAPED
            | match name.as_str() {
                "auth" => body_key::AUTH,
                "assertedIdentity" => body_key::ASSERTED_IDENTITY,
                "identity" => body_key::IDENTITY,
                _ => return Err(PyValueError::new_err(format!("no body key {name:?} is looked for"))),
            };
    }
    Ok(bits)
}

/// The id as it stands in a message: a number in digits, a text with its quotes.
fn id_token(id: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = id.cast::<PyString>() {
        return Ok(format!("\"{}\"", text.to_string_lossy()).into_bytes());
    }
    Ok(id.cast::<PyInt>()?.str()?.to_string().into_bytes())
}
