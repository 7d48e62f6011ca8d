//! A queue of log lines, so that logging never blocks on standard error.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::fmt::MakeWriter;

/// A thread that writes lines. A pipe that nobody reads fills up, and the server must not wait for it: lines beyond
/// [`MAX_WAITING_BYTES`] are lost, counted, and reported when there is room again.
#[derive(Debug)]
pub(super) struct LogQueue {
    sender: Sender<Message>,
}

/// Accepts lines and never blocks.
#[derive(Clone, Debug)]
pub(super) struct QueueWriter {
    sender: Sender<Message>,
    waiting: Arc<AtomicUsize>,
    lost: Counter,
}

#[derive(Debug)]
enum Message {
    Line(Box<[u8]>),
    /// Acknowledged when all lines before it are written.
    Flush(Sender<()>),
}

/// Bytes of lines that may wait.
const MAX_WAITING_BYTES: usize = 1 << 20;
/// The wait for the last lines at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

impl LogQueue {
    /// Starts the thread, which writes to `output`.
    pub(super) fn start(output: impl Write + Send + 'static, lost: Counter) -> io::Result<(LogQueue, QueueWriter)> {
        let (sender, receiver) = mpsc::channel();
        let writer = QueueWriter { sender: sender.clone(), waiting: Arc::default(), lost: lost.clone() };
        let waiting = writer.waiting.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&receiver, output, &waiting, &lost))?;
        Ok((LogQueue { sender }, writer))
    }
}

impl Drop for LogQueue {
    fn drop(&mut self) {
        let (done, written) = mpsc::channel();
        if self.sender.send(Message::Flush(done)).is_ok() {
            // A reader that is slower than this loses the last lines.
            let _ = written.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

impl Write for QueueWriter {
    /// Queues a formatted line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.waiting.fetch_add(line.len(), Ordering::Relaxed) + line.len() > MAX_WAITING_BYTES {
            self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
            self.lost.inc();
        } else if self.sender.send(Message::Line(line.into())).is_err() {
            self.lost.inc();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for QueueWriter {
    type Writer = QueueWriter;

    fn make_writer(&'w self) -> QueueWriter {
        self.clone()
    }
}

/// Runs until the last writer is dropped.
fn write_all(lines: &Receiver<Message>, mut output: impl Write, waiting: &AtomicUsize, lost: &Counter) {
    let mut reported = lost.get();
    for message in lines {
        match message {
            Message::Line(line) => {
                // There is nowhere to report a failure.
                let _ = output.write_all(&line);
                waiting.fetch_sub(line.len(), Ordering::Relaxed);
            }
            Message::Flush(done) => {
                let _ = output.flush();
                let _ = done.send(());
            }
        }
        let lines = lost.get();
        if lines > reported {
            tracing::warn!(lines = lines - reported, "log lines were lost: standard error was too slow");
            reported = lines;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// An output that blocks while the test holds the lock.
    #[derive(Clone, Default)]
    struct SlowOutput(Arc<Mutex<Vec<u8>>>);

    impl Write for SlowOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_in_order_by_the_end() {
        let output = SlowOutput::default();
        let (queue, mut writer) = LogQueue::start(output.clone(), Counter::default()).unwrap();
        (0..1_000).for_each(|line| writeln!(writer.by_ref(), "line {line}").unwrap());
        drop(queue);
        let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        let expected: String = (0..1_000).map(|line| format!("line {line}\n")).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn logging_does_not_block_and_lost_lines_are_counted() {
        let (output, lost) = (SlowOutput::default(), Counter::default());
        let (queue, mut writer) = LogQueue::start(output.clone(), lost.clone()).unwrap();
        let line = [b'x'; 1024];
        {
            let _full = output.0.lock().unwrap();
            // The bound is 1,024 such lines; the one that is being written counts too.
            (0..1_500).for_each(|_| writer.write_all(&line).unwrap());
            assert_eq!(lost.get(), 476);
        }
        drop(queue);
        assert_eq!(output.0.lock().unwrap().len(), 1_024 * 1_024);
        // There is room again.
        writer.write_all(&line).unwrap();
        assert_eq!(lost.get(), 476);
        assert_eq!(writer.waiting.load(Ordering::Relaxed) % 1_024, 0);
    }
}
