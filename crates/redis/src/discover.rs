//! Discovers which node serves which slots, from the nodes of a cluster or from sentinels.

use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::sleep;

use super::Shared;
use super::connect::{Connector, Link, text};
use super::lane_task::{Backoff, jitter};
use super::topology::{Discovery, SLOTS, Topology};
use tollgate_redis_address::{Layout, Node};
use tollgate_store::sharded::Failure;

/// The timeout for an answer of a node or a sentinel.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);
/// The interval at which the slots of a cluster are discovered without a request.
const CLUSTER_INTERVAL: Duration = Duration::from_secs(10);
/// The same for sentinels. A former primary may still answer.
const SENTINEL_INTERVAL: Duration = Duration::from_secs(5);
/// The interval after a node failed.
const HURRIED_INTERVAL: Duration = Duration::from_millis(500);
/// The minimum time between two discoveries.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Keeps the map up to date. Never returns.
pub(super) async fn watch(shared: &Shared) {
    let topology = &shared.topology;
    let refresh_interval = match topology.layout() {
        Layout::One(_) => return std::future::pending().await,
        Layout::Cluster(_) => CLUSTER_INTERVAL,
        Layout::Sentinel { .. } => SENTINEL_INTERVAL,
    };
    let mut backoff = Backoff::default();
    loop {
        match find(topology, &shared.connector).await {
            Ok(discovery) => {
                topology.apply(&discovery);
                backoff = Backoff::default();
                sleep(MIN_INTERVAL).await;
                let interval = if topology.is_hurried() { HURRIED_INTERVAL } else { refresh_interval };
                tokio::select! {
                    () = topology.wait_for_refresh() => {}
                    () = sleep(jitter(interval)) => {}
                }
            }
            Err(failure) => {
                tracing::debug!(%failure, "the discovery of Redis nodes failed");
                topology.fail(failure);
                sleep(backoff.next()).await;
            }
        }
    }
}

async fn find(topology: &Topology, connector: &Connector) -> Result<Discovery, Failure> {
    match topology.layout() {
        Layout::One(node) => Ok(Discovery::Primary(node.clone())),
        Layout::Cluster(seeds) => cluster(topology, connector, seeds).await,
        Layout::Sentinel { sentinels, primary } => sentinel(topology, connector, sentinels, primary).await,
    }
}

/// The first answer of a node: of the connected nodes, then of the nodes in the address. In random order, so that a
/// fleet does not query the same node.
async fn cluster(topology: &Topology, connector: &Connector, seeds: &[Node]) -> Result<Discovery, Failure> {
    let mut links = topology.links();
    fastrand::shuffle(&mut links);
    let mut last = Failure::Unreachable("no node of the cluster is known".to_owned());
    for mut link in links {
        match slots(&mut link).await {
            Ok(discovery) => return Ok(discovery),
            Err(failure) => last = failure,
        }
    }
    let mut seeds: Vec<&Node> = seeds.iter().collect();
    fastrand::shuffle(&mut seeds);
    for seed in seeds {
        let query = async { slots(&mut connector.link(seed).await?).await };
        match query.await {
            Ok(discovery) => return Ok(discovery),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

async fn slots(link: &mut Link) -> Result<Discovery, Failure> {
    let answer = link.call(cmd("CLUSTER").arg("SLOTS"), CALL_TIMEOUT).await?;
    match ranges(&answer, link.node()) {
        Some(ranges) if !ranges.is_empty() => Ok(Discovery::Slots(ranges)),
        _ => Err(Failure::Unreachable(format!("{} knows of no node that serves slots", link.node()))),
    }
}

/// Parses the answer of `CLUSTER SLOTS`: for each range its ends and its nodes, the primary first.
fn ranges(answer: &Value, queried: &Node) -> Option<Vec<(u16, u16, Node)>> {
    let Value::Array(entries) = answer else { return None };
    let mut ranges = Vec::new();
    for entry in entries {
        let Value::Array(parts) = entry else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..] else { return None };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        if first > last || last >= SLOTS {
            return None;
        }
        let [host, Value::Int(port), ..] = &primary[..] else { return None };
        let host = match text(host) {
            // The node does not know its own address: it is the one that we connected to.
            None | Some("") => queried.host(),
            // The node has no address that it announces.
            Some("?") => None,
            Some(host) => Some(host),
        };
        if let Some(host) = host {
            ranges.push((first, last, Node::tcp(host, u16::try_from(*port).ok()?)));
        }
    }
    Some(ranges)
}

/// The first sentinel's answer that the named node confirms.
async fn sentinel(
    topology: &Topology,
    connector: &Connector,
    sentinels: &[Node],
    name: &str,
) -> Result<Discovery, Failure> {
    let mut last = Failure::Unreachable("no sentinel is known".to_owned());
    for node in sentinels {
        let query = async {
            let primary = primary(&mut connector.sentinel(node).await?, name).await?;
            let known = topology.links().into_iter().find(|link| *link.node() == primary);
            let mut link = match known {
                Some(link) => link,
                None => connector.link(&primary).await?,
            };
            is_primary(&mut link, CALL_TIMEOUT).await?;
            Ok(Discovery::Primary(primary))
        };
        match query.await {
            Ok(discovery) => return Ok(discovery),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

async fn primary(link: &mut Link, name: &str) -> Result<Node, Failure> {
    let answer = link.call(cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name), CALL_TIMEOUT).await?;
    let parsed = match &answer {
        Value::Array(parts) => match &parts[..] {
            [host, port] => text(host).zip(text(port).and_then(|port| port.parse().ok())),
            _ => None,
        },
        _ => None,
    };
    match parsed {
        Some((host, port)) => Ok(Node::tcp(host, port)),
        None => Err(Failure::Refused(format!("sentinel {} knows no primary of the name {name}", link.node()))),
    }
}

/// Checks that a node is a primary.
pub(super) async fn is_primary(link: &mut Link, timeout: Duration) -> Result<(), Failure> {
    let answer = link.call(&cmd("ROLE"), timeout).await?;
    let role = match &answer {
        Value::Array(parts) => parts.first().and_then(text),
        _ => None,
    };
    match role {
        Some("master") => Ok(()),
        _ => Err(Failure::Refused(format!("{} is not a primary", link.node()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: &[u8]) -> Option<Vec<(u16, u16, Node)>> {
        ranges(&redis::parse_redis_value(answer).unwrap(), &Node::tcp("10.0.0.1", 7000))
    }

    #[test]
    fn the_answer_of_a_node_is_read() {
        let node = |host: &str| {
            format!(
                "*3\r\n:0\r\n:5460\r\n*3\r\n{host}:7001\r\n$1\r\na\r\n*3\r\n:5461\r\n:16383\r\n*2\r\n$3\r\nb.c\r\n:7002\r\n"
            )
        };
        let rest = (5461, 16383, Node::tcp("b.c", 7002));
        for (host, expected) in [
            ("$9\r\n127.0.0.1\r\n", Some("127.0.0.1")),
            ("$0\r\n\r\n", Some("10.0.0.1")),
            ("$-1\r\n", Some("10.0.0.1")),
            ("$1\r\n?\r\n", None),
        ] {
            let parsed = read(format!("*2\r\n{}", node(host)).as_bytes()).unwrap();
            let first = expected.map(|host| (0, 5460, Node::tcp(host, 7001)));
            assert_eq!(parsed, first.into_iter().chain([rest.clone()]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn garbage_is_none() {
        let wrong = [
            "+OK\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n*2\r\n:0\r\n:1\r\n",
            "*1\r\n*3\r\n:5\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:-1\r\n:1\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:70000\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n$1\r\na\r\n",
        ];
        for answer in wrong {
            assert_eq!(read(answer.as_bytes()), None, "{answer:?}");
        }
    }
}
