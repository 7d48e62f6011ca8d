//! The word that the server is about to stop.

use tokio::sync::watch;

/// Held by the one who stops the server.
#[derive(Debug)]
pub(crate) struct Closer(watch::Sender<bool>);

/// Held by everyone who must end what they do.
#[derive(Clone, Debug)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closer {
    pub(crate) fn new() -> (Closer, Closing) {
        let (sender, receiver) = watch::channel(false);
        (Closer(sender), Closing(receiver))
    }

    /// Says it, to those who listen now and to those who will.
    pub(crate) fn close(&self) {
        self.0.send_replace(true);
    }
}

impl Closing {
    /// Ends when the server is about to stop.
    pub(crate) async fn begun(&mut self) {
        // Without a sender the server is gone.
        let _ = self.0.wait_for(|closing| *closing).await;
    }

    /// Whether that has been said.
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }
}
