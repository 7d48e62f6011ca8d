//! Hearing of what other servers write: PostgreSQL's notifications.
//!
//! One connection listens, besides the pool's. It is asked now and then whether it still stands, since one that was cut off
//! without a word is as silent as one on which nothing happens.

use std::sync::Weak;
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

use crate::connection::postgres_options;
use crate::error::{DbError, Fault};
use crate::{Db, Inner, OPERATION};

/// What writers notify.
const CHANNEL: &str = "tollgate_control";
/// How long a silent connection is believed to stand.
const SILENCE: Duration = Duration::from_secs(5);
/// The pause before the first new connection; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Starts the task that listens. It ends when the database is let go.
pub(crate) fn start(url: &str, inner: Weak<Inner>) -> Result<(), DbError> {
    let options = postgres_options(url)?;
    tokio::spawn(async move {
        let mut pause = FIRST_PAUSE;
        while let Some(ended) = listen(&options, &inner, &mut pause).await {
            // Once for each outage: the pause is longer from then on.
            if pause == FIRST_PAUSE {
                tracing::warn!(error = ended, "the control database's notifications are cut");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    });
    Ok(())
}

/// Listens until the connection breaks, and says why; or until nobody wants to hear any more.
async fn listen(options: &PgConnectOptions, inner: &Weak<Inner>, pause: &mut Duration) -> Option<String> {
    let place = inner.upgrade()?.place.to_string();
    let told = |fault: Fault| Some(format!("{place}: {fault}"));
    let mut listener = match within(connect(options)).await {
        Ok(listener) => listener,
        Err(fault) => return told(fault),
    };
    // What was written while nobody listened.
    let db = Db(inner.upgrade()?);
    match db.generation().await {
        Ok(generation) => db.0.hear(generation),
        Err(error) => return Some(error.to_string()),
    }
    drop(db);
    if *pause > FIRST_PAUSE {
        tracing::info!(place, "the control database's notifications are back");
        *pause = FIRST_PAUSE;
    }
    loop {
        let fault = match tokio::time::timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                // Anybody may notify; what is no number is nothing to us.
                if let Ok(generation) = notification.payload().parse() {
                    inner.upgrade()?.hear(generation);
                }
                continue;
            }
            Ok(Ok(None)) => return Some(format!("{place}: the connection was closed")),
            Ok(Err(error)) => error.into(),
            Err(_) if inner.strong_count() == 0 => return None,
            Err(_) => match within(async { Ok(listener.execute("SELECT 1").await?) }).await {
                Ok(_) => continue,
                Err(fault) => fault,
            },
        };
        return told(fault);
    }
}

async fn connect(options: &PgConnectOptions) -> Result<PgListener, Fault> {
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let mut listener = PgListener::connect_with(&pool.connect_lazy_with(options.clone())).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

async fn within<T>(operation: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(OPERATION, operation).await.unwrap_or(Err(Fault::Late))
}
