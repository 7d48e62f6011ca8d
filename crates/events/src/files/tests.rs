//! LogFiles that are written, rotated, torn and read back.

use tempfile::TempDir;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(4_000_000_000);

fn files(home: &TempDir, max_bytes: u64, max_files: usize) -> LogFiles {
    let keep = Span::from_secs(1_000_000_000_000);
    LogFiles::open(FilesConfig { directory: home.path().join("log"), name: "decisions", max_bytes, max_files, keep })
        .unwrap()
}

fn found(files: &LogFiles, containing: &str, most: usize) -> Vec<String> {
    let mut found = Vec::new();
    files
        .find_back(containing, None, |line| {
            found.push(line.to_owned());
            found.len() < most
        })
        .unwrap();
    found
}

#[test]
fn files_are_rotated_and_bounded_and_read_from_the_end() {
    let home = TempDir::new().unwrap();
    let files = files(&home, 1_000, 3);
    for n in 0..100 {
        files.append([format!("line {n:093}").as_str(), "x"].into_iter()).unwrap();
        files.remove_old(Timestamp::from_secs(1)).unwrap();
    }
    let there = list_files(&files.config).unwrap();
    assert_eq!(there.len(), 3);
    for (_, path) in &there {
        assert!(fs::metadata(path).unwrap().len() <= 1_000);
    }
    let lines = found(&files, "line", 5);
    let numbers: Vec<_> = lines.iter().map(|line| line[5..].parse::<u64>().unwrap()).collect();
    assert_eq!(numbers, [99, 98, 97, 96, 95]);
    // Nine fit in a file.
    assert_eq!(found(&files, "line", 1_000).len(), 2 * 9 + 100 % 9);
    assert_eq!(found(&files, &format!("{:093}", 97), 9).len(), 1);
    assert_eq!(found(&files, "none", 9), [""; 0]);
}

#[test]
fn lines_of_any_length_are_read_across_chunks() {
    let home = TempDir::new().unwrap();
    let files = files(&home, 1 << 30, 3);
    let lines: Vec<_> = [1, 100_000, 262_143, 262_144, 3, 600_000, 262_140, 5].map(|n| "y".repeat(n)).into();
    files.append(lines.iter().map(String::as_str)).unwrap();
    let mut back = found(&files, "y", 100);
    back.reverse();
    assert!(back == lines);
    // One that is too long to be ours is left out, and nothing else.
    files.append(["z".repeat(2 << 20).as_str(), "last"].into_iter()).unwrap();
    assert_eq!(found(&files, "last", 9), ["last"]);
    assert_eq!(found(&files, "yyy", 100).len(), 7);
}

#[test]
fn a_torn_line_is_the_end_of_its_file() {
    let home = TempDir::new().unwrap();
    let first = files(&home, 1_000, 3);
    first.append(["a1", "a2"].into_iter()).unwrap();
    let path = list_files(&first.config).unwrap().pop().unwrap().1;
    OpenOptions::new().append(true).open(path).unwrap().write_all(b"a3 is to").unwrap();
    drop(first);
    let second = files(&home, 1_000, 3);
    second.append(["a4"].into_iter()).unwrap();
    assert_eq!(found(&second, "a", 9), ["a4", "a3 is to", "a2", "a1"]);
}

#[test]
fn files_that_are_old_go_and_are_not_looked_at() {
    let home = TempDir::new().unwrap();
    let config = FilesConfig {
        directory: home.path().join("log"),
        name: "decisions",
        max_bytes: 1,
        max_files: 9,
        keep: Span::from_secs(60),
    };
    let files = LogFiles::open(config).unwrap();
    ["a1", "a2", "a3"].into_iter().for_each(|line| files.append([line].into_iter()).unwrap());
    files.find_back("a", Some(NOW), |line| panic!("{line} is older")).unwrap();
    files.remove_old(Timestamp::from_secs(1)).unwrap();
    assert_eq!(found(&files, "a", 9).len(), 3);
    // Only the one that is written to stays.
    files.remove_old(NOW).unwrap();
    assert_eq!(found(&files, "a", 9), ["a3"]);
}

#[test]
fn what_can_not_be_written_leaves_nothing_behind() {
    let home = TempDir::new().unwrap();
    let files = files(&home, 1_000, 3);
    files.append(["a1"].into_iter()).unwrap();
    fs::remove_dir_all(&files.config.directory).unwrap();
    // The file is open still; the next one can't be made.
    files.append([format!("a{:>0990}", 2).as_str()].into_iter()).unwrap();
    files.append([format!("a{:>0990}", 3).as_str()].into_iter()).unwrap_err();
    fs::create_dir(&files.config.directory).unwrap();
    files.append(["a4"].into_iter()).unwrap();
    assert_eq!(found(&files, "a", 9), ["a4"]);
}
