//! Bytes that are no UTF-8, wherever HTTP lets them be (WE-01), and values as large as headers can be (MK-12).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use kota_integration::bootstrap::Bootstrap;
use kota_integration::{Request, Running, Stack, http2};
use serde_json::json;

use crate::support::{buckets, first_pass, fresh_key, get, merge, rule, statuses};

const ODD: [&[u8]; 3] = [b"1 \xc0\xa7\xc0\xa2", b"\xa1\xb1", b"\xff\xfe"];

/// Every worker still decides.
fn decides_as_usual(stack: &Running, clients: usize, each: usize) {
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let (mut client, request) = (stack.envoy().client(), get("/", &fresh_key()));
                for _ in 0..each {
                    let answer = client.send(&request);
                    assert!(answer.status == 200 && answer.header("ratelimit").is_some(), "{answer:?}");
                }
            });
        }
    });
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

/// Envoy hands on what it would else refuse.
fn lenient(bootstrap: &mut Bootstrap) {
    merge(bootstrap.http(), json!({ "normalize_path": false, "merge_slashes": false }));
}

#[test]
fn we_01_bytes_that_are_no_utf_8_trap_nothing_and_make_a_key_like_others() {
    for (name, change) in [("shipped", None), ("lenient", Some(lenient))] {
        let rules = json!([
            rule("all", 30_000, json!({ "key": ["client"] })),
            rule("few", 2, json!({ "match": { "path": { "prefix": "/few" } } })),
        ]);
        let mut stack = Stack::new().redis().workers(2).rules(rules);
        if let Some(change) = change {
            stack = stack.bootstrap(change);
        }
        let stack = stack.start();
        let mut client = stack.envoy().client();
        for odd in ODD {
            let key = [odd, fresh_key().as_bytes()].concat();
            let request = Request::get("/few").header("x-api-key", &key);
            assert_eq!(statuses(&mut client, &request, 3), first_pass(2, 1), "{name}: {odd:?} is a key");
            let other = [odd, b"\xfd"].concat();
            assert_eq!(
                statuses(&mut client, &Request::get("/few").header("x-api-key", &other), 1),
                [200],
                "{odd:?}"
            );

            let anywhere = get("/", &fresh_key())
                .header("x-odd", odd)
                .header("cookie", odd)
                .header("x-forwarded-for", odd);
            assert_eq!(client.send(&anywhere).status, 200, "{name}: {odd:?}");
            for path in [[b"/few/", odd].concat(), [b"/few?q=", odd].concat()] {
                let path: Vec<u8> =
                    path.iter().map(|byte| if *byte == b' ' { b'+' } else { *byte }).collect();
                let answer =
                    stack.envoy().client().try_send(&Request::get(path).header("x-api-key", fresh_key()));
                // Envoy refuses some of it itself; what it hands on is decided like any other.
                assert!(answer.is_ok_and(|answer| [200, 400].contains(&answer.status)), "{name}: {odd:?}");
            }
            for head in [("host", odd), ("content-type", odd)] {
                let answer = stack.envoy().client().try_send(&get("/", &fresh_key()).header(head.0, head.1));
                assert!(answer.is_ok_and(|answer| [200, 400].contains(&answer.status)), "{name}: {head:?}");
            }
            let name_of_bytes = stack.envoy().client().try_send(&get("/", &fresh_key()).header(odd, "value"));
            assert!(name_of_bytes.is_ok_and(|answer| [200, 400].contains(&answer.status)), "{name}: {odd:?}");
        }
        decides_as_usual(&stack, 4, 250);
        assert!(buckets(stack.redis()).iter().all(|key| key.is_ascii()), "{:?}", buckets(stack.redis()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn we_01_http_2_too() {
    let stack = Stack::new().rules(json!([rule("few", 2, json!({}))])).start();
    let h2 = http2::Connection::open(stack.envoy().port()).await.expect("Envoy speaks HTTP/2");
    for odd in ODD {
        let request = http2::Request::new("GET", "/").header("x-api-key", odd).header("x-odd", odd);
        for expected in [200, 200, 429] {
            assert_eq!(
                h2.send(&request, Vec::new().into()).await.expect("an answer").status,
                expected,
                "{odd:?}"
            );
        }
    }
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn we_01_an_upstream_may_answer_bytes_too() {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nx-odd: \xff\xfe\xc0\xa7\r\nx-ratelimit-remaining: \xa1\xb1\r\nratelimit: \xff\r\n\
        content-length: 2\r\nconnection: close\r\n\r\nok";
    let stack = Stack::new().without_upstream().rules(json!([rule("r", 1000, json!({}))])).start();
    let upstream =
        TcpListener::bind(("127.0.0.1", stack.envoy().places().echo)).expect("the upstream's port is free");
    thread::spawn(move || {
        for stream in upstream.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).and_then(|_| stream.write_all(ANSWER)); // a client that left is no matter
        }
    });
    let mut client = stack.envoy().client();
    for _ in 0..100 {
        let answer = client.send(&get("/", &fresh_key()));
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"ok"[..]));
        assert_eq!(
            answer.header("x-ratelimit-remaining"),
            Some("999"),
            "what is no number is replaced: {answer:?}"
        );
        assert!(answer.header("x-odd").is_some());
    }
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn mk_12_a_key_of_any_size_takes_the_same_small_room() {
    large_keys(300);
}

#[test]
#[ignore = "160 MiB of keys: make test-long"]
fn mk_12_ten_thousand_large_keys_take_the_same_small_room() {
    large_keys(10_000);
}

/// Sends so many distinct keys of 16 KiB, then one of 60 KiB.
fn large_keys(count: usize) {
    let rules = json!([rule("r", 2, json!({ "failMode": "CLOSED" }))]);
    let stack = Stack::new().redis().workers(2).rules(rules).start();
    let large = |n: usize, size: usize| format!("{n:08}{}", "k".repeat(size - 8));
    thread::scope(|scope| {
        for client in 0..8 {
            let (stack, large) = (&stack, &large);
            scope.spawn(move || {
                let mut connection = stack.envoy().client();
                for n in (client..count).step_by(8) {
                    assert_eq!(connection.send(&get("/", &large(n, 16 * 1024))).status, 200, "key {n}");
                }
            });
        }
    });
    let mut client = stack.envoy().client();
    let largest = get("/", &large(count, 60 * 1024));
    assert_eq!(statuses(&mut client, &largest, 3), first_pass(2, 1), "60 KiB are one key");
    let nearly = get("/", &large(count + 1, 60 * 1024));
    assert_eq!(client.send(&nearly).status, 200, "and another is another");
    let keys = buckets(stack.redis());
    assert_eq!(keys.len(), count + 2, "each key is a bucket");
    let lengths: Vec<_> = keys.iter().map(String::len).collect();
    assert!(lengths.iter().all(|length| *length == lengths[0] && *length < 64), "{lengths:?}");
    assert_eq!((stack.kota("allowed.r"), stack.kota("denied.r")), (count as u64 + 3, 1), "nothing failed");
    let sidecar = [stack.sidecar().process().log(), stack.sidecar().metrics()].concat();
    assert!(!sidecar.contains("kkkkkkkk") && !stack.envoy().process().log().contains("kkkkkkkk"));
}
