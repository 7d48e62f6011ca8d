//! Sends bytes through a proxy, and says what its upstream got of them.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::peers::Peer;
use crate::recorder::{Forwarded, Recorded, Recorder};
use crate::support::TestGateway;

/// A proxy with an upstream of its own.
pub(crate) struct Lane {
    address: SocketAddr,
    recorder: Recorder,
}

/// What became of some bytes.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The first lines of the responses.
    pub(crate) statuses: Vec<String>,
    pub(crate) recorded: Vec<Recorded>,
}

/// How long a connection has to be silent until its proxy waits for more. Short at first; what looks wrong is tried again
/// with more patience, so that a busy machine costs time only.
pub(crate) const HASTY: Duration = Duration::from_millis(100);
pub(crate) const PATIENT: Duration = Duration::from_secs(3);

/// How long nothing comes of an earlier try, when it is over.
const QUIET: Duration = Duration::from_secs(1);

/// The largest answer that is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

impl Lane {
    /// Ours and the gateway, which has to live as long.
    pub(crate) async fn ours() -> (Lane, TestGateway) {
        let recorder = Recorder::start().await;
        let gateway = TestGateway::to(&[recorder.address]).await;
        (Lane { address: gateway.address, recorder }, gateway)
    }

    pub(crate) async fn nginx(count: usize) -> (Vec<Lane>, Peer) {
        let recorders = recorders(count).await;
        let peer = Peer::nginx(&recorders.iter().map(|recorder| recorder.address).collect::<Vec<_>>()).await;
        (lanes(recorders, &peer), peer)
    }

    pub(crate) async fn envoy(count: usize) -> (Vec<Lane>, Peer) {
        let recorders = recorders(count).await;
        let peer = Peer::envoy(&recorders.iter().map(|recorder| recorder.address).collect::<Vec<_>>()).await;
        (lanes(recorders, &peer), peer)
    }

    /// Sends these parts on a connection of their own, and waits until the proxy closes it or is silent.
    pub(crate) async fn send(&self, parts: &[&[u8]], patience: Duration) -> Outcome {
        if patience > HASTY {
            self.settle().await;
        }
        self.recorder.take();
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for part in parts {
            // The proxy may have closed it.
            let _ = stream.write_all(part).await;
            tokio::task::yield_now().await;
        }
        let mut answer = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let before = self.recorder.count();
            match tokio::time::timeout(patience, stream.read(&mut buffer)).await {
                Ok(Ok(read @ 1..)) if answer.len() < MAX_ANSWER_BYTES => answer.extend_from_slice(&buffer[..read]),
                Ok(_) => break,
                // The upstream is at work.
                Err(_) if self.recorder.count() > before => {}
                Err(_) => break,
            }
        }
        let text = String::from_utf8_lossy(&answer);
        // Bodies of errors do not begin a line like this.
        let statuses = text.split("HTTP/1.").skip(1).filter_map(|one| one.get(2..5)).map(str::to_owned).collect();
        Outcome { statuses, recorded: self.recorder.take() }
    }
}

impl Lane {
    /// Waits until nothing comes any more of what was sent with less patience.
    async fn settle(&self) {
        loop {
            let before = self.recorder.count();
            tokio::time::sleep(QUIET).await;
            if self.recorder.count() == before {
                return;
            }
        }
    }
}

async fn recorders(count: usize) -> Vec<Recorder> {
    let mut recorders = Vec::new();
    for _ in 0..count {
        recorders.push(Recorder::start().await);
    }
    recorders
}

fn lanes(recorders: Vec<Recorder>, peer: &Peer) -> Vec<Lane> {
    let lanes = recorders.into_iter().zip(&peer.addresses);
    lanes.map(|(recorder, address)| Lane { address: *address, recorder }).collect()
}

impl Outcome {
    /// Whether all that was forwarded is what another proxy forwards too, or the beginning of it; and nothing of it has more
    /// than one reading.
    pub(crate) fn is_within(&self, other: &Outcome) -> bool {
        let theirs: Vec<&Forwarded> = other.recorded.iter().map_while(Recorded::request).collect();
        self.recorded.len() <= theirs.len()
            && self.recorded.iter().zip(theirs).all(|(ours, theirs)| {
                ours.request().is_some_and(|ours| ours.method == theirs.method && ours.body == theirs.body)
            })
    }

    /// Without what follows a request of an unusual method: any token is one, but nginx knows only capital letters.
    pub(crate) fn of_usual_methods(mut self) -> Outcome {
        let is_usual = |recorded: &Recorded| {
            let method = recorded.request().map(|request| &request.method);
            method.is_none_or(|method| method.bytes().all(|byte| byte.is_ascii_uppercase() || b"-_".contains(&byte)))
        };
        let usual = self.recorded.iter().take_while(|recorded| is_usual(recorded)).count();
        self.recorded.truncate(usual);
        self
    }
}
