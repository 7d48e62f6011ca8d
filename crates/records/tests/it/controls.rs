//! What records change.

use tollgate_core::{Span, Timestamp};
use tollgate_records::lines::{self, ControlLine};
use tollgate_records::{Controls, Effect, RecordKind};
use tollgate_rules::LayerMode;
use tollgate_rules::model::RuleMode;

use super::record;

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

#[test]
fn a_quota_says_whether_counters_are_to_be_reset() {
    let mut controls = Controls::default();
    let mut apply = |document| controls.apply(&record(1, RecordKind::Quota, "api", "a", document));
    assert_eq!(apply(Some(r#"{"tier": "pro"}"#)), Ok(Effect::Tenants { reset: false }));
    assert_eq!(apply(Some(r#"{"tier": "pro", "reset_by": 7}"#)), Ok(Effect::Tenants { reset: true }));
    // That of a scheduled quota belongs to the write that scheduled it.
    let scheduled = r#"{"next": {"reset_by": 7, "effective_at": "2099-01-01T00:00:00Z"}}"#;
    assert_eq!(apply(Some(scheduled)), Ok(Effect::Tenants { reset: false }));
    assert_eq!(apply(None), Ok(Effect::Tenants { reset: false }));
    assert!(apply(Some(r#"{"reset_by": 7, "novelty": 1}"#)).is_err(), "it changes nothing");
}

#[test]
fn rules_and_switches_make_a_layer() {
    let mut controls = Controls::default();
    let rule = |state: &str| {
        format!(r#"{{"version": 1, "state": "{state}", "rule": {{"key": ["api_key"], "limit": "7/m"}}}}"#)
    };
    for (state, expected) in [
        ("draft", None),
        ("shadow", Some(Some(LayerMode::Shadow))),
        ("pending", None),
        ("active", Some(None)),
        ("off", Some(Some(LayerMode::Off))),
    ] {
        let effect = controls.apply(&record(6, RecordKind::Rule, "api", "r", Some(&rule(state))));
        assert_eq!(effect, Ok(Effect::Layer));
        assert_eq!(controls.layer(START).rules.first().map(|rule| rule.mode), expected, "{state}");
    }
    let switch = r#"{"mode": "off", "expires_at": "2026-01-01T00:00:10Z"}"#;
    assert_eq!(controls.apply(&record(7, RecordKind::Switch, "", "", Some(switch))), Ok(Effect::Layer));
    let end = START.after(Span::from_secs(10));
    assert_eq!(controls.layer_changes_at(START), Some(end));
    let switches = controls.layer(START).switches;
    assert_eq!((switches[0].mode, &switches[0].domain), (RuleMode::Off, &None));
    assert_eq!((controls.layer(end).switches.len(), controls.layer_changes_at(end)), (0, None));
}

#[test]
fn shares_are_a_part_of_the_layer_with_the_generation_of_their_write() {
    let mut controls = Controls::default();
    let mut apply =
        |generation, document| controls.apply(&record(generation, RecordKind::Shares, "api", "r", document));
    assert_eq!(apply(7, Some(r#"{"shares": {"a": 2500, "b": 5000}, "held": {"a": 5000}}"#)), Ok(Effect::Layer));
    assert!(apply(8, Some(r#"{"shares": {"a": "half"}}"#)).is_err(), "it changes nothing");
    let layer = controls.layer(START);
    let [shares] = &layer.shares[..] else { panic!("{layer:?}") };
    assert_eq!((&*shares.domain, &*shares.rule, shares.generation), ("api", "r", 7));
    assert_eq!(controls.shares("api", "r"), Some(&(7, shares.shares.clone())));
    let a = shares.shares.of["a"];
    assert_eq!((a.share, a.held, layer.are_shares_unknown), (2_500, 5_000, false));
    assert_eq!([true, true, false].map(|unknown| controls.set_shares_unknown(unknown)), [true, false, true]);
    assert_eq!(controls.apply(&record(9, RecordKind::Shares, "api", "r", None)), Ok(Effect::Layer));
    assert!(controls.layer(START).shares.is_empty());
}

#[test]
fn records_of_other_kinds_change_nothing() {
    let mut controls = Controls::default();
    for (generation, kind) in (1..).zip(["novelty", "unknown", "token", "rule-version", "counter"]) {
        let line =
            format!(r#"{{"generation":{generation},"kind":"{kind}","domain":"api","name":"x","document":{{"a":1}}}}"#);
        let Ok(ControlLine::Record(record)) = lines::parse(line.as_bytes()) else { panic!("{line} is a record") };
        assert_eq!((controls.apply(&record), controls.generation()), (Ok(Effect::Nothing), generation), "{kind}");
    }
    assert!(controls.tenants().is_empty());
}
