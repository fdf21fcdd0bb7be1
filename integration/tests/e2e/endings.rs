//! CC-05: however a request ends, its slot is free as soon as the batches have gone, in all pods.

use std::time::Duration;

use kota_integration::envoy::Envoy;
use kota_integration::{Client, Fault, Request, Running, http2, wait};

use crate::redis::endless;
use crate::slots::{SLOTS, all_free, await_live, begin, finish, ids, live, pods, take_all};
use crate::support::{fresh_key, get};

/// No lease ends while a test waits: what is free has been released.
const LEASE_S: u64 = 60;

/// Longer than any test: whoever asks for it has to be ended.
const HOLD: &str = "3600000";

fn post(path: &str, key: &str) -> Request {
    Request::post(path).header("x-api-key", key)
}

/// Takes all slots by `request`, completes the requests, and gives what came back.
fn complete(stack: &Running, what: &str, request: impl Fn(&str) -> Request) -> Vec<Option<u16>> {
    let key = fresh_key();
    let mut held = take_all(stack, what, &key, |envoy| begin(envoy, request(&key)));
    let statuses = held.iter_mut().map(|client| finish(client).ok().map(|answer| answer.status)).collect();
    all_free(stack, what, &key);
    statuses
}

/// Takes all slots by requests that are sent as a whole, ends them, and waits until all slots are free.
fn end(stack: &Running, what: &str, request: impl Fn(&str) -> Request, end: impl Fn(&mut Client)) {
    let key = fresh_key();
    let send = |envoy: &Envoy| {
        let mut client = envoy.client();
        client.send_raw(&request(&key).bytes()).expect("an open connection");
        client
    };
    let mut held = take_all(stack, what, &key, send);
    held.iter_mut().for_each(end);
    all_free(stack, what, &key);
}

#[test]
fn cc_05_a_request_that_is_answered_frees_its_slot() {
    let stack = pods(LEASE_S).start();
    assert_eq!(complete(&stack, "200", |key| post("/", key)), [Some(200); SLOTS]);
    let fails = |key: &str| post("/", key).header("x-echo-status", "503");
    assert_eq!(complete(&stack, "upstream's 503", fails), [Some(503); SLOTS]);
    let breaks = |key: &str| post("/", key).header("x-echo-break", "head");
    assert_eq!(complete(&stack, "upstream's reset", breaks), [Some(503); SLOTS]);
    let breaks = |key: &str| post("/", key).header("x-echo-break", "body");
    assert_eq!(complete(&stack, "upstream's reset in the body", breaks), [None; SLOTS]);
    let late = |key: &str| get("/timeout/", key).header("x-echo-hold", HOLD);
    end(&stack, "the route's timeout", late, |client| {
        assert_eq!(client.read_answer().expect("an answer").status, 504);
    });
    let refused = get("/", &fresh_key()).header("x-refuse", "yes");
    for envoy in stack.envoys.iter().cycle().take(4 * SLOTS) {
        assert_eq!(
            envoy.send(&refused).status,
            403,
            "a slot was taken, and freed when the filter behind refused"
        );
    }
    await_live(&stack, 0, "refused by another filter");
    assert_eq!(endless(stack.redis()), 0, "every key has an end");
    assert_eq!(stack.envoys.iter().map(|envoy| envoy.vm_reloads()).sum::<u64>(), 0);
}

#[test]
fn cc_05_a_client_that_goes_away_frees_its_slot() {
    let stack = pods(LEASE_S).start();
    end(&stack, "before the answer", |key| get("/", key).header("x-echo-hold", HOLD), Client::disconnect);
    end(
        &stack,
        "within the answer",
        |key| get("/", key).header("x-echo-stall", HOLD),
        |client| {
            client.read_answer_head().expect("a head");
            client.disconnect();
        },
    );
    let key = fresh_key();
    let mut held = take_all(&stack, "within its own body", &key, |envoy| begin(envoy, post("/", &key)));
    held.iter_mut().for_each(Client::disconnect);
    all_free(&stack, "within its own body", &key);

    // A WebSocket, which counts from its handshake to its end.
    let handshake = |key: &str| {
        let upgrade = get("/streams/1", key).header("connection", "upgrade").header("upgrade", "websocket");
        upgrade.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==").header("sec-websocket-version", "13")
    };
    let key = fresh_key();
    let mut held = take_all(&stack, "101", &key, |envoy| {
        let mut client = envoy.client();
        client.send_raw(&handshake(&key).bytes()).expect("an open connection");
        assert_eq!(client.read_answer_head().expect("a head"), 101);
        client.send_raw(b"ping").expect("an open connection");
        assert_eq!(client.read_bytes(4).expect("what was sent"), b"ping");
        client
    });
    assert_eq!(live(stack.redis()), SLOTS, "it is held as long as the connection");
    held.iter_mut().for_each(Client::disconnect);
    all_free(&stack, "101", &key);
    assert_eq!(endless(stack.redis()), 0, "every key has an end");
}

#[test]
fn cc_05_a_client_that_goes_away_while_it_is_decided_frees_its_slot() {
    let stack = pods(LEASE_S).sidecar_faults().start();
    let key = fresh_key();
    for proxy in &stack.sidecar_faults {
        proxy.set(Fault::Delay(Duration::from_secs(2)));
    }
    let hold = |envoy: &Envoy| {
        let mut client = envoy.client();
        client.send_raw(&get("/", &key).header("x-echo-hold", HOLD).bytes()).expect("an open connection");
        client
    };
    let mut held: Vec<_> = (0..SLOTS).map(|i| hold(&stack.envoys[i % 3])).collect();
    await_live(&stack, SLOTS, "taken, and not heard of");
    assert_eq!(stack.kota("allowed.slots"), 0, "no Envoy has heard of a slot yet");
    held.iter_mut().for_each(Client::disconnect);
    await_live(&stack, 0, "gone while it is decided");
    for proxy in &stack.sidecar_faults {
        proxy.set(Fault::Pass);
    }
    all_free(&stack, "gone while it is decided", &key);
}

#[test]
fn cc_05_a_request_that_ends_while_redis_is_away_frees_its_slot() {
    let stack = pods(LEASE_S).redis_faults().start();
    let (key, faults) = (fresh_key(), stack.redis_fault.as_ref().expect("asked for"));
    let mut held = take_all(&stack, "before", &key, |envoy| begin(envoy, post("/", &key)));
    faults.set(Fault::Gone);
    let batches = || stack.sidecars.iter().map(|sidecar| sidecar.metric("kota_batch_checks_count", ""));
    let before: Vec<f64> = batches().collect();
    for client in &mut held {
        assert_eq!(finish(client).expect("an answer").status, 200);
    }
    // The filters have done their part: each has told its sidecar, and heard that it arrived.
    wait::until_true("every sidecar was told", || batches().zip(&before).all(|(now, before)| now > *before));
    assert_eq!(live(stack.redis()), SLOTS, "Redis has heard of nothing");
    faults.set(Fault::Pass);
    all_free(&stack, "Redis is back", &key);
    for sidecar in &stack.sidecars {
        assert_eq!(sidecar.metric("kota_lost_changes_total", ""), 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cc_05_streams_free_their_slots() {
    let stack = pods(LEASE_S).start();
    let (mut connections, mut held) = (Vec::new(), Vec::new());
    let key = fresh_key();
    let grpc = |key: &str, path: &str| {
        let request = http2::Request::new("POST", path).header("te", "trailers");
        request.header("content-type", "application/grpc").header("x-api-key", key).header("x-echo", "body")
    };
    let message = b"\0\0\0\0\x02\x08\x01";
    for envoy in &stack.envoys {
        connections.push(http2::Connection::open(envoy.port()).await.expect("Envoy speaks HTTP/2"));
    }
    // Both sides talk, then the client cancels.
    for i in 0..SLOTS {
        let mut call = connections[i % 3].begin(&grpc(&key, "/http2/call")).await.expect("a stream");
        call.send(message, false).expect("an open stream");
        assert_eq!(call.status().await.expect("a head"), 200);
        assert_eq!(call.receive().await.expect("a message").as_deref(), Some(&message[..]));
        held.push(call);
    }
    await_live(&stack, SLOTS, "calls");
    held.drain(..).for_each(http2::Exchange::cancel);
    all_free(&stack, "a call that is cancelled", &key);

    // The upstream ends its connection: what is under way goes on to its end.
    for i in 0..SLOTS {
        let request = grpc(&key, "/http2/call").header("x-echo-break", "goaway");
        let mut call = connections[i % 3].begin(&request).await.expect("a stream");
        call.send(message, false).expect("an open stream");
        assert_eq!(call.status().await.expect("a head"), 200);
        held.push(call);
    }
    await_live(&stack, SLOTS, "the upstream's GOAWAY");
    for call in &mut held {
        call.send(message, true).expect("an open stream");
        while call.receive().await.expect("a whole answer").is_some() {}
    }
    held.clear();
    all_free(&stack, "the upstream's GOAWAY", &key);

    // The client ends its connection under all its streams.
    for i in 0..SLOTS {
        held.push(connections[i % 3].begin(&grpc(&key, "/http2/call")).await.expect("a stream"));
    }
    await_live(&stack, SLOTS, "a connection that ends");
    held.clear();
    connections.clear();
    all_free(&stack, "a connection that ends", &key);
    assert_eq!(endless(stack.redis()), 0, "every key has an end");
    assert_eq!(stack.envoys.iter().map(|envoy| envoy.vm_reloads()).sum::<u64>(), 0);
}

#[test]
fn cc_05_a_draining_envoy_frees_its_slots() {
    let stack = pods(LEASE_S).start();
    let key = fresh_key();
    let mut held = take_all(&stack, "drain", &key, |envoy| begin(envoy, post("/", &key)));
    for envoy in &stack.envoys {
        let failed = Client::new(envoy.places().admin).send(&Request::post("/healthcheck/fail"));
        assert_eq!(failed.status, 200, "{failed:?}");
    }
    let before = ids(stack.redis());
    for client in &mut held {
        let answer = finish(client).expect("what is under way goes on");
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    }
    await_live(&stack, 0, "drain");
    assert_eq!(before.len(), SLOTS);
    wait::until_true("nothing is open", || stack.envoys.iter().all(|envoy| envoy.open_requests() == 0));
}
