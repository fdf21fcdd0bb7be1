//! What a request costs, where each request says it by itself: by a header, by its body, by what the upstream answers.

use std::thread;

use kota_integration::redis::{Redis, Reply};
use kota_integration::stack::with_rules;
use kota_integration::{Client, Request, Running, Stack, http2, wait};
use serde_json::{Value, json};

use crate::support::{fresh_key, get, rule};

const CAPACITY: u64 = 1000;

/// A Kota with one Redis, and one rule of this cost.
fn start(cost: Value) -> Running {
    let rule = rule(
        "costs",
        CAPACITY,
        json!({ "cost": cost, "refillPerSecond": 0, "idleSeconds": 3600, "failMode": "CLOSED" }),
    );
    let config = with_rules(json!([rule]));
    Stack::new().redis().config(config).deadline_ms(5000).start()
}

/// What the only bucket has used, in tokens: behind the seven bytes of its time (lua/decide.lua).
fn used(redis: &Redis) -> u64 {
    let keys = redis.keys();
    assert!(keys.len() <= 1, "one client, one bucket: {keys:?}");
    let Some(key) = keys.first() else { return 0 };
    let Reply::Bulk(Some(state)) = redis.command(&["GET", key]) else { return 0 };
    let micro = state[7..].iter().rev().fold(0, |sum, byte| 256 * sum + u64::from(*byte));
    micro / 1_000_000
}

/// Waits until so much is used; settling comes after the answer.
fn await_used(stack: &Running, wanted: u64, what: &str) {
    let mut last = 0;
    wait::until_true(&format!("{what}: {wanted} tokens are used"), || {
        last = used(stack.redis());
        last == wanted
    });
}

/// A client that nobody has met, in an empty Redis.
fn anew(stack: &Running) -> (Client, String) {
    stack.redis().command(&["FLUSHALL"]);
    (stack.envoy().client(), fresh_key())
}

/// Sends a body in chunks of so many bytes, which is announced by no length.
fn chunked(key: &str, pieces: &[usize]) -> Request {
    let chunk = |bytes: &usize| format!("{bytes:x}\r\n{}\r\n", "x".repeat(*bytes));
    let body: String = pieces.iter().map(chunk).collect();
    let request = Request::post("/").header("x-api-key", key).header("transfer-encoding", "chunked");
    request.body(format!("{body}0\r\n\r\n"))
}

#[test]
fn a_request_header_says_what_its_request_costs_within_bounds() {
    let stack = start(json!({ "header": "x-tokens", "default": 3, "max": 50 }));
    let (mut client, key) = anew(&stack);
    let mut spent = 0;
    for (said, costs) in [
        (vec!["10"], 10),
        (vec!["0"], 0),
        (vec![], 3),
        (vec!["1000"], 50),
        (vec!["99999999999999999999999"], 50),
        (vec!["-5"], 3),
        (vec!["1e3"], 3),
        (vec!["2.5"], 3),
        (vec![""], 3),
        (vec!["20", "1"], 3), // which of them the upstream believes is not known
    ] {
        let request = said.iter().fold(get("/", &key), |request, value| request.header("x-tokens", value));
        let answer = client.send(&request);
        spent += costs;
        let left = (CAPACITY - spent).to_string();
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some(&*left)), "{said:?}");
    }
    assert_eq!(used(stack.redis()), spent);
    for _ in 0..100 {
        let answer = client.send(&get("/", &key).header("x-tokens", "50"));
        let passes = spent + 50 <= CAPACITY;
        assert_eq!(answer.status, if passes { 200 } else { 429 }, "{spent} are spent");
        spent += if passes { 50 } else { 0 };
    }
    assert_eq!(used(stack.redis()), spent, "a denied request costs nothing");
}

#[test]
fn a_body_costs_by_its_length() {
    let stack = start(json!({ "body": 10, "default": 5, "max": 100 }));
    let (mut client, key) = anew(&stack);
    let mut spent = 0;
    for (bytes, costs) in [(0, 0), (1, 1), (10, 1), (11, 2), (999, 100), (5000, 100)] {
        let answer = client.send(&Request::post("/").header("x-api-key", &key).body("x".repeat(bytes)));
        assert_eq!((answer.status, answer.json()["length"].as_u64()), (200, Some(bytes as u64)));
        spent += costs;
        assert_eq!(used(stack.redis()), spent, "{bytes} bytes are known before they come");
    }
    let head = client.send(&get("/", &key));
    assert_eq!(head.status, 200);
    await_used(&stack, spent, "a request without a body");
}

#[test]
fn a_body_of_unknown_length_is_settled_by_what_came() {
    let stack = start(json!({ "body": 10, "default": 5, "max": 100 }));
    for (pieces, costs) in
        [(vec![], 0), (vec![7], 1), (vec![30, 20], 5), (vec![100, 100, 5], 21), (vec![5000], 100)]
    {
        let (mut client, key) = anew(&stack);
        let answer = client.send(&chunked(&key, &pieces));
        let length: usize = pieces.iter().sum();
        assert_eq!((answer.status, answer.json()["length"].as_u64()), (200, Some(length as u64)));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("995"), "what was reserved is known alone");
        await_used(&stack, costs, &format!("{pieces:?}"));
    }
    // Of a body that breaks off, what came.
    let (mut client, key) = anew(&stack);
    let request = Request::post("/").header("x-api-key", &key).header("transfer-encoding", "chunked").bytes();
    client
        .send_raw(&[&request[..], format!("c8\r\n{}\r\n", "x".repeat(200)).as_bytes()].concat())
        .expect("sent");
    wait::until_true("the upstream is asked", || stack.envoy().stat("cluster.echo.upstream_rq_active") > 0);
    client.disconnect();
    await_used(&stack, 20, "broken off");
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_http_2_is_settled_too() {
    let stack = start(json!({ "body": 10, "default": 5 }));
    let connection = http2::Connection::open(stack.envoy().port()).await.expect("HTTP/2");
    let request = http2::Request::new("POST", "/").header("x-api-key", fresh_key());
    let answer = connection.send(&request, vec![b'x'; 333].into()).await.expect("an answer");
    assert_eq!((answer.status, answer.json()["length"].as_u64()), (200, Some(333)));
    await_used(&stack, 34, "333 bytes");
}

#[test]
fn an_answers_header_settles_in_both_directions() {
    let stack = start(json!({ "responseHeader": "x-cost", "default": 10, "max": 80 }));
    for (said, costs) in [
        (Some("25"), 25),
        (Some("2"), 2),
        (Some("0"), 0),
        (Some("10"), 10),
        (None, 10),
        (Some("100000"), 80),
        (Some("-1"), 10),
        (Some("many"), 10),
    ] {
        let (mut client, key) = anew(&stack);
        let request = get("/", &key);
        let request =
            said.iter().fold(request, |r, value| r.header("x-echo-set", format!("x-cost: {value}")));
        let answer = client.send(&request);
        assert_eq!((answer.status, answer.header("x-cost")), (200, said), "the client sees what it cost");
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("990"), "what was reserved is known alone");
        await_used(&stack, costs, &format!("{said:?}"));
    }
    // On two lines it is not known which of them holds.
    let (mut client, key) = anew(&stack);
    let twice = get("/", &key).header("x-echo-set", "x-cost: 25").header("x-echo-set", "x-cost: 2");
    assert_eq!(client.send(&twice).status, 200);
    await_used(&stack, 10, "two lines");
    let once = get("/", &key).header("x-echo-set", "x-cost: 25");
    assert_eq!(client.send(&once).status, 200);
    await_used(&stack, 35, "what was reserved for two lines stays, one line settles");
    // A denied request, and one that another answered for the upstream, say nothing.
    let (mut client, key) = anew(&stack);
    for n in 1..=12 {
        assert_eq!(client.send(&get("/", &key).header("x-echo-set", "x-cost: 80")).status, 200);
        await_used(&stack, 80 * n, "80 each");
    }
    assert_eq!(client.send(&get("/", &key)).status, 200, "40 are left, 10 are reserved");
    await_used(&stack, 970, "one that says nothing");
    assert_eq!(client.send(&get("/", &key).header("x-echo-set", "x-cost: 80")).status, 200);
    await_used(&stack, 1050, "more than there was: a debt");
    let denied = client.send(&get("/", &key));
    assert_eq!((denied.status, denied.header("x-ratelimit-remaining")), (429, Some("0")));
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answers_trailer_settles_as_an_llm_tells_its_tokens() {
    let stack = start(json!({ "responseHeader": "x-tokens-used", "default": 100 }));
    let connection = http2::Connection::open(stack.envoy().port()).await.expect("HTTP/2");
    for (said, costs) in [("7", 7), ("612", 612)] {
        let (_, key) = anew(&stack);
        let request = http2::Request::new("POST", "/").header("x-api-key", &key);
        let request =
            request.header("x-echo-trailer", format!("x-tokens-used: {said}")).header("te", "trailers");
        let answer = connection.send(&request, vec![b'x'; 10].into()).await.expect("an answer");
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some("900")));
        await_used(&stack, costs, said);
    }
    // A stream that breaks off never said what it cost: what was reserved stays.
    let (mut client, key) = anew(&stack);
    let stalls =
        get("/", &key).header("x-echo-stall", "3600000").header("x-echo-trailer", "x-tokens-used: 7");
    client.send_raw(&stalls.bytes()).expect("sent");
    assert_eq!(client.read_answer_head().expect("a head"), 200);
    client.disconnect();
    wait::until_true("nothing is open", || stack.envoy().open_requests() == 0);
    await_used(&stack, 100, "broken off");
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn settling_loses_nothing_under_load() {
    let stack = start(json!({ "responseHeader": "x-cost", "default": 3 }));
    let (_, key) = anew(&stack);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = stack.envoy().client();
                for n in 0..25 {
                    let cost = format!("x-cost: {}", n % 7); // on average as much as was reserved
                    assert_eq!(client.send(&get("/", &key).header("x-echo-set", cost)).status, 200);
                }
            });
        }
    });
    let each: u64 = (0..25).map(|n| n % 7).sum();
    await_used(&stack, 8 * each, "two hundred requests");
}
