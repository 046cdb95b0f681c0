//! Lines of the traffic log, byte for byte as msgnode/storage/traffic_log.py writes them.

/// Characters of a text in a line.
pub const CUT: usize = 512;
const HOUR: u64 = 3_600_000_000_000; // nanoseconds
const BEGINNING: &[u8] = b"{\"v\":1,\"kind\":\"message\",\"time\":";

/// What the lines about the messages of one flow have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineTemplate {
    before_id: Box<[u8]>,
    before_bytes: Box<[u8]>,
    before_micros: Box<[u8]>,
}

/// The texts of a line; `recipients` is how many got the message.
pub struct LineTexts<'a> {
    pub node: &'a str,
    pub session: &'a str,
    pub connector: &'a str,
    pub peer: &'a str,
    pub kind: &'a str,
    pub from: &'a str,
    pub to: &'a str,
    pub recipients: usize,
}

impl LineTemplate {
    pub fn bytes(&self) -> usize {
        self.before_id.len() + self.before_bytes.len() + self.before_micros.len()
    }

    pub fn new(texts: &LineTexts<'_>) -> Self {
        let (mut before_id, mut before_bytes) = (Vec::new(), Vec::new());
        member(&mut before_id, "node", texts.node);
        member(&mut before_id, "session", &cut(texts.session));
        member(&mut before_id, "connector", texts.connector);
        member(&mut before_id, "peer", texts.peer);
        member(&mut before_id, "type", &cut(texts.kind));
        member(&mut before_bytes, "from", &cut(texts.from));
        member(&mut before_bytes, "to", &cut_to(texts.to));
        before_bytes.extend_from_slice(b",\"bytes\":");
        let outcome = format!(
            ",\"outcome\":\"delivered\",\"recipients\":{},\"waiting\":0,\"micros\":",
            texts.recipients
        );
        LineTemplate {
            before_id: before_id.into(),
            before_bytes: before_bytes.into(),
            before_micros: outcome.into_bytes().into(),
        }
    }

    /// Append the line about one message; `id` and `transaction` as they stand in the message (empty: it has
    /// none), `size` in bytes.
    #[inline]
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        time: u64,
        id: &[u8],
        transaction: &[u8],
        size: usize,
        micros: u64,
    ) {
        out.extend_from_slice(BEGINNING);
        write_number(out, time);
        out.extend_from_slice(&self.before_id);
        if id != b"\"\"" {
            out.extend_from_slice(b",\"id\":");
            out.extend_from_slice(id);
        }
        out.extend_from_slice(&self.before_bytes);
        write_number(out, size as u64);
        out.extend_from_slice(&self.before_micros);
        write_number(out, micros);
        if !transaction.is_empty() {
            out.extend_from_slice(b",\"transaction\":");
            out.extend_from_slice(transaction);
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The text as it stands in a line.
fn cut(text: &str) -> String {
    match text.char_indices().nth(CUT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The same for `to`: what may say how many more it names is left longer.
fn cut_to(to: &str) -> String {
    if to.ends_with(" more") && to.chars().nth(2 * CUT).is_none() {
        return to.to_owned();
    }
    cut(to)
}

fn member(out: &mut Vec<u8>, name: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    out.extend_from_slice(format!(",\"{name}\":\"").as_bytes());
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[inline]
pub fn write_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Lines of the same hour in a row: the hour, counted since 1970, and their bytes.
pub type HourOfLines = (u64, Vec<u8>);

/// Lines that are not written yet, by the hour they belong to.
pub struct LogBuffer {
    /// Lines held.
    pub lines: u64,
    /// Lines thrown away, because too many bytes waited.
    pub lost: u64,
    most_bytes: usize,
    bytes: usize,
    hours: Vec<HourOfLines>,
}

impl LogBuffer {
    pub fn new(most_bytes: usize) -> Self {
        LogBuffer { lines: 0, lost: 0, most_bytes, bytes: 0, hours: Vec::new() }
    }

    /// Add a line of that time, in nanoseconds since 1970, which `write` appends.
    #[inline]
    pub fn add(&mut self, time: u64, write: impl FnOnce(&mut Vec<u8>)) {
        if self.bytes > self.most_bytes {
            self.lost += self.lines;
            self.lines = 0;
            self.bytes = 0;
            self.hours.clear();
        }
        let hour = time / HOUR;
        if self.hours.last().is_none_or(|(last, _)| *last != hour) {
            self.hours.push((hour, Vec::new()));
        }
        if let Some((_, held)) = self.hours.last_mut() {
            let before = held.len();
            write(held);
            self.bytes += held.len() - before;
            self.lines += 1;
        }
    }

    /// All that is held, and how many lines it is; nothing is held any more.
    pub fn take(&mut self) -> (u64, Vec<HourOfLines>) {
        self.bytes = 0;
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.hours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: LineTexts<'static> = LineTexts {
        node: "n",
        session: "s",
        connector: "line",
        peer: "",
        kind: "update",
        from: "a\"b",
        to: "c",
        recipients: 2,
    };

    #[test]
    fn a_line_omits_what_is_empty() {
        let mut line = Vec::new();
        LineTemplate::new(&TEXTS).write(&mut line, 7, b"\"\"", b"", 10, 3);
        let expected = "{\"v\":1,\"kind\":\"message\",\"time\":7,\"node\":\"n\",\"session\":\"s\",\
                        \"connector\":\"line\",\"type\":\"update\",\"from\":\"a\\\"b\",\"to\":\"c\",\"bytes\":10,\
                        \"outcome\":\"delivered\",\"recipients\":2,\"waiting\":0,\"micros\":3}\n";
        assert_eq!(expected, String::from_utf8_lossy(&line));
    }

    #[test]
    fn lines_are_held_by_the_hour() {
        let mut log = LogBuffer::new(1000);
        for time in [0, HOUR - 1, HOUR, 5] {
            log.add(time, |out| out.extend_from_slice(b"x\n"));
        }
        let (lines, hours) = log.take();
        assert_eq!(4, lines);
        assert_eq!(vec![(0, b"x\nx\n".to_vec()), (1, b"x\n".to_vec()), (0, b"x\n".to_vec())], hours);
        assert_eq!((0, Vec::new()), log.take());
    }

    #[test]
    fn more_than_the_limit_is_thrown_away_and_counted() {
        let mut log = LogBuffer::new(10);
        for _ in 0..7 {
            log.add(0, |out| out.extend_from_slice(b"xx\n"));
        }
        assert_eq!(4, log.lost);
        assert_eq!(3, log.lines);
    }
}
