//! Budgets: what a path may cost, as text that is checked in.

use std::fmt;
use std::path::Path;

/// A figure and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: u64,
}

/// The budgets, and the compiler that they were measured with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Budgets {
    compiler: String,
    figures: Vec<Figure>,
}

/// Budgets and what was measured, side by side.
#[derive(Debug)]
pub(crate) struct Comparison {
    rows: Vec<(Figure, Option<u64>)>,
}

/// By how much a figure may exceed its budget, in percent.
const TOLERANCE: u64 = 3;
const COMPILER: &str = "compiler";

impl Budgets {
    pub(crate) fn new(compiler: String, figures: Vec<Figure>) -> Budgets {
        Budgets { compiler, figures }
    }

    pub(crate) fn read(path: &Path) -> Result<Budgets, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Budgets::parse(&text)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let existing = std::fs::read_to_string(path).unwrap_or_default();
        let head: String =
            existing.lines().take_while(|line| line.starts_with('#')).map(|line| line.to_owned() + "\n").collect();
        std::fs::write(path, format!("{head}{self}")).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Budgets, String> {
        let (mut compiler, mut figures) = (String::new(), Vec::new());
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (name, value) = line.split_once('=').ok_or_else(|| format!("not NAME = VALUE: {line}"))?;
            let (name, value) = (name.trim(), value.trim());
            match (name, value.parse()) {
                (COMPILER, _) => compiler = value.to_owned(),
                (_, Ok(value)) => figures.push(Figure { name: name.to_owned(), value }),
                (_, Err(error)) => return Err(format!("{line}: {error}")),
            }
        }
        Ok(Budgets { compiler, figures })
    }

    /// Whether the budgets were measured with this compiler. Another one generates other instructions.
    pub(crate) fn is_for(&self, compiler: &str) -> bool {
        self.compiler == compiler
    }

    /// A figure without a budget counts as over it: a new path gets one in the same commit.
    pub(crate) fn compare(&self, measured: &[Figure]) -> Comparison {
        let budget = |name: &str| self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value);
        Comparison { rows: measured.iter().map(|figure| (figure.clone(), budget(&figure.name))).collect() }
    }
}

impl fmt::Display for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{COMPILER} = {}", self.compiler)?;
        self.figures.iter().try_for_each(|figure| writeln!(f, "{} = {}", figure.name, figure.value))
    }
}

impl Comparison {
    pub(crate) fn is_within(&self) -> bool {
        self.rows.iter().all(|(figure, budget)| is_within(figure.value, *budget))
    }
}

fn is_within(value: u64, budget: Option<u64>) -> bool {
    budget.is_some_and(|budget| value * 100 <= budget * (100 + TOLERANCE))
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<48} {:>10} {:>10} {:>8}", "", "measured", "budget", "")?;
        for (figure, budget) in &self.rows {
            let Figure { name, value } = figure;
            let verdict = if is_within(*value, *budget) { "" } else { "  OVER" };
            match budget {
                Some(budget) => {
                    let change = (*value as f64 / (*budget).max(1) as f64 - 1.0) * 100.0;
                    writeln!(f, "{name:<48} {value:>10} {budget:>10} {change:>+7.1}%{verdict}")?;
                }
                None => writeln!(f, "{name:<48} {value:>10} {:>10} {:>8}{verdict}", "none", "")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, value: u64) -> Figure {
        Figure { name: name.to_owned(), value }
    }

    #[test]
    fn budgets_are_read_as_they_were_written() {
        let budgets = Budgets::new("rustc 1".to_owned(), vec![figure("a path, twice", 12), figure("b", 0)]);
        assert_eq!(Budgets::parse(&format!("# why\n\n{budgets}")), Ok(budgets));
        for faulty in ["a", "a = b", "a = -1"] {
            assert!(Budgets::parse(faulty).is_err(), "{faulty}");
        }
    }

    #[test]
    fn a_figure_may_exceed_its_budget_by_the_tolerance() {
        let budgets = Budgets::new(String::new(), vec![figure("a", 1_000)]);
        for (measured, is_within) in [(1, true), (1_030, true), (1_031, false)] {
            assert_eq!(budgets.compare(&[figure("a", measured)]).is_within(), is_within, "{measured}");
        }
        assert!(!budgets.compare(&[figure("new", 1)]).is_within());
    }
}
