//! The settings of other regions, and their contradictions.

use tollgate::{RegionNames, RegionNamesError};
use tollgate_rules::problem::{TextFault, quoted};

use super::read::SettingsReader;
use super::settings::{OtherRegion, RegionSettings};
use super::store::parse_address;
use super::text;

const EXAMPLE: &str = "write for instance us-west=rediss://redis.us-west:6379,eu-west=rediss://redis.eu-west:6379";

impl SettingsReader<'_> {
    /// The regions, if others than this one are set.
    pub(super) fn regions(&mut self) -> Option<Option<RegionSettings>> {
        let others = self.or("regions", "none", |text, _| parse(text));
        let access = self.access("region");
        let (deadline, beat) = (self.time("region_deadline"), self.time("region_beat"));
        let share_interval = self.time("region_share_interval");
        let (others, access, deadline, beat, share_interval) = (others?, access?, deadline?, beat?, share_interval?);
        let Some(mut others) = others else {
            let is_unused = self.has_no_access("region", &access, |name| {
                ("there are no other regions", format!("set `regions`, or remove `{name}`"))
            });
            return is_unused.then_some(None);
        };
        let Some(here) = self.text_unless("region", "none") else { return self.report_missing("regions", "region") };
        if self.text_unless("store", "memory").is_none() {
            let remedy = "set `store` to the Redis of this region, or remove `regions`";
            self.report_contradiction("regions", "counters are in memory (`store`), not in Redis", remedy);
            return None;
        }
        // All regions may have one file.
        others.retain(|other| other.name != here);
        others.sort_by(|one, other| one.name.cmp(&other.name));
        let names = match RegionNames::new(&here, others.iter().map(|other| other.name.as_str())) {
            Ok(names) => names,
            Err(error) => {
                let is_here = matches!(&error, RegionNamesError::BadName(name) if *name == here);
                let name = if is_here { "region" } else { "regions" };
                self.reject(name, TextFault::new(format!("`{name}`: {error}"), "correct the name"));
                return None;
            }
        };
        if others.is_empty() {
            let why = format!("it names no region but {}, which is this one", quoted(&here));
            self.report_contradiction("regions", &why, EXAMPLE);
            return None;
        }
        let addresses: Vec<_> = others.iter().map(|other| &other.address).collect();
        if !self.fits("region", "regions", &addresses, &access) {
            return None;
        }
        Some(Some(RegionSettings { names, others, access, deadline, beat, share_interval }))
    }

    /// The text of a setting that is parsed elsewhere, unless it is this word.
    fn text_unless(&self, name: &str, word: &str) -> Option<String> {
        let text = self.values.get(name)?.text.as_deref().ok()?.trim();
        (text != word).then(|| text.to_owned())
    }
}

/// Regions with their addresses, as in the text.
fn parse(text: &str) -> Result<Vec<OtherRegion>, TextFault> {
    let mut others: Vec<OtherRegion> = Vec::new();
    for (name, url) in text::regions(text) {
        if name.is_empty() {
            return Err(TextFault::new("a region has no name", EXAMPLE));
        }
        let address = parse_address(&url).map_err(|fault| {
            TextFault::new(format!("the region {}: {}", quoted(&name), fault.message), fault.remedy)
        })?;
        others.push(OtherRegion { name, address });
    }
    Ok(others)
}
