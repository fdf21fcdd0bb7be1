//! The fault proxy and the impostor do what their names say: a Redis behind one, an Envoy before the other.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kota_integration::fault::FaultProxy;
use kota_integration::http2::{Connection, Request};
use kota_integration::impostor::{End, Impostor, Reply};
use kota_integration::redis::Redis;
use kota_integration::workdir::{Workdir, free_port};
use kota_integration::{Endpoint, Fault};

fn redis_behind_proxy(dir: &Workdir) -> (Redis, FaultProxy, u16) {
    let (redis, port) = (Redis::start(dir.path()), free_port());
    let proxy = FaultProxy::start(Endpoint::Tcp(port), Endpoint::Tcp(redis.port()));
    (redis, proxy, port)
}

/// Sends INCR over a new connection; what came back before the connection ended or fell silent.
fn incr(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    stream.write_all(b"INCR n\r\n")?;
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n") {
        match stream.read(&mut byte) {
            Ok(0) => break,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
            Ok(_) => text.push(byte[0]),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_fault_begins_at_once_and_ends_at_once() {
    let dir = Workdir::new();
    let (_redis, proxy, port) = redis_behind_proxy(&dir);
    let heard = |port| incr(port).unwrap_or_default();
    assert_eq!(heard(port), ":1\r\n");

    proxy.set(Fault::Swallow);
    assert_eq!(heard(port), "", "and Redis saw nothing");
    proxy.set(Fault::Pass);
    assert_eq!(heard(port), ":2\r\n");

    proxy.set(Fault::DropReply);
    assert_eq!(heard(port), "", "but Redis did it");
    proxy.set(Fault::Pass);
    assert_eq!(heard(port), ":4\r\n");

    proxy.set(Fault::Half(2));
    assert_eq!(heard(port), ":5");
    proxy.set(Fault::HalfThenCut(2));
    assert_eq!(heard(port), ":6");
    proxy.set(Fault::Garbage);
    assert!(heard(port).contains("neither"));
    proxy.set(Fault::Cut);
    assert_eq!(heard(port), "");
    proxy.set(Fault::Gone);
    assert_eq!(incr(port).expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);

    proxy.set(Fault::Delay(Duration::from_millis(150)));
    let start = Instant::now();
    assert_eq!(heard(port), ":7\r\n");
    assert!(start.elapsed() >= Duration::from_millis(150)); // never earlier; how much later is not asserted
}

#[test]
fn a_cut_ends_the_connections_that_exist() {
    let dir = Workdir::new();
    let (_redis, proxy, port) = redis_behind_proxy(&dir);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the proxy listens");
    stream.write_all(b"PING\r\n").expect("it is open");
    let mut pong = [0; 7];
    stream.read_exact(&mut pong).expect("Redis answers");
    proxy.set(Fault::Cut);
    assert_eq!(stream.read(&mut pong).unwrap_or(0), 0);
    assert_eq!(proxy.accepted(), 1);
}

#[test]
fn a_missing_unix_socket_comes_back() {
    let dir = Workdir::new();
    let redis = Redis::start(dir.path());
    let path = dir.path().join("front.sock");
    let proxy = FaultProxy::start(Endpoint::Unix(path.clone()), Endpoint::Tcp(redis.port()));
    assert!(path.exists());
    proxy.set(Fault::Gone);
    assert!(!path.exists());
    proxy.set(Fault::Pass);
    assert!(path.exists());
}

#[tokio::test]
async fn an_impostor_answers_whole_and_half() {
    let port = free_port();
    let impostor = Impostor::start(Endpoint::Tcp(port), |asked| match asked {
        b"half" => Reply { end: End::Reset, ..Reply::genuine("ha") },
        _ => Reply::genuine(asked),
    });
    let connection = Connection::open(port).await.expect("it listens");
    let request = Request::new("POST", "/v1/decide").header("x-odd", b"\xff");
    let answer = connection.send(&request, "whole".into()).await.expect("an answer");
    assert_eq!((answer.status, answer.text().as_str(), answer.header("x-kota")), (200, "whole", Some("1")));
    assert!(connection.send(&request, "half".into()).await.is_err());
    assert_eq!(impostor.requests(), 2);
}
