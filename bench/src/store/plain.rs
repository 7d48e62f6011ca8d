//! What anybody would write first: GCRA on one key, in a script.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Client, Cmd, Pipeline, cmd};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::driven::{Callers, IN_FLIGHT};
use crate::workload::Random;

/// KEYS[1] is the caller; ARGV is what a unit costs and what may be owed, in microseconds. The answer is whether it passes, and the
/// units that are left, else the wait.
const ONE: &str = "
local time = redis.call('TIME')
local now, cost, most = time[1] * 1000000 + time[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local owed = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + cost
local room = now + most - owed
if room < 0 then
  return {0, -room}
end
redis.call('SET', KEYS[1], owed, 'PX', math.ceil((owed - now) / 1000))
return {1, math.floor(room / cost)}
";

/// The same for all KEYS.
const MANY: &str = "
local time = redis.call('TIME')
local now, cost, most = time[1] * 1000000 + time[2], tonumber(ARGV[1]), tonumber(ARGV[2])
local answer = {}
for place, key in ipairs(KEYS) do
  local owed = math.max(tonumber(redis.call('GET', key) or now), now) + cost
  local room = now + most - owed
  if room < 0 then
    answer[2 * place - 1], answer[2 * place] = 0, -room
  else
    redis.call('SET', key, owed, 'PX', math.ceil((owed - now) / 1000))
    answer[2 * place - 1], answer[2 * place] = 1, math.floor(room / cost)
  end
end
return answer
";

/// A million an hour, as the rules have it: a unit's microseconds, and those of an hour.
const LIMIT: [u64; 2] = [3_600, 3_600_000_000];

/// As many as the store has. Each has one round trip under way.
const CONNECTIONS: usize = 2;

/// A script, called with so many keys at once, again and again.
pub struct Plain {
    runtime: Runtime,
    connections: Vec<MultiplexedConnection>,
    script: String,
    at_once: usize,
}

impl Plain {
    /// A call for each decision.
    pub fn one(url: &str) -> Plain {
        Plain::new(url, ONE, 1)
    }

    /// A call for so many.
    pub fn many(url: &str, at_once: usize) -> Plain {
        Plain::new(url, MANY, at_once)
    }

    fn new(url: &str, script: &str, at_once: usize) -> Plain {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = Client::open(url).expect("an address");
        let connect = || runtime.block_on(client.get_multiplexed_async_connection()).expect("a connection");
        let mut connections: Vec<MultiplexedConnection> = (0..CONNECTIONS).map(|_| connect()).collect();
        let load = cmd("SCRIPT").arg("LOAD").arg(script).take();
        let script = runtime.block_on(load.query_async(&mut connections[0])).expect("a script that loads");
        Plain { runtime, connections, script, at_once }
    }

    /// Decides for so long, for callers drawn evenly: how often.
    pub fn drive(&self, callers: &Arc<Callers>, seconds: f64) -> u64 {
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for (number, connection) in self.connections.iter().enumerate() {
                let (mut connection, callers) = (connection.clone(), Arc::clone(callers));
                let (script, at_once) = (self.script.clone(), self.at_once);
                tasks.spawn(async move {
                    let (mut random, mut decisions) = (Random::seeded(number as u64), 0);
                    while Instant::now() < until {
                        let mut calls = Pipeline::new();
                        for _ in 0..IN_FLIGHT / CONNECTIONS / at_once {
                            calls.add_command(call(&script, at_once, &callers, &mut random));
                        }
                        let answers: Vec<Vec<u64>> = calls.query_async(&mut connection).await.expect("answers");
                        let answers = answers.concat();
                        assert!(answers.chunks(2).all(|answer| answer[0] == 1), "a plain script refused");
                        decisions += answers.len() as u64 / 2;
                    }
                    decisions
                });
            }
            tasks.join_all().await.iter().sum()
        })
    }
}

fn call(script: &str, keys: usize, callers: &Callers, random: &mut Random) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(script).arg(keys);
    for _ in 0..keys {
        call.arg(callers.draw(random));
    }
    call.arg(&LIMIT);
    call
}
