//! Requests and rules as a few words.

use limits::address::{self, Cidr};
use limits::cost::Cost;
use limits::decision::Limit;
use limits::descriptor::{Descriptor, DescriptorId, Descriptors, Source};
use limits::refill::Refill;
use limits::request::{Attributes, Request, Values};
use limits::route::{Route, Routes};
use limits::rule::{Condition, FailMode, Group, Mode, OnMissingKey, Rule, Test};
use limits::ruleset::RuleSet;
use limits::token_bucket::TokenBucket;
use std::cell::Cell;
use std::net::IpAddr;

/// A request, `GET /` from 203.0.113.7 unless said otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) path: Vec<u8>,
    pub(crate) host: &'static str,
    pub(crate) address: Option<IpAddr>,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) claims: Vec<(&'static str, Vec<u8>)>,
    pub(crate) asked_address: Cell<u32>,
    pub(crate) asked_claims: Cell<u32>,
}

pub(crate) fn call(path: impl AsRef<[u8]>) -> Call {
    Call {
        method: "GET",
        path: path.as_ref().to_vec(),
        host: "api.example.com",
        address: address::parse(b"203.0.113.7"),
        headers: Vec::new(),
        claims: Vec::new(),
        asked_address: Cell::new(0),
        asked_claims: Cell::new(0),
    }
}

impl Call {
    pub(crate) fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn from(mut self, address: &str) -> Self {
        self.address = address::parse(address.as_bytes());
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    pub(crate) fn claim(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.claims.push((name, value.as_ref().to_vec()));
        self
    }
}

impl Attributes for Call {
    fn header(&self, name: &str) -> Option<&[u8]> {
        let mut lines = self.headers.iter().filter(|(header, _)| *header == name);
        let first = lines.next()?;
        lines.next().is_none().then_some(&first.1)
    }

    fn cookies(&self) -> impl Iterator<Item = &[u8]> {
        self.headers.iter().filter(|(name, _)| *name == "cookie").map(|(_, line)| line.as_slice())
    }

    fn metadata(&self, path: &[Box<str>]) -> Option<Vec<u8>> {
        self.asked_claims.set(self.asked_claims.get() + 1);
        let [filter, claims, name] = path else { return None };
        assert_eq!((&**filter, &**claims), ("envoy.filters.http.jwt_authn", "claims"));
        self.claims.iter().find(|(claim, _)| *claim == &**name).map(|(_, value)| value.clone())
    }

    fn method(&self) -> &[u8] {
        self.method.as_bytes()
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn host(&self) -> &[u8] {
        self.host.as_bytes()
    }

    fn address(&self) -> Option<IpAddr> {
        self.asked_address.set(self.asked_address.get() + 1);
        self.address
    }

    fn envoy_route(&self) -> Option<Vec<u8>> {
        Some(b"orders-cluster".to_vec())
    }
}

/// The built-in descriptors; `api_key` (secret), `user`, `plan` and `region`, each from the header of its name; `tenant` from the
/// query, `session` from a cookie, and `sub` and `org` from a token's claims.
pub(crate) fn descriptors() -> Descriptors {
    let mut all = Descriptors::built_in();
    for (name, header) in
        [("api_key", "x-api-key"), ("user", "x-user"), ("plan", "x-plan"), ("region", "x-region")]
    {
        let source = Source::Header(header.into());
        all.define(Descriptor { name: name.into(), source, secret: name == "api_key" }).unwrap();
    }
    let claim =
        |name: &str| Source::Metadata(["envoy.filters.http.jwt_authn", "claims", name].map(Box::from).into());
    for (name, source) in [
        ("tenant", Source::Query("tenant".into())),
        ("session", Source::Cookie("sid".into())),
        ("sub", claim("sub")),
        ("org", claim("org")),
    ] {
        all.define(Descriptor { name: name.into(), source, secret: false }).unwrap();
    }
    all
}

pub(crate) fn id(name: &str) -> DescriptorId {
    descriptors().find(name).unwrap()
}

pub(crate) fn limit(capacity: u64, per_second: &str) -> Limit {
    let refill = Refill::from_decimal(per_second).unwrap();
    Limit::TokenBucket(TokenBucket::new(capacity, refill, 3_600).unwrap())
}

/// A rule for every request, keyed by `client`.
pub(crate) fn rule(name: &str) -> Rule {
    Rule {
        id: name.into(),
        policy: name.into(),
        conditions: Vec::new(),
        key: vec![Descriptors::CLIENT],
        limit: limit(10, "5"),
        cost: Cost::Fixed(1),
        penalty: None,
        mode: Mode::Enforce,
        fail_mode: FailMode::Open,
        on_missing_key: OnMissingKey::Ip,
        group: None,
        detail: None,
    }
}

pub(crate) fn one_of(values: &[&str]) -> Test {
    Test::OneOf(values.iter().map(|value| value.as_bytes().into()).collect())
}

pub(crate) fn prefix(start: &str) -> Test {
    Test::Prefix(start.as_bytes().into())
}

pub(crate) fn cidr(block: &str) -> Test {
    Test::Cidr(Cidr::parse(block).unwrap())
}

/// Short forms of building rules.
pub(crate) trait RuleExt {
    fn when(self, descriptor: &str, test: Test) -> Rule;
    fn keyed(self, key: &[&str], on_missing_key: OnMissingKey) -> Rule;
    fn in_group(self, group: &str, priority: u32) -> Rule;
    fn shadow(self) -> Rule;
}

impl RuleExt for Rule {
    fn when(mut self, descriptor: &str, test: Test) -> Rule {
        self.conditions.push(Condition { descriptor: id(descriptor), test });
        self
    }

    fn keyed(mut self, key: &[&str], on_missing_key: OnMissingKey) -> Rule {
        self.key = key.iter().map(|name| id(name)).collect();
        self.on_missing_key = on_missing_key;
        self
    }

    fn in_group(mut self, group: &str, priority: u32) -> Rule {
        self.group = Some(Group { id: group.into(), priority });
        self
    }

    fn shadow(mut self) -> Rule {
        self.mode = Mode::Shadow;
        self
    }
}

/// The rule set of these rules, with these routes and those that the rules name.
pub(crate) fn set(routes: &[&str], rules: Vec<Rule>) -> RuleSet {
    let mut all: Vec<Route> = routes.iter().map(|text| Route::parse(text).unwrap()).collect();
    for condition in rules.iter().flat_map(|rule| &rule.conditions) {
        if let (true, Test::OneOf(values)) = (condition.descriptor == id("route"), &condition.test) {
            all.extend(values.iter().map(|text| Route::parse(str::from_utf8(text).unwrap()).unwrap()));
        }
    }
    RuleSet::new(descriptors(), Routes::new(all), rules)
}

pub(crate) fn request<'a>(call: &'a Call, set: &'a RuleSet) -> Request<'a, Call> {
    Request::new(call, set.descriptors(), set.routes())
}

/// The ids of the rules that apply, in their order.
pub(crate) fn ids<'s>(set: &'s RuleSet, values: &impl Values) -> Vec<&'s str> {
    let mut found = Vec::new();
    set.matching(values, &mut found);
    found.iter().map(|index| &*set.rule(*index).unwrap().id).collect()
}

pub(crate) fn matched<'s>(set: &'s RuleSet, call: &Call) -> Vec<&'s str> {
    ids(set, &request(call, set))
}

/// The ids of the rules that apply to a request of Envoy's.
pub(crate) fn applying<'s>(set: &'s RuleSet, call: &Call) -> Vec<&'s str> {
    let mut found = Vec::new();
    set.applying(&request(call, set), &mut found);
    found.iter().map(|index| &*set.rule(*index).unwrap().id).collect()
}
