//! The example as its own process, and clients that speak HTTP to it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollgate_testing::machine;

/// The arguments of the process; without them the test that it runs as does nothing.
const ARGS: &str = "TOLLGATE_EXAMPLE_ARGS";

/// The running example. It is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
    _rules: NamedTempFile,
}

/// Not a test of its own: this is the process. The test binary contains the example, so that what is tested is always
/// what was built.
#[test]
fn the_service_itself() {
    let Ok(args) = std::env::var(ARGS) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(crate::service::run(args.lines().map(str::to_owned))).unwrap();
}

impl Running {
    /// With these rules and further arguments.
    pub(crate) fn start(rules: &str, args: &[&str]) -> Running {
        machine::share();
        let file = NamedTempFile::with_suffix(".yaml").unwrap();
        std::fs::write(&file, rules).unwrap();
        let mut all = vec!["--listen", "127.0.0.1:0", "--rules", file.path().to_str().unwrap()];
        all.extend(args);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "running::the_service_itself", "--nocapture"])
            .env(ARGS, all.join("\n"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| line.split("listening on ").nth(1)?.trim().parse().ok());
        // The rest of its output is short and is not read.
        Running { child, address: address.expect("it does not say where it listens"), _rules: file }
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A response, as far as it was read.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    text: String,
}

impl Heard {
    /// By a limit, or because Redis did not answer in time.
    pub(crate) fn is_refusal(&self) -> bool {
        [429, 503].contains(&self.status)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let head = self.text.split("\r\n\r\n").next()?;
        head.lines().filter_map(|line| line.split_once(": ")).find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    pub(crate) fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }
}

/// A request that was sent, and whose response is pending. Dropping it disconnects.
pub(crate) struct Call(TcpStream);

impl Call {
    /// Sends `METHOD /path`; `None` if nothing listens there.
    pub(crate) async fn send(to: SocketAddr, what: &str, headers: &str) -> Option<Call> {
        let mut stream = TcpStream::connect(to).await.ok()?;
        let request = format!("{what} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        Some(Call(stream))
    }

    /// Reads until the head of the response is complete.
    pub(crate) async fn head(&mut self) -> Option<Heard> {
        let mut bytes = Vec::new();
        while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
            if self.0.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        heard(bytes)
    }

    /// Reads to the end; whether that is the end of the body, not just of the connection.
    pub(crate) async fn ends(mut self) -> bool {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).await.is_ok() && bytes.ends_with(b"0\r\n\r\n")
    }

    /// Reads to the end; `None` if the connection broke before.
    pub(crate) async fn whole(mut self) -> Option<Heard> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).await.ok()?;
        heard(bytes)
    }
}

fn heard(bytes: Vec<u8>) -> Option<Heard> {
    let text = String::from_utf8(bytes).ok()?;
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some(Heard { status, text })
}

/// The headers of most requests.
pub(crate) const KEY: &str = "x-api-key: k\r\n";

/// Sends a request, and reads the whole response.
pub(crate) async fn ask(to: SocketAddr, what: &str) -> Heard {
    let call = Call::send(to, what, KEY).await.expect("nobody listens");
    call.whole().await.expect("no whole answer")
}

/// Repeats a request until the response has this status, or is a refusal by this rule. In Redis, what a request gives
/// back is available a moment after its end; a request before that may be refused, which takes nothing.
pub(crate) async fn until(to: SocketAddr, what: &str, headers: &str, expected: Result<u16, &str>) -> Heard {
    const PATIENCE: Duration = Duration::from_secs(10);
    let asking = async {
        loop {
            let call = Call::send(to, what, headers).await.expect("nobody listens");
            let heard = call.whole().await.expect("no whole answer");
            let as_expected = match expected {
                Ok(status) => heard.status == status,
                Err(rule) => heard.header("x-ratelimit-denied-by") == Some(rule),
            };
            if as_expected {
                return heard;
            }
            assert!(heard.is_refusal(), "{what}: {heard:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{what} is never answered {expected:?}"))
}

/// Waits until this many requests are admitted at once, but not for longer than this.
pub(crate) async fn until_all_are_free(to: SocketAddr, slots: usize, within: Duration) {
    let all_free = async {
        loop {
            let calls: Vec<_> = (0..slots).map(|_| tokio::spawn(ask(to, "GET /slow?ms=200"))).collect();
            let mut passed = 0;
            for call in calls {
                passed += usize::from(call.await.unwrap().status == 200);
            }
            if passed == slots {
                return;
            }
        }
    };
    assert!(tokio::time::timeout(within, all_free).await.is_ok(), "{slots} slots are not free within {within:?}");
}
