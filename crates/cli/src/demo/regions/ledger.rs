//! What each mode of limits admitted in each period and region, compared with the limit. No I/O, no clock.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The modes: the values of the attribute `limit`, by which demo/regions/rules.yaml tells them apart, and what may pass.
pub(super) const MODES: [(&str, &str); 5] = [
    ("each", "the limit in each region"),
    ("split", "at most the limit; less where a share is not used"),
    ("home", "at most the limit"),
    ("global", "a little more than the limit, and the limit in each region while they are apart"),
    ("share", "the same, and a share of the limit in each region while they are apart"),
];

/// The counts of the last periods.
#[derive(Debug)]
pub(super) struct Ledger {
    regions: Vec<String>,
    limit: u64,
    /// In seconds.
    period: u64,
    open: BTreeMap<u64, PeriodCounts>,
    /// The first period that is not over.
    next: Option<u64>,
    /// The most that each mode admitted in a period in all regions together, while they were together and while not.
    most: [[u64; 2]; MODES.len()],
}

/// What happened in a period.
#[derive(Debug)]
struct PeriodCounts {
    sent: Vec<u64>,
    admitted: [Vec<u64>; MODES.len()],
    /// How other regions were doing, as the servers of each region said.
    links: Vec<Option<String>>,
}

impl Ledger {
    /// Nothing counted yet. Limits are of this amount in a period of so many seconds.
    pub(super) fn new(regions: Vec<String>, limit: u64, period: u64) -> Ledger {
        Ledger { regions, limit, period, open: BTreeMap::new(), next: None, most: Default::default() }
    }

    pub(super) fn count_sent(&mut self, region: usize, second: u64) {
        if let Some(counts) = self.at(second) {
            counts.sent[region] += 1;
        }
    }

    pub(super) fn count_admitted(&mut self, region: usize, mode: usize, second: u64) {
        if let Some(counts) = self.at(second) {
            counts.admitted[mode][region] += 1;
        }
    }

    pub(super) fn note_link(&mut self, region: usize, link: &str, second: u64) {
        if let Some(counts) = self.at(second) {
            counts.links[region] = Some(link.to_owned());
        }
    }

    /// The period of this second. `None` if it is over.
    fn at(&mut self, second: u64) -> Option<&mut PeriodCounts> {
        let (period, regions) = (second / self.period, self.regions.len());
        // The first one has begun before.
        let next = *self.next.get_or_insert(period + 1);
        (period >= next).then(|| {
            self.open.entry(period).or_insert_with(|| PeriodCounts {
                sent: vec![0; regions],
                admitted: std::array::from_fn(|_| vec![0; regions]),
                links: vec![None; regions],
            })
        })
    }

    /// Reports of the periods that are over at this second.
    pub(super) fn take_over(&mut self, second: u64) -> Vec<String> {
        let Some(next) = self.next.as_mut().filter(|next| **next < second / self.period) else { return Vec::new() };
        *next = second / self.period;
        let still_open = self.open.split_off(next);
        let over = std::mem::replace(&mut self.open, still_open);
        over.into_iter().map(|(number, counts)| self.report(number, &counts)).collect()
    }

    fn report(&mut self, number: u64, counts: &PeriodCounts) -> String {
        let Ledger { regions, limit, period, .. } = self;
        let at = number * *period;
        let mut text = format!("  {:02}:{:02}:{:02} UTC, {period} s    ", at / 3_600 % 24, at / 60 % 60, at % 60);
        regions.iter().for_each(|region| add(&mut text, format_args!("{region:>9}")));
        add(&mut text, format_args!("{:>9}   of the limit\n", "all"));
        let sent: u64 = counts.sent.iter().sum();
        line(&mut text, "requests", &counts.sent);
        add(&mut text, format_args!("{sent:>9}\n"));
        let is_apart = counts.links.iter().any(Option::is_some);
        for ((mode, admitted), most) in MODES.iter().zip(&counts.admitted).zip(&mut self.most) {
            let all: u64 = admitted.iter().sum();
            let most = &mut most[usize::from(is_apart)];
            *most = all.max(*most);
            line(&mut text, mode.0, admitted);
            add(&mut text, format_args!("{all:>9}   {:>4} %\n", all * 100 / *limit));
        }
        for (region, link) in regions.iter().zip(&counts.links) {
            if let Some(link) = link {
                add(&mut text, format_args!("    {region} says of the others: {link}\n"));
            }
        }
        text.push('\n');
        text
    }

    /// What each mode admitted at most, compared with its limit.
    pub(super) fn summary(&self) -> String {
        let mut text = format!("  Most in {} s in all regions, of a limit of {}:\n", self.period, self.limit);
        for ((mode, may), [together, apart]) in MODES.iter().zip(self.most) {
            let apart =
                if apart > 0 { format!("{} % while late or apart", apart * 100 / self.limit) } else { String::new() };
            add(&mut text, format_args!("    {mode:<8}{:>5} %   {apart:<27} {may}\n", together * 100 / self.limit));
        }
        text
    }
}

fn line(text: &mut String, name: &str, counts: &[u64]) {
    add(text, format_args!("    {name:<22}"));
    counts.iter().for_each(|count| add(text, format_args!("{count:>9}")));
}

fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = text.write_fmt(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_reported_once_when_they_are_over() {
        let mut ledger = Ledger::new(vec!["east".to_owned(), "west".to_owned()], 10, 10);
        // The first period is not complete.
        ledger.count_admitted(0, 0, 1_009);
        assert!(ledger.take_over(1_010).is_empty());
        for _ in 0..10 {
            ledger.count_sent(1, 1_010);
            ledger.count_admitted(0, 0, 1_010);
            ledger.count_admitted(1, 0, 1_019);
        }
        ledger.count_admitted(1, 3, 1_015);
        ledger.count_admitted(1, 3, 1_020);
        assert!(ledger.take_over(1_019).is_empty());
        let reports = ledger.take_over(1_021);
        let rows: Vec<Vec<&str>> = reports[0].lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][..4], ["00:16:50", "UTC,", "10", "s"]);
        assert_eq!(rows[1], ["requests", "0", "10", "10"]);
        assert_eq!(rows[2], ["each", "10", "10", "20", "200", "%"]);
        assert_eq!(rows[5], ["global", "0", "1", "1", "10", "%"]);
        assert!(ledger.take_over(1_022).is_empty());
        // Too late.
        ledger.count_admitted(0, 0, 1_019);
        ledger.note_link(0, "apart", 1_025);
        let reports = ledger.take_over(1_030);
        assert!(reports[0].contains("east says of the others: apart\n"), "{}", reports[0]);
        let summary = ledger.summary();
        assert!(summary.contains("each      200 %  "), "{summary}");
        assert!(summary.contains("global     10 %   10 % while late or apart "), "{summary}");
    }
}
