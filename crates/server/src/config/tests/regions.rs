//! Settings of regions that belong together.

use super::start;

const STORE: &str = "--store=redis://here";
const REGION: &str = "--region=us-east";
const EXAMPLE: &str = "write for instance us-west=rediss://redis.us-west:6379,eu-west=rediss://redis.eu-west:6379";

#[test]
fn regions_need_a_region_a_redis_and_names() {
    let rows: [(&[&str], &str, String); 10] = [
        (
            &[STORE, "--regions=us-west=redis://w"],
            "--regions",
            "`regions` needs `region`, which is not set; set `region` too, or remove `regions`".to_owned(),
        ),
        (
            &[REGION, "--regions=us-west=redis://w"],
            "--regions",
            "`regions`: counters are in memory (`store`), not in Redis; set `store` to the Redis of this region, or remove `regions`".to_owned(),
        ),
        (
            &[REGION, STORE, "--regions=us-east=redis://w"],
            "--regions",
            format!("`regions`: it names no region but `us-east`, which is this one; {EXAMPLE}"),
        ),
        (
            &[REGION, STORE, "--regions=redis://w"],
            "--regions",
            format!("`regions`: a region has no name; {EXAMPLE}, or none"),
        ),
        (
            &[REGION, STORE, "--regions=a=redis://w,a=redis://v"],
            "--regions",
            "`regions`: the region \"a\" is named twice; correct the name".to_owned(),
        ),
        (
            &["--region=US", STORE, "--regions=a=redis://w"],
            "--region",
            "`region`: \"US\" is not a name of a region: write 1 to 40 lowercase letters, digits, -, _ and .; correct the name".to_owned(),
        ),
        (
            &[REGION, STORE, "--regions=a=w:6379"],
            "--regions",
            "`regions`: the region `a`: `w:6379` has no scheme; write redis://w:6379, or none".to_owned(),
        ),
        (
            &["--region-user=gate"],
            "--region-user",
            "`region_user`: there are no other regions; set `regions`, or remove `region_user`".to_owned(),
        ),
        (
            &[REGION, STORE, "--regions=a=redis://w", "--region-user=gate"],
            "--region-user",
            "`region_user`: there is no password for it; set `region_password` or `region_password_file` too".to_owned(),
        ),
        (
            &[REGION, STORE, "--regions=a=redis://w", "--region-ca=c"],
            "--region-ca",
            "`region_ca`: the connection to Redis has no TLS; write rediss:// in `regions`, or remove it".to_owned(),
        ),
    ];
    for (flags, place, error) in rows {
        assert_eq!(start(flags, &[], "").problems(), [format!("{place}: error: {error}")], "{flags:?}");
    }
}

#[test]
fn all_regions_may_have_one_file() {
    let file = "store: redis://here\nregions:\n  us-east: redis://e\n  us-west: redis://w:1,v:2\n";
    for (here, other) in [("us-east", "us-west"), ("us-west", "us-east")] {
        let settings = start(&[&format!("--region={here}")], &[], file).loaded().settings;
        let regions = settings.regions.unwrap();
        assert_eq!(regions.names.iter().map(|(_, name)| name).collect::<Vec<_>>(), [here, other]);
        assert_eq!(regions.others.len(), 1);
    }
}

#[test]
fn no_password_of_a_region_is_shown() {
    let regions = "--regions=a=redis://u:s3cret@w,b=redis://:t0p@v:1,x:2";
    let printed = start(&[REGION, STORE, regions], &[], "").loaded().print();
    assert!(printed.contains("a=redis://u:***@w,b=redis://:***@v:1,x:2"), "{printed}");
}
