//! Tests of the timeouts of an attempt, on a clock that is moved by hand.

use std::future::pending;
use std::path::Path;

use http::{HeaderMap, HeaderValue, Uri};
use tokio::time::{sleep, timeout};

use super::*;
use crate::model::GatewayConfig;

const CONFIG: &str = "
listen: 127.0.0.1:8000
upstreams: {app: {servers: [127.0.0.1:9000]}}
routes: [{name: all, match: /*, upstream: app, timeouts: {request_idle: 30s, response: 2s}}]
";

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(10);

fn config() -> GatewayConfig {
    GatewayConfig::read("gateway.yaml", CONFIG, Path::new("")).unwrap().config
}

fn route() -> RouteConfig {
    config().routes.remove(0)
}

fn upstream() -> Upstream {
    Upstream::new(config().upstreams.remove(0)).unwrap()
}

/// A request whose body is being sent.
fn outgoing() -> Outgoing {
    let head = RequestHead {
        method: Method::POST,
        target: Uri::from_static("/"),
        authority: HeaderValue::from_static("x"),
        headers: HeaderMap::new(),
        is_tls: false,
        interim: None,
    };
    Outgoing { head, body: ForwardedBody::Whole(None), upload: Some(Arc::default()), deadline: None }
}

/// The outcome of an attempt that gets no response, if there is one within this time.
async fn outcome(upload: impl AsyncFn(&UploadProgress), within_time: Duration) -> Option<ForwardError> {
    let (route, out, upstream) = (route(), outgoing(), upstream());
    let mut cap = CapSlot::acquire(&upstream, None, tollgate_shed::Class::Post).unwrap();
    let attempt = timeout(within_time, within(&route, &out, &mut cap, pending::<()>()));
    let uploading = async {
        upload(out.upload.as_deref().unwrap()).await;
        pending::<()>().await;
    };
    tokio::select! {
        outcome = attempt => outcome.ok().map(Result::unwrap_err),
        () = uploading => None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_for_a_response_begins_at_the_end_of_the_body() {
    for seconds in [0, 1, 2, 3, 29, 31] {
        let upload = async |progress: &UploadProgress| {
            for _ in 0..seconds {
                progress.request(true);
                sleep(SECOND).await;
            }
            progress.set(UploadState::Done);
        };
        let due = SECOND * (seconds + 2);
        let early = outcome(upload, due - MOMENT).await;
        assert!(early.is_none(), "{seconds}: {early:?}");
        let late = outcome(upload, due + MOMENT).await;
        assert!(matches!(late, Some(ForwardError::TimedOut(time)) if time == 2 * SECOND), "{seconds}: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_has_to_take_parts_of_the_body() {
    let stuck = async |progress: &UploadProgress| progress.request(false);
    let error = outcome(stuck, 33 * SECOND).await;
    assert!(matches!(error, Some(ForwardError::TimedOut(time)) if time == 30 * SECOND), "{error:?}");
    let taking = async |progress: &UploadProgress| {
        loop {
            progress.request(false);
            sleep(29 * SECOND).await;
        }
    };
    assert!(outcome(taking, 1_000 * SECOND).await.is_none());
    // The body itself ends if its client is too slow.
    let awaited = async |progress: &UploadProgress| progress.request(true);
    assert!(outcome(awaited, 1_000 * SECOND).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_in_flight_while_the_server_is_awaited_and_not_its_client() {
    let (route, out, upstream) = (route(), outgoing(), upstream());
    let mut cap = CapSlot::acquire(&upstream, None, tollgate_shed::Class::Post).unwrap();
    let progress = out.upload.clone().unwrap();
    let in_flight = || upstream.cap.status().in_flight;
    let uploading = async {
        for (is_awaited, expected) in [(true, 0), (false, 1), (true, 0), (false, 1)] {
            progress.request(is_awaited);
            sleep(2 * MAX_UPLOAD_LOOK).await;
            assert_eq!(in_flight(), expected, "awaited: {is_awaited}");
        }
        progress.request(true);
        sleep(2 * MAX_UPLOAD_LOOK).await;
        progress.set(UploadState::Done);
        sleep(SECOND).await;
        assert_eq!(in_flight(), 1, "the response is awaited");
        pending::<()>().await;
    };
    tokio::select! {
        late = within(&route, &out, &mut cap, pending::<()>()) => {
            assert!(matches!(late, Err(ForwardError::TimedOut(_))), "{late:?}");
        }
        () = uploading => {}
    }
    progress.request(true);
    cap.release(RequestEnd::Unsampled);
    assert_eq!(in_flight(), 0);
}
