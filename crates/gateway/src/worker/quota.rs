//! How many processors this process may use.

use std::fs;
use std::path::{Path, PathBuf};

/// The processors of this process, or what its control group allows of them: often a part of one in a container.
pub(super) fn processors() -> f64 {
    let available = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // `available` is a whole number, so a quota below it, or one that was rounded up to 1, is what counts.
    quota(&groups, Path::new("/sys/fs/cgroup")).map_or(available, |quota| quota.min(available.max(1.0)))
}

/// The least quota of the groups that contain this process, in processors.
fn quota(groups: &str, mount: &Path) -> Option<f64> {
    let mut least: Option<f64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, read): (PathBuf, fn(&Path) -> Option<f64>) = match controllers {
            "" => (mount.to_owned(), unified),
            names if names.split(',').any(|name| name == "cpu") => (mount.join("cpu"), separate),
            _ => continue,
        };
        // Within a container the group's own path may not be there, but its files are at the root.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            least = read(&root.join(group)).into_iter().chain(least).reduce(f64::min);
        }
    }
    least
}

/// `50000 100000`, or `max 100000`, of version 2.
fn unified(group: &Path) -> Option<f64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// Two files, of version 1. Without a quota it is -1.
fn separate(group: &Path) -> Option<f64> {
    let quota = fs::read_to_string(group.join("cpu.cfs_quota_us")).ok()?;
    let period = fs::read_to_string(group.join("cpu.cfs_period_us")).ok()?;
    ratio(quota.trim(), period.trim())
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period) = (quota.parse::<u64>().ok()?, period.parse::<u64>().ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_quota_of_all_groups_counts() {
        let mount = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("pods/cpu.max", "150000 100000\n");
        write("pods/a/cpu.max", "50000 100000\n");
        write("pods/b/cpu.max", "max 100000\n");
        write("cpu/old/cpu.cfs_quota_us", "25000\n");
        write("cpu/old/cpu.cfs_period_us", "100000\n");
        write("cpu/free/cpu.cfs_quota_us", "-1\n");
        write("cpu/free/cpu.cfs_period_us", "100000\n");
        let rows = [
            ("0::/pods/a\n", Some(0.5)),
            ("0::/pods/b\n", Some(1.5)),
            ("0::/\n", None),
            ("0::/gone/a\n", None),
            ("4:memory:/old\n3:cpu,cpuacct:/old\n", Some(0.25)),
            ("3:cpu,cpuacct:/free\n", None),
            ("", None),
            ("nonsense", None),
        ];
        for (groups, expected) in rows {
            assert_eq!(quota(groups, mount.path()), expected, "{groups:?}");
        }
        assert!(processors() > 0.0);
    }
}
