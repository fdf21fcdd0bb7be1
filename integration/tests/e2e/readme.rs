//! The demo's answers, byte for byte but for times, as the README shows them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use kota_integration::{Request, Stack};

use crate::support::fresh_key;

/// What the eleventh request of a burst hears: the head as Envoy writes it, and the body.
const DENIED: &str = r#"HTTP/1.1 429 Too Many Requests
content-type: application/problem+json
cache-control: no-store
retry-after: 1
ratelimit-policy: "orders-create";q=300;w=60
ratelimit: "orders-create";r=0;t=1
x-ratelimit-limit: 10
x-ratelimit-remaining: 0
x-ratelimit-reset: 1
x-envoy-ratelimited: true
content-length: 242
date: …
server: envoy

{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"POST /orders is limited to 300 requests per 60 seconds; try again in 1 second.","violated-policies":["orders-create"]}"#;

/// An answer as curl -i prints it, with the time of day left out.
fn shown(stream: &mut BufReader<TcpStream>) -> String {
    let (mut shown, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a head");
        let line = line.trim_end();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a number");
        }
        let timeless = if line.starts_with("date: ") { "date: …" } else { line };
        shown.push_str(&format!("{timeless}\n"));
        if line.is_empty() {
            let mut body = vec![0; length];
            stream.read_exact(&mut body).expect("a body");
            return shown + &String::from_utf8(body).expect("UTF-8");
        }
    }
}

#[test]
fn twelve_requests_to_the_demo_give_ten_200_and_two_429_as_shown() {
    let stack = Stack::new().start(); // the shipped rule
    let (key, start) = (fresh_key(), Instant::now());
    let mut stream =
        BufReader::new(TcpStream::connect(("127.0.0.1", stack.envoy().port())).expect("Envoy listens"));
    let order = |n| Request::post(format!("/orders?n={n}")).header("x-api-key", &key).bytes();
    stream.get_mut().write_all(&(1..=12).flat_map(order).collect::<Vec<_>>()).expect("an open connection");
    let answers: Vec<_> = (1..=12).map(|_| shown(&mut stream)).collect();
    let refilled = start.elapsed().as_millis() as usize / 200; // none, unless the machine is very slow
    let passed = answers.iter().take_while(|answer| answer.starts_with("HTTP/1.1 200 OK\n")).count();
    assert!((10..=10 + refilled).contains(&passed), "{answers:#?}");
    for denied in answers.iter().filter(|answer| !answer.starts_with("HTTP/1.1 200 OK\n")) {
        assert_eq!(denied, DENIED);
    }
}
