//! The store of record: one suite for SQLite and PostgreSQL, and outages of a PostgreSQL server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod bounds;
mod decisions;
mod disk;
mod follow;
mod log;
mod outages;
mod records;
mod servers;
mod tables;
mod world;
mod writers;

use tollgate_control::{AuditFilter, Db, DecisionBounds, DecisionDb, RecordFilter, RecordName, WriteBatch};

/// The same tests on both databases.
macro_rules! suite {
    ($($module:ident: $($test:ident)*;)*) => {
        mod sqlite {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::$module::$test(crate::world::World::sqlite()).await;
            })*)*
        }

        mod postgres {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                crate::$module::$test(crate::world::World::postgres()).await;
            })*)*
        }
    };
}

suite! {
    records: records_are_written_and_read deleted_records_are_gone_and_may_come_back pages_follow_one_another
        filters_select_records a_bulk_write_is_all_or_nothing deletions_are_swept_after_a_week preconditions_are_checked;
    writers: no_update_is_lost a_write_can_require_the_last_generation an_idempotency_key_writes_once
        an_idempotency_key_can_be_found_and_deleted concurrent_repeats_write_once idempotency_keys_expire_after_a_day
        a_cancelled_write_leaves_no_lock;
    follow: a_follower_misses_nothing_and_sees_generations_in_order changes_wake_waiters all_records_are_handed_out
        a_restored_database_is_too_old false_notifications_do_not_repeat a_sink_has_its_own_pace
        generations_of_two_databases_are_not_mixed;
    log: the_log_has_every_change counter_changes_are_only_in_the_log the_log_has_no_hashes_of_tokens
        a_note_changes_no_record the_log_can_not_be_altered;
    tables: views_show_overrides concurrent_servers_migrate_once a_newer_schema_is_refused an_unknown_kind_is_left_out;
    servers: reports_are_read_by_other_servers old_reports_expire servers_share_one_secret reports_are_bounded
        tables_of_version_1_are_migrated;
    outages: slow_a_held_lock_blocks_writers_but_not_readers;
    decisions: decisions_are_found_by_caller a_batch_may_be_written_again old_and_excess_decisions_are_deleted
        a_log_is_bounded_in_bytes tables_of_version_2_are_migrated;
    bounds: writes_out_of_bounds_are_refused writes_at_the_bounds_are_accepted;
}

/// Callers may be tasks that move between threads. That this compiles is the test.
#[allow(dead_code)]
fn all_futures_are_send(db: &Db, write: &WriteBatch, filter: &RecordFilter, log: &AuditFilter, name: &RecordName) {
    fn is_send(_: impl Send) {}
    is_send(Db::open(db.location().clone()));
    is_send(db.generation());
    is_send(db.wait_for_change(0));
    is_send(db.get(name));
    is_send(db.list(filter, Some(name), 1));
    is_send(db.count(filter));
    let mut count = 0;
    is_send(db.for_each_since(0, true, |_| count += 1));
    is_send(db.write(write));
    is_send(db.audit(log, 0, 1));
    is_send(db.audit_descending(log, None, 1));
    is_send(db.sweep(world::START));
    is_send(db.put_server("", ""));
    is_send(db.servers());
    is_send(db.secret());
    is_send(db.connect());
    let log = DecisionDb::of(db);
    is_send(log.add(1, &[]));
    is_send(async { log.find(&tollgate_control::DecisionFilter::default(), 1).await });
    is_send(log.delete_old(DecisionBounds { before: world::START, rows: 1, bytes: 1 }));
}
