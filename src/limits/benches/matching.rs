//! What it costs to find the 2 rules of a request among 10, 1,000 and 10,000, and to make their keys. The aim: among 10,000 at most
//! 1.2 times what it costs among 10, whatever tells the rules apart.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use limits::address::{self, Cidr};
use limits::cost::Cost;
use limits::decision::Limit;
use limits::descriptor::{Descriptor, Descriptors, Source};
use limits::key::Key;
use limits::refill::Refill;
use limits::request::{Attributes, Request};
use limits::route::{Route, Routes};
use limits::rule::{Condition, FailMode, Group, Mode, OnMissingKey, Rule, Test};
use limits::ruleset::RuleSet;
use limits::token_bucket::TokenBucket;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Duration;

/// What tells rules apart: the conditions of the `n`th pair of rules.
type Shape = fn(usize) -> Vec<(&'static str, Test)>;

const SHAPES: [(&str, Shape); 7] = [
    ("routes", |n| vec![("route", one_of(&format!("POST /tenants/t{n:05}/orders/{{id}}")))]),
    ("api_keys", |n| vec![("api_key", one_of(&format!("key-{n:05}")))]),
    ("prefixes", |n| vec![("path", Test::Prefix(format!("/tenants/t{n:05}/").into_bytes().into()))]),
    ("blocks", |n| {
        vec![("ip", Test::Cidr(Cidr::parse(&format!("10.{}.{}.0/24", n / 256, n % 256)).unwrap()))]
    }),
    ("one_plan_and_routes", |n| {
        vec![("plan", one_of("gold")), ("route", one_of(&format!("POST /tenants/t{n:05}/orders/{{id}}")))]
    }),
    ("one_plan_and_prefixes", |n| {
        vec![
            ("plan", one_of("gold")),
            ("path", Test::Prefix(format!("/tenants/t{n:05}/").into_bytes().into())),
        ]
    }),
    ("grid_of_users_and_routes", |n| {
        vec![
            ("user", one_of(&format!("u{}", n % 50))),
            ("route", one_of(&format!("* /tenants/t{:05}/**", n / 50))),
        ]
    }),
];

/// A request of the third pair of rules, which every set has.
const WANTED: usize = 2;

struct Call {
    path: Vec<u8>,
    headers: Vec<(&'static str, Vec<u8>)>,
}

impl Call {
    fn new(shape: &str) -> Self {
        let tenant = if shape.starts_with("grid") { 0 } else { WANTED };
        let mut headers =
            vec![("x-api-key", format!("key-{WANTED:05}").into_bytes()), ("x-plan", b"gold".to_vec())];
        if shape.starts_with("grid") {
            headers.push(("x-user", format!("u{WANTED}").into_bytes()));
        }
        Self { path: format!("/tenants/t{tenant:05}/orders/17?page=3").into_bytes(), headers }
    }
}

impl Attributes for Call {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(header, _)| *header == name).map(|(_, value)| value.as_slice())
    }

    fn cookies(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::empty()
    }

    fn metadata(&self, _path: &[Box<str>]) -> Option<Vec<u8>> {
        None
    }

    fn method(&self) -> &[u8] {
        b"POST"
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn host(&self) -> &[u8] {
        b"api.example.com"
    }

    fn address(&self) -> Option<IpAddr> {
        address::parse(b"10.0.2.7:40000")
    }

    fn envoy_route(&self) -> Option<Vec<u8>> {
        None
    }
}

fn one_of(value: &str) -> Test {
    Test::OneOf(vec![value.as_bytes().into()])
}

fn rules(count: usize, shape: Shape) -> RuleSet {
    build(count, |n| (shape(n / 2), None))
}

/// A rule for everybody, and a group of a default with an exception for each of so many clients; in the reversed order of the file, so
/// that the default is found last.
fn exceptions(count: usize) -> RuleSet {
    let group = |priority| Some(Group { id: "quota".into(), priority });
    build(count, |n| match count - 1 - n {
        0 => (Vec::new(), None),
        1 => (Vec::new(), group(0)),
        n => (vec![("api_key", one_of(&format!("key-{n:05}")))], group(1)),
    })
}

fn build(count: usize, rule_of: impl Fn(usize) -> (Vec<(&'static str, Test)>, Option<Group>)) -> RuleSet {
    let mut descriptors = Descriptors::built_in();
    for (name, header) in [("api_key", "x-api-key"), ("user", "x-user"), ("plan", "x-plan")] {
        descriptors.define(Descriptor {
            name: name.into(),
            source: Source::Header(header.into()),
            secret: false,
        });
    }
    let bucket = TokenBucket::new(100, Refill::from_decimal("10").unwrap(), 0).unwrap();
    let mut routes = vec![Route::parse("GET /").unwrap()];
    let rule = |n: usize| {
        let (tests, group) = rule_of(n);
        let mut conditions = Vec::new();
        for (name, test) in tests {
            if let ("route", Test::OneOf(values)) = (name, &test) {
                routes.extend(values.iter().map(|text| Route::parse(str::from_utf8(text).unwrap()).unwrap()));
            }
            conditions.push(Condition { descriptor: descriptors.find(name).unwrap(), test });
        }
        Rule {
            id: format!("rule-{n}").into(),
            policy: format!("rule-{n}").into(),
            conditions,
            key: vec![Descriptors::CLIENT],
            limit: Limit::TokenBucket(bucket),
            cost: Cost::Fixed(1),
            penalty: None,
            mode: Mode::Enforce,
            fail_mode: FailMode::Open,
            on_missing_key: OnMissingKey::Ip,
            group,
            detail: None,
        }
    };
    let rules = (0..count).map(rule).collect();
    RuleSet::new(descriptors, Routes::new(routes), rules)
}

/// Everything between the headers of a request and the keys of its rules; how many keys.
fn decide_keys(set: &RuleSet, call: &Call, found: &mut Vec<u16>) -> usize {
    let request = Request::new(call, set.descriptors(), set.routes());
    set.matching(&request, found);
    let keys = found.iter().filter_map(|index| set.rule(*index)).map(|rule| set.key(rule, &request));
    keys.filter(|key| matches!(black_box(key), Key::Parts(_))).count()
}

fn matching(criterion: &mut Criterion) {
    for (name, shape) in SHAPES {
        among(criterion, name, |count| rules(count, shape));
    }
    among(criterion, "exceptions_of_a_group", exceptions);
}

fn among(criterion: &mut Criterion, name: &str, rules: impl Fn(usize) -> RuleSet) {
    let mut group = criterion.benchmark_group(format!("2_rules_among/{name}"));
    let call = Call::new(name);
    for count in [10, 1_000, 10_000] {
        let set = rules(count);
        let mut found = Vec::new();
        assert_eq!(decide_keys(&set, &call, &mut found), 2, "{name} among {count}");
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| decide_keys(&set, black_box(&call), &mut found));
        });
    }
}

fn compiling(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compile_10000");
    group.sample_size(10);
    for (name, shape) in SHAPES {
        group.bench_function(name, |bencher| bencher.iter(|| rules(10_000, shape)));
    }
}

fn paths(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("normalise");
    for (name, raw) in
        [("normal", "/v1/orders/17/items?page=3"), ("odd", "//v1/./%6Frders/x/../17/items/?page=3")]
    {
        group.bench_function(name, |bencher| {
            bencher.iter(|| limits::path::normalise(black_box(raw.as_bytes())))
        });
    }
}

fn config() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(50)
}

criterion_group! { name = benches; config = config(); targets = matching, paths, compiling }
criterion_main!(benches);
