//! PostgreSQL's notifications of what other servers write.
//!
//! One connection listens, apart from the pool's. It is probed when it is silent, because a connection that was cut without a packet
//! looks like one on which nothing happens.

use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

use crate::connection::{OPERATION_TIMEOUT, postgres_options};
use crate::db::WeakDb;
use crate::error::{DbError, Fault};

/// The channel that writers notify.
const CHANNEL: &str = "tollgate_control";
/// How long a connection may be silent before it is probed.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// The pause before the first new connection. It doubles up to [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Starts the task that listens. It ends when all handles on the database are dropped.
pub(crate) fn start(url: &str, db: WeakDb) -> Result<(), DbError> {
    let options = postgres_options(url)?;
    tokio::spawn(async move {
        let mut backoff = FIRST_BACKOFF;
        while let Some(error) = listen(&options, &db, &mut backoff).await {
            // Once for each outage: the pause is longer from then on.
            if backoff == FIRST_BACKOFF {
                tracing::warn!(error, "the control database's notifications are cut");
            }
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    });
    Ok(())
}

/// Listens until the connection breaks, and returns the reason; `None` when the database is closed.
async fn listen(options: &PgConnectOptions, weak: &WeakDb, backoff: &mut Duration) -> Option<String> {
    let location = weak.upgrade()?.location().to_string();
    let describe = |fault: Fault| Some(format!("{location}: {fault}"));
    let mut listener = match with_timeout(connect(options)).await {
        Ok(listener) => listener,
        Err(fault) => return describe(fault),
    };
    // Writes from before the connection listened were not notified.
    let db = weak.upgrade()?;
    match db.generation().await {
        Ok(generation) => db.announce(generation),
        Err(error) => return Some(error.to_string()),
    }
    drop(db);
    if *backoff > FIRST_BACKOFF {
        tracing::info!(place = location, "the control database's notifications are back");
        *backoff = FIRST_BACKOFF;
    }
    loop {
        let fault = match tokio::time::timeout(PROBE_INTERVAL, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                // Anybody may notify. A payload that is not a number is ignored.
                if let Ok(generation) = notification.payload().parse() {
                    weak.upgrade()?.announce(generation);
                }
                continue;
            }
            Ok(Ok(None)) => return Some(format!("{location}: the connection was closed")),
            Ok(Err(error)) => error.into(),
            Err(_) if weak.is_closed() => return None,
            Err(_) => match with_timeout(async { Ok(listener.execute("SELECT 1").await?) }).await {
                Ok(_) => continue,
                Err(fault) => fault,
            },
        };
        return describe(fault);
    }
}

async fn connect(options: &PgConnectOptions) -> Result<PgListener, Fault> {
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let mut listener = PgListener::connect_with(&pool.connect_lazy_with(options.clone())).await?;
    listener.eager_reconnect(false);
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

async fn with_timeout<T>(operation: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    tokio::time::timeout(OPERATION_TIMEOUT, operation).await.unwrap_or(Err(Fault::Timeout))
}
