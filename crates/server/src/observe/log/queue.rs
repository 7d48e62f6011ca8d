//! Lines that wait to be written, so that whoever logs does not wait for standard error.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tracing_subscriber::fmt::MakeWriter;

/// A thread that writes lines. A pipe that nobody reads fills up, and a server that then waits for it decides nothing; so
/// lines past [`MOST_WAITING`] are lost, counted, and told when there is room again.
#[derive(Debug)]
pub(super) struct Lines {
    sender: Sender<Message>,
}

/// The other end: takes lines and never waits.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    sender: Sender<Message>,
    waiting: Arc<AtomicUsize>,
    lost: Counter,
}

#[derive(Debug)]
enum Message {
    Line(Box<[u8]>),
    /// Everything before this is to be written, and that told.
    Flush(Sender<()>),
}

/// The most bytes that wait.
const MOST_WAITING: usize = 1 << 20;
/// How long the end of the process waits for the last lines.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);

impl Lines {
    /// Writes to this from now on.
    pub(super) fn to(output: impl Write + Send + 'static, lost: Counter) -> io::Result<(Lines, Writer)> {
        let (sender, receiver) = mpsc::channel();
        let writer = Writer { sender: sender.clone(), waiting: Arc::default(), lost: lost.clone() };
        let waiting = writer.waiting.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&receiver, output, &waiting, &lost))?;
        Ok((Lines { sender }, writer))
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let (done, written) = mpsc::channel();
        if self.sender.send(Message::Flush(done)).is_ok() {
            // Whoever reads the log has had the time.
            let _ = written.recv_timeout(FLUSHED_WITHIN);
        }
    }
}

impl Write for Writer {
    /// Takes a line, whole; it was formatted before.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.waiting.fetch_add(line.len(), Ordering::Relaxed) + line.len() > MOST_WAITING {
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

impl<'w> MakeWriter<'w> for Writer {
    type Writer = Writer;

    fn make_writer(&'w self) -> Writer {
        self.clone()
    }
}

/// Ends when no end for taking lines is left.
fn write_all(lines: &Receiver<Message>, mut output: impl Write, waiting: &AtomicUsize, lost: &Counter) {
    let mut told = lost.get();
    for message in lines {
        match message {
            Message::Line(line) => {
                // There is nobody left to tell.
                let _ = output.write_all(&line);
                waiting.fetch_sub(line.len(), Ordering::Relaxed);
            }
            Message::Flush(done) => {
                let _ = output.flush();
                let _ = done.send(());
            }
        }
        let lines = lost.get();
        if lines > told {
            tracing::warn!(lines = lines - told, "log lines were lost: standard error did not take them in time");
            told = lines;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Gets nothing written while the test holds the lock.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
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
        let output = Slow::default();
        let (lines, mut writer) = Lines::to(output.clone(), Counter::default()).unwrap();
        (0..1_000).for_each(|line| writeln!(writer.by_ref(), "line {line}").unwrap());
        drop(lines);
        let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        let expected: String = (0..1_000).map(|line| format!("line {line}\n")).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn whoever_logs_does_not_wait_and_what_is_lost_is_counted() {
        let (output, lost) = (Slow::default(), Counter::default());
        let (lines, mut writer) = Lines::to(output.clone(), lost.clone()).unwrap();
        let line = [b'x'; 1024];
        {
            let _full = output.0.lock().unwrap();
            // The bound is 1,024 such lines; the one that is being written counts too.
            (0..1_500).for_each(|_| writer.write_all(&line).unwrap());
            assert_eq!(lost.get(), 476);
        }
        drop(lines);
        assert_eq!(output.0.lock().unwrap().len(), 1_024 * 1_024);
        // There is room again.
        writer.write_all(&line).unwrap();
        assert_eq!(lost.get(), 476);
        assert_eq!(writer.waiting.load(Ordering::Relaxed) % 1_024, 0);
    }
}
