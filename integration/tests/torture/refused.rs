//! What Envoy refuses by itself, some of it before Kota has seen the request, some while it waits.

use kota_integration::{Request, Stack};
use serde_json::json;

use crate::random::Random;
use crate::{calm, h1, rules};

/// A request of this kind, and the statuses that are right for it; 0 is a connection that is closed without an answer.
type Case = (&'static str, fn(&mut Random) -> Vec<u8>, &'static [u16]);

const CASES: [Case; 17] = [
    ("an encoded slash", |_| get("/a%2fb", ""), &[400]),
    ("an encoded zero", |_| get("/a%00b", ""), &[400]),
    ("a path of raw bytes", |r| raw_path(r), &[400]),
    ("a false token", |_| get("/", "authorization: Bearer e30.e30.e30\r\n"), &[401]),
    ("a header of 100 KiB", |r| large(r), &[431]),
    ("120 headers", |_| get("/", &"x: y\r\n".repeat(120)), &[431]),
    ("a zero in a value", |_| get("/", "x-api-key: a\0b\r\n"), &[400]),
    ("a name that is not UTF-8", |_| odd_name(), &[400]),
    ("a method that is none", |_| b"G\xffT / HTTP/1.1\r\nhost: k\r\n\r\n".to_vec(), &[400, 0]),
    ("no host", |_| b"GET / HTTP/1.1\r\nx-want: allow\r\n\r\n".to_vec(), &[400]),
    ("HTTP/1.0", |_| b"GET / HTTP/1.0\r\nhost: k\r\nx-want: allow\r\n\r\n".to_vec(), &[426]),
    ("two lengths", |_| post("content-length: 3\r\ntransfer-encoding: chunked\r\n", b"0\r\n\r\n"), &[400]),
    ("a length that is none", |_| post("content-length: -1\r\n", b""), &[400]),
    // Kota is asked about these. A denial may be faster than the fault in the body.
    ("a chunk that is none", |_| post("transfer-encoding: chunked\r\n", b"zz\r\n\r\n"), &[400, 429]),
    ("an upgrade", |_| get("/", "connection: upgrade\r\nupgrade: websocket\r\n"), &[403]),
    ("CONNECT", |_| b"CONNECT k:443 HTTP/1.1\r\nhost: k:443\r\nx-want: deny\r\n\r\n".to_vec(), &[429]),
    ("OPTIONS *", |_| b"OPTIONS * HTTP/1.1\r\nhost: k\r\nx-want: deny\r\n\r\n".to_vec(), &[404]),
];

/// Sends one of them; an error says what was wrong with the answer.
pub(crate) async fn send(port: u16, random: &mut Random) -> Result<(), String> {
    let (name, request, statuses) = random.pick(&CASES);
    let request = request(random);
    let mut connection = h1::Connection::open(port).await;
    let answer = connection.converse(&[&request], false).await;
    let status = answer.as_ref().map_or(0, |answer| answer.status);
    match statuses.contains(&status) {
        true => Ok(()),
        false => Err(format!("{name}: {statuses:?} was expected, not {answer:?}")),
    }
}

fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: k\r\nx-want: allow\r\n{headers}\r\n").into_bytes()
}

fn post(headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("POST / HTTP/1.1\r\nhost: k\r\nx-want: deny\r\n{headers}\r\n").as_bytes(), body].concat()
}

fn raw_path(random: &mut Random) -> Vec<u8> {
    let path = [&b"/orders/\xff\xfe"[..], &random.field_bytes(20)].concat();
    [&b"GET "[..], &path, b" HTTP/1.1\r\nhost: k\r\nx-want: allow\r\n\r\n"].concat()
}

fn large(random: &mut Random) -> Vec<u8> {
    let value = random.field_bytes(100 * 1024);
    [&b"GET / HTTP/1.1\r\nhost: k\r\nx-want: allow\r\nx-large: "[..], &value, b"\r\n\r\n"].concat()
}

fn odd_name() -> Vec<u8> {
    b"GET / HTTP/1.1\r\nhost: k\r\nx-want: allow\r\nx-\xff\xfe: y\r\n\r\n".to_vec()
}

/// The host hands over at most 1,024 headers. Envoy takes 100 by default, but its operator may allow more: what Kota can't read
/// must not pass by that.
#[test]
fn more_headers_than_can_be_read_are_refused() {
    let stack = Stack::new().without_upstream().config(rules::config(rules::DEADLINE_MS));
    let stack = stack.bootstrap(rules::answer_some_directly).bootstrap(|bootstrap| {
        bootstrap.http()["common_http_protocol_options"]["max_headers_count"] = json!(5_000);
    });
    let stack = stack.start();
    rules::prime(&stack);
    for (count, status) in [(90, 429), (1_000, 429), (1_030, 431), (3_000, 431)] {
        let request = Request::get("/direct").header("x-want", "deny");
        let request = (0..count).fold(request, |request, n| request.header(format!("x-{n}"), "v"));
        assert_eq!(stack.envoy().send(&request).status, status, "{count} headers");
    }
    calm::settled(stack.envoy());
}
