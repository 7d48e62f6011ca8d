//! The shutdown signal.

use tokio::sync::watch;

/// Sends the shutdown signal.
#[derive(Debug)]
pub struct Closer(watch::Sender<bool>);

/// Receives the shutdown signal; every task that has to end has one.
#[derive(Clone, Debug)]
pub struct Closing(watch::Receiver<bool>);

impl Closer {
    pub fn new() -> (Closer, Closing) {
        let (sender, receiver) = watch::channel(false);
        (Closer(sender), Closing(receiver))
    }

    /// Sends the signal, also to those who start to wait later.
    pub fn close(&self) {
        self.0.send_replace(true);
    }
}

impl Closing {
    /// Completes when shutdown begins.
    pub async fn begun(&mut self) {
        // Without a sender the server has ended.
        let _ = self.0.wait_for(|closing| *closing).await;
    }

    /// Whether shutdown has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }
}
