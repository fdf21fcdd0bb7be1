//! What the cases share: rules in a line, clients that nobody has met before, requests in a row.

use std::sync::atomic::{AtomicU64, Ordering};

use kota_integration::redis::Redis;
use kota_integration::{Answer, Client, Request};
use serde_json::{Value, json};

/// A bucket of `capacity` by `api_key` that does not refill within a test; the fields of `more` are added or replace others.
pub(crate) fn rule(id: &str, capacity: u64, more: Value) -> Value {
    let mut rule = json!({ "id": id, "key": ["api_key"], "algorithm": "TOKEN_BUCKET",
                           "capacity": capacity, "refillPerSecond": 0.001 });
    merge(&mut rule, more);
    rule
}

/// A sliding window of `capacity` by `api_key` that does not end within a test; the fields of `more` are added or replace others.
pub(crate) fn window(id: &str, capacity: u64, more: Value) -> Value {
    let mut rule = json!({ "id": id, "key": ["api_key"], "algorithm": "SLIDING_WINDOW",
                           "capacity": capacity, "windowSeconds": 31 * 86_400 });
    merge(&mut rule, more);
    rule
}

/// Puts the fields of one object into another.
pub(crate) fn merge(into: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("{more} is no object") };
    into.as_object_mut().expect("an object").extend(more);
}

/// An API key that nobody has used yet: a fresh bucket of every rule on the same stack.
pub(crate) fn fresh_key() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("key-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A GET of this path by this key.
pub(crate) fn get(path: &str, key: &str) -> Request {
    Request::get(path).header("x-api-key", key)
}

/// The statuses of a request sent so many times in a row.
pub(crate) fn statuses(client: &mut Client, request: &Request, times: usize) -> Vec<u16> {
    (0..times).map(|_| client.send(request).status).collect()
}

/// `passed` times 200, then `denied` times 429.
pub(crate) fn first_pass(passed: usize, denied: usize) -> Vec<u16> {
    [vec![200; passed], vec![429; denied]].concat()
}

/// That an answer says nothing of a limit.
pub(crate) fn tells_no_numbers(answer: &Answer) -> bool {
    !answer.headers.iter().any(|(name, _)| name.contains("ratelimit"))
}

/// The buckets in a Redis, sorted; without the one by which a sidecar tries whether its store is fit.
pub(crate) fn buckets(redis: &Redis) -> Vec<String> {
    redis.keys().into_iter().filter(|key| !key.starts_with("rl:{kota:self-check:")).collect()
}
