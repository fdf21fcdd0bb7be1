//! What outlives its lease by far keeps its slot, whatever happens around it.

use kota_integration::{Client, Delivery, Running, http2, stack, wait};
use serde_json::json;

use crate::slots::{self, SLOTS, await_live, begin, finish, ids, now_ms, pods};
use crate::support::{fresh_key, get, merge};

const LEASE_S: u64 = 2;

/// Watches the slots for more than four leases: they are the same all the time.
fn outlive_four_leases(stack: &Running) {
    let taken = ids(stack.redis());
    let until = now_ms(stack.redis()) + 4500 * LEASE_S as i64;
    wait::until_true("four leases have passed", || {
        assert_eq!(ids(stack.redis()), taken, "a slot was lost while its stream lived");
        now_ms(stack.redis()) > until
    });
}

/// A WebSocket that has said something and heard it.
fn websocket(stack: &Running, pod: usize, key: &str) -> Client {
    let mut client = stack.envoys[pod].client();
    let handshake = get("/streams/1", key).header("connection", "upgrade").header("upgrade", "websocket");
    client.send_raw(&handshake.bytes()).expect("an open connection");
    assert_eq!(client.read_answer_head().expect("a head"), 101);
    talk(&mut client);
    client
}

fn talk(client: &mut Client) {
    client.send_raw(b"ping").expect("an open connection");
    assert_eq!(client.read_bytes(4).expect("what was sent"), b"ping");
}

#[tokio::test(flavor = "multi_thread")]
async fn cc_05_a_websocket_and_a_call_that_outlive_four_leases_keep_their_slots() {
    let stack = pods(LEASE_S).start();
    let key = fresh_key();
    let mut sockets: Vec<_> = (0..2).map(|pod| websocket(&stack, pod, &key)).collect();
    let (mut connections, mut calls) = (Vec::new(), Vec::new());
    for pod in sockets.len()..SLOTS {
        let connection = http2::Connection::open(stack.envoys[pod % 3].port()).await.expect("HTTP/2");
        let request = http2::Request::new("POST", "/http2/call").header("content-type", "application/grpc");
        let request = request.header("te", "trailers").header("x-api-key", &key).header("x-echo", "body");
        let mut call = connection.begin(&request).await.expect("a stream");
        call.send(b"ping", false).expect("an open stream");
        assert_eq!(call.status().await.expect("a head"), 200);
        connections.push(connection);
        calls.push(call);
    }
    await_live(&stack, SLOTS, "streams");
    outlive_four_leases(&stack);
    for envoy in &stack.envoys {
        assert_eq!(envoy.send(&get("/", &key)).status, 429, "all slots are taken still");
    }
    sockets.iter_mut().for_each(talk);
    for call in &mut calls {
        assert_eq!(call.receive().await.expect("a message").as_deref(), Some(&b"ping"[..]));
    }
    sockets.iter_mut().for_each(Client::disconnect);
    calls.into_iter().for_each(http2::Exchange::cancel);
    await_live(&stack, 0, "their ends");
    assert_eq!(stack.envoys[0].send(&get("/", &key)).status, 200);
}

#[test]
fn cc_05_a_slot_outlives_the_configuration_that_it_was_taken_under() {
    for delivery in [Delivery::Ecds, Delivery::Lds] {
        let config = |capacity: usize| {
            let mut config = stack::with_rules(json!([slots::rule(capacity, LEASE_S)]));
            merge(&mut config["sidecar"], json!({ "deadlineMs": 5000 }));
            config
        };
        let mut stack = kota_integration::Stack::new().redis().delivery(delivery).config(config(2)).start();
        let key = fresh_key();
        let post = || kota_integration::Request::post("/").header("x-api-key", &key);
        let mut held: Vec<_> = (0..2).map(|_| begin(stack.envoy(), post())).collect();
        await_live(&stack, 2, "under way");
        assert!(stack.envoys[0].reconfigure(&config(3)), "{delivery:?}");
        wait::until_true("the new limit is in force", || stack.envoy().send(&get("/", &key)).status == 200);
        await_live(&stack, 2, "under way still");
        outlive_four_leases(&stack);
        for client in &mut held {
            assert_eq!(finish(client).expect("an answer").status, 200, "{delivery:?}");
        }
        await_live(&stack, 0, "their ends, by the configuration that has gone");
        assert_eq!(stack.envoy().vm_reloads(), 0);
    }
}
