//! Requests through a gateway: from a client's connection to an upstream and back, all in this process.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use memchr::memmem::find_iter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tollgate_gateway::model::GatewayConfig;
use tollgate_gateway::{Gateway, GatewayParts, GatewayPlan};
use tollgate_http::request_target::PathNormalization;
use tollgate_net::workers::BusyTimes;

use super::Iteration;
use super::decisions::callers;
use crate::client::http1_end;
use crate::server::{Server, gate_with, style};

/// No rule applies.
const PLAIN: &str = "
domain: api
rules:
  - {name: by-customer, key: [customer], limit: 1000000/day}
";

const TWO_RATES: &str = "
domain: api
rules:
  - {name: by-key, key: [api_key], limit: 1000000/hour}
  - {name: all, key: [], limit: 100000000/minute}
";

const REFUSING: &str = "
domain: api
rules:
  - {name: by-key, key: [api_key], limit: 1000000/hour}
  - {name: all, key: [], limit: 1/day}
";

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

pub(super) fn plain() -> Iteration {
    forwarded(PLAIN)
}

pub(super) fn two_rates() -> Iteration {
    forwarded(TWO_RATES)
}

pub(super) fn refused() -> Iteration {
    forwarded(REFUSING)
}

/// GETs of callers in turn, through a gateway with these rules.
fn forwarded(rules: &str) -> Iteration {
    let server = Server::new();
    let gateway = gateway(&server, rules);
    gets_on(&server, &gateway, &callers())
}

/// A gateway with two rates.
pub(crate) fn with_rates(server: &Server) -> Arc<Gateway> {
    gateway(server, TWO_RATES)
}

/// GETs of these callers in turn, on a new connection.
pub(crate) fn gets_on(server: &Rc<Server>, gateway: &Arc<Gateway>, callers: &[String]) -> Iteration {
    let (server, mut client) = (server.clone(), server.connect(gateway));
    let requests: Vec<Vec<u8>> = callers.iter().map(|caller| get(caller)).collect();
    let mut next = 0;
    Box::new(move || {
        next = (next + 1) % requests.len();
        let called = server.runtime.block_on(client.call(&requests[next], http1_end));
        assert!(called.is_ok(), "the request is answered: {called:?}");
    })
}

fn gateway(server: &Server, rules: &str) -> Arc<Gateway> {
    let upstream = server.runtime.block_on(start_upstream());
    // What depends on the time that passes is off, or the figures would depend on the load of the machine: windows of the cap, and
    // for how long a connection was not used, which matters to requests that may be repeated.
    let config = format!(
        "listen: 127.0.0.1:0\ndomain: api\nattributes: {{api_key: {{header: X-Api-Key}}}}\nretries: off\n\
         upstreams: {{app: {{servers: [{upstream}], adaptive: off}}}}\nroutes:\n\
         \x20 - {{name: charges, match: \"POST /v1/charges\", upstream: app}}\n\
         \x20 - {{name: orders, match: \"/v1/*\", upstream: app}}\n"
    );
    let gate = gate_with("gateway", rules);
    let (normalization, workers) = (PathNormalization::default(), BusyTimes::default());
    let parts = GatewayParts { gate, style: style(), normalization, workers };
    Arc::new(Gateway::new(parts, plan(&config)))
}

fn plan(config: &str) -> GatewayPlan {
    let read = GatewayConfig::read("gateway.yaml", config, Path::new(""));
    let plan = read.map(|read| GatewayPlan::new(read.config, None));
    match plan {
        Ok(Ok(plan)) => plan,
        problems => unreachable!("the configuration is sound: {problems:?}"),
    }
}

/// An upstream that answers every head with the same bytes.
async fn start_upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.unwrap_or_else(|error| unreachable!("{error}"));
    let address = listener.local_addr().map_or_else(|error| unreachable!("{error}"), |address| address.to_string());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut room = [0; 4096];
                while let Ok(read) = stream.read(&mut room).await
                    && read > 0
                {
                    for _ in find_iter(&room[..read], b"\r\n\r\n") {
                        let _ = stream.write_all(ANSWER).await;
                    }
                }
            });
        }
    });
    address
}

fn get(caller: &str) -> Vec<u8> {
    format!(
        "GET /v1/orders/42?expand=items HTTP/1.1\r\nhost: api.example.com\r\nuser-agent: orders-client/1.4.2 (linux; x86_64)\r\n\
         accept: application/json\r\naccept-encoding: gzip, br\r\naccept-language: en-GB,en;q=0.8\r\n\
         traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nx-api-key: {caller}\r\n\r\n"
    )
    .into_bytes()
}
