//! The store of record: one suite, on SQLite and on PostgreSQL; and what only a server can do, be killed, frozen and cut off.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test says what it expects by failing.

mod away;
mod bounds;
mod decisions;
mod follow;
mod log;
mod records;
mod servers;
mod tables;
mod world;
mod writers;

use tollgate_control::{AuditFilter, Db, Filter, Name, Write};

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
    records: what_is_written_is_read what_is_deleted_is_gone_and_may_come_back pages_follow_one_another
        filters_choose a_bulk_is_written_whole_or_not_at_all deletions_are_forgotten_in_time expectations_decide;
    writers: no_update_is_lost what_depends_on_all_is_written_if_nothing_moved a_key_writes_once a_key_can_be_asked_for_and_forgotten twins_write_once keys_are_forgotten_after_a_day
        a_write_that_nobody_waits_for_leaves_no_lock;
    follow: a_follower_misses_nothing_and_sees_generations_in_order changes_are_heard_of everything_is_handed_out
        another_database_is_too_old what_is_not_true_is_not_heard_of_for_ever a_reader_has_its_own_pace
        generations_of_two_databases_are_not_mixed;
    log: the_log_says_what_happened what_is_not_kept_is_in_the_log_alone
        the_log_has_no_hashes_of_tokens the_log_can_not_be_altered;
    tables: views_show_overrides three_at_once_make_the_tables a_newer_schema_is_refused an_unknown_kind_is_left_out;
    servers: what_servers_tell_is_read what_is_old_is_not_told all_know_one_secret what_a_server_tells_is_bounded
        tables_of_before_are_brought_up_to_date;
    away: slow_a_lock_that_is_held_is_away_and_readers_go_on;
    decisions: what_is_decided_is_found_by_caller a_batch_may_be_written_again what_is_old_or_too_much_is_forgotten
        tables_of_an_older_version_are_added_to;
    bounds: what_is_out_of_bounds_is_refused what_is_at_the_bounds_is_written;
}

/// Whoever asks may be a task that moves between threads. That this compiles is the test.
#[allow(dead_code)]
fn everything_can_be_spawned(db: &Db, write: &Write, filter: &Filter, log: &AuditFilter, name: &Name) {
    fn is_send(_: impl Send) {}
    is_send(Db::open(db.place().clone()));
    is_send(db.generation());
    is_send(db.changed(0));
    is_send(db.get(name));
    is_send(db.list(filter, Some(name), 1));
    is_send(db.count(filter));
    let mut seen = 0;
    is_send(db.each_since(0, true, |_| seen += 1));
    is_send(db.write(write));
    is_send(db.audit(log, 0, 1));
    is_send(db.audit_back(log, None, 1));
    is_send(db.sweep(world::START));
    is_send(db.tell("", ""));
    is_send(db.servers());
    is_send(db.secret());
    is_send(db.add_decisions(1, &[]));
    is_send(async { db.decisions(&tollgate_control::DecidedFilter::default(), 1).await });
    is_send(db.forget_decisions(world::START, 1));
}
