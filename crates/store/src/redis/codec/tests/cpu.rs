//! What a decision costs Redis.
use super::direct::Answer;
use super::*;
use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::*;

const GCRA: &str = "local t=redis.call('TIME') local now=t[1]*1000000+t[2] local e=tonumber(ARGV[1]) local b=tonumber(ARGV[2]) local tat=tonumber(redis.call('GET',KEYS[1]) or now) if tat<now then tat=now end local n=tat+e if n-now>b then return {0,n-now-b} end redis.call('SET',KEYS[1],string.format('%.0f',n),'PX',math.ceil((n-now)/1000)+1) return {1,b-(n-now)}";

fn cpu(redis: &Redis) -> f64 {
    let info = redis.say("INFO cpu");
    let get = |name: &str| info.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().parse::<f64>().unwrap();
    get("used_cpu_user:") + get("used_cpu_sys:")
}

#[test]
#[ignore]
fn cpu_of_a_decision() {
    let redis = Redis::start();
    let d = Direct::new(redis.port(), "tg:");
    let n = 100_000usize;
    let callers = 20_000usize;
    for round in 0..5 {
        // baseline
        let Answer::Text(sha) = d.command(&[b"SCRIPT", b"LOAD", GCRA.as_bytes()]) else { panic!() };
        let before = cpu(&redis);
        for chunk in 0..n / 256 {
            let keys: Vec<String> =
                (0..256).map(|i| format!("g:{{api/cal{round:03}-{:09}}}", (chunk * 256 + i) % callers)).collect();
            let cmds: Vec<Vec<&[u8]>> =
                keys.iter().map(|k| vec![&b"EVALSHA"[..], &sha, b"1", k.as_bytes(), b"600000", b"60000000"]).collect();
            d.pipeline(&cmds);
        }
        let base = (cpu(&redis) - before) * 1e6 / n as f64;
        println!("plain GCRA {base:.2} us");
        for (what, limits) in [("bucket", 1usize), ("bucket", 4), ("sliding", 1), ("sliding", 4)] {
            let algorithm = if what == "bucket" {
                Algorithm::Bucket { burst: 100, paced: false }
            } else {
                Algorithm::SlidingWindow { sub_windows: 1 }
            };
            let period = Period::fixed(Span::from_secs(60)).unwrap();
            let limit = Limit::new(100, period.clone(), algorithm).unwrap();
            let scopes: Vec<Scope> = (0..limits)
                .map(|r| Scope::new("api", &format!("{what}{r}"), algorithm, &period, Home::Caller(0)))
                .collect();
            let names: Vec<String> = (0..callers).map(|i| format!("c-{what:.1}{limits}{round:02}{i:09}")).collect();
            let claim = |i: usize| Claim {
                id: ClaimId(1),
                charges: scopes
                    .iter()
                    .map(|s| Charge {
                        key: Key::new(s, smallvec![Value::Text(&names[i % callers])]),
                        limit: &limit,
                        ask: Ask::Exactly,
                        units: 1,
                        mode: Mode::Enforce,
                        on_failure: OnFailure::Deny,
                        strict: false,
                    })
                    .collect(),
                once: None,
                patience: None,
            };
            let batch = 128;
            let before = cpu(&redis);
            for chunk in 0..n / batch {
                let claims: Vec<Claim> = (0..batch).map(|i| claim(chunk * batch + i)).collect();
                d.settle_all_live(&claims);
            }
            let cost = (cpu(&redis) - before) * 1e6 / n as f64;
            let usage = redis.say(&format!("MEMORY USAGE tg:{{api/{}}}", names[0]));
            println!(
                "{what} {limits}: {cost:.2} us, {:.2} x plain, {} bytes",
                cost / base,
                usage.lines().next().unwrap()
            );
        }
    }
}
