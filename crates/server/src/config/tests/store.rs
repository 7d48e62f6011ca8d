//! Settings of the store that belong together.

use super::start;
use crate::config::StoreSettings;

#[test]
fn settings_of_redis_need_redis_and_each_other() {
    let memory = |name: &str| {
        format!(
            "error: `{name}`: counters are in memory (`store`), not in Redis; set `store` to a URL such as redis://127.0.0.1:6379, or remove `{name}`"
        )
    };
    let one = "keep one of the two";
    let no_tls = "the connection to Redis has no TLS; write rediss:// in `store`, or remove it";
    let lacks = |name: &str, missing: &str| {
        format!("error: `{name}` needs `{missing}`, which is not set; set `{missing}` too, or remove `{name}`")
    };
    let rows: [(&[&str], &str, String); 13] = [
        (&["--store-user=u"], "--store-user", memory("store_user")),
        (&["--store-password=p"], "--store-password", memory("store_password")),
        (&["--store-password-file=p"], "--store-password-file", memory("store_password_file")),
        (&["--store-ca=p"], "--store-ca", memory("store_ca")),
        (&["--store-cert=c", "--store-key=k"], "--store-cert", memory("store_cert")),
        (&["--store-cert=c", "--store=rediss://a"], "--store-cert", lacks("store_cert", "store_key")),
        (&["--store-key=c", "--store=rediss://a"], "--store-key", lacks("store_key", "store_cert")),
        (
            &["--store=redis://a", "--store-password=p", "--store-password-file=f"],
            "--store-password-file",
            format!("error: `store_password_file`: `store_password` has a password too; {one}"),
        ),
        (
            &["--store=redis://:x@a", "--store-password=p"],
            "--store-password",
            format!("error: `store_password`: the URL in `store` has a password too; {one}"),
        ),
        (
            &["--store=redis://me:x@a", "--store-user=u"],
            "--store-user",
            format!("error: `store_user`: the URL in `store` has a user too; {one}"),
        ),
        (
            &["--store=redis://a", "--store-user=u"],
            "--store-user",
            "error: `store_user`: there is no password for it; set `store_password` or `store_password_file` too"
                .to_owned(),
        ),
        (&["--store=redis://a", "--store-ca=c"], "--store-ca", format!("error: `store_ca`: {no_tls}")),
        (
            &["--store=redis://a", "--store-cert=c", "--store-key=k"],
            "--store-cert",
            format!("error: `store_cert`: {no_tls}"),
        ),
    ];
    for (flags, place, error) in rows {
        assert_eq!(start(flags, &[], "").problems(), [format!("{place}: {error}")], "{flags:?}");
    }
}

#[test]
fn every_form_of_an_address_is_taken() {
    let rows: [(&[&str], &str); 6] = [
        (&["--store=redis://localhost"], "redis://localhost:6379"),
        (&["--store=rediss://me:p@localhost:1"], "rediss://me:***@localhost:1"),
        (&["--store=redis+unix:///run/r.sock"], "redis+unix:///run/r.sock"),
        (&["--store=redis://a:1,b:2"], "redis+cluster://a:1,b:2"),
        (&["--store=redis://a:1", "--store=redis://b:2"], "redis+cluster://a:1,b:2"),
        (&["--store=redis+sentinel://s/main"], "redis+sentinel://s:26379/main"),
    ];
    for (flags, shown) in rows {
        match start(flags, &[], "").loaded().settings.store {
            StoreSettings::Redis(redis) => assert_eq!(redis.address.to_string(), shown),
            StoreSettings::Memory => panic!("{flags:?}"),
        }
    }
}
