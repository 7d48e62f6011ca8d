//! `tollgate leases` with real servers: on Redis, and with counters in memory.

use tollgate_testing::Redis;

use crate::cli::server::CliServer;

#[test]
fn leases_are_listed_switched_and_purged() {
    let redis = Redis::start();
    let server = CliServer::with_flags(&["--admin", "127.0.0.1:0", "--store", &redis.url()], "http://");
    assert!(server.run_ok(&["leases"]).starts_with("0 keys leased, 0 units held\n"));
    let off = server.run_ok(&["leases", "off", "--reason", "incident 12"]);
    assert!(off.starts_with("leases of ") && off.contains(" are off: on this server, until it restarts; "), "{off}");
    assert!(server.run_ok(&["leases"]).starts_with("leases are off: Redis decides every request"));
    assert!(server.run_ok(&["leases", "on"]).contains(" are on: on this server"));
    assert_eq!(server.json(&["leases"])["enabled"], true);
    for args in [&["ada"][..], &["--rule", "per-key"], &["ada", "--rule", "orders", "--domain", "shop"], &["--all"]] {
        let purged = server.run_ok(&[&["leases", "purge"], args].concat());
        assert!(purged.contains(": 0 keys purged, 0 units given back, "), "{args:?}: {purged}");
    }
    let actions: Vec<_> =
        server.lines(&["audit", "--kind", "lease"]).iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions[..3], ["lease.off", "lease.on", "lease.purge"], "{actions:?}");
}

#[test]
fn mistakes_are_named() {
    let server = CliServer::start();
    assert!(server.run_ok(&["leases"]).starts_with("nothing is leased: the counters of this server are in memory"));
    // Arguments, exit code, and a part of the message.
    let rows: [(&[&str], i32, &str); 5] = [
        (&["off"], 1, "leases need counters in Redis"),
        (&["purge"], 2, "say what to purge: a caller or a key, --rule RULE, or --all"),
        (&["purge", "ada", "--all"], 2, "cannot be used with"),
        (&["purge", "--all"], 1, "nothing is leased"),
        (&["purge", "--rul", "x"], 2, "--rule"),
    ];
    for (args, code, message) in rows {
        let output = server.run(&[&["leases"], args].concat());
        assert_eq!(output.code, code, "{args:?}: {}", output.err);
        assert!(output.err.contains(message), "{args:?}: {}", output.err);
    }
    let redis = Redis::start();
    let server = CliServer::with_flags(&["--admin", "127.0.0.1:0", "--store", &redis.url()], "http://");
    let output = server.run(&["leases", "purge", "--rule", "per-kee"]);
    assert_eq!(output.code, 1);
    assert!(output.err.contains("has no rule `per-kee`; it has `per-key`, `orders`"), "{}", output.err);
}
