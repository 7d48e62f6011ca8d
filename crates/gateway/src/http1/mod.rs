//! HTTP/1.1 messages (RFC 9112), as far as clients' connections and those to servers have them in common.

mod body;
mod chunks;
mod fields;
mod names;
mod read;
mod writer;

pub(crate) use body::{BodyRest, BodySource, FedBody};
pub(crate) use chunks::{ChunkEvent, ChunkReader};
pub(crate) use fields::{FieldRange, has_option, header_map, number, write_field, write_further, write_length};
pub(crate) use read::{READ_BYTES, poll_read};
pub(crate) use writer::MessageWriter;
