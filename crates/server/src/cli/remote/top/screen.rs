//! The terminal: taken, drawn to, and given back whatever happens.

use std::io;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::draw::{self, Paint};
use super::feed;
use super::state::{Heard, State, Then, Wanted};
use crate::cli::remote::client::Remote;
use crate::cli::remote::{Done, Failure};

/// What is heard and not drawn yet.
const WAITING: usize = 16;
/// How long the thread that reads keys waits before it looks whether anybody wants them.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The terminal is given back when this is dropped; ratatui's own hook does it when something panics.
struct Screen(DefaultTerminal);

/// What happens at the terminal.
enum Pressed {
    Key(KeyEvent),
    /// It has another size.
    Resized,
}

/// Shows it until one quits, or a signal comes.
pub(super) async fn show(remote: &Remote, wanted: Wanted, paint: Paint) -> Done {
    let undone = |error: io::Error| Failure::Undone(format!("the terminal can't be used: {error}"));
    let mut signals = Signals::new().map_err(undone)?;
    // Asked before the screen is taken: who is refused, or names a server that is not there, reads why.
    let (overview, rules) = feed::whole(remote).await?;
    let mut state = State::new(wanted);
    state.hear(Heard::Overview(overview));
    state.hear(Heard::Rules(rules));
    let mut screen = Screen(ratatui::try_init().map_err(undone)?);
    let (out, mut heard) = mpsc::channel(WAITING);
    let (wants, is_wanted) = watch::channel(wanted);
    let mut pressed = keys();
    let watching = async {
        loop {
            screen.0.draw(|frame| draw::draw(frame, &state, paint)).map_err(undone)?;
            tokio::select! {
                Some(told) = heard.recv() => state.hear(told),
                key = pressed.recv() => match key {
                    None => return Ok(()),
                    Some(Pressed::Resized) => {}
                    Some(Pressed::Key(key)) => match state.press(key) {
                        Then::Quit => return Ok(()),
                        Then::AskKeys => drop(wants.send_replace(state.wanted)),
                        Then::Nothing => {}
                    },
                },
                () = signals.any() => return Ok(()),
            }
        }
    };
    let ended = tokio::select! {
        done = watching => return done,
        ended = feed::listen(remote, out.clone()) => ended,
        ended = feed::ask_keys(remote, is_wanted, out) => ended,
    };
    ended.map_or(Ok(()), Err)
}

/// Keys, read on a thread of their own: reading them waits.
fn keys() -> mpsc::Receiver<Pressed> {
    let (out, pressed) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        while !out.is_closed() {
            let event = match event::poll(LOOK_EVERY) {
                Ok(true) => event::read(),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            let told = match event {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Pressed::Key(key),
                Ok(Event::Resize(..)) => Pressed::Resized,
                Ok(_) => continue,
                // The terminal is gone.
                Err(_) => return,
            };
            if out.blocking_send(told).is_err() {
                return;
            }
        }
    });
    pressed
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// What ends it from outside.
struct Signals([Signal; 3]);

impl Signals {
    fn new() -> io::Result<Signals> {
        let [hang_up, interrupt, terminate] = [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()];
        Ok(Signals([signal(hang_up)?, signal(interrupt)?, signal(terminate)?]))
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
