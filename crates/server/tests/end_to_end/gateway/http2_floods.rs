//! Clients of HTTP/2 that only make work: frame by frame, as no library would send them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tollgate_testing::{Server, TIMEOUT, eventually};

use super::memory::{GIB, MIB, memory, upstream};
use super::{everything_to, with_gateway};
use crate::http::get;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 5;
/// `:method: GET`, `:scheme: http`, `:path: /`, `:authority: x`.
const GET: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 0x01, b'x'];
const CANCEL: [u8; 4] = [0, 0, 0, 8];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A connection that has sent its settings.
fn connect(server: &Server, settings: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address("gateway")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, settings)].concat();
    stream.write_all(&preface).unwrap();
    stream.write_all(&frame(SETTINGS, ACK, 0, &[])).unwrap();
    stream
}

/// Whether a connection is closed, after what it still sends.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_flood_of_resets_ends_its_connection_only() {
    const CONNECTIONS: u32 = 20;
    const RESETS: u32 = 50_000;
    let (address, _) = upstream(MIB);
    let server = with_gateway(&everything_to(&[&address])).start();
    let url = server.url("gateway", "/");
    assert_eq!(get(&url).status, 200);
    let before = memory(&server, "VmHWM:");
    let mut sent = 0;
    for _ in 0..CONNECTIONS {
        let mut client = connect(&server, &[]);
        for batch in 0..RESETS / 100 {
            let pairs = (0..100).flat_map(|number| {
                let stream = 2 * (100 * batch + number) + 1;
                [frame(HEADERS, END_STREAM_AND_HEADERS, stream, &GET), frame(RST_STREAM, 0, stream, &CANCEL)].concat()
            });
            if client.write_all(&pairs.collect::<Vec<u8>>()).is_err() {
                break;
            }
            sent += 100;
        }
        assert!(is_closed(&mut client));
        assert_eq!(get(&url).status, 200, "others are served");
    }
    let grown = memory(&server, "VmHWM:").saturating_sub(before);
    println!("{sent} of {} resets were sent: {} KiB more", CONNECTIONS * RESETS, grown / 1024);
    assert!(sent < CONNECTIONS * RESETS / 2, "{sent} resets");
    assert!(grown < 32 * MIB, "{grown} bytes more");
}

#[test]
fn streams_that_are_not_read_fill_no_memory() {
    const CONNECTIONS: u64 = 4;
    const STREAMS: u32 = 100;
    /// The largest window: the server may send everything at once.
    const WINDOW: [u8; 4] = [0x7f, 0xff, 0xff, 0xff];
    let (address, sent) = upstream(GIB);
    let file = everything_to(&[&address]).replace("eject:", "connections: {most: 1000}, eject:");
    let server = with_gateway(&file).start();
    let before = memory(&server, "VmHWM:");
    let clients: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let initial_window = [&[0, 4], &WINDOW[..]].concat();
            let mut client = connect(&server, &initial_window);
            client.write_all(&frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0])).unwrap();
            for number in 0..STREAMS {
                client.write_all(&frame(HEADERS, END_STREAM_AND_HEADERS, 2 * number + 1, &GET)).unwrap();
            }
            client
        })
        .collect();
    // Until all buffers are full, and nothing moves any more.
    let mut last = (0, 0);
    let is_full = || {
        let now = sent.load(std::sync::atomic::Ordering::Relaxed);
        last = if now == last.0 && now > 0 { (now, last.1 + 1) } else { (now, 0) };
        tollgate_testing::sleep(Duration::from_millis(20));
        (last.1 > 10).then_some(())
    };
    assert!(eventually(is_full).is_some());
    let grown = memory(&server, "VmHWM:").saturating_sub(before);
    let streams = CONNECTIONS * u64::from(STREAMS);
    println!("{streams} streams that are not read: {} KiB more, {} MiB sent", grown / 1024, last.0 / MIB);
    assert!(grown < streams * MIB / 2 + 24 * MIB, "{grown} bytes more for {streams} streams");
    drop(clients);
}
