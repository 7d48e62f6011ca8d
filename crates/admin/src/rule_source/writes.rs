//! Which rule files are being written, by what the file system reports.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::EventKind;
use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use tollgate::LoadOptions;

/// The writes to rule files. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct FileWrites(Arc<Mutex<Writes>>);

#[derive(Debug, Default)]
struct Writes {
    /// Files that were written to and not closed since, each with the number of its last write.
    open: HashMap<PathBuf, u64>,
    /// The number of writes so far.
    count: u64,
    /// Whether a file was closed or moved into place since the last question.
    completed: bool,
}

/// The paths of the rules.
#[derive(Debug)]
pub(super) struct RulePaths {
    /// Absolute.
    pub(super) paths: Vec<PathBuf>,
    pub(super) options: LoadOptions,
}

/// Files that are tracked while they are open. Of others it is not known that they are.
const MAX_OPEN: usize = 1_024;
/// Elsewhere a file that was written to would look open forever.
const CLOSING_IS_REPORTED: bool = cfg!(any(target_os = "linux", target_os = "android"));

// === impl FileWrites ===

impl FileWrites {
    /// Takes note of an event. Returns whether rules may have changed.
    pub(super) fn observe(&self, event: &notify::Event, rules: &RulePaths) -> bool {
        let mut concerned = event.paths.iter().filter(|path| rules.are_concerned_by(path)).peekable();
        if concerned.peek().is_none() {
            return false;
        }
        let mut writes = self.lock();
        match event.kind {
            EventKind::Modify(ModifyKind::Data(_)) => {
                concerned.filter(|path| rules.include(path)).for_each(|path| writes.written(path));
                true
            }
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
                concerned.for_each(|path| writes.closed(path));
                writes.completed = true;
                true
            }
            EventKind::Modify(ModifyKind::Name(mode)) => {
                concerned.for_each(|path| writes.closed(path));
                writes.completed |= matches!(mode, RenameMode::To | RenameMode::Both);
                true
            }
            EventKind::Remove(_) => {
                concerned.for_each(|path| writes.closed(path));
                true
            }
            // Opening and reading are no changes, and come from this process.
            kind => !kind.is_access(),
        }
    }

    /// The number of the last write to a file that is still open; `None` if there is no such file.
    pub(super) fn last_open(&self) -> Option<u64> {
        self.lock().open.values().max().copied()
    }

    /// Whether a file was closed or moved into place since the last call.
    pub(super) fn take_completed(&self) -> bool {
        std::mem::take(&mut self.lock().completed)
    }

    fn lock(&self) -> MutexGuard<'_, Writes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Writes ===

impl Writes {
    fn written(&mut self, path: &Path) {
        self.count += 1;
        if let Some(number) = self.open.get_mut(path) {
            *number = self.count;
        } else if CLOSING_IS_REPORTED && self.open.len() < MAX_OPEN {
            self.open.insert(path.to_owned(), self.count);
        }
    }

    /// A file was closed, or a file or directory went away.
    fn closed(&mut self, path: &Path) {
        self.open.retain(|open, _| !open.starts_with(path));
    }
}

// === impl RulePaths ===

impl RulePaths {
    /// Whether a change of this path may be one of the rules: it is one of their paths, above or within one.
    fn are_concerned_by(&self, changed: &Path) -> bool {
        self.paths.iter().any(|path| path.starts_with(changed) || changed.starts_with(path))
    }

    /// Whether this is a rule file. Editors keep other files open next to one.
    fn include(&self, file: &Path) -> bool {
        self.paths.iter().any(|path| path == file || file.parent() == Some(path) && self.options.reads(file))
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, DataChange, RemoveKind};

    use super::*;

    const WRITE: EventKind = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    const CLOSE: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
    const MOVED_HERE: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::To));
    const MOVED_AWAY: EventKind = EventKind::Modify(ModifyKind::Name(RenameMode::From));

    fn observe(writes: &FileWrites, kind: EventKind, path: &str) -> bool {
        let rules = RulePaths {
            paths: vec![PathBuf::from("/etc/rules"), PathBuf::from("/srv/one.conf")],
            options: LoadOptions::default(),
        };
        writes.observe(&notify::Event::new(kind).add_path(PathBuf::from(path)), &rules)
    }

    #[test]
    fn a_file_is_open_from_a_write_until_it_is_closed_or_goes_away() {
        let writes = FileWrites::default();
        assert!(observe(&writes, WRITE, "/etc/rules/a.yaml"));
        assert!(observe(&writes, WRITE, "/srv/one.conf"));
        assert_eq!(writes.last_open(), Some(2));
        assert!(observe(&writes, WRITE, "/etc/rules/a.yaml"));
        assert_eq!((writes.last_open(), writes.take_completed()), (Some(3), false));
        assert!(observe(&writes, CLOSE, "/etc/rules/a.yaml"));
        assert_eq!((writes.last_open(), writes.take_completed()), (Some(2), true));
        assert!(!writes.take_completed());
        assert!(observe(&writes, MOVED_AWAY, "/srv/one.conf"));
        assert_eq!((writes.last_open(), writes.take_completed()), (None, false));
        observe(&writes, WRITE, "/etc/rules/b.yaml");
        assert!(observe(&writes, EventKind::Remove(RemoveKind::Folder), "/etc/rules"));
        assert_eq!((writes.last_open(), writes.take_completed()), (None, false));
    }

    #[test]
    fn a_link_that_is_moved_into_place_completes_a_change() {
        let writes = FileWrites::default();
        assert!(observe(&writes, EventKind::Create(CreateKind::File), "/etc/rules/..data_tmp"));
        assert!(!writes.take_completed());
        assert!(observe(&writes, MOVED_HERE, "/etc/rules/..data"));
        assert!(writes.take_completed());
        assert!(observe(&writes, MOVED_HERE, "/etc"), "above the rules");
        assert!(writes.take_completed());
    }

    #[test]
    fn other_files_are_never_waited_for() {
        let writes = FileWrites::default();
        for other in ["/etc/rules/.a.yaml.swp", "/etc/rules/a.yaml.part", "/etc/rules/below/a.yaml"] {
            assert!(observe(&writes, WRITE, other), "{other}");
        }
        for elsewhere in ["/etc/rules2/a.yaml", "/srv/two.conf", "/var"] {
            assert!(!observe(&writes, WRITE, elsewhere) && !observe(&writes, CLOSE, elsewhere), "{elsewhere}");
        }
        assert!(!observe(&writes, EventKind::Access(AccessKind::Open(AccessMode::Any)), "/etc/rules/a.yaml"));
        assert_eq!((writes.last_open(), writes.take_completed()), (None, false));
    }

    #[test]
    fn the_number_of_tracked_files_is_bounded() {
        let writes = FileWrites::default();
        for number in 0..=MAX_OPEN {
            observe(&writes, WRITE, &format!("/etc/rules/{number}.yaml"));
        }
        assert_eq!(writes.lock().open.len(), MAX_OPEN);
    }
}
