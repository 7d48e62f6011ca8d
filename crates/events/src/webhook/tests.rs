//! Signatures as the libraries of Standard Webhooks make and check them.

use tollgate_net::client::PostTarget;
use tollgate_store::ManualClock;

use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[test]
fn signatures_are_those_of_the_standard() {
    let secret = Secret::parse(SECRET).unwrap();
    let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn every_secret_signs() {
    let poster = Poster::new(PostTarget::parse("http://127.0.0.1:9/").unwrap(), None).unwrap();
    let other = format!("whsec_{}", STANDARD.encode([7; 32]));
    let secrets = [SECRET, &other].map(|text| Secret::parse(text).unwrap());
    let webhook = Webhook::new(poster, secrets.to_vec(), Arc::new(ManualClock::default()));
    let line = SinkLine { id: "msg_p5jXN8AQM9LWM0D4loKWxJek".into(), text: "{\"test\": 2432232314}".into() };
    let headers = webhook.headers(&line, Timestamp::from_micros(1_614_265_330_999_999)).unwrap();
    let signatures: Vec<_> = headers[SIGNATURE].to_str().unwrap().split(' ').collect();
    assert_eq!(signatures[0], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    assert_eq!((signatures.len(), headers[TIME].to_str().unwrap()), (2, "1614265330"));
    assert_eq!(headers[CONTENT_TYPE], "application/cloudevents+json");
    let broken = SinkLine { id: "a\nb".into(), ..line };
    assert!(webhook.headers(&broken, Timestamp::default()).is_none());
    assert!(!format!("{webhook:?}{secrets:?}").contains("MfKQ"));
}

#[test]
fn secrets_that_can_not_sign_are_errors() {
    let rows = [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "it does not begin with whsec_"),
        ("whsec_?", "what follows whsec_ is not base64"),
        ("whsec_MfKQ", "it does not have 24 to 64 bytes"),
    ];
    for (text, error) in rows {
        assert_eq!(Secret::parse(text).err(), Some(error), "{text}");
    }
}

#[test]
fn responses_are_results() {
    let answer = |status: u16, seconds: Option<u64>| {
        let status = StatusCode::from_u16(status).unwrap();
        result(PostAnswer { status, retry_after: seconds.map(Duration::from_secs) })
    };
    assert_eq!((answer(200, None), answer(204, Some(9))), (Ok(1), Ok(1)));
    assert_eq!(answer(410, None), Err(SinkError::Gone));
    for status in [302, 400, 404, 429, 500, 503] {
        let after = Some(Span::from_secs(9));
        let why = format!("the receiver answered {status}");
        assert_eq!(answer(status, Some(9)), Err(SinkError::Retry { why, after }));
    }
}
