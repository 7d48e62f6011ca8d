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
        while inner.strong_count() > 0 {
            let mut stood = false;
            let fault = match listen(&options, &inner, &mut stood).await {
                Ok(()) => return,
                Err(fault) => fault,
            };
            if stood {
                pause = FIRST_PAUSE;
            }
            if let Some(inner) = inner.upgrade() {
                tracing::warn!(place = %inner.place, error = %fault, "notifications of the control database are cut");
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    });
    Ok(())
}

/// Listens until the connection breaks, or until nobody wants to hear.
async fn listen(options: &PgConnectOptions, inner: &Weak<Inner>, stood: &mut bool) -> Result<(), Fault> {
    let mut listener = within(connect(options)).await?;
    // What was written while nobody listened.
    let Some(db) = inner.upgrade().map(Db) else { return Ok(()) };
    let generation = db.generation().await;
    drop(db);
    let Some(inner_now) = inner.upgrade() else { return Ok(()) };
    match generation {
        Ok(generation) => inner_now.hear(generation),
        Err(_) => return Err(Fault::Late),
    }
    drop(inner_now);
    *stood = true;
    loop {
        match tokio::time::timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                let Some(inner) = inner.upgrade() else { return Ok(()) };
                // Anybody may notify; what is no number is nothing to us.
                if let Ok(generation) = notification.payload().parse() {
                    inner.hear(generation);
                }
            }
            Ok(Ok(None)) => return Err(Fault::Late),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) if inner.strong_count() == 0 => return Ok(()),
            Err(_) => within(async { Ok(listener.execute("SELECT 1").await.map(drop)?) }).await?,
        }
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
