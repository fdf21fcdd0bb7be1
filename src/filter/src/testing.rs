//! What the tests of several modules share.

use crate::check::{self, Pending, Plan};
use limits::request::{Attributes, Request};
use limits::ruleset::RuleSet;
use std::net::IpAddr;

/// A GET or whatever else, from an address, with headers.
pub(crate) struct Sent<'a> {
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
}

impl Attributes for Sent<'_> {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(header, _)| *header == name).map(|(_, value)| value.as_bytes())
    }
    fn cookies(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::empty()
    }
    fn metadata(&self, _path: &[Box<str>]) -> Option<Vec<u8>> {
        None
    }
    fn method(&self) -> &[u8] {
        b"GET"
    }
    fn path(&self) -> &[u8] {
        self.path.as_bytes()
    }
    fn host(&self) -> &[u8] {
        b"api"
    }
    fn address(&self) -> Option<IpAddr> {
        Some([192, 0, 2, 1].into())
    }
    fn envoy_route(&self) -> Option<Vec<u8>> {
        None
    }
}

/// What a request has to ask.
pub(crate) fn plan(rules: &RuleSet, sent: &Sent<'_>, has_body: bool) -> Plan {
    let request = Request::new(sent, rules.descriptors(), rules.routes());
    check::plan(rules, &request, has_body, &mut Vec::new())
}

/// The check of a request that some rule applies to.
pub(crate) fn check(rules: &RuleSet, path: &str, headers: &[(&str, &str)]) -> Pending {
    match plan(rules, &Sent { path, headers }, true) {
        Plan::Ask(check) => check,
        other => panic!("{path} asks nothing: {other:?}"),
    }
}
