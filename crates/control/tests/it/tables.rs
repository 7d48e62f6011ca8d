//! Tables and views.

use tollgate_control::{Db, DbError, Precondition, RecordFilter};
use tollgate_records::RecordKind;

use crate::world::{World, commit, numbered, put, quota};

pub(crate) async fn views_show_overrides(world: World) {
    let db = world.open().await;
    let quotas = [
        ("plain", r#"{"tier":"pro"}"#),
        (
            "two",
            r#"{"tier":"enterprise","expires_at":"2027-01-01T00:00:00Z","overrides":[
                {"descriptor":"endpoint:POST /orders","requests_per_unit":500,"unit":"minute","limit":"500/minute"},
                {"rule":"per-key","requests_per_unit":9,"unit":"hour","limit":"9/hour","expires_at":"2026-02-01T00:00:00Z"}]}"#,
        ),
        ("odd", r#"{"overrides":{"not":"a list"}}"#),
        ("odder", r#"{"tier":7,"overrides":[1,"x",{"requests_per_unit":"many"}]}"#),
    ];
    commit(&db, quotas.map(|(name, text)| put(&quota(name), Precondition::Absent, text)).to_vec()).await;
    let shown = world.query(
        "SELECT caller || '|' || coalesce(tier, '-') || '|' || coalesce(descriptor, rule, '-') || '|' || \
         coalesce(requests_per_unit || '/' || unit, '-') || '|' || coalesce(expires_at, '-') || '|' || updated_by \
         FROM quota_overrides WHERE caller <> 'odder' ORDER BY caller, rule DESC",
    );
    let mut shown: Vec<_> = shown.await.unwrap().lines().map(str::to_owned).collect();
    shown.sort();
    assert_eq!(
        shown,
        [
            "odd|-|-|-|-|ann",
            "plain|pro|-|-|-|ann",
            "two|enterprise|endpoint:POST /orders|500/minute|2027-01-01T00:00:00Z|ann",
            "two|enterprise|per-key|9/hour|2026-02-01T00:00:00Z|ann",
        ]
    );
    // No document makes the view fail.
    assert!(world.query("SELECT 'rows: ' || count(*) FROM quota_overrides").await.unwrap().starts_with("rows: "));
    let created = world.query("SELECT 'at ' || created_at FROM quota_overrides WHERE caller = 'plain'").await.unwrap();
    assert!(created.starts_with("at 2026-01-01"), "{created}");
}

pub(crate) async fn concurrent_servers_migrate_once(world: World) {
    let opening: Vec<_> = (0..3).map(|_| tokio::spawn(Db::open(world.location()))).collect();
    for (n, opened) in opening.into_iter().enumerate() {
        let db = opened.await.unwrap().unwrap();
        commit(&db, vec![put(&quota(&n.to_string()), Precondition::Absent, &numbered(1))]).await;
    }
    assert_eq!(world.query("SELECT 'steps: ' || count(*) FROM tollgate_schema").await.unwrap(), "steps: 3");
    assert_eq!(world.open().await.count(&RecordFilter::new(RecordKind::Quota)).await, Ok(3));
}

pub(crate) async fn a_newer_schema_is_refused(world: World) {
    world.open().await;
    world.query("INSERT INTO tollgate_schema (version) VALUES (7)").await.unwrap();
    let refused = Db::open(world.location()).await.unwrap_err();
    assert!(matches!(refused, DbError::NewerSchema { found: 7, supported: 3, .. }), "{refused:?}");
    assert!(refused.to_string().contains("made by a newer Tollgate"), "{refused}");
}

pub(crate) async fn an_unknown_kind_is_left_out(world: World) {
    let db = world.open().await;
    commit(&db, vec![put(&quota("a"), Precondition::Absent, "{}")]).await;
    let newer = "INSERT INTO records VALUES ('novelty', 'shop', 'n', 1, '{}', 1, 1, 'x', 'x')";
    world.query(newer).await.unwrap();
    let mut seen = Vec::new();
    db.for_each_since(0, true, |record| seen.push(record.name.into_owned())).await.unwrap();
    assert_eq!(seen, ["a"]);
}
