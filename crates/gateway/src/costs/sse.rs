//! Server-sent events, read while they pass in frames that are split anywhere.

/// Reads the data of events. Line ends are LF, CR or both.
#[derive(Clone, Debug, Default)]
pub(super) struct EventReader {
    /// The beginning of the current line, if its end has not come yet.
    line: Vec<u8>,
    /// The lines of data of the current event, each with an LF.
    data: Vec<u8>,
    is_line_long: bool,
    /// Whether the current event has too much to be read.
    is_skipped: bool,
    /// Whether an LF belongs to the line end before it.
    is_after_cr: bool,
}

/// Where events end, for whoever needs the events as they are.
#[derive(Clone, Debug)]
pub(super) struct EventEnds {
    is_line_empty: bool,
    is_after_cr: bool,
}

/// The most of a line, and of an event's data. An event with more is skipped.
pub(super) const MAX_EVENT_BYTES: usize = 256 * 1024;

impl EventReader {
    /// Reads a frame. `seen` gets the data of each event that ends in it.
    pub(super) fn feed(&mut self, mut frame: &[u8], mut seen: impl FnMut(&[u8])) {
        while !frame.is_empty() {
            if std::mem::take(&mut self.is_after_cr)
                && let Some(rest) = frame.strip_prefix(b"\n")
            {
                frame = rest;
                continue;
            }
            let Some(end) = memchr::memchr2(b'\r', b'\n', frame) else {
                self.extend_line(frame);
                return;
            };
            self.is_after_cr = frame[end] == b'\r';
            self.end_line(&frame[..end], &mut seen);
            frame = &frame[end + 1..];
        }
    }

    /// As if the stream ended here: the last event may lack its end.
    pub(super) fn finish(&self, seen: impl FnMut(&[u8])) {
        let mut rest = self.clone();
        // The first may belong to a CR.
        rest.feed(b"\n\n", seen);
    }

    fn extend_line(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > MAX_EVENT_BYTES {
            self.is_line_long = true;
            self.line.clear();
        }
        if !self.is_line_long {
            self.line.extend_from_slice(part);
        }
    }

    fn end_line(&mut self, part: &[u8], seen: impl FnMut(&[u8])) {
        if self.line.is_empty() && !self.is_line_long && part.len() <= MAX_EVENT_BYTES {
            return self.whole_line(part, seen);
        }
        self.extend_line(part);
        if std::mem::take(&mut self.is_line_long) {
            self.is_skipped = true;
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        self.whole_line(&line, seen);
        line.clear();
        self.line = line;
    }

    fn whole_line(&mut self, line: &[u8], mut seen: impl FnMut(&[u8])) {
        if line.is_empty() {
            if let Some(data) = self.data.strip_suffix(b"\n")
                && !self.is_skipped
            {
                seen(data);
            }
            self.data.clear();
            self.is_skipped = false;
            return;
        }
        // Only the first line of a stream can have a byte order mark.
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let Some(value) = line.strip_prefix(b"data") else { return };
        let value = match value {
            [] => value,
            [b':', b' ', value @ ..] | [b':', value @ ..] => value,
            _ => return,
        };
        if self.is_skipped || self.data.len() + value.len() >= MAX_EVENT_BYTES {
            self.is_skipped = true;
            return;
        }
        self.data.extend_from_slice(value);
        self.data.push(b'\n');
    }
}

impl EventEnds {
    pub(super) fn new() -> EventEnds {
        EventEnds { is_line_empty: true, is_after_cr: false }
    }

    /// The number of bytes until the first event ends. `None` if none ends in these; all of them are then read.
    pub(super) fn next(&mut self, frame: &[u8]) -> Option<usize> {
        let mut at = usize::from(std::mem::take(&mut self.is_after_cr) && frame.first() == Some(&b'\n'));
        loop {
            let rest = frame.get(at..).filter(|rest| !rest.is_empty())?;
            let Some(length) = memchr::memchr2(b'\r', b'\n', rest) else {
                self.is_line_empty = false;
                return None;
            };
            let is_blank = self.is_line_empty && length == 0;
            self.is_line_empty = true;
            at += length + 1;
            if rest[length] == b'\r' {
                match rest.get(length + 1) {
                    Some(b'\n') => at += 1,
                    Some(_) => {}
                    None => self.is_after_cr = true,
                }
            }
            if is_blank {
                return Some(at);
            }
        }
    }
}
