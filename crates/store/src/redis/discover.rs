//! Finds out who serves what: asks the nodes of a cluster, or the sentinels.

use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::sleep;

use super::Shared;
use super::address::{Layout, Node};
use super::connect::{Connector, Link, text};
use super::drive::{Backoff, jitter};
use super::topology::{Found, SLOTS, Topology};
use crate::sharded::Failure;

/// How long a node or a sentinel may take to say what it knows.
const TOLD_WITHIN: Duration = Duration::from_millis(500);
/// How often a cluster is asked although nobody has reason to.
const CLUSTER_EVERY: Duration = Duration::from_secs(10);
/// The same for sentinels, whose primary may still answer when it is no longer the primary.
const SENTINEL_EVERY: Duration = Duration::from_secs(5);
/// The shortest time between two discoveries.
const APART: Duration = Duration::from_millis(100);

/// Keeps the map true. Never ends.
pub(super) async fn watch(shared: &Shared) {
    let topology = &shared.topology;
    let every = match topology.layout() {
        Layout::One(_) => return std::future::pending().await,
        Layout::Cluster(_) => CLUSTER_EVERY,
        Layout::Sentinel { .. } => SENTINEL_EVERY,
    };
    let mut backoff = Backoff::default();
    loop {
        match find(topology, &shared.connector).await {
            Ok(found) => {
                topology.apply(&found);
                backoff = Backoff::default();
                sleep(APART).await;
                tokio::select! {
                    () = topology.refresh_wanted() => {}
                    () = sleep(jitter(every)) => {}
                }
            }
            Err(failure) => {
                tracing::debug!(%failure, "nobody tells who serves what");
                topology.fail(failure);
                sleep(backoff.next()).await;
            }
        }
    }
}

async fn find(topology: &Topology, connector: &Connector) -> Result<Found, Failure> {
    match topology.layout() {
        Layout::One(node) => Ok(Found::Primary(node.clone())),
        Layout::Cluster(seeds) => cluster(topology, connector, seeds).await,
        Layout::Sentinel { sentinels, primary } => sentinel(topology, connector, sentinels, primary).await,
    }
}

/// The first answer of a node: of those that we are connected to, and then of those that the address names; in no order, so
/// that a fleet does not ask the same one.
async fn cluster(topology: &Topology, connector: &Connector, seeds: &[Node]) -> Result<Found, Failure> {
    let mut links = topology.links();
    fastrand::shuffle(&mut links);
    let mut last = Failure::Unreachable("no node of the cluster is known".to_owned());
    for mut link in links {
        match slots(&mut link).await {
            Ok(found) => return Ok(found),
            Err(failure) => last = failure,
        }
    }
    let mut seeds: Vec<&Node> = seeds.iter().collect();
    fastrand::shuffle(&mut seeds);
    for seed in seeds {
        let asked = async { slots(&mut connector.link(seed).await?).await };
        match asked.await {
            Ok(found) => return Ok(found),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

async fn slots(link: &mut Link) -> Result<Found, Failure> {
    let answer = link.ask(cmd("CLUSTER").arg("SLOTS"), TOLD_WITHIN).await?;
    match ranges(&answer, link.node()) {
        Some(ranges) if !ranges.is_empty() => Ok(Found::Slots(ranges)),
        _ => Err(Failure::Unreachable(format!("{} knows of no node that serves slots", link.node()))),
    }
}

/// Reads what `CLUSTER SLOTS` answers: for each range its ends and its nodes, the primary first.
fn ranges(answer: &Value, asked: &Node) -> Option<Vec<(u16, u16, Node)>> {
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
            // The node knows its own address as little as we do: it is where we asked.
            None | Some("") => asked.host(),
            // It has none that it would tell.
            Some("?") => None,
            Some(host) => Some(host),
        };
        if let Some(host) = host {
            ranges.push((first, last, Node::tcp(host, u16::try_from(*port).ok()?)));
        }
    }
    Some(ranges)
}

/// The first sentinel's answer that is true: the node that it names says so itself.
async fn sentinel(
    topology: &Topology,
    connector: &Connector,
    sentinels: &[Node],
    name: &str,
) -> Result<Found, Failure> {
    let mut last = Failure::Unreachable("no sentinel is known".to_owned());
    for node in sentinels {
        let asked = async {
            let primary = primary(&mut connector.sentinel(node).await?, name).await?;
            let known = topology.links().into_iter().find(|link| *link.node() == primary);
            let mut link = match known {
                Some(link) => link,
                None => connector.link(&primary).await?,
            };
            is_primary(&mut link, TOLD_WITHIN).await?;
            Ok(Found::Primary(primary))
        };
        match asked.await {
            Ok(found) => return Ok(found),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

async fn primary(link: &mut Link, name: &str) -> Result<Node, Failure> {
    let answer = link.ask(cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name), TOLD_WITHIN).await?;
    let told = match &answer {
        Value::Array(parts) => match &parts[..] {
            [host, port] => text(host).zip(text(port).and_then(|port| port.parse().ok())),
            _ => None,
        },
        _ => None,
    };
    match told {
        Some((host, port)) => Ok(Node::tcp(host, port)),
        None => Err(Failure::Refused(format!("sentinel {} knows no primary of the name {name}", link.node()))),
    }
}

/// Whether a node says that it takes writes.
pub(super) async fn is_primary(link: &mut Link, within: Duration) -> Result<(), Failure> {
    let answer = link.ask(&cmd("ROLE"), within).await?;
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
            let told = read(format!("*2\r\n{}", node(host)).as_bytes()).unwrap();
            let first = expected.map(|host| (0, 5460, Node::tcp(host, 7001)));
            assert_eq!(told, first.into_iter().chain([rest.clone()]).collect::<Vec<_>>());
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
