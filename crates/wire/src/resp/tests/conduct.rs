//! Clients that send a lot, stop reading, or are cut off; a server that is overloaded or about to stop.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_testing::until;

use super::super::MAX_ARRIVING_BYTES;
use super::server::{PATIENCE, Server, Settings, assert_close, connect, exchange, fives, rest, sent, take};

const THROTTLE: &[&[u8]] = &[b"CL.THROTTLE", b"k", b"99999", b"1", b"86400"];

#[test]
fn a_long_pipeline_is_answered_in_order() {
    const MANY: usize = 10_000;
    let server = Server::start();
    let mut bytes = sent(THROTTLE).repeat(MANY);
    bytes.extend_from_slice(b"PING end\r\n");
    let reply = exchange(server.address, &bytes);
    let answers = fives(reply.strip_suffix(b"$3\r\nend\r\n").unwrap());
    assert_eq!(answers.len(), MANY);
    for (used, answer) in (1..).zip(&answers) {
        assert_close(answer, &[0, 100_000, 100_000 - used, -1, used * 86_400]);
    }
    assert_eq!(server.resp.counts.commands.load(Ordering::Relaxed), MANY as u64 + 1);
}

#[test]
fn a_command_that_comes_byte_by_byte_is_one() {
    let server = Server::start();
    let mut stream = server.connect();
    for byte in sent(THROTTLE) {
        stream.write_all(&[byte]).unwrap();
    }
    let expected = b"*5\r\n:0\r\n:100000\r\n:99999\r\n:-1\r\n:86400\r\n";
    assert_eq!(take(&mut stream, expected.len()), expected);
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody_and_is_not_read_from() {
    let server = Server::start();
    let mut stalled = server.connect();
    let echo = sent(&[b"ECHO", &[b'x'; 60_000]]).repeat(20);
    stalled.set_nonblocking(true).unwrap();
    let mut others = server.connect();
    let mut full = 0;
    let mut written = 0;
    // Until nothing more can be sent, although others are answered in between.
    while full < 50 {
        match stalled.write(&echo[written % echo.len()..]) {
            Ok(some) => {
                written += some;
                full = 0;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                others.write_all(b"PING\r\n").unwrap();
                assert_eq!(take(&mut others, 7), b"+PONG\r\n");
                full += 1;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(written < 256 << 20, "it is read from without end");
    }
    // Every complete command is answered once the client reads.
    stalled.set_nonblocking(false).unwrap();
    stalled.set_read_timeout(Some(PATIENCE)).unwrap();
    let reply = 8 + 60_000 + 2;
    let commands = written / (echo.len() / 20);
    let answers = take(&mut stalled, commands * reply);
    assert!(answers.chunks(reply).all(|answer| answer.starts_with(b"$60000\r\nx")));
}

#[test]
fn a_connection_that_is_cut_in_a_command_is_forgotten() {
    let server = Server::start();
    assert_eq!(exchange(server.address, &sent(THROTTLE)[..20]), b"");
    let mut stream = server.connect();
    stream.write_all(b"INFO clients\r\n").unwrap();
    let expected = b"$32\r\n# Clients\r\nconnected_clients:1\r\n\r\n";
    assert_eq!(take(&mut stream, expected.len()), expected);
    let counted = exchange(server.address, &[&sent(THROTTLE)[..], b"\r\n"].concat());
    assert_eq!(counted, b"*5\r\n:0\r\n:100000\r\n:99999\r\n:-1\r\n:86400\r\n", "the half of a command took nothing");
}

const BUSY: &[u8] = b"-BUSY too many unfinished commands are arriving; try again\r\n";

/// An unfinished command of about a megabyte.
fn unfinished() -> Vec<u8> {
    let argument = [&b"$60000\r\n"[..], &[b'x'; 60_000], b"\r\n"].concat();
    [&b"*100\r\n"[..], &argument.repeat(17)].concat()
}

#[test]
fn a_command_has_to_arrive_in_time() {
    let settings = Settings { command_timeout: Duration::from_millis(300), ..Settings::default() };
    let server = Server::with(settings);
    let mut idle = server.connect();
    let mut slow = server.connect();
    slow.write_all(b"PING\r\n*1\r\n$4\r\nPI").unwrap();
    let expected = b"+PONG\r\n-ERR Protocol error: the command took too long to arrive\r\n";
    assert_eq!(rest(&mut slow), expected);
    // Between commands there is no time limit.
    idle.write_all(b"PING\r\n").unwrap();
    assert_eq!(take(&mut idle, 7), b"+PONG\r\n");
}

#[test]
fn unfinished_commands_share_a_bounded_memory_that_is_given_back() {
    let server = Server::start();
    let part = unfinished();
    let mut clients: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    for client in &mut clients {
        // A connection that was closed already can't be written to.
        let _ = client.write_all(&part);
    }
    let (opened, open) = (&server.resp.counts.opened, &server.resp.counts.open);
    until("all are accepted", || opened.load(Ordering::Relaxed) == 100);
    let open = || open.load(Ordering::Relaxed);
    // Each buffer has at least a megabyte, and more while it grows.
    until("the others are closed", || open() <= 64);
    assert!(open() > 0);
    // Short commands always fit, in several parts too.
    let mut other = server.connect();
    other.write_all(b"*1\r\n$4\r\nPI").unwrap();
    other.write_all(b"NG\r\n").unwrap();
    assert_eq!(take(&mut other, 7), b"+PONG\r\n");
    let was_refused = |client: &mut TcpStream| {
        let mut reply = [0; 128];
        client.set_nonblocking(true).unwrap();
        matches!(client.read(&mut reply), Ok(length) if &reply[..length] == BUSY)
    };
    until("a client has the reason", || clients.iter_mut().any(was_refused));
    drop(clients);
    until("the memory is given back", || server.resp.arriving.reserve(MAX_ARRIVING_BYTES).is_some());
}

#[test]
fn a_long_answer_to_a_short_question_is_bounded() {
    // Each reply has some kilobytes, for seven bytes.
    let server = Server::start();
    let mut stream = connect(server.address);
    let one = exchange(server.address, b"COMMAND\r\n");
    let ask = b"COMMAND\r\n".repeat(5_000);
    let writer = {
        let mut stream = stream.try_clone().unwrap();
        std::thread::spawn(move || stream.write_all(&ask).unwrap())
    };
    for _ in 0..5_000 {
        assert!(take(&mut stream, one.len()) == one);
    }
    writer.join().unwrap();
}

#[test]
fn past_the_bound_all_pass_uncounted() {
    let server = Server::with(Settings { max_in_flight: 0, ..Settings::default() });
    for _ in 0..3 {
        let reply = exchange(server.address, b"CL.THROTTLE k 0 1 86400\r\n");
        assert_eq!(reply, b"*5\r\n:0\r\n:1\r\n:1\r\n:-1\r\n:0\r\n");
    }
    assert_eq!(
        exchange(server.address, b"CL.THROTTLE k 0 0 1\r\n"),
        b"-ERR value is out of range, must be positive\r\n"
    );
}

#[test]
fn in_shadow_mode_a_refusal_is_reported_as_a_pass() {
    let server = Server::with(Settings { shadow: true, ..Settings::default() });
    let ask = b"CL.THROTTLE k 0 1 86400\r\nCL.THROTTLE k 0 1 86400\r\nTHROTTLE k 1 1 86400\r\n";
    let answers = fives(&exchange(server.address, ask));
    for (answer, expected) in answers.iter().zip([[0, 1, 0, -1, 86_400], [0, 1, 0, -1, 86_400], [1, 1, 0, 86_400, 0]]) {
        assert_close(answer, &expected);
    }
    assert_eq!(answers.len(), 3);
}

#[test]
fn when_it_stops_what_was_read_is_answered_and_connections_end() {
    let server = Server::start();
    let (mut idle, mut half) = (server.connect(), server.connect());
    for stream in [&mut idle, &mut half] {
        stream.write_all(b"PING\r\n").unwrap();
        assert_eq!(take(stream, 7), b"+PONG\r\n");
    }
    half.write_all(b"PING\r\n*1\r\n$4\r\nPI").unwrap();
    assert_eq!(take(&mut half, 7), b"+PONG\r\n");
    server.close();
    assert_eq!(rest(&mut idle), b"");
    assert_eq!(rest(&mut half), b"");
    drop((idle, half));
    server.join();
}

#[test]
fn when_it_stops_a_client_that_does_not_read_is_left() {
    let server = Server::start();
    let mut stalled = server.connect();
    stalled.set_nonblocking(true).unwrap();
    let echo = sent(&[b"ECHO", &[b'x'; 60_000]]);
    let mut other = server.connect();
    let mut full = 0;
    while full < 50 {
        match stalled.write(&echo) {
            Ok(written) if written == echo.len() => full = 0,
            Ok(_) => full += 1,
            Err(_) => {
                other.write_all(b"PING\r\n").unwrap();
                take(&mut other, 7);
                full += 1;
            }
        }
    }
    drop(other);
    // It ends although nobody reads.
    server.join();
}
