//! The rules of the torture: what becomes of a request is what its header `x-want` says.

use kota_integration::{Request, Running};
use serde_json::{Value, json};

/// Milliseconds. Nothing may fail by its deadline unless a case is about that.
pub(crate) const DEADLINE_MS: u64 = 30_000;
/// Tokens of the buckets that never refill and never end: what is gone from them is what was charged.
pub(crate) const LEDGER: u64 = 1_000_000_000;

/// `allow`: charged in a common bucket and in one of its own. `deny`: one bucket that is empty. `both`: a full bucket and the empty
/// one. `keyless`: needs a key. All else: no rule applies. A shadow rule watches what is allowed or denied, and always says no.
pub(crate) fn config(deadline_ms: u64) -> Value {
    let never = |id: &str, want: Value, capacity: u64, mode: &str| {
        json!({
            "id": id, "match": { "want": want }, "key": [], "algorithm": "TOKEN_BUCKET", "capacity": capacity,
            "refillPerSecond": 0, "idleSeconds": 86_400, "mode": mode, "failMode": "CLOSED",
        })
    };
    json!({
        "domain": "torture",
        "sidecar": { "cluster": "kota", "deadlineMs": deadline_ms },
        "descriptors": { "api_key": { "header": "x-api-key", "secret": true }, "want": { "header": "x-want" } },
        "rules": [
            never("ledger", json!("allow"), LEDGER, "ENFORCE"),
            {
                "id": "own", "match": { "want": "allow" }, "key": ["api_key"], "algorithm": "TOKEN_BUCKET",
                "capacity": LEDGER, "refillPerSecond": 1_000_000, "failMode": "CLOSED",
            },
            never("spared", json!("both"), LEDGER, "ENFORCE"),
            never("empty", json!(["deny", "both"]), 1, "ENFORCE"),
            never("watch", json!(["allow", "deny"]), 1, "SHADOW"),
            {
                "id": "keyless", "match": { "want": "keyless" }, "key": ["api_key"], "onMissingKey": "DENY",
                "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 1, "failMode": "CLOSED",
            },
        ],
    })
}

/// Empties the bucket that is to be empty, and that of the shadow rule.
pub(crate) fn prime(stack: &Running) {
    let mut client = stack.envoy().client();
    for status in [200, 429] {
        let first = client.send(&Request::get("/direct").header("x-want", "deny"));
        assert_eq!(first.status, status, "{}", first.text());
    }
    assert_eq!(client.send(&Request::get("/direct").header("x-want", "allow")).status, 200);
}

/// What is left in the common bucket of what is allowed, by one more request to it.
pub(crate) fn spent(stack: &Running) -> u64 {
    let answer = stack.envoy().send(&Request::get("/direct").header("x-want", "allow"));
    let left = answer.header("x-ratelimit-remaining").and_then(|left| left.parse::<u64>().ok());
    LEDGER - left.unwrap_or_else(|| panic!("{answer:?}"))
}

/// A route that Envoy answers by itself: within the very callback that lets the request go on.
pub(crate) fn answer_some_directly(bootstrap: &mut kota_integration::bootstrap::Bootstrap) {
    let routes = &mut bootstrap.http()["route_config"]["virtual_hosts"][0]["routes"];
    let direct =
        json!({ "name": "direct", "match": { "path": "/direct" }, "direct_response": { "status": 200 } });
    routes.as_array_mut().expect("the bootstrap has routes").insert(0, direct);
}
