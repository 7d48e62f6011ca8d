//! Resource use of the process, from `/proc`, under the names that Prometheus clients use for it.

use std::fmt::Error;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};

use super::encode::{family, gauge};

/// Reads `/proc` at each scrape. Values that can't be read are omitted.
#[derive(Debug)]
pub(super) struct ProcessMetrics;

/// The unit of times in `/proc`, whatever the kernel's own ticks are.
const TICKS_PER_SECOND: f64 = 100.0;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), Error> {
        let encoder = &mut encoder;
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (stat, status) = (read("/proc/self/stat"), read("/proc/self/status"));
        if let Some(seconds) = cpu_seconds(&stat) {
            family(encoder, "process_cpu_seconds")?.encode_counter::<NoLabelSet, f64, f64>(&seconds, None)?;
        }
        if let Some(at) = start_time(&stat, &read("/proc/stat")) {
            gauge(encoder, "process_start_time_seconds", &at)?;
        }
        for (field, name) in [("VmRSS:", "process_resident_memory_bytes"), ("VmSize:", "process_virtual_memory_bytes")]
        {
            if let Some(kibibytes) = number_after(&status, field) {
                gauge(encoder, name, &kibibytes.saturating_mul(1024))?;
            }
        }
        if let Some(threads) = number_after(&status, "Threads:") {
            gauge(encoder, "process_threads", &threads)?;
        }
        if let Some(open) = open_files() {
            gauge(encoder, "process_open_fds", &open)?;
        }
        match number_after(&read("/proc/self/limits"), "Max open files") {
            Some(max) => gauge(encoder, "process_max_fds", &max),
            None => Ok(()),
        }
    }
}

/// A field of `/proc/self/stat` by its number in proc(5). The second, the name of the program, may contain any character.
fn field(stat: &str, number: usize) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(number - 3)?.parse().ok()
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    let (user, system) = (field(stat, 14)?, field(stat, 15)?);
    Some((user + system) / TICKS_PER_SECOND)
}

fn start_time(stat: &str, system_stat: &str) -> Option<f64> {
    let booted_at = number_after(system_stat, "btime")?;
    Some(booted_at as f64 + field(stat, 22)? / TICKS_PER_SECOND)
}

/// The first number on the line with this prefix.
fn number_after(text: &str, start: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(start))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn open_files() -> Option<u64> {
    const DIRECTORY: &str = "/proc/self/fd";
    // New kernels report the number as the directory's size; listing it is slow with many connections.
    match fs::metadata(DIRECTORY).ok()?.len() {
        // The descriptor that lists the directory does not count.
        0 => Some((fs::read_dir(DIRECTORY).ok()?.count() as u64).saturating_sub(1)),
        open => Some(open),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_read_whatever_the_program_is_called() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 12345 1000000 250 1 2 3";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(start_time(stat, "cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_123.45));
    }

    #[test]
    fn lines_are_found_and_what_is_missing_is_none() {
        let status = "Name:\ttollgate\nVmRSS:\t    1234 kB\nThreads:\t3\n";
        assert_eq!(number_after(status, "VmRSS:"), Some(1234));
        assert_eq!(number_after(status, "VmSize:"), None);
        assert_eq!(number_after("Max open files            1024  4096 files", "Max open files"), Some(1024));
        assert_eq!(number_after("Max open files            unlimited  unlimited files", "Max open files"), None);
        assert_eq!(cpu_seconds(""), None);
        assert_eq!(start_time("1 (x) S 1", "btime x"), None);
    }

    #[test]
    fn open_files_are_counted() {
        let before = open_files().unwrap();
        let files: Vec<_> = (0..100).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        // Other tests open and close files meanwhile.
        let after = open_files().unwrap();
        assert!((before + 50..before + 150).contains(&after), "{before} {after}");
        drop(files);
    }
}
