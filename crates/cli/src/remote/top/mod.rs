//! `tollgate top`: live activity of a server, in a terminal.
//!
//! ```text
//! feed ─ ServerUpdate ─▶ TopState ◀─ keys ─ screen        one task: updates and key presses change the state, which is drawn
//! ```

mod draw;
mod feed;
mod keys;
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

use super::client::AdminClient;
use super::server::ServerArgs;
use super::{CommandError, CommandResult, write_stdout};
use draw::Palette;
use keys::{KeyOrder, KeyWindow, TopKeysQuery};
use state::{ServerUpdate, TopState};

/// Live activity of a server.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: a r w u n sort the rules by allowed, refused, would refuse, used, name; / filters them; t and m select top \
    keys; l shows hot keys; ? shows help; q quits. NO_COLOR=1 disables colours.\n\nExamples:\n  \
    tollgate top\n  \
    tollgate top --server https://limits.internal:8070 --token-file token\n  \
    tollgate top --once --json | jq '.overview.rates.deny'"
)]
pub(crate) struct Top {
    /// Print the state once and exit: as one object with --json, else as the screen shows it
    #[arg(long)]
    once: bool,
    /// The order of top keys
    #[arg(long, value_enum, default_value = "refusals")]
    by: KeyOrder,
    /// The time window of top keys
    #[arg(long, value_enum, default_value = "5m")]
    window: KeyWindow,
    #[command(flatten)]
    server: ServerArgs,
}

/// The size of the screen with `--once`.
const WIDTH: u16 = 100;
const HEIGHT: u16 = 40;

impl Top {
    pub(crate) fn run(&self) -> ExitCode {
        super::run(&self.server, |client| match self.once {
            true => self.print_once(client),
            false => self.watch(client),
        })
    }

    fn query(&self) -> TopKeysQuery {
        TopKeysQuery { by: self.by, window: self.window }
    }

    /// Prints the state once.
    fn print_once(&self, client: &AdminClient) -> CommandResult {
        // An older server does not know the path.
        let or_null = |result| match result {
            Err(error) if feed::is_not_found(&error) => Ok(Value::Null),
            result => result,
        };
        let (overview, rules, top, leases) = client.block_on(async {
            let (overview, rules) = feed::fetch_all(client).await?;
            let top = or_null(feed::fetch_keys(client, self.query()).await)?;
            Ok((overview, rules, top, or_null(feed::fetch_leases(client).await)?))
        })?;
        if client.json {
            let all = json!({"overview": overview, "rules": rules, "top": top, "leases": leases});
            return write_stdout(format!("{all}\n"));
        }
        let mut state = TopState::new(self.query());
        state.apply(ServerUpdate::Overview(overview));
        state.apply(ServerUpdate::Rules(rules));
        let or_note = |value: Value, note: &str| if value.is_null() { Err(note.to_owned()) } else { Ok(value) };
        state.apply(ServerUpdate::TopKeys(self.query(), or_note(top, feed::TOP_KEYS_UNSUPPORTED)));
        state.apply(ServerUpdate::Leases(or_note(leases, feed::LEASES_UNSUPPORTED)));
        write_stdout(as_text(&state)?)
    }

    fn watch(&self, client: &AdminClient) -> CommandResult {
        if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
            let message = "this is not a terminal; use `tollgate top --once`, with --json for programs";
            return Err(CommandError::Usage(message.to_owned()));
        }
        let palette = Palette { is_coloured: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
        client.block_on(screen::show(client, self.query(), palette))
    }
}

/// The screen as text.
fn as_text(state: &TopState) -> Result<String, CommandError> {
    let never = |error: std::convert::Infallible| match error {};
    let mut terminal = Terminal::new(TestBackend::new(WIDTH, HEIGHT)).map_err(never)?;
    terminal.draw(|frame| draw::draw(frame, state, Palette { is_coloured: false })).map_err(never)?;
    let text = lines(terminal.backend().buffer());
    // The screen is as high as a long list needs; a short one leaves lines empty.
    let mut written = String::new();
    let mut was_empty = false;
    for line in text.lines() {
        if !(line.is_empty() && was_empty) {
            written.push_str(line);
            written.push('\n');
        }
        was_empty = line.is_empty();
    }
    Ok(written)
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
