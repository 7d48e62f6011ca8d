//! Events, however frames are split.

use proptest::prelude::*;

use super::super::sse::{EventEnds, EventReader, MAX_EVENT_BYTES};
use super::line_ends;

/// The data of all events of a stream that comes in these frames.
fn events<'f>(frames: impl IntoIterator<Item = &'f [u8]>) -> Vec<String> {
    let (mut reader, mut events) = (EventReader::default(), Vec::new());
    let mut seen = |data: &[u8]| events.push(String::from_utf8_lossy(data).into_owned());
    for frame in frames {
        reader.feed(frame, &mut seen);
    }
    reader.finish(seen);
    events
}

#[test]
fn events_are_read_at_every_split() {
    let first = "\u{feff}: hello\nid: 1\nevent: x\ndata: a\n\ndata:b\ndata:  c\ndata\n\n\n\n";
    let stream = &format!("{first}event: y\n\ndatax: 1\nretry: 2\n\ndata: d");
    let expected = ["a", "b\n c\n", "d"];
    for stream in line_ends(stream) {
        let stream = stream.as_bytes();
        assert_eq!(events([stream]), expected);
        assert_eq!(events(stream.chunks(1)), expected);
        for at in 0..stream.len() {
            assert_eq!(events([&stream[..at], b"", &stream[at..]]), expected, "{at}");
        }
    }
}

#[test]
fn long_events_are_skipped() {
    let long = "x".repeat(MAX_EVENT_BYTES);
    let lines = format!("data: {}\n", "x".repeat(1000)).repeat(300);
    for event in [format!("data: {long}\n\n"), format!("{long}\n\n"), format!("data: 1\n:{long}\n\n"), lines + "\n"] {
        let stream = format!("data: a\n\n{event}data: b\n\n");
        for size in [1_000, 70_000, stream.len()] {
            assert_eq!(events(stream.as_bytes().chunks(size)), ["a", "b"], "{size}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Where a stream is split does not matter, and the ends of events are where the reader sees them.
    #[test]
    fn splits_do_not_matter(stream in "(data:|data: |a|\r|\n|\r\n|:){0,40}", size in 1_usize..10) {
        let stream = stream.as_bytes();
        let whole = events([stream]);
        prop_assert_eq!(&events(stream.chunks(size)), &whole);
        let (mut ends, mut parts, mut held) = (EventEnds::new(), Vec::new(), Vec::new());
        for mut frame in stream.chunks(size) {
            while let Some(end) = ends.next(frame) {
                held.extend(&frame[..end]);
                parts.push(std::mem::take(&mut held));
                frame = &frame[end..];
            }
            held.extend(frame);
        }
        parts.push(held);
        prop_assert_eq!(parts.concat(), stream);
        let each: Vec<_> = parts.iter().flat_map(|part| events([&**part])).collect();
        prop_assert_eq!(&each, &whole);
        prop_assert!(parts.iter().all(|part| events([&**part]).len() <= 1));
    }
}
