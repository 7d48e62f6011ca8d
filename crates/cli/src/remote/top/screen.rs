//! The terminal: entered, drawn to, and always restored.

use std::io;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::draw::{self, Palette};
use super::feed;
use super::keys::TopKeysQuery;
use super::state::{KeyAction, ServerUpdate, TopState};
use crate::remote::client::AdminClient;
use crate::remote::{CommandError, CommandResult};

/// Updates and key presses that may wait.
const MAX_WAITING: usize = 16;
/// How often the thread that reads keys checks whether to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Restores the terminal when it is dropped; ratatui's hook does so in a panic.
struct TerminalGuard(DefaultTerminal);

/// An event of the terminal.
enum TerminalEvent {
    Key(KeyEvent),
    /// The size has changed.
    Resized,
}

/// Shows the screen until the user quits or a signal arrives.
pub(super) async fn show(client: &AdminClient, query: TopKeysQuery, palette: Palette) -> CommandResult {
    let failed = |error: io::Error| CommandError::Failed(format!("the terminal can't be used: {error}"));
    let mut signals = TerminalSignals::new().map_err(failed)?;
    // Before the terminal is entered, so that errors stay visible.
    let (overview, rules) = feed::fetch_all(client).await?;
    let mut state = TopState::new(query);
    state.apply(ServerUpdate::Overview(overview));
    state.apply(ServerUpdate::Rules(rules));
    let mut screen = TerminalGuard(ratatui::try_init().map_err(failed)?);
    let (out, mut updates) = mpsc::channel(MAX_WAITING);
    let (query_sender, query_changes) = watch::channel(query);
    let mut events = terminal_events();
    let watching = async {
        loop {
            screen.0.draw(|frame| draw::draw(frame, &state, palette)).map_err(failed)?;
            tokio::select! {
                Some(update) = updates.recv() => state.apply(update),
                key = events.recv() => match key {
                    None => return Ok(()),
                    Some(TerminalEvent::Resized) => {}
                    Some(TerminalEvent::Key(key)) => match state.handle_key(key) {
                        KeyAction::Quit => return Ok(()),
                        KeyAction::FetchKeys => drop(query_sender.send_replace(state.query)),
                        KeyAction::Nothing => {}
                    },
                },
                () = signals.any() => return Ok(()),
            }
        }
    };
    let ended = tokio::select! {
        done = watching => return done,
        ended = feed::follow_stream(client, out.clone()) => ended,
        ended = feed::poll_keys(client, query_changes, out) => ended,
    };
    ended.map_or(Ok(()), Err)
}

/// Reads terminal events on a thread of its own, since reading blocks.
fn terminal_events() -> mpsc::Receiver<TerminalEvent> {
    let (out, events) = mpsc::channel(MAX_WAITING);
    std::thread::spawn(move || {
        while !out.is_closed() {
            let event = match event::poll(POLL_INTERVAL) {
                Ok(true) => event::read(),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            let event = match event {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => TerminalEvent::Key(key),
                Ok(Event::Resize(..)) => TerminalEvent::Resized,
                Ok(_) => continue,
                // The terminal is gone.
                Err(_) => return,
            };
            if out.blocking_send(event).is_err() {
                return;
            }
        }
    });
    events
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The signals that end the program.
struct TerminalSignals([Signal; 3]);

impl TerminalSignals {
    fn new() -> io::Result<TerminalSignals> {
        let [hang_up, interrupt, terminate] = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
        Ok(TerminalSignals([signal(hang_up)?, signal(interrupt)?, signal(terminate)?]))
    }

    async fn any(&mut self) {
        let [hang_up, interrupt, terminate] = &mut self.0;
        tokio::select! {
            _ = hang_up.recv() => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
