//! What the cases of concurrency share: pods with slots, requests that hold one, and what Redis says is live.

use std::collections::BTreeSet;

use kota_integration::bootstrap::Bootstrap;
use kota_integration::envoy::Envoy;
use kota_integration::redis::{Redis, Reply};
use kota_integration::stack::with_rules;
use kota_integration::{Answer, Client, Request, Running, Stack, wait};
use serde_json::{Value, json};

use crate::support::merge;

/// The most requests of one client at once.
pub(crate) const SLOTS: usize = 5;

/// So many slots for each `x-api-key`; CLOSED, so that nothing passes without one.
pub(crate) fn rule(capacity: usize, lease_s: u64) -> Value {
    json!({ "id": "slots", "key": ["api_key"], "algorithm": "CONCURRENCY",
            "capacity": capacity, "leaseSeconds": lease_s, "failMode": "CLOSED" })
}

/// Three pods with [`SLOTS`] slots for each client.
pub(crate) fn pods(lease_s: u64) -> Stack {
    let config = with_rules(json!([rule(SLOTS, lease_s)]));
    let stack = Stack::new().redis().sidecars(3).envoys(3).config(config).deadline_ms(5000);
    stack.bootstrap(further_routes).bootstrap(fault_behind_kota)
}

/// A route that gives up after three seconds, and one to the upstream by HTTP/2.
fn further_routes(bootstrap: &mut Bootstrap) {
    let mut http2 = bootstrap.cluster("echo").clone();
    merge(&mut http2, json!({ "name": "echo-http2" }));
    http2["load_assignment"]["cluster_name"] = json!("echo-http2");
    http2["typed_extension_protocol_options"] =
        bootstrap.cluster("kota")["typed_extension_protocol_options"].clone();
    bootstrap.root()["static_resources"]["clusters"].as_array_mut().expect("clusters").push(http2);
    let routes = &mut bootstrap.http()["route_config"]["virtual_hosts"][0]["routes"];
    let further = [
        json!({ "name": "timeout", "match": { "prefix": "/timeout/" }, "route": { "cluster": "echo", "timeout": "3s" } }),
        json!({ "name": "http2", "match": { "prefix": "/http2/" }, "route": { "cluster": "echo-http2", "timeout": "0s" } }),
    ];
    routes.as_array_mut().expect("routes").splice(0..0, further);
}

/// A filter behind Kota that refuses what has `x-refuse: yes`.
fn fault_behind_kota(bootstrap: &mut Bootstrap) {
    let router = bootstrap.filters().len() - 1;
    let fault = json!({
        "name": "refuse",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault",
            "abort": { "http_status": 403, "percentage": { "numerator": 100 } },
            "headers": [{ "name": "x-refuse", "string_match": { "exact": "yes" } }],
        },
    });
    bootstrap.filters().insert(router, fault);
}

/// The slots of all clients that are held, by the server's own clock.
pub(crate) fn live(redis: &Redis) -> usize {
    members(redis, "'(' .. now, '+inf'").len()
}

/// The ids of what is held.
pub(crate) fn ids(redis: &Redis) -> BTreeSet<Vec<u8>> {
    members(redis, "'(' .. now, '+inf'")
}

fn members(redis: &Redis, range: &str) -> BTreeSet<Vec<u8>> {
    let script = format!(
        "local time, all = redis.call('TIME'), {{}}
        local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
        for _, key in ipairs(redis.call('KEYS', 'rl:*:cc1*')) do
            for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, {range})) do all[#all + 1] = id end
        end
        return all"
    );
    let Reply::Array(found) = redis.command(&["EVAL", &script, "0"]) else { panic!("Redis gives a list") };
    found
        .into_iter()
        .map(|id| match id {
            Reply::Bulk(Some(id)) => id,
            other => panic!("Redis gives ids, not {other:?}"),
        })
        .collect()
}

/// The server's clock, in milliseconds.
pub(crate) fn now_ms(redis: &Redis) -> i64 {
    let script = "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)";
    integer(redis.command(&["EVAL", script, "0"]))
}

/// When the last lease ends, in milliseconds of the server's clock; 0 if nothing is held.
pub(crate) fn last_end_ms(redis: &Redis) -> i64 {
    let script = "local last = 0
        for _, key in ipairs(redis.call('KEYS', 'rl:*:cc1*')) do
            local top = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
            if top[2] then last = math.max(last, tonumber(top[2])) end
        end
        return last";
    integer(redis.command(&["EVAL", script, "0"]))
}

fn integer(reply: Reply) -> i64 {
    let Reply::Integer(number) = reply else { panic!("Redis gives a number, not {reply:?}") };
    number
}

/// Waits until so many slots are held; there must never be more than [`SLOTS`].
pub(crate) fn await_live(stack: &Running, wanted: usize, what: &str) {
    wait::until_true(&format!("{what}: {wanted} slots are held"), || {
        let live = live(stack.redis());
        assert!(live <= SLOTS, "{what}: {live} slots are held");
        live == wanted
    });
}

/// A request whose body is not complete: it is under way until [`finish`].
pub(crate) fn begin(envoy: &Envoy, request: Request) -> Client {
    let mut client = envoy.client();
    let mut bytes = request.body("ab").bytes();
    bytes.pop();
    client.send_raw(&bytes).expect("an open connection");
    client
}

/// Completes what [`begin`] began.
pub(crate) fn finish(client: &mut Client) -> std::io::Result<Answer> {
    client.send_raw(b"b")?;
    client.read_answer()
}

/// Has `begin` take every slot of a client, spread over the pods, and sees that no pod gives another.
pub(crate) fn take_all<T>(stack: &Running, what: &str, key: &str, begin: impl Fn(&Envoy) -> T) -> Vec<T> {
    let held = (0..SLOTS).map(|i| begin(&stack.envoys[i % stack.envoys.len()])).collect();
    await_live(stack, SLOTS, what);
    for envoy in &stack.envoys {
        assert_eq!(envoy.send(&crate::support::get("/", key)).status, 429, "{what}: all slots are taken");
    }
    held
}

/// Waits until all slots are free, long before a lease of a minute ends, and sees that one can be had.
pub(crate) fn all_free(stack: &Running, what: &str, key: &str) {
    await_live(stack, 0, what);
    for envoy in &stack.envoys {
        assert_eq!(envoy.send(&crate::support::get("/", key)).status, 200, "{what}: its slots are free");
    }
    await_live(stack, 0, what);
}
