//! Files on disk under a layer that is replaced: what is in force then, and what is reported.

use std::fs;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::{LayerMode, LayerRule, LoadOptions, MemoryConfig, RuleMode, Switch};
use tollgate_testing::eventually;

use super::source::StartupRules;
use super::*;
use crate::data_dir::DataDir;
use tollgate_telemetry::metrics::Metrics;

const FILE: &str =
    "domain: d\ntiers: {free: {}, gold: {}}\nrules:\n  - {name: r, key: [user], limit: {free: 1/s, gold: 2/s}}\n";

/// Rules on the disk, and a server's view of them.
struct Bench {
    home: TempDir,
    source: RuleSource,
    layer: LayerHandle,
    limiter: Arc<Limiter<Counters>>,
    health: Arc<Health>,
    data: Arc<DataDir>,
    started: Option<(SourceState, Vec<RuleProblem>)>,
}

/// A thread that follows, until the end of the test.
struct Watching {
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.waker.stop();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn rules_file(home: &TempDir) -> PathBuf {
    home.path().join("rules.yaml")
}

impl Bench {
    fn new(file: &str, layer: Layer) -> Bench {
        let home = TempDir::new().unwrap();
        let data = Arc::new(DataDir::open(&home.path().join("data")).unwrap());
        fs::write(rules_file(&home), file).unwrap();
        Bench::at(home, data, layer).unwrap()
    }

    fn at(home: TempDir, data: Arc<DataDir>, layer: Layer) -> Result<Bench, Vec<RuleProblem>> {
        let layer = LayerHandle::new(layer);
        let source = RuleSource::new(vec![rules_file(&home)], LoadOptions::default(), layer.clone());
        let StartupRules { rules, errors, state, .. } = source.start(Some(&LastGood::new(&data)))?;
        let limiter = Arc::new(Limiter::new(rules, Counters::Memory(MemoryConfig::default().build())));
        let started = Some((state, errors));
        Ok(Bench { home, source, layer, limiter, health: Arc::default(), data, started })
    }

    /// The same disk after a restart.
    fn restarted(self, layer: Layer) -> Result<Bench, Vec<RuleProblem>> {
        Bench::at(self.home, self.data, layer)
    }

    fn reloader(&mut self) -> RuleReloader {
        let (state, errors) = self.started.take().unwrap();
        let (source, limiter, health) = (self.source.clone(), self.limiter.clone(), self.health.clone());
        let last_good = Some(LastGood::new(&self.data));
        RuleReloader::new(source, state, &errors, limiter, last_good, health, &Metrics::new())
    }

    fn write(&self, file: &str) {
        fs::write(rules_file(&self.home), file).unwrap();
    }

    /// The rules in force, as `name mode limit of the second tier`.
    fn in_force(&self) -> Vec<String> {
        reply(&self.limiter.rules())
    }

    fn condition(&self) -> Option<String> {
        self.health.conditions().into_iter().find(|(part, _)| *part == COMPONENT).map(|(_, reason)| reason)
    }
}

impl RuleReloader {
    /// A reload of files that are complete.
    pub(crate) fn reload(&mut self, forced: bool) {
        self.pending.announce();
        assert_eq!(self.reload_at(forced, self.clock.now()), None);
    }
}

fn reply(rules: &Ruleset) -> Vec<String> {
    let rules = rules.domains().iter().flat_map(|domain| domain.rules());
    rules
        .map(|rule| format!("{} {:?} {:?}", rule.name(), rule.mode(), rule.limit(1).map(|limit| limit.amount())))
        .collect()
}

fn rule(name: &str, text: &str) -> LayerRule {
    LayerRule { domain: "d".to_owned(), name: name.to_owned(), rule: text.to_owned(), mode: None, version: None }
}

fn layer(rules: &[LayerRule], everything: Option<RuleMode>) -> Layer {
    let switches = everything.map(|mode| Switch { domain: None, rule: None, mode });
    Layer { rules: rules.to_vec(), switches: switches.into_iter().collect(), ..Layer::default() }
}

/// Needs the tier `gold`, which files may take away.
fn golden(amount: u32) -> LayerRule {
    rule("golden", &format!(r#"{{"key": ["user"], "limit": {{"free": "1/s", "gold": "{amount}/s"}}}}"#))
}

fn without_gold() -> String {
    FILE.replace(", gold: {}", "").replace(", gold: 2/s", "")
}

#[test]
fn a_replaced_layer_is_compiled_though_no_file_changed() {
    let mut bench = Bench::new(FILE, layer(&[golden(5)], None));
    assert_eq!(bench.in_force(), ["r Enforce Some(2)", "golden Enforce Some(5)"]);
    let mut reloader = bench.reloader();
    reloader.reload(false);
    assert_eq!(bench.limiter.rules().generation(), 1, "nothing changed");
    assert!(bench.layer.replace(layer(&[golden(6)], Some(RuleMode::Shadow))));
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Shadow Some(2)", "golden Shadow Some(6)"]);
    assert_eq!(bench.limiter.rules().generation(), 2);
    assert!(!bench.layer.replace(layer(&[golden(6)], Some(RuleMode::Shadow))), "it is the same");
    reloader.reload(false);
    assert_eq!(bench.limiter.rules().generation(), 2);
    bench.layer.replace(Layer::default());
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Enforce Some(2)"]);
    assert_eq!(bench.condition(), None);
}

#[test]
fn replacing_the_layer_wakes_the_thread() {
    let mut bench = Bench::new(FILE, Layer::default());
    let reloader = bench.reloader();
    // Before there is a thread to be woken.
    bench.layer.replace(layer(&[], Some(RuleMode::Off)));
    let (waker, thread) = watch(reloader, Duration::from_secs(3_600)).unwrap();
    let _watching = Watching { waker, thread: Some(thread) };
    let wait_for = |expected: &[&str]| {
        let seen = eventually(|| (bench.in_force() == expected).then_some(()));
        assert!(seen.is_some(), "{:?}, not {expected:?}", bench.in_force());
    };
    wait_for(&["r Off Some(2)"]);
    for amount in 1..=20 {
        bench.layer.replace(layer(&[golden(amount)], None));
    }
    wait_for(&["r Enforce Some(2)", "golden Enforce Some(20)"]);
}

#[test]
fn a_file_that_takes_away_what_a_rule_by_api_needs_is_refused_and_the_rule_is_named() {
    let mut bench = Bench::new(FILE, layer(&[golden(5)], None));
    let mut reloader = bench.reloader();
    bench.write(&FILE.replace("gold: {}", "silver: {}").replace("gold: 2/s", "silver: 3/s"));
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Enforce Some(2)", "golden Enforce Some(5)"]);
    let reason = bench.condition().unwrap();
    let expected = "rules by API conflict with the rule files, the last good rules are in force: rule golden (by API):1: error: \
                    `limit`: there is no tier `gold`";
    assert!(reason.starts_with(expected), "{reason}");

    // A switch takes effect all the same, and so does a rule that fits the last good files.
    bench.layer.replace(layer(&[golden(5)], Some(RuleMode::Off)));
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Off Some(2)", "golden Off Some(5)"]);
    bench.layer.replace(layer(&[golden(7)], None));
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Enforce Some(2)", "golden Enforce Some(7)"]);
    assert!(bench.condition().is_some());

    // A rule that is corrected for the new files may be written, though it fits those only, and brings them in force.
    let silver = r#"{"key": ["user"], "limit": {"free": "9/s", "silver": "8/s"}}"#;
    let corrected = layer(&[rule("golden", silver)], None);
    let (rules, _) = bench.source.validate(&corrected).unwrap();
    assert_eq!(reply(&rules), ["r Enforce Some(3)", "golden Enforce Some(8)"]);
    bench.layer.replace(corrected);
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Enforce Some(3)", "golden Enforce Some(8)"]);
    assert_eq!(bench.condition(), None);
    // Nothing waits any more.
    assert!(bench.source.validate(&layer(&[golden(5)], None)).is_err());
}

/// Taking a bad rule off is enough for the new files.
#[test]
fn a_rule_that_is_off_stands_in_nobodys_way() {
    let mut bench = Bench::new(FILE, layer(&[golden(5)], None));
    let mut reloader = bench.reloader();
    bench.write(&without_gold());
    reloader.reload(false);
    assert!(bench.condition().is_some());
    bench.layer.replace(layer(&[LayerRule { mode: Some(LayerMode::Off), ..golden(5) }], None));
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Enforce None"]);
    assert_eq!(bench.condition(), None);
}

#[test]
fn switches_and_rules_go_above_the_last_good_files() {
    let mut bench = Bench::new(FILE, layer(&[golden(5)], None));
    let mut reloader = bench.reloader();
    bench.write("domain: [");
    reloader.reload(false);
    let generation = bench.limiter.rules().generation();
    reloader.reload(true);
    assert_eq!(bench.limiter.rules().generation(), generation, "nothing new to put in force");
    bench.layer.replace(layer(&[golden(6)], Some(RuleMode::Soft)));
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Soft Some(2)", "golden Soft Some(6)"]);
    assert!(bench.condition().unwrap().starts_with("the rule files have errors"));
    // A rule that fits no files keeps the last one, and the switches are set.
    bench.layer.replace(layer(&[rule("golden", "{}")], Some(RuleMode::Off)));
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Off Some(2)", "golden Off Some(6)"]);
    // The good files are stored for a restart.
    let stored = LastGood::new(&bench.data).read().unwrap();
    assert_eq!(stored[0].text, FILE);
}

#[test]
fn trying_a_layer_reads_no_file_and_changes_nothing() {
    let mut bench = Bench::new(FILE, Layer::default());
    fs::remove_file(rules_file(&bench.home)).unwrap();
    let (rules, warnings) = bench.source.validate(&layer(&[golden(5)], Some(RuleMode::Shadow))).unwrap();
    assert_eq!(reply(&rules), ["r Shadow Some(2)", "golden Shadow Some(5)"]);
    assert!(warnings.iter().all(|warning| !warning.is_by_api()), "{warnings:?}");
    let problems = bench.source.validate(&layer(&[rule("bad", "{}")], None)).unwrap_err();
    assert_eq!(problems[0].file.to_string(), "rule bad (by API)");
    assert_eq!(bench.in_force(), ["r Enforce Some(2)"]);
    let mut reloader = bench.reloader();
    bench.write(FILE);
    reloader.reload(false);
    assert_eq!(bench.limiter.rules().generation(), 1);
}

#[test]
fn a_start_with_a_rule_by_api_that_does_not_fit() {
    let bench = Bench::new(FILE, layer(&[golden(5)], None));
    bench.write(&without_gold());
    // The last good files fit.
    let mut bench = bench.restarted(layer(&[golden(6)], None)).unwrap();
    assert_eq!(bench.in_force(), ["r Enforce Some(2)", "golden Enforce Some(6)"]);
    bench.reloader();
    assert!(bench.condition().unwrap().contains("rule golden (by API):1"), "{:?}", bench.condition());
    // No files fit: the server runs without the rule, and its switches are set.
    let other = rule("other", "{key: [], limit: 3/s}");
    let mut bench = bench.restarted(layer(&[rule("bad", "{"), other.clone()], Some(RuleMode::Soft))).unwrap();
    assert_eq!(bench.in_force(), ["r Soft Some(2)", "other Soft Some(3)"]);
    bench.reloader();
    assert!(bench.condition().unwrap().contains("rule bad (by API):1"), "{:?}", bench.condition());
    // Nothing was stored: the same on the files as they are.
    fs::remove_file(bench.data.file("rules.last-good.json")).unwrap();
    let bench = bench.restarted(layer(&[golden(5), other], None)).unwrap();
    assert_eq!(bench.in_force(), ["r Enforce None", "other Enforce None"]);
    // Files that are bad by themselves are no start.
    bench.write("domain: [");
    let problems = bench.restarted(layer(&[golden(5)], None)).map(drop).unwrap_err();
    assert!(!problems[0].is_by_api(), "{problems:?}");
}

const FOUR: &str = "domain: d
rules:
  - {name: a, key: [], limit: 1/s}
  - {name: b, key: [], limit: 1/s}
  - {name: c, key: [], limit: 1/s}
  - {name: e, key: [], limit: 1/s}
";

/// The beginning of a file that ends with a whole rule: valid, but not all of it.
fn part(file: &str, lines: usize) -> String {
    file.split_inclusive('\n').take(lines).collect()
}

/// As on a network file system, where nothing reports writes.
#[test]
fn changes_that_are_found_by_polling_have_to_be_quiet_and_removals_are_looked_at_twice() {
    let mut bench = Bench::new(FOUR, Layer::default());
    let mut reloader = bench.reloader();
    let at = |millis: u64| Timestamp::from_micros(1_000_000 + millis * 1_000);
    let names = || bench.in_force().iter().map(|rule| rule[..1].to_owned()).collect::<String>();
    bench.write(&part(FOUR, 3));
    assert_eq!(reloader.reload_at(false, at(0)), Some(at(1_000)));
    bench.write(&part(FOUR, 5));
    assert_eq!(reloader.reload_at(false, at(1_000)), Some(at(2_000)));
    // It was quiet for a second, and a rule is missing.
    assert_eq!(reloader.reload_at(false, at(2_000)), Some(at(3_000)));
    assert_eq!((names(), bench.limiter.rules().generation()), ("abce".to_owned(), 1));
    // Meanwhile operators change what they like, above the old files.
    bench.layer.replace(layer(&[], Some(RuleMode::Off)));
    assert_eq!(reloader.reload_at(false, at(2_500)), Some(at(3_000)));
    assert_eq!(bench.in_force()[3], "e Off Some(1)");
    assert_eq!(bench.source.reloads().borrow().generation, 2);
    // The rest arrives: as if nothing had been.
    bench.write(FOUR);
    assert_eq!(reloader.reload_at(false, at(3_000)), None);
    assert_eq!(names(), "abce");
    assert_eq!(LastGood::new(&bench.data).read().unwrap()[0].text, FOUR);
    // What is gone at the second look too is gone.
    bench.write(&part(FOUR, 5));
    assert_eq!(reloader.reload_at(false, at(10_000)), Some(at(11_000)));
    assert_eq!(reloader.reload_at(false, at(11_000)), Some(at(12_000)));
    assert_eq!(names(), "abce");
    assert_eq!(reloader.reload_at(false, at(12_000)), None);
    assert_eq!(names(), "abc");
    assert_eq!(LastGood::new(&bench.data).read().unwrap()[0].text, part(FOUR, 5));
}

/// What can't be read is not among the files at hand: to go on with those would be a start on a part of the rules.
#[test]
fn a_start_with_a_file_that_can_not_be_read_is_none() {
    let home = TempDir::new().unwrap();
    fs::write(rules_file(&home), FILE).unwrap();
    let paths = vec![rules_file(&home), home.path().join("missing.yaml")];
    let source = RuleSource::new(paths, LoadOptions::default(), LayerHandle::new(layer(&[golden(5)], None)));
    let problems = source.start(None).map(drop).unwrap_err();
    assert!(problems[0].file.to_string().ends_with("missing.yaml"), "{problems:?}");
}

/// Holds files with a limit of 0.
#[derive(Debug)]
struct StrictGuard;

impl FileGuard for StrictGuard {
    fn judge(&self, files: &[RuleFile]) -> FileVerdict {
        match files.iter().any(|file| file.text.contains("gold: 0/s")) {
            true => FileVerdict::Held("they would newly refuse everything".to_owned()),
            false => FileVerdict::Passes,
        }
    }
}

fn strict() -> String {
    FILE.replace("gold: 2/s", "gold: 0/s")
}

#[test]
fn held_files_wait_for_a_release_also_over_a_restart() {
    let mut bench = Bench::new(FILE, Layer::default());
    let mut reloader = bench.reloader().with_guard(Arc::new(StrictGuard));
    bench.write(&strict());
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Enforce Some(2)"]);
    let version = bench.source.held().unwrap().version.clone();
    let condition = bench.condition().unwrap();
    assert!(condition.contains("they would newly refuse everything") && condition.contains(&version), "{condition}");
    assert_eq!(bench.source.reloads().borrow().error.as_ref(), Some(&condition));
    // Neither SIGHUP nor a rule by API puts them in force.
    let by_api = layer(&[golden(5)], None);
    assert!(bench.layer.replace(by_api.clone()));
    reloader.reload(true);
    assert_eq!(bench.in_force(), ["r Enforce Some(2)", "golden Enforce Some(5)"]);
    drop(reloader);

    let mut bench = bench.restarted(by_api.clone()).unwrap();
    let mut reloader = bench.reloader().with_guard(Arc::new(StrictGuard));
    assert_eq!(bench.in_force(), ["r Enforce Some(2)", "golden Enforce Some(5)"]);
    assert_eq!(bench.condition().unwrap(), condition);
    reloader.reload(true);
    assert_eq!(bench.in_force(), ["r Enforce Some(2)", "golden Enforce Some(5)"]);
    let other = Layer { released_files: vec!["another".to_owned()], ..by_api.clone() };
    assert!(bench.layer.replace(other));
    reloader.reload(false);
    assert!(bench.source.held().is_some());
    let released = Layer { released_files: vec![version], ..by_api };
    assert!(bench.layer.replace(released.clone()));
    reloader.reload(false);
    assert_eq!(bench.in_force(), ["r Enforce Some(0)", "golden Enforce Some(5)"]);
    assert_eq!((bench.source.held(), bench.condition()), (None, None));
    drop(reloader);
    let bench = bench.restarted(Layer::default()).unwrap();
    assert_eq!((bench.in_force(), bench.source.held()), (vec!["r Enforce Some(0)".to_owned()], None));
}

#[test]
fn other_files_end_the_hold() {
    let mut bench = Bench::new(FILE, Layer::default());
    let mut reloader = bench.reloader().with_guard(Arc::new(StrictGuard));
    for (file, limit) in [(FILE.to_owned(), 2), (FILE.replace("gold: 2/s", "gold: 3/s"), 3)] {
        bench.write(&strict());
        reloader.reload(false);
        assert!(bench.source.held().is_some() && bench.condition().is_some());
        bench.write(&file);
        reloader.reload(false);
        assert_eq!((bench.source.held(), bench.condition()), (None, None));
        assert_eq!(bench.in_force(), [format!("r Enforce Some({limit})")]);
    }
    drop(reloader);
    let bench = bench.restarted(Layer::default()).unwrap();
    assert_eq!((bench.in_force(), bench.source.held()), (vec!["r Enforce Some(3)".to_owned()], None));
}
