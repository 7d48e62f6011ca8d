//! Addresses in keys: IPv6 by network, IPv4 in whichever form it came.

use crate::matching::check;

#[test]
fn a_list_counts_addresses() {
    let file = "
domain: d
rules:
  - {name: usual, key: [remote_address], limit: 1/s}
  - {name: wide, key: [remote_address], ipv6_prefix: 48, limit: 1/s}
  - {name: one, key: [remote_address], ipv6_prefix: 128, limit: 1/s}
  - {name: other, key: [peer], limit: 1/s}
  - {name: given, key: [peer], ipv6_prefix: 64, limit: 1/s}
";
    check(
        file,
        &[
            (
                "remote_address=2001:db8:1:2ff:3::4",
                &["usual(2001:db8:1:200::/56) 1/1s", "wide(2001:db8:1::/48) 1/1s", "one(2001:db8:1:2ff:3::4/128) 1/1s"],
            ),
            ("remote_address=10.1.2.3", &["usual(10.1.2.3) 1/1s", "wide(10.1.2.3) 1/1s", "one(10.1.2.3) 1/1s"]),
            ("remote_address=::ffff:10.1.2.3", &["usual(10.1.2.3) 1/1s", "wide(10.1.2.3) 1/1s", "one(10.1.2.3) 1/1s"]),
            ("remote_address=somewhere", &["usual(somewhere) 1/1s", "wide(somewhere) 1/1s", "one(somewhere) 1/1s"]),
            ("peer=2001:db8::1:0:0:1", &["other(2001:db8::1:0:0:1) 1/1s", "given(2001:db8::/64) 1/1s"]),
        ],
    );
}

#[test]
fn every_attribute_that_is_known_to_be_an_address() {
    let file = "
domain: d
rules:
  - {name: a, key: ['remote_address?', 'masked_remote_address?', 'client_ip?', 'ip_address?', 'ip?'], limit: 1/s}
";
    check(
        file,
        &[(
            "remote_address=1::1, masked_remote_address=2::1, client_ip=3::1, ip_address=4::1, ip=5::1",
            &["a(1::/56, 2::/56, 3::/56, 4::/56, 5::/56) 1/1s"],
        )],
    );
}

/// The limit's own prefix applies, at any depth of the address.
#[test]
fn a_tree_counts_addresses() {
    let file = "
domain: d
match_parents: true
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - key: path
        ipv6_prefix: 64
        rate_limit: {unit: second, requests_per_unit: 2}
  - key: tenant
    descriptors:
      - key: ip
        rate_limit: {unit: second, requests_per_unit: 3}
      - key: peer
        rate_limit: {unit: second, requests_per_unit: 4}
        ipv6_prefix: 32
";
    check(
        file,
        &[
            (
                "remote_address=2001:db8:1:2ff::4, path=/",
                &["remote_address(2001:db8:1:200::/56) 1/1s", "remote_address/path(2001:db8:1:2ff::/64, /) 2/1s"],
            ),
            ("remote_address=::ffff:10.1.2.3", &["remote_address(10.1.2.3) 1/1s"]),
            (
                "tenant=2001:db8:1:2ff::4, ip=2001:db8:1:2ff::4",
                &["tenant/ip(2001:db8:1:2ff::4, 2001:db8:1:200::/56) 3/1s"],
            ),
            ("tenant=t, peer=2001:db8:1:2ff::4", &["tenant/peer(t, 2001:db8::/32) 4/1s"]),
        ],
    );
}
