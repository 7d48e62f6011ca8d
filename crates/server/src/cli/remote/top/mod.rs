//! `tollgate top`: what a server does, live, in a terminal.
//!
//! ```text
//! feed ─ Heard ─▶ State ◀─ keys ─ screen        one task: what is heard and what is pressed changes the state, and it is drawn
//! ```

mod draw;
mod feed;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod units;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::client::Remote;
use super::server::ServerArgs;
use super::{Done, Failure, say};
use draw::Paint;
use state::{By, Heard, State, Wanted, Window};

/// What a server does, live.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: a d w u n sort the rules by allow, deny, would deny, utilisation, name; / filters them; t and m choose top \
    keys; ? helps; q quits. NO_COLOR=1 does without colours.\n\nExamples:\n  \
    tollgate top\n  \
    tollgate top --server https://limits.internal:8070 --token-file token\n  \
    tollgate top --once --json | jq '.overview.rates.deny'"
)]
pub(in crate::cli) struct Top {
    /// Look once, write it and end: with --json one object, else what the screen would show
    #[arg(long)]
    once: bool,
    /// Top keys by what
    #[arg(long, value_enum, default_value = "refusals")]
    by: By,
    /// Of the last so long
    #[arg(long, value_enum, default_value = "5m")]
    window: Window,
    #[command(flatten)]
    server: ServerArgs,
}

/// What is written where there is no screen.
const WIDTH: u16 = 100;
const HEIGHT: u16 = 40;

impl Top {
    pub(in crate::cli) fn run(&self) -> ExitCode {
        super::run(&self.server, |remote| match self.once {
            true => self.look(remote),
            false => self.watch(remote),
        })
    }

    fn wanted(&self) -> Wanted {
        Wanted { by: self.by, window: self.window }
    }

    /// Once.
    fn look(&self, remote: &Remote) -> Done {
        let (overview, rules, top) = remote.within(async {
            let (overview, rules) = feed::whole(remote).await?;
            let top = match feed::keys(remote, self.wanted()).await {
                Ok(top) => top,
                // It is older than this.
                Err(failure) if feed::is_unknown(&failure) => Value::Null,
                Err(failure) => return Err(failure),
            };
            Ok((overview, rules, top))
        })?;
        if remote.json {
            return say(format!("{}\n", json!({"overview": overview, "rules": rules, "top": top})));
        }
        let mut state = State::new(self.wanted());
        state.hear(Heard::Overview(overview));
        state.hear(Heard::Rules(rules));
        let top = if top.is_null() { Err(feed::UNTOLD.to_owned()) } else { Ok(top) };
        state.hear(Heard::Keys(self.wanted(), top));
        say(as_text(&state)?)
    }

    fn watch(&self, remote: &Remote) -> Done {
        if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
            let detail =
                "this is no terminal; `tollgate top --once` writes what there is to see, with --json for programs";
            return Err(Failure::Usage(detail.to_owned()));
        }
        let paint = Paint { is_coloured: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
        remote.within(screen::show(remote, self.wanted(), paint))
    }
}

/// What the screen would show.
fn as_text(state: &State) -> Result<String, Failure> {
    let undone = |error: std::convert::Infallible| match error {};
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, HEIGHT)).map_err(undone)?;
    terminal.draw(|frame| draw::draw(frame, state, Paint { is_coloured: false })).map_err(undone)?;
    Ok(lines(terminal.backend().buffer()))
}

/// The lines of a screen.
fn lines(buffer: &ratatui::buffer::Buffer) -> String {
    let area = buffer.area;
    let line = |y: u16| {
        let text: String = (0..area.width).filter_map(|x| buffer.cell((x, y))).map(|cell| cell.symbol()).collect();
        format!("{}\n", text.trim_end())
    };
    (0..area.height).map(line).collect()
}
