//! What is said of decisions in several regions.

use tollgate::RegionLink;

use super::entry;

#[test]
fn why_in_several_regions() {
    let refused = "user_7 was refused: per-user allows 100/minute to the tier free, it had used 100 of 100";
    let again = ", and there was room again 12.5 s later";
    for (link, region, expected) in [
        (RegionLink::Together, Some("us-east"), format!("{refused} (counted in us-east){again}.")),
        (
            RegionLink::Lagging,
            None,
            format!(
                "{refused}{again}; other regions heard of units too late, so limits that count in all of them were lowered."
            ),
        ),
        (
            RegionLink::Apart,
            None,
            format!("{refused}{again}; another region could not be reached, and what it admitted was not counted."),
        ),
    ] {
        let mut entry = entry();
        (entry.link, entry.limits[0].region) = (link, region.map(str::to_owned));
        assert_eq!(entry.explain(), expected);
    }
}
