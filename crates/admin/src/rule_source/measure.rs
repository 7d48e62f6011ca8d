//! When rule files and the layer above them were changed, and when that is in force.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use tollgate::{Layer, Timestamp};
use tollgate_rules::RuleFile;
use tollgate_telemetry::metrics::{ChangeKind, ChangeMetrics, WrittenChange};

use super::watcher::MAX_PARENTS;

/// Changes that are written and not in force yet.
#[derive(Debug)]
pub(super) struct ChangeTimes {
    metrics: ChangeMetrics,
    /// When the files were last read and found unchanged: the next change is later than that.
    unchanged_at: Timestamp,
    /// Changes to the layer.
    layer: Vec<WrittenChange>,
}

/// Changes to the layer that wait to be in force; any more are not measured.
pub(super) const MAX_WRITTEN: usize = 1_024;

impl ChangeTimes {
    pub(super) fn new(metrics: ChangeMetrics, now: Timestamp) -> ChangeTimes {
        ChangeTimes { metrics, unchanged_at: now, layer: Vec::new() }
    }

    /// The files were read at this time, and had not changed.
    pub(super) fn unchanged(&mut self, now: Timestamp) {
        self.unchanged_at = now;
    }

    /// Changed files are in force.
    pub(super) fn files_in_force(&mut self, files: &[RuleFile], now: Timestamp) {
        // A link to an older directory, or a deleted file, shows no time: then it is the last read.
        let at = files.iter().filter_map(|file| changed_at(Path::new(&file.name))).max();
        let at = at.unwrap_or_default().max(self.unchanged_at);
        self.metrics.in_force(WrittenChange { kind: ChangeKind::Files, at }, now);
        self.unchanged_at = now;
    }

    /// The layer that is about to be read has these changes.
    pub(super) fn add(&mut self, written: Vec<WrittenChange>) {
        self.layer.extend(written);
        self.layer.truncate(MAX_WRITTEN);
    }

    /// Measures the changes of a layer that are in force: all of them, or its switches.
    pub(super) fn layer_in_force(&mut self, written: &Layer, in_force: &Layer, now: Timestamp) {
        let (metrics, is_whole) = (&self.metrics, written == in_force);
        if !is_whole && written.switches != in_force.switches {
            return;
        }
        self.layer.retain(|change| {
            let is_in_force = is_whole || change.kind == ChangeKind::Switch;
            if is_in_force {
                metrics.in_force(*change, now);
            }
            !is_in_force
        });
    }
}

/// When a file was last written or moved into place, or a link on the way to it.
fn changed_at(path: &Path) -> Option<Timestamp> {
    let links = path.ancestors().take(MAX_PARENTS).filter_map(|path| fs::symlink_metadata(path).ok());
    let links = links.filter(fs::Metadata::is_symlink);
    links.chain(fs::metadata(path).ok()).filter_map(|metadata| status_changed(&metadata)).max()
}

/// The time of the last change to content, name or permissions.
fn status_changed(metadata: &fs::Metadata) -> Option<Timestamp> {
    let seconds = u64::try_from(metadata.ctime()).ok()?;
    let micros = u64::try_from(metadata.ctime_nsec()).ok()? / 1_000;
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?.checked_add(micros)?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;
    use tollgate::{Clock as _, SystemClock};

    use super::*;

    #[test]
    fn a_file_changes_when_it_is_written_moved_or_linked() {
        let home = TempDir::new().unwrap();
        let [old, new, link] = ["old.yaml", "new.yaml", "link"].map(|name| home.path().join(name));
        fs::write(&old, "a").unwrap();
        // Times of the file system may lag behind by one tick of the kernel.
        let began = SystemClock::default().now().as_micros() - 20_000;
        fs::File::open(&old).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        fs::rename(&old, &new).unwrap();
        assert!(changed_at(&new).unwrap().as_micros() >= began, "a move counts, whatever the file says of its age");
        symlink(home.path(), &link).unwrap();
        let linked = fs::symlink_metadata(&link).unwrap();
        assert_eq!(changed_at(&link.join("new.yaml")), status_changed(&linked));
        assert_eq!(changed_at(&old), None);
    }
}
