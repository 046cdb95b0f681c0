//! The sample of permits that is written to the decision log (msgnode/policy/enforcement/decision_log.py).

use crate::traffic_log::write_number;

/// As often, in lines that wait, Python writes one itself, and all that wait to the disk: MAX_HELD in
/// msgnode/storage/json_lines.py.
pub const WRITTEN_TOGETHER: u64 = 5000;

/// The sample: every so manieth permit, as Python counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub share: f64,
    pub due: f64,
}

impl Sample {
    /// Count one permit; is it the one that is written?
    pub fn is_due(&mut self) -> bool {
        self.due += self.share;
        let due = self.due >= 1.0;
        if due {
            self.due -= 1.0;
        }
        due
    }
}

/// What the lines about the permits of one flow have in common, as Python has encoded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitLine {
    before_time: Box<[u8]>,
    before_id: Box<[u8]>,
    after_id: Box<[u8]>,
}

impl PermitLine {
    /// All of these empty: there is no decision log.
    pub fn new(before_time: &[u8], before_id: &[u8], after_id: &[u8]) -> Self {
        PermitLine { before_time: before_time.into(), before_id: before_id.into(), after_id: after_id.into() }
    }

    pub fn bytes(&self) -> usize {
        self.before_time.len() + self.before_id.len() + self.after_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.before_time.is_empty()
    }

    /// Append the line about one message; `id` as it stands in the message.
    pub fn write(&self, out: &mut Vec<u8>, time: u64, id: &[u8]) {
        out.extend_from_slice(&self.before_time);
        write_number(out, time);
        out.extend_from_slice(&self.before_id);
        if id != b"\"\"" {
            out.extend_from_slice(b",\"id\":");
            out.extend_from_slice(id);
        }
        out.extend_from_slice(&self.after_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_permits_is_due() {
        let mut sample = Sample { share: 0.25, due: 0.0 };
        let due: Vec<bool> = (0..8).map(|_| sample.is_due()).collect();
        assert_eq!(vec![false, false, false, true, false, false, false, true], due);
    }

    #[test]
    fn an_empty_id_is_not_in_the_line() {
        let line = PermitLine::new(b"{\"time\":", b",\"type\":\"read\"", b",\"from\":\"a\"}\n");
        let mut lines = Vec::new();
        line.write(&mut lines, 17, b"5");
        line.write(&mut lines, 18, b"\"\"");
        let expected = "{\"time\":17,\"type\":\"read\",\"id\":5,\"from\":\"a\"}\n\
                        {\"time\":18,\"type\":\"read\",\"from\":\"a\"}\n";
        assert_eq!(expected, String::from_utf8_lossy(&lines));
    }
}
