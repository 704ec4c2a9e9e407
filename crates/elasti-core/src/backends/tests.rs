//! Which endpoints become backends, and which one is next.

use proptest::prelude::*;

use super::*;

fn endpoint(address: &str) -> SliceEndpoint {
    SliceEndpoint {
        namespace: "shop".into(),
        managed_by: SLICE_MANAGED_BY_KUBERNETES.into(),
        target: Some(TargetRef {
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: "cart-1".into(),
            uid: "1".into(),
        }),
        address: address.into(),
        port: Some(8080),
        ready: Some(true),
        terminating: Some(false),
    }
}

fn resolvers() -> BTreeSet<IpAddr> {
    ["10.0.0.9", "fd12::9"].map(|a| a.parse().unwrap()).into()
}

fn judge(endpoint: &SliceEndpoint) -> Result<Backend, NotABackend> {
    admit(endpoint, "shop", &resolvers(), AddressPolicy::default())
}

/// A backend and its requests in flight.
type Loaded = (Backend, u32);

impl Candidate for Loaded {
    fn backend(&self) -> &Backend {
        &self.0
    }

    fn in_flight(&self) -> u32 {
        self.1
    }
}

fn backend(pod: &str, in_flight: u32) -> Loaded {
    let backend = Backend {
        pod: pod.into(),
        uid: format!("uid of {pod}"),
        address: "10.0.0.1:80".parse().unwrap(),
        ready: true,
        terminating: false,
        marked: false,
        probed: false,
        sick: false,
    };
    (backend, in_flight)
}

#[test]
fn a_pod_of_the_same_namespace_is_a_backend() {
    let admitted = judge(&endpoint("10.0.0.1")).unwrap();
    assert_eq!(admitted.pod, "cart-1");
    assert_eq!(admitted.address, "10.0.0.1:8080".parse().unwrap());
    assert!(admitted.usable());
    let v6 = judge(&endpoint("fd12::1")).unwrap();
    assert_eq!(v6.address, "[fd12::1]:8080".parse().unwrap());
}

#[test]
fn missing_conditions_mean_ready_and_not_terminating() {
    let mut silent = endpoint("10.0.0.1");
    silent.ready = None;
    silent.terminating = None;
    assert!(judge(&silent).unwrap().usable());
}

#[test]
fn an_endpoint_that_is_not_ready_is_a_backend_that_is_not_used() {
    let mut late = endpoint("10.0.0.1");
    late.ready = Some(false);
    assert!(!judge(&late).unwrap().usable());
    let mut leaving = endpoint("10.0.0.1");
    leaving.terminating = Some(true);
    assert!(!judge(&leaving).unwrap().usable());
}

#[test]
fn a_slice_that_someone_wrote_by_hand_is_not_trusted() {
    let mut forged = endpoint("10.0.0.1");
    for managed_by in [
        "",
        "elasti.truefoundry.com",
        "endpointslicemirroring-controller.k8s.io",
    ] {
        forged.managed_by = managed_by.into();
        assert_eq!(judge(&forged), Err(NotABackend::ForeignSlice));
    }
}

#[test]
fn only_a_pod_of_the_same_namespace_will_do() {
    let mut other = endpoint("10.0.0.1");
    other.target = None;
    assert_eq!(judge(&other), Err(NotABackend::NotAPod));
    let target = |kind: &str, namespace: &str, name: &str| {
        let mut other = endpoint("10.0.0.1");
        other.target = Some(TargetRef {
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            uid: "1".into(),
        });
        judge(&other)
    };
    assert_eq!(target("Node", "shop", "n"), Err(NotABackend::NotAPod));
    assert_eq!(target("Pod", "shop", ""), Err(NotABackend::NotAPod));
    assert_eq!(
        target("Pod", "bank", "p"),
        Err(NotABackend::ForeignNamespace)
    );
    let mut elsewhere = endpoint("10.0.0.1");
    elsewhere.namespace = "bank".into();
    assert_eq!(judge(&elsewhere), Err(NotABackend::ForeignNamespace));
}

#[test]
fn no_port_is_no_backend() {
    for port in [None, Some(0)] {
        let mut open = endpoint("10.0.0.1");
        open.port = port;
        assert_eq!(judge(&open), Err(NotABackend::NoPort));
    }
}

#[test]
fn addresses_that_no_pod_can_have_are_refused_in_every_spelling() {
    use NotABackend::{
        LinkLocal, Loopback, Metadata, Multicast, NotAnAddress, Resolver, Unspecified,
    };
    let table = [
        ("127.0.0.1", Loopback),
        ("127.8.9.10", Loopback),
        ("::1", Loopback),
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:7f00:1", Loopback),
        ("::127.0.0.1", Loopback),
        ("64:ff9b::127.0.0.1", Loopback),
        ("2002:7f00:1::", Loopback),
        ("169.254.169.254", LinkLocal),
        ("::ffff:169.254.169.254", LinkLocal),
        ("::ffff:a9fe:a9fe", LinkLocal),
        ("::169.254.169.254", LinkLocal),
        ("64:ff9b::a9fe:a9fe", LinkLocal),
        ("2002:a9fe:a9fe::1", LinkLocal),
        ("fe80::1", LinkLocal),
        ("febf::1", LinkLocal),
        ("fd00:ec2::254", Metadata),
        ("fd20:ce::254", Metadata),
        ("0.0.0.0", Unspecified),
        ("0.1.2.3", Unspecified),
        ("::", Unspecified),
        ("::ffff:0.0.0.0", Unspecified),
        ("224.0.0.1", Multicast),
        ("255.255.255.255", Multicast),
        ("ff02::1", Multicast),
        ("::ffff:239.1.1.1", Multicast),
        ("10.0.0.9", Resolver),
        ("::ffff:10.0.0.9", Resolver),
        ("64:ff9b::10.0.0.9", Resolver),
        ("fd12::9", Resolver),
        ("fd12:0::0:9", Resolver),
        ("", NotAnAddress),
        ("localhost", NotAnAddress),
        ("127.1", NotAnAddress),
        ("0177.0.0.1", NotAnAddress),
        ("2130706433", NotAnAddress),
        ("fe80::1%eth0", NotAnAddress),
        ("10.0.0.1:80", NotAnAddress),
        ("[fd12::1]", NotAnAddress),
        (" 10.0.0.1", NotAnAddress),
    ];
    for (address, why) in table {
        assert_eq!(judge(&endpoint(address)), Err(why), "{address}");
    }
}

#[test]
fn a_mapped_address_of_a_pod_is_written_plainly() {
    let mapped = judge(&endpoint("::ffff:10.0.0.1")).unwrap();
    assert_eq!(mapped.address, "10.0.0.1:8080".parse().unwrap());
}

#[test]
fn the_simulated_cluster_may_use_loopback_but_nothing_else_that_is_refused() {
    let fake_cluster = AddressPolicy {
        allow_loopback: true,
    };
    let judge = |address: &str| admit(&endpoint(address), "shop", &resolvers(), fake_cluster);
    for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        assert!(judge(address).is_ok(), "{address}");
    }
    assert_eq!(judge("169.254.169.254"), Err(NotABackend::LinkLocal));
    assert_eq!(judge("64:ff9b::127.0.0.1"), Err(NotABackend::Loopback));
    assert_eq!(judge("10.0.0.9"), Err(NotABackend::Resolver));
}

#[test]
fn the_least_loaded_pod_gets_the_next_request() {
    let backends = [backend("a", 3), backend("b", 1), backend("c", 2)];
    for pick in [0, 1, 17, u64::MAX] {
        let chosen = choose(&backends, &BTreeSet::new(), pick);
        assert_eq!(chosen.map(|(b, _)| b.pod.as_str()), Some("b"));
    }
}

#[test]
fn ties_are_broken_evenly() {
    let backends = [
        backend("a", 1),
        backend("b", 0),
        backend("c", 0),
        backend("d", 0),
    ];
    let chosen = |pick| choose(&backends, &BTreeSet::new(), pick).map(|(b, _)| b.pod.as_str());
    assert_eq!(
        [0, 1, 2, 3].map(chosen),
        [Some("b"), Some("c"), Some("d"), Some("b")]
    );
}

#[test]
fn a_pod_that_was_tried_is_not_tried_again() {
    let backends = [backend("a", 0), backend("b", 5)];
    let mut tried = BTreeSet::from(["a".to_owned()]);
    let chosen = choose(&backends, &tried, 0);
    assert_eq!(chosen.map(|(b, _)| b.pod.as_str()), Some("b"));
    tried.insert("b".into());
    assert_eq!(choose(&backends, &tried, 0), None);
    assert_eq!(choose::<Loaded>(&[], &BTreeSet::new(), 0), None);
}

#[test]
fn a_pod_that_is_marked_terminating_or_not_ready_gets_nothing() {
    let mut backends = [backend("a", 0), backend("b", 0), backend("c", 0)];
    backends[0].0.marked = true;
    backends[1].0.terminating = true;
    backends[2].0.ready = false;
    assert_eq!(choose(&backends, &BTreeSet::new(), 0), None);
}

fn any_ip() -> impl Strategy<Value = IpAddr> {
    let prefix = prop_oneof![
        Just([0u16, 0, 0, 0, 0, 0xffff]),
        Just([0, 0, 0, 0, 0, 0]),
        Just([0x64, 0xff9b, 0, 0, 0, 0]),
    ];
    let v4 = prop_oneof![
        any::<u32>(),
        prop_oneof![
            Just(0x7f00_0001),
            Just(0xa9fe_a9fe),
            Just(0),
            Just(0x0a00_0009)
        ],
    ];
    prop_oneof![
        v4.clone().prop_map(|bits| IpAddr::V4(bits.into())),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        (prefix, v4).prop_map(|(p, bits)| {
            let (high, low) = ((bits >> 16) as u16, bits as u16);
            IpAddr::V6(Ipv6Addr::new(p[0], p[1], p[2], p[3], p[4], p[5], high, low))
        }),
    ]
}

fn any_endpoint() -> impl Strategy<Value = SliceEndpoint> {
    let word = |words: &'static [&'static str]| prop::sample::select(words);
    (
        word(&["shop", "shop", "shop", "bank"]),
        word(&[
            SLICE_MANAGED_BY_KUBERNETES,
            SLICE_MANAGED_BY_KUBERNETES,
            "",
            "me",
        ]),
        word(&["Pod", "Pod", "Pod", "Node"]),
        word(&["shop", "shop", "shop", "bank"]),
        0u8..6,
        any_ip(),
        any::<Option<u16>>(),
        any::<Option<bool>>(),
        any::<Option<bool>>(),
    )
        .prop_map(
            |(namespace, managed_by, kind, pod_namespace, pod, ip, port, ready, terminating)| {
                SliceEndpoint {
                    namespace: namespace.into(),
                    managed_by: managed_by.into(),
                    target: Some(TargetRef {
                        kind: kind.into(),
                        namespace: pod_namespace.into(),
                        name: format!("cart-{pod}"),
                        uid: format!("uid-{pod}"),
                    }),
                    address: ip.to_string(),
                    port,
                    ready,
                    terminating,
                }
            },
        )
}

/// Another thread's requests begin while one is placed.
struct Rising(Backend, std::cell::Cell<u32>);

impl Candidate for Rising {
    fn backend(&self) -> &Backend {
        &self.0
    }

    fn in_flight(&self) -> u32 {
        self.1.replace(self.1.get() + 1)
    }
}

/// A backend that a promise covers, as a resolver sees it.
struct Promised(Backend);

impl Candidate for Promised {
    fn backend(&self) -> &Backend {
        &self.0
    }

    fn in_flight(&self) -> u32 {
        0
    }

    fn usable(&self) -> bool {
        self.0.usable() || self.0.usable_if_promised()
    }
}

#[test]
fn s8_a_promised_pod_is_used_although_it_is_marked_unless_it_terminates_or_is_sick() {
    let marked = Backend {
        ready: false,
        marked: true,
        ..backend("a", 0).0
    };
    let terminating = Backend {
        terminating: true,
        ..marked.clone()
    };
    let sick = Backend {
        sick: true,
        ..marked.clone()
    };
    let chosen = |backend: &Backend| {
        let all = [Promised(backend.clone())];
        choose(&all, &BTreeSet::new(), 0).is_some()
    };
    assert!(!marked.usable() && chosen(&marked));
    assert!(!chosen(&terminating) && !chosen(&sick));
}

#[test]
fn s8_a_pod_whose_probes_passed_here_is_used_unless_it_is_marked_or_terminates() {
    for (ready, probed, marked, terminating, usable) in [
        (false, false, false, false, false),
        (false, true, false, false, true),
        (false, true, true, false, false),
        (false, true, false, true, false),
        (true, false, false, false, true),
    ] {
        let one = Backend {
            ready,
            probed,
            marked,
            terminating,
            ..backend("a", 0).0
        };
        assert_eq!(one.usable(), usable, "{one:?}");
        let chosen = choose(&[(one, 0)], &BTreeSet::new(), 0).is_some();
        assert_eq!(chosen, usable);
    }
}

#[test]
fn counts_that_rise_meanwhile_hide_no_pod() {
    let rising = |pod: &str| Rising(backend(pod, 0).0, std::cell::Cell::new(0));
    let pods = [rising("a"), rising("b")];
    assert!(choose(&pods, &BTreeSet::new(), 1).is_some());
}

proptest! {
    #[test]
    fn s8_a_request_goes_only_to_a_ready_pod_of_its_own_service(
        endpoints in prop::collection::vec(any_endpoint(), 0..30),
        marked in prop::collection::vec(any::<bool>(), 30),
        probed in prop::collection::vec(any::<bool>(), 30),
        loads in prop::collection::vec(0u32..4, 30),
        tried in prop::collection::btree_set(0u8..6, 0..3),
        pick in any::<u64>(),
    ) {
        let mut backends = Vec::new();
        let facts = marked.into_iter().zip(probed).zip(loads);
        for (endpoint, ((marked, probed), in_flight)) in endpoints.iter().zip(facts) {
            if let Ok(backend) = judge(endpoint) {
                prop_assert_eq!(&endpoint.namespace, "shop");
                prop_assert_eq!(&endpoint.managed_by, SLICE_MANAGED_BY_KUBERNETES);
                let target = endpoint.target.as_ref().unwrap();
                prop_assert_eq!((target.kind.as_str(), target.namespace.as_str()), ("Pod", "shop"));
                backends.push((Backend { marked, probed, ..backend }, in_flight));
            }
        }
        let tried: BTreeSet<String> = tried.into_iter().map(|n| format!("cart-{n}")).collect();
        let could = |(b, _): &&Loaded| {
            let ready = b.ready || b.probed;
            ready && !b.terminating && !b.marked && !tried.contains(&b.pod)
        };
        let Some(chosen) = choose(&backends, &tried, pick) else {
            prop_assert!(!backends.iter().any(|b| could(&b)));
            return Ok(());
        };
        prop_assert!(could(&chosen));
        prop_assert!(backends.iter().filter(could).all(|b| b.1 >= chosen.1));
        let ip = chosen.0.address.ip();
        prop_assert!(!ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast());
        prop_assert!(!resolvers().contains(&ip));
        match ip {
            IpAddr::V4(v4) => prop_assert!(!v4.is_link_local()),
            IpAddr::V6(v6) => {
                prop_assert!(!v6.is_unicast_link_local());
                prop_assert!(v6.to_ipv4_mapped().is_none());
                let carried = v6.to_ipv4();
                prop_assert!(carried.is_none_or(|v4| !v4.is_loopback() && !v4.is_link_local()));
            }
        }
    }
}

/// The slice is judged as one of the namespace that it names.
#[test]
fn where_namespaces_did_not_count_a_slice_could_name_a_neighbours_pod() {
    let mut foreign = endpoint("10.0.0.1");
    foreign.namespace = "bank".into();
    if let Some(pod) = &mut foreign.target {
        pod.namespace = "bank".into();
    }
    assert_eq!(judge(&foreign), Err(NotABackend::ForeignNamespace));
    let unchecked = admit(&foreign, "bank", &resolvers(), AddressPolicy::default());
    assert!(unchecked.is_ok_and(|backend| backend.usable()));
}

/// Everything in a slice can be forged; what the pod itself says cannot.
#[test]
fn a_pod_has_the_addresses_of_its_own_status_and_no_others() {
    let pod = |uid: &str, phase: &str| {
        let status =
            serde_json::json!({"phase": phase, "podIP": "10.0.0.1", "podIPs": [{"ip": "fd12::1"}]});
        let metadata = serde_json::json!({"name": "cart-1", "uid": uid});
        serde_json::from_value(serde_json::json!({"metadata": metadata, "status": status})).unwrap()
    };
    let at = |address: &str| judge(&endpoint(address)).unwrap();
    for own in ["10.0.0.1", "fd12::1", "::ffff:10.0.0.1"] {
        assert!(has_address(&pod("1", "Running"), &at(own)), "{own}");
    }
    assert!(!has_address(&pod("1", "Running"), &at("10.0.0.2")));
    assert!(!has_address(&pod("2", "Running"), &at("10.0.0.1")));
    for ended in ["Succeeded", "Failed"] {
        assert!(!has_address(&pod("1", ended), &at("10.0.0.1")), "{ended}");
    }
    let mut unnamed = at("10.0.0.1");
    unnamed.uid.clear();
    assert!(!has_address(&pod("", "Running"), &unnamed));
    unnamed.uid = "1".into();
    unnamed.pod = "cart-2".into();
    assert!(!has_address(&pod("1", "Running"), &unnamed));
}

#[test]
fn what_would_change_a_selector_is_no_name() {
    for name in ["cart-1", "cart.1", "7d9f"] {
        assert!(is_object_name(name), "{name}");
    }
    for name in ["", "a,b", "a=b", "a b", "A", "a!", "a/b", "a%2Cb"] {
        assert!(!is_object_name(name), "{name}");
    }
}

#[test]
fn where_slices_alone_counted_one_could_name_a_neighbours_address() {
    let neighbours = endpoint("10.0.0.2");
    let pod = serde_json::json!({"metadata": {"name": "cart-1", "uid": "1"}, "status": {"podIP": "10.0.0.1"}});
    let pod = serde_json::from_value(pod).unwrap();
    let unchecked = judge(&neighbours).unwrap();
    assert!(unchecked.usable() && !has_address(&pod, &unchecked));
}
