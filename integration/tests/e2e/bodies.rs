//! Requests with bodies: decided before the upstream sees a byte, handed on whole, charged once (WE-07); and what a denied one
//! leaves on its connection (HH-11).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use kota_integration::{Client, Fault, Request, Running, Stack, http2, wait};
use serde_json::json;

use crate::support::{fresh_key, get, merge, rule};

const KIB: usize = 1024;

/// `every` counts all by their key; `blocked` denies whoever says so, its one token being gone.
fn start() -> Running {
    let mut config = kota_integration::stack::with_rules(json!([
        rule("every", 30_000, json!({})),
        rule("blocked", 1, json!({ "key": [], "match": { "blocked": "yes" } })),
    ]));
    merge(&mut config["descriptors"], json!({ "blocked": { "header": "x-blocked" } }));
    let stack = Stack::new().config(config).start();
    assert_eq!(stack.envoy().send(&get("/", &fresh_key()).header("x-blocked", "yes")).status, 200);
    stack
}

fn body(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 31 % 251) as u8).collect()
}

fn post(key: &str, blocked: bool) -> Request {
    let request = Request::post("/orders").header("x-api-key", key).header("x-echo", "body");
    if blocked { request.header("x-blocked", "yes") } else { request }
}

/// The body in chunks of odd sizes, with a trailer.
fn chunked(request: &Request, body: &[u8]) -> Vec<u8> {
    let mut bytes = request.clone().header("transfer-encoding", "chunked").header("trailer", "x-sum").bytes();
    for chunk in body.chunks(1021) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(&[chunk, b"\r\n"].concat());
    }
    bytes.extend_from_slice(b"0\r\nx-sum: 1\r\n\r\n");
    bytes
}

/// What `every` has left for this key, by asking without being charged for more than that.
fn charged(stack: &Running, key: &str) -> usize {
    let answer = stack.envoy().send(&get("/", key));
    30_000
        - answer
            .header("x-ratelimit-remaining")
            .and_then(|left| left.parse::<usize>().ok())
            .expect("a number")
        - 1
}

#[test]
fn we_07_bodies_of_every_form_arrive_whole_and_every_second_is_denied() {
    bodies_of_every_form(20);
}

#[test]
#[ignore = "10,000 requests with bodies: make test-long"]
fn we_07_ten_thousand_bodies_arrive_whole_and_every_second_is_denied() {
    bodies_of_every_form(556);
}

/// So many rounds of 18 requests.
fn bodies_of_every_form(rounds: usize) {
    let stack = start();
    let upstream = || stack.envoy().stat("cluster.echo.upstream_rq_total");
    let (mut client, key, before) = (stack.envoy().client(), fresh_key(), upstream());
    let mut passed = 0;
    for round in 0..rounds {
        for size in [0, 1, 64 * KIB] {
            for form in ["length", "chunked", "expect"] {
                let sent = body(size);
                for blocked in [false, true] {
                    let request = post(&key, blocked);
                    let bytes = match form {
                        "length" => request.body(sent.clone()).bytes(),
                        "chunked" => chunked(&request, &sent),
                        _ => request.header("expect", "100-continue").body(sent.clone()).bytes(),
                    };
                    let answer = exchange(&mut client, &bytes, &format!("{round}: {form}, {size} B"));
                    let expected = if blocked { 429 } else { 200 };
                    assert_eq!(answer.status, expected, "{form}, {size} B");
                    assert!(
                        blocked || answer.body == sent,
                        "{form}: {} of {size} B came back",
                        answer.body.len()
                    );
                    passed += usize::from(!blocked);
                }
            }
        }
    }
    assert_eq!(upstream() - before, passed as u64, "no denied request reached the upstream");
    assert_eq!(charged(&stack, &key), passed, "each is charged once");
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

/// Sends on a kept connection; one that Envoy closed after a denial in the middle of a body is replaced.
fn exchange(client: &mut Client, bytes: &[u8], what: &str) -> kota_integration::Answer {
    for _ in 0..3 {
        match client.send_raw(bytes).and_then(|()| client.read_answer()) {
            Ok(answer) => return answer,
            Err(_) => client.disconnect(),
        }
    }
    panic!("{what}: three connections ended without an answer")
}

#[test]
fn we_07_five_mebibytes_pass_whole_or_are_denied_before_the_upstream() {
    let stack = start();
    let (key, sent) = (fresh_key(), body(5 * KIB * KIB));
    for bytes in [post(&key, false).body(sent.clone()).bytes(), chunked(&post(&key, false), &sent)] {
        let answer = exchange(&mut stack.envoy().client(), &bytes, "5 MiB");
        assert_eq!(answer.status, 200);
        assert!(answer.body == sent, "{} of {} B came back", answer.body.len(), sent.len());
    }
    let before = stack.envoy().stat("cluster.echo.upstream_rq_total");
    assert_eq!(answered_while_sending(&stack, &post(&key, true).body(sent).bytes()), "HTTP/1.1 429");
    assert_eq!(stack.envoy().stat("cluster.echo.upstream_rq_total"), before);
    assert_eq!(charged(&stack, &key), 2);
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn we_07_no_byte_reaches_the_upstream_before_the_decision() {
    let stack = Stack::new().sidecar_faults().rules(json!([rule("r", 1, json!({ "failMode": "CLOSED" }))]));
    let stack = stack.deadline_ms(30_000).start();
    let (key, sent) = (fresh_key(), body(5 * KIB * KIB));
    let received = || {
        let stat = |name: &str| stack.envoy().stat(&format!("cluster.echo.upstream_{name}"));
        (stat("rq_total"), stat("cx_tx_bytes_total"))
    };
    let before = received();
    stack.sidecar_faults[0].set(Fault::Swallow);
    let bytes = post(&key, false).body(sent).bytes();
    let answer = std::thread::scope(|scope| {
        let answer = scope.spawn(|| answered_while_sending(&stack, &bytes));
        wait::until_true("it is asked, and bytes wait", || {
            let read = stack.envoy().stat("http.api.downstream_cx_rx_bytes_total");
            read > 512 * KIB as u64 && stack.envoy().stat("cluster.kota.upstream_rq_total") == 1
        });
        assert_eq!(received(), before, "nothing of the body went on");
        // The check that was swallowed is lost; the end of its connection fails it, and the rule is CLOSED.
        stack.sidecar_faults[0].set(Fault::Pass);
        answer.join().expect("an answer")
    });
    assert_eq!(answer, "HTTP/1.1 503");
    assert_eq!(received(), before, "nor afterwards");
    let statuses = [(); 2].map(|()| answered_while_sending(&stack, &bytes));
    assert_eq!(statuses, ["HTTP/1.1 200", "HTTP/1.1 429"]);
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

/// The first word and status of an answer that may come while the request is still being sent.
fn answered_while_sending(stack: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", stack.envoy().port())).expect("Envoy listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    let mut writer = stream.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(bytes)); // fails where Envoy closes first, as it may
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        let _ = stream.shutdown(std::net::Shutdown::Both); // the writer may still be at it
        String::from_utf8_lossy(&status).into_owned()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn we_07_http_2_with_bodies_and_trailers() {
    let stack = start();
    let key = fresh_key();
    let h2 = http2::Connection::open(stack.envoy().port()).await.expect("Envoy speaks HTTP/2");
    let request = |blocked: bool| {
        let request =
            http2::Request::new("POST", "/orders").header("x-api-key", &key).header("x-echo", "body");
        if blocked { request.header("x-blocked", "yes") } else { request }
    };
    let mut passed = 0;
    for size in [0, 1, 64 * KIB, 5 * KIB * KIB] {
        for trailers in [&[][..], &[("x-sum", "1")][..]] {
            let sent = body(size);
            let answer = h2
                .send_with_trailers(&request(false), sent.clone().into(), trailers)
                .await
                .expect("an answer");
            assert_eq!(answer.status, 200, "{size} B, {trailers:?}");
            assert!(answer.body == sent, "{size} B, {trailers:?}: {} came back", answer.body.len());
            passed += 1;
            if size <= 64 * KIB {
                let denied =
                    h2.send_with_trailers(&request(true), sent.into(), trailers).await.expect("an answer");
                assert_eq!(denied.status, 429, "{size} B, {trailers:?}");
            }
        }
    }
    assert_eq!(charged(&stack, &key), passed);
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

/// All that comes back on a connection of its own until Envoy closes it, which the last request asks for.
fn until_closed(stack: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", stack.envoy().port())).expect("Envoy listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    stream.write_all(bytes).expect("an open connection");
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).expect("Envoy closes");
    String::from_utf8_lossy(&answers).into_owned()
}

fn blocked(method: &str, path: &str) -> Request {
    Request::new(method, path).header("x-api-key", fresh_key()).header("x-blocked", "yes")
}

#[test]
fn hh_11_a_denied_head_has_no_body_and_the_connection_stays() {
    let stack = start();
    let last = get("/after", &fresh_key()).header("connection", "close");
    let denied_get = stack.envoy().send(&blocked("GET", "/"));
    let answers = until_closed(&stack, &[blocked("HEAD", "/").bytes(), last.bytes()].concat());
    let (head, rest) = answers.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 429"), "{answers}");
    assert!(rest.starts_with("HTTP/1.1 200"), "no body, and the next answer follows: {answers}");
    assert!(rest.contains(r#""path":"/after""#), "{rest}");
    for header in
        ["content-type: application/problem+json", "retry-after: ", "ratelimit: ", "cache-control: no-store"]
    {
        assert!(head.contains(header), "{header} is missing: {head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let of_get = denied_get.header("content-length");
    // The seconds in the body may have one digit less by now.
    assert_eq!(length.map(str::len), of_get.map(str::len), "the length that GET would have: {head}");
}

#[test]
fn hh_11_every_method_is_denied_alike_and_the_connection_is_of_use() {
    let stack = start();
    let mut client = stack.envoy().client();
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let answer = client.send(&blocked(method, "/"));
        assert_eq!(answer.status, 429, "{method}");
        assert_eq!(answer.json()["status"], 429, "{method}");
        assert_eq!(client.send(&get("/after", &fresh_key())).json()["path"], "/after", "after {method}");
    }
    let connect = Request::new("CONNECT", "kota.test:443").header("host", "kota.test:443");
    let connect = connect.header("x-api-key", fresh_key()).header("x-blocked", "yes");
    assert!(until_closed(&stack, &connect.header("connection", "close").bytes()).starts_with("HTTP/1.1 429"));
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn hh_11_the_body_of_a_denied_request_is_not_taken_for_the_next() {
    let stack = start();
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: kota.test\r\n\r\n";
    let denied = blocked("POST", "/orders").body(smuggled);
    let chunks = chunked(&blocked("POST", "/orders"), smuggled.as_bytes());
    let mut client = stack.envoy().client();
    for bytes in [denied.bytes(), chunks] {
        let after = get("/after", &fresh_key());
        assert_eq!(exchange(&mut client, &bytes, "a denied POST").status, 429);
        assert_eq!(client.send(&after).json()["path"], "/after");
        // The same, all in one write: pipelined.
        let pipelined = [bytes, after.header("connection", "close").bytes()].concat();
        let answers = until_closed(&stack, &pipelined);
        assert!(answers.starts_with("HTTP/1.1 429") && !answers.contains("/smuggled"), "{answers}");
    }
    let paths = stack.envoy().access_log_of(5);
    assert!(paths.iter().all(|line| line["path"] != "/smuggled"), "{paths:?}");
}

#[test]
fn hh_11_http_1_0_is_denied_in_its_own_words() {
    let stack = {
        let mut config =
            kota_integration::stack::with_rules(json!([rule("one", 1, json!({ "key": ["ip"] }))]));
        config["routes"] = json!([]);
        let old = json!({ "http_protocol_options": { "accept_http_10": true, "default_host_for_http_10": "kota.test" } });
        Stack::new().config(config).bootstrap(move |bootstrap| merge(bootstrap.http(), old.clone())).start()
    };
    let request = b"GET / HTTP/1.0\r\n\r\n";
    let passed = until_closed(&stack, request);
    assert!(passed.contains(" 200 OK"), "{passed}");
    let denied = until_closed(&stack, request);
    let (head, body) = denied.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains(" 429 Too Many Requests") && head.contains("retry-after: "), "{denied}");
    assert!(!head.contains("transfer-encoding"), "HTTP/1.0 knows no chunks: {head}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(body).expect("JSON")["status"], 429);
}
