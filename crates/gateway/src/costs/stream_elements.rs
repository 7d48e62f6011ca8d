//! JSON documents in a stream: one document, the entries of one list, or several documents one after the other. Each is
//! seen when it is complete, so that a stream that is cut has shown what it had.

/// Splits a stream into documents. It finds where they end, and does not check them.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamElements {
    /// The beginning of the current document, from earlier frames.
    document: Vec<u8>,
    /// How many brackets are open, without that of the list around the documents.
    depth: u32,
    is_in_list: bool,
    has_begun: bool,
    is_in_text: bool,
    is_escaped: bool,
    /// Whether the current document is too long to be read.
    is_skipped: bool,
}

/// The longest document that is read, in bytes.
pub(super) const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

impl StreamElements {
    /// Reads a frame. `seen` gets each document that ends in it.
    pub(super) fn feed(&mut self, frame: &[u8], mut seen: impl FnMut(&[u8])) {
        // Where the part of the current document begins in this frame.
        let mut start = 0;
        let mut at = 0;
        while let Some(&byte) = frame.get(at) {
            if self.is_in_text {
                at = self.text(frame, at);
                continue;
            }
            match byte {
                b'"' => self.is_in_text = self.depth > 0,
                b'[' if !self.has_begun => (self.has_begun, self.is_in_list) = (true, true),
                b'{' | b'[' => {
                    if self.depth == 0 {
                        start = at;
                    }
                    self.has_begun = true;
                    self.depth = self.depth.saturating_add(1);
                }
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.end(&frame[start..=at], &mut seen);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        if self.depth > 0 {
            self.extend(&frame[start..]);
        }
    }

    /// Skips the inside of a text, from `at` on. Returns where to go on.
    fn text(&mut self, frame: &[u8], at: usize) -> usize {
        if std::mem::take(&mut self.is_escaped) {
            return at + 1;
        }
        let Some(length) = memchr::memchr2(b'"', b'\\', &frame[at..]) else { return frame.len() };
        match frame[at + length] {
            b'"' => self.is_in_text = false,
            _ => self.is_escaped = true,
        }
        at + length + 1
    }

    fn extend(&mut self, part: &[u8]) {
        if self.document.len() + part.len() > MAX_DOCUMENT_BYTES {
            self.is_skipped = true;
            self.document = Vec::new();
        }
        if !self.is_skipped {
            self.document.extend_from_slice(part);
        }
    }

    fn end(&mut self, part: &[u8], seen: &mut impl FnMut(&[u8])) {
        if self.document.is_empty() && !self.is_skipped && part.len() <= MAX_DOCUMENT_BYTES {
            return seen(part);
        }
        self.extend(part);
        if !std::mem::take(&mut self.is_skipped) {
            seen(&self.document);
        }
        self.document.clear();
    }
}
