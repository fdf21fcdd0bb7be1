//! A request's headers as the host hands them over, and what rules make of them.

use filter::capture::{Capture, Connection};
use filter::pairs::{Pairs, write};
use limits::request::Request;
use std::sync::LazyLock;

/// A set of rules that looks at all that a request has.
const RULES: &str = r#"{ "descriptors": { "api_key": { "header": "x-api-key", "secret": true }, "plan": { "header": "x-plan" },
                   "tenant": { "query": "tenant" }, "sid": { "cookie": "sid" }, "user": { "metadata": ["jwt", "sub"] } },
  "routes": ["GET /orders/{id}", "* /public/**"],
  "rules": [
    { "id": "plan", "match": { "plan": ["gold", "silver"] }, "key": ["client", "path"], "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1 },
    { "id": "route", "match": { "route": "GET /orders/{id}" }, "key": ["api_key"], "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1 },
    { "id": "ip", "match": { "ip": { "cidr": "10.0.0.0/8" }, "host": "a" }, "key": ["ip", "envoy_route", "tenant"], "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1 },
    { "id": "path", "match": { "path": { "prefix": "/v1/" }, "method": "POST", "api_key": null }, "key": ["client", "sid"], "onMissingKey": "DENY", "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1 }
  ] }"#;

static CONFIG: LazyLock<filter::config::Config> =
    LazyLock::new(|| filter::config::Config::parse(RULES.as_bytes()).expect("a configuration"));

struct Peer<'a>(&'a [u8]);

impl Connection for Peer<'_> {
    fn source_address(&self) -> Option<Vec<u8>> {
        Some(self.0.to_vec())
    }

    fn route_name(&self) -> Option<Vec<u8>> {
        Some(self.0.to_vec())
    }

    fn metadata(&self, _path: &[Box<str>]) -> Option<Vec<u8>> {
        Some(self.0.to_vec())
    }
}

/// Any bytes as a serialised header map; then, in lines of `name:value`, as the headers of a request.
pub fn holds(data: &[u8]) {
    if let Some(pairs) = Pairs::new(data) {
        let read: Vec<_> = pairs.collect();
        assert!(read.len() <= 1_024);
        let bytes: usize = read.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes <= data.len(), "no byte is read twice");
    }
    request(data, data);
    let text = String::from_utf8_lossy(data);
    let lines: Vec<_> =
        text.lines().take(1_025).map(|line| line.split_once('=').unwrap_or((line, ""))).collect();
    let map = write(lines.iter().copied());
    match Pairs::new(&map) {
        Some(pairs) => {
            assert!(pairs.eq(lines.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))))
        }
        None => assert!(lines.len() > 1_024),
    }
    request(&map, data);
}

/// The rules that apply and their keys, with and without trust in `x-forwarded-for`.
fn request(map: &[u8], peer: &[u8]) {
    let set = &CONFIG.rules;
    for hops in [None, Some(0), Some(2)] {
        let Some(capture) = Capture::new(map, set, hops, Peer(peer)) else { return };
        let _ = (capture.is_grpc(), capture.is_grpc_web());
        let request = Request::new(&capture, set.descriptors(), set.routes());
        let mut found = Vec::new();
        set.matching(&request, &mut found);
        for rule in found.iter().filter_map(|index| set.rule(*index)) {
            let _ = set.key(rule, &request);
        }
    }
}
