//! Reads bodies in chunks (RFC 9112 7.1).

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use httparse::Status;

/// The longest line with the length of a chunk, and the longest trailers, in bytes.
const MAX_LINE_BYTES: usize = 4 * 1024;
const MAX_TRAILER_BYTES: usize = 16 * 1024;
const MAX_TRAILERS: usize = 64;

/// Where a body in chunks was read to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkReader {
    /// Before the length of a chunk.
    Size,
    /// In a chunk, of which this many bytes are left.
    Data(u64),
    /// Before the line break after a chunk.
    DataEnd,
    /// After the last chunk.
    Trailers,
    End,
}

/// What was read.
#[derive(Debug, PartialEq)]
pub(crate) enum ChunkEvent {
    Data(Bytes),
    /// Not empty.
    Trailers(HeaderMap),
    End,
    /// More has to be read.
    Incomplete,
}

impl ChunkReader {
    /// Takes the next part of the body from what was read.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn next(&mut self, input: &mut BytesMut) -> Result<ChunkEvent, &'static str> {
        loop {
            match *self {
                ChunkReader::Size => match memchr::memchr(b'\n', input) {
                    Some(end) => {
                        let size = size(&input[..end]).ok_or("a chunk's length is invalid")?;
                        input.advance(end + 1);
                        *self = if size == 0 { ChunkReader::Trailers } else { ChunkReader::Data(size) };
                    }
                    None if input.len() > MAX_LINE_BYTES => return Err("a chunk's length is too long"),
                    None => return Ok(ChunkEvent::Incomplete),
                },
                ChunkReader::Data(_) if input.is_empty() => return Ok(ChunkEvent::Incomplete),
                ChunkReader::Data(left) => {
                    let length = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
                    let left = left - length as u64;
                    *self = if left == 0 { ChunkReader::DataEnd } else { ChunkReader::Data(left) };
                    return Ok(ChunkEvent::Data(input.split_to(length).freeze()));
                }
                ChunkReader::DataEnd => match input.get(..2) {
                    None => return Ok(ChunkEvent::Incomplete),
                    Some(b"\r\n") => {
                        input.advance(2);
                        *self = ChunkReader::Size;
                    }
                    Some(_) => return Err("a chunk is longer than it says"),
                },
                ChunkReader::Trailers => return self.trailers(input),
                ChunkReader::End => return Ok(ChunkEvent::End),
            }
        }
    }

    fn trailers(&mut self, input: &mut BytesMut) -> Result<ChunkEvent, &'static str> {
        if input.starts_with(b"\r\n") {
            input.advance(2);
            *self = ChunkReader::End;
            return Ok(ChunkEvent::End);
        }
        let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
        match httparse::parse_headers(input, &mut fields) {
            Ok(Status::Complete((end, fields))) => {
                let trailers = trailers_of(fields).ok_or("a trailer is invalid")?;
                input.advance(end);
                *self = ChunkReader::End;
                Ok(ChunkEvent::Trailers(trailers))
            }
            Ok(Status::Partial) if input.len() > MAX_TRAILER_BYTES => Err("the trailers are too long"),
            Ok(Status::Partial) => Ok(ChunkEvent::Incomplete),
            Err(_) => Err("a trailer is invalid"),
        }
    }

    /// The bytes of the chunk that are still to be read.
    pub(crate) fn left(self) -> u64 {
        if let ChunkReader::Data(left) = self { left } else { 0 }
    }
}

/// The length in a line, which ends with a carriage return. There may be spaces after it, and extensions, which have no effect.
fn size(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"\r")?;
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let (digits, rest) = line.split_at(digits);
    let has_extension = rest.trim_ascii_start().first().is_none_or(|byte| *byte == b';');
    // A server that ends lines with it would read another one.
    if digits.is_empty() || digits.len() > 16 || !has_extension || memchr::memchr(b'\r', rest).is_some() {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn trailers_of(fields: &[httparse::Header<'_>]) -> Option<HeaderMap> {
    let mut trailers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        trailers.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(trailers)
}
