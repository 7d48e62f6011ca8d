//! Standard output as a sink. It may block, so a thread writes to it.

use std::io::{self, Write};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, oneshot};

use crate::sink::{Sending, Sink, SinkError, SinkLine};

/// A thread that writes lines to standard output.
#[derive(Debug)]
pub struct StdoutSink {
    batches: SyncSender<LineBatch>,
    /// The batch in flight: its lines, and the result.
    in_flight: AsyncMutex<Option<(usize, oneshot::Receiver<io::Result<()>>)>>,
}

/// Lines, and the receiver of the result.
type LineBatch = (Vec<SinkLine>, oneshot::Sender<io::Result<()>>);

/// Time limit of a write before standard output counts as stuck.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Lines of one write.
const MAX_LINES: usize = 1_000;

const STUCK: &str = "standard output is blocked";
const GONE: &str = "the thread that writes to standard output is gone";

impl StdoutSink {
    /// Starts the thread. Tests write to something else.
    ///
    /// # Errors
    /// If the thread can't be started.
    pub fn start(mut to: impl Write + Send + 'static) -> io::Result<StdoutSink> {
        let (batches, waiting) = mpsc::sync_channel::<LineBatch>(1);
        thread::Builder::new().name("lines".to_owned()).spawn(move || {
            for (batch, done) in waiting {
                let mut text = String::new();
                for line in batch {
                    text.push_str(&line.text);
                    text.push('\n');
                }
                // The receiver may be gone.
                let _ = done.send(to.write_all(text.as_bytes()).and_then(|()| to.flush()));
            }
        })?;
        Ok(StdoutSink { batches, in_flight: AsyncMutex::default() })
    }

    /// Lines that are in flight when the time is up are answered by the next call, which has to begin with them.
    async fn write(&self, batch: &[SinkLine]) -> Result<usize, SinkError> {
        let retry = || SinkError::Retry { why: STUCK.to_owned(), after: None };
        let mut in_flight = self.in_flight.lock().await;
        let (lines, mut done) = match in_flight.take() {
            Some(before) => before,
            None => {
                let (done, written) = oneshot::channel();
                match self.batches.try_send((batch.to_vec(), done)) {
                    Ok(()) => (batch.len(), written),
                    Err(TrySendError::Full(_)) => return Err(retry()),
                    Err(TrySendError::Disconnected(_)) => return Err(SinkError::Permanent(GONE.to_owned())),
                }
            }
        };
        match tokio::time::timeout(WRITE_TIMEOUT, &mut done).await {
            Ok(Ok(Ok(()))) => Ok(lines),
            Ok(Ok(Err(error))) => Err(SinkError::Permanent(format!("standard output can't be written: {error}"))),
            Ok(Err(_)) => Err(SinkError::Permanent(GONE.to_owned())),
            Err(_) => {
                *in_flight = Some((lines, done));
                Err(retry())
            }
        }
    }
}

impl Sink for StdoutSink {
    fn kind(&self) -> &'static str {
        "stdout"
    }

    fn max_lines(&self) -> usize {
        MAX_LINES
    }

    fn send<'a>(&'a self, lines: &'a [SinkLine]) -> Sending<'a> {
        Box::pin(self.write(lines))
    }
}
