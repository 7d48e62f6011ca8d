//! Frames of HTTP/2 (RFC 9113), as far as a client of one unary method needs them.

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const WINDOW_UPDATE: u8 = 8;

pub const END_STREAM: u8 = 0x1;
pub const ACK: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;
/// Both, and nothing else that would change how the payload is read: no padding, no priority.
pub const WHOLE_HEADERS: [u8; 2] = [END_HEADERS, END_HEADERS | END_STREAM];

pub const MAX_CONCURRENT_STREAMS: u16 = 3;
pub const INITIAL_WINDOW_SIZE: u16 = 4;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;

/// A frame that has arrived as a whole.
pub struct Frame<'a> {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame that these bytes begin with, and the bytes after it.
    pub fn split(bytes: &'a [u8]) -> Option<(Frame<'a>, &'a [u8])> {
        let (&[l2, l1, l0, kind, flags, s3, s2, s1, s0], after) = bytes.split_first_chunk::<HEAD>()?;
        let length = u32::from_be_bytes([0, l2, l1, l0]) as usize;
        let (payload, rest) = after.split_at_checked(length)?;
        let stream = u32::from_be_bytes([s3 & 0x7f, s2, s1, s0]);
        Some((Frame { kind, flags, stream, payload }, rest))
    }

    pub fn put(&self, bytes: &mut Vec<u8>) {
        let [_, length @ ..] = (self.payload.len() as u32).to_be_bytes();
        let [s3, s2, s1, s0] = self.stream.to_be_bytes();
        bytes.extend_from_slice(&[length[0], length[1], length[2], self.kind, self.flags, s3, s2, s1, s0]);
        bytes.extend_from_slice(self.payload);
    }

    /// The settings in this frame's payload.
    pub fn settings(&self) -> impl Iterator<Item = (u16, u32)> {
        let (settings, _) = self.payload.as_chunks::<6>();
        settings
            .iter()
            .map(|&[i1, i0, v3, v2, v1, v0]| (u16::from_be_bytes([i1, i0]), u32::from_be_bytes([v3, v2, v1, v0])))
    }

    /// The number that is a frame's payload.
    pub fn number(&self) -> u32 {
        self.payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }
}
