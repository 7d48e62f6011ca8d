//! Turns the output of `make bench` into the results section of `docs/benchmarks.md`.
//!
//! A line without indentation begins a part. An indented line is a contender with its times, or, if it begins with `=`,
//! a figure with its target. Lines that begin with `!` are warnings, which become rows of their own.

use std::fmt::Write as _;

/// The lines of the page between which the results are. The first names the target of the Makefile that writes them.
const BEGIN: &str = "<!-- results: written by `make TARGET` -->";
const END: &str = "<!-- end of results -->";

/// When and on what the benchmarks ran.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) processor: String,
}

/// Replaces the results of a target in the page.
///
/// # Errors
/// If the page has no place for results, or the output has none.
pub(crate) fn replace_results(page: &str, target: &str, run: &Run, output: &str) -> Result<String, String> {
    let begin = BEGIN.replace("TARGET", target);
    let missing = || format!("the page has no lines {begin} and {END}");
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    let tables = tables(output);
    if tables.is_empty() {
        return Err("the output has no results".to_owned());
    }
    let Run { commit, date, processor } = run;
    Ok(format!("{before}{begin}\nCommit {commit}, {date}, {processor}.\n{tables}\n{END}{after}"))
}

fn tables(output: &str) -> String {
    let mut tables = String::new();
    let mut heading = None;
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
        let Some(row) = line.strip_prefix("  ") else {
            heading = Some(line.trim_end());
            continue;
        };
        // A part that was skipped has a heading without rows.
        if let Some(heading) = heading.take() {
            let _ = write!(tables, "\n**{heading}**\n\n| | measured | target |\n| --- | --- | --- |\n");
        }
        let _ = writeln!(tables, "{}", self::row(row.trim()));
    }
    tables
}

fn row(line: &str) -> String {
    let Some(figure) = line.strip_prefix("= ") else { return contender(line) };
    let (name, result) = figure.split_once(": ").unwrap_or((figure, ""));
    match result.split_once(" required: ").and_then(|(measured, word)| Some((measured.rsplit_once(", ")?, word))) {
        Some(((measured, target), word)) => {
            let word = if word == "reached" { "reached" } else { "**missed**" };
            format!("| {name} | {measured} | {target}: {word} |")
        }
        None => format!("| {name} | {result} | |"),
    }
}

/// The name of a contender is followed by at least two spaces.
fn contender(line: &str) -> String {
    match line.split_once("  ") {
        Some((name, times)) => {
            let times: Vec<&str> = times.split_whitespace().collect();
            format!("| {name} | {} | |", times.join(" "))
        }
        None => format!("| {line} | | |"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
one decision, 2 draws a round
  governor, bare keyed check                        306 ns   (275 to 353)
  tollgate, one limit                               329 ns   (318 to 452)
  = tollgate to governor, 1 thread: 1.07, at most 1.00 required: MISSED
  = decisions a second: 242000 (230000 to 250000), at least 100000 required: reached
skipped part
";

    const TABLE: &str = "\
**one decision, 2 draws a round**

| | measured | target |
| --- | --- | --- |
| governor, bare keyed check | 306 ns (275 to 353) | |
| tollgate, one limit | 329 ns (318 to 452) | |
| tollgate to governor, 1 thread | 1.07 | at most 1.00: **missed** |
| decisions a second | 242000 (230000 to 250000) | at least 100000: reached |
";

    fn run() -> Run {
        Run { commit: "abc".to_owned(), date: "2026-01-02".to_owned(), processor: "2 cores".to_owned() }
    }

    #[test]
    fn results_replace_those_of_an_earlier_run() {
        let begin = BEGIN.replace("TARGET", "bench");
        let other = format!("{}\nof another target\n{END}\n", BEGIN.replace("TARGET", "bench-more"));
        let page = format!("# Page\n{other}{begin}\nold\n{END}\nprose\n");
        let once = replace_results(&page, "bench", &run(), OUTPUT).unwrap();
        let written = format!("{begin}\nCommit abc, 2026-01-02, 2 cores.\n\n{TABLE}\n{END}\n");
        assert_eq!(once, format!("# Page\n{other}{written}prose\n"));
        assert_eq!(replace_results(&once, "bench", &run(), OUTPUT).unwrap(), once);
    }

    #[test]
    fn nothing_is_written_without_results_or_a_place_for_them() {
        assert!(replace_results("# Page", "bench", &run(), OUTPUT).is_err());
        assert!(replace_results(&format!("{BEGIN}\n{END}"), "TARGET", &run(), "resp: skipped\n").is_err());
    }
}
