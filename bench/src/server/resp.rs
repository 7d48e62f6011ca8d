//! `CL.THROTTLE` under redis-benchmark, next to Redis with an answer of the same shape, and throttlecrab.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

use super::peers::{redis, throttlecrab};
use super::process::{Server, cpu_time, on_load_core, output};
use super::tollgate;
use super::turns::{Contender, Turn, at_least, rounds, seconds, take_turns};
use crate::load::KEYS;

const CONNECTIONS: u32 = 50;
/// How many commands a client sends before it reads.
/// With each, the least ratio to SMISMEMBER.
const PIPELINES: [(u32, f64); 3] = [(1, 1.0), (16, 1.4), (64, 1.6)];
/// With how many requests a contender's speed is felt out, which tells how many fill a turn.
const FIRST_REQUESTS: f64 = 20_000.0;

const CL_THROTTLE: &str = "CL.THROTTLE key:__rand_int__ 15 30 60 1";
const THROTTLE: &str = "THROTTLE key:__rand_int__ 15 30 60 1";
/// Five numbers in an array, as CL.THROTTLE answers.
const SMISMEMBER: &str = "SMISMEMBER s a b c d e";
const INCR: &str = "INCR key:__rand_int__";

/// A server under one command.
struct Benchmark<'a> {
    server: &'a Server,
    command: &'static str,
    pipeline: u32,
    /// Requests a second, as far as known.
    speed: Cell<f64>,
}

pub fn run() {
    let Some(program) = tollgate::program("resp") else { return };
    if ["redis-server", "redis-benchmark"].iter().any(|tool| Command::new(tool).arg("--version").output().is_err()) {
        println!("resp: skipped, redis-server or redis-benchmark is missing (scripts/setup.sh bench installs them)");
        return;
    }
    let (ours, _rules) = tollgate::start(&program, "resp");
    let (redis, peer) = (redis(), throttlecrab("redis"));
    assert_eq!(ask(&redis, "SADD s a c e"), ":3\r\n");
    assert_eq!(ask(&redis, SMISMEMBER).lines().next(), Some("*5"));
    assert_eq!(ask(&ours, CL_THROTTLE).lines().next(), Some("*5"));
    if let Some(peer) = &peer {
        assert_eq!(ask(peer, THROTTLE).lines().next(), Some("*5"));
    }

    for (pipeline, least) in PIPELINES {
        println!(
            "RESP by redis-benchmark, {CONNECTIONS} connections, -P {pipeline}, {KEYS} keys, {} rounds of {} s",
            rounds(),
            seconds()
        );
        let bench = |server, command| Benchmark { server, command, pipeline, speed: Cell::new(0.0) };
        let (throttle, members, incr) = (bench(&ours, CL_THROTTLE), bench(&redis, SMISMEMBER), bench(&redis, INCR));
        let peer = peer.as_ref().map(|peer| bench(peer, THROTTLE));
        let (throttle, members, incr) = (|time| throttle.work(time), |time| members.work(time), |time| incr.work(time));
        let work_peer = |time| peer.as_ref().expect("a peer that is there").work(time);
        let mut contenders: Vec<Contender<'_>> = vec![
            ("tollgate, CL.THROTTLE", &throttle),
            ("redis-server, SMISMEMBER of five", &members),
            ("redis-server, INCR", &incr),
        ];
        if peer.is_some() {
            contenders.push(("throttlecrab-server, THROTTLE", &work_peer));
        }
        let turns = take_turns(&contenders);
        at_least("tollgate to SMISMEMBER", turns[0].to(&turns[1]), least);
        if let Some(peer) = turns.get(3) {
            at_least("tollgate to throttlecrab-server", turns[0].to(peer), 1.0);
        }
    }
}

impl Benchmark<'_> {
    /// As many requests as fill this time.
    fn work(&self, seconds: f64) -> Turn {
        if self.speed.get() == 0.0 {
            self.requests(FIRST_REQUESTS);
        }
        self.requests(self.speed.get() * seconds)
    }

    fn requests(&self, count: f64) -> Turn {
        let (host, port) = self.server.address("resp").rsplit_once(':').expect("host and port");
        let (before, start) = (cpu_time(self.server.id()), Instant::now());
        let (text, load) = output(
            on_load_core("redis-benchmark")
                .args(["-h", host, "-p", port, "--csv", "-c", &CONNECTIONS.to_string()])
                .args(["-P", &self.pipeline.to_string(), "-r", &KEYS.to_string(), "-n", &format!("{count:.0}")])
                .args(self.command.split(' ')),
        );
        let took = start.elapsed().as_secs_f64();
        let server = cpu_time(self.server.id()) - before;
        // A line of names, then one of figures, of which the second is requests a second.
        let figures = text.lines().last().unwrap_or_default();
        let rate = figures.split(',').nth(1).and_then(|figure| figure.trim_matches('"').parse().ok());
        let rate = rate.unwrap_or_else(|| panic!("redis-benchmark said {text}"));
        self.speed.set(rate);
        Turn { rate, server: server.as_secs_f64() / took, backends: 0.0, load: load.as_secs_f64() / took }
    }
}

/// The answer to one command.
fn ask(server: &Server, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request += &format!("${}\r\n{word}\r\n", word.len());
    }
    let mut stream = TcpStream::connect(server.address("resp")).expect("a server that listens");
    stream.write_all(request.as_bytes()).expect("a command sent");
    let mut answer = [0; 256];
    let length = stream.read(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer[..length]).into_owned()
}
