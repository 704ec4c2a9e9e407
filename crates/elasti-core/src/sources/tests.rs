//! Tables: which address is in which block, and which source may come in.

use super::*;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_block_contains_its_addresses_and_no_other_in_either_way_of_writing() {
    let table = [
        ("10.0.0.0/8", "10.255.255.255", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.0/8", "9.255.255.255", false),
        // Bits behind the prefix do not count.
        ("10.1.2.3/8", "10.9.9.9", true),
        ("10.1.2.3/32", "10.1.2.3", true),
        ("10.1.2.3/32", "10.1.2.2", false),
        ("10.1.2.0/31", "10.1.2.1", true),
        ("10.1.2.0/31", "10.1.2.2", false),
        ("0.0.0.0/0", "203.0.113.7", true),
        // IPv4 in IPv6, on either side: a listener on `::` sees every IPv4 client so.
        ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ("10.0.0.0/8", "::ffff:11.1.2.3", false),
        ("0.0.0.0/0", "::ffff:203.0.113.7", true),
        ("::ffff:10.0.0.0/104", "10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "11.1.2.3", false),
        ("::ffff:0:0/96", "203.0.113.7", true),
        ("::ffff:0:0/96", "fd00::1", false),
        // All of IPv6 is not all of IPv4, and the other way round.
        ("::/0", "fd00::1", true),
        ("::/0", "203.0.113.7", false),
        ("::/0", "::ffff:203.0.113.7", false),
        ("0.0.0.0/0", "fd00::1", false),
        // The old way to write IPv4 in IPv6 is an IPv6 address like any other.
        ("10.0.0.0/8", "::10.1.2.3", false),
        ("fd00::/8", "fdff::1", true),
        ("fd00::/8", "fe00::1", false),
        ("fd00::1/128", "fd00::1", true),
        ("fd00::1/128", "fd00::2", false),
    ];
    for (block, one, contained) in table {
        let cidr: Cidr = block.parse().unwrap();
        assert_eq!(cidr.contains(address(one)), contained, "{one} in {block}");
    }
}

#[test]
fn what_is_no_block_is_refused() {
    for text in [
        "",
        "/",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "10.0.0.0/+8",
        "10.0.0.0/-1",
        "10.0.0.0/8/8",
        "10.0.0/8",
        "010.0.0.0/8",
        "fd00::/129",
        "::ffff:10.0.0.0/129",
        "10.0.0.0/256",
        "example.com/8",
        " 10.0.0.0/8",
    ] {
        let parsed = text.parse::<Cidr>();
        assert_eq!(parsed, Err(NotACidr(text.to_owned())), "{text}");
    }
}

fn allow(same_namespace: bool, namespaces: &[&str], cidrs: &[&str]) -> AllowFrom {
    let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    AllowFrom {
        same_namespace: same_namespace.then_some(true),
        namespaces: owned(namespaces),
        cidrs: owned(cidrs),
    }
}

/// What allows, what is known of the namespaces `shop` (the service's own) and `web`, milliseconds, and the outcome.
fn cases() -> Vec<(AllowFrom, Membership, Membership, i64, Option<bool>)> {
    use Membership::{NoPod, Pod, Unlisted, Unreadable};
    let (at_once, soon, late, much_later) = (0, 2_999, 3_000, 30_000);
    let admitted = Some(true);
    let refused = Some(false);
    vec![
        (allow(false, &[], &[]), Pod, Pod, at_once, refused),
        (allow(true, &[], &[]), Pod, NoPod, at_once, admitted),
        (allow(true, &[], &[]), NoPod, Pod, at_once, None),
        (allow(true, &[], &[]), NoPod, Pod, soon, None),
        (allow(true, &[], &[]), NoPod, Pod, late, refused),
        (allow(false, &["web"], &[]), Pod, NoPod, late, refused),
        (allow(false, &["web"], &[]), NoPod, Pod, late, admitted),
        (allow(true, &["web"], &[]), NoPod, Pod, late, admitted),
        (allow(true, &["shop"], &[]), Pod, NoPod, late, admitted),
        // Before the first list nothing is known, and after half a minute it is not waited for any more.
        (allow(false, &["web"], &[]), NoPod, Unlisted, late, None),
        (
            allow(false, &["web"], &[]),
            NoPod,
            Unlisted,
            much_later,
            refused,
        ),
        (allow(true, &["web"], &[]), Pod, Unlisted, at_once, admitted),
        (allow(true, &["web"], &[]), NoPod, Unlisted, late, None),
        // What cannot be read opens nothing, and nothing waits for it.
        (
            allow(false, &["web"], &[]),
            Pod,
            Unreadable,
            at_once,
            refused,
        ),
        (allow(true, &["web"], &[]), NoPod, Unreadable, soon, None),
        // An address needs no pod.
        (
            allow(false, &[], &["10.0.0.0/8"]),
            NoPod,
            NoPod,
            at_once,
            admitted,
        ),
        (
            allow(false, &[], &["11.0.0.0/8"]),
            Pod,
            Pod,
            at_once,
            refused,
        ),
        (
            allow(true, &[], &["11.0.0.0/8"]),
            Pod,
            NoPod,
            at_once,
            admitted,
        ),
        // What is no block opens nothing.
        (
            allow(false, &[], &["10.0.0.0/99"]),
            Pod,
            Pod,
            at_once,
            refused,
        ),
    ]
}

#[test]
fn a_source_comes_in_by_its_address_or_as_a_pod_of_an_allowed_namespace() {
    for (allowed, own, web, millis, outcome) in cases() {
        let (rule, _) = SourceRule::new(&allowed, "shop");
        for source in ["10.1.2.3", "::ffff:10.1.2.3"] {
            let membership = |namespace: &str| match namespace {
                "shop" => own,
                "web" => web,
                other => panic!("{other} is not named"),
            };
            let waited = SignedDuration::from_millis(millis);
            let decided = rule.admits(address(source), waited, membership);
            assert_eq!(decided, outcome, "{allowed:?} {own:?} {web:?} {millis}");
        }
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    let (_, invalid) = SourceRule::new(&allow(false, &[], &["10.0.0.0/8", "x", "::/200"]), "shop");
    let named: Vec<&str> = invalid.iter().map(|one| one.0.as_str()).collect();
    assert_eq!(named, ["x", "::/200"]);
}
