//! The filter's listener.

use crate::server::{Server, exchange, one_check, read, request};
use protocol::batch::{self, Answer, BYTES_MAX, Unknown};
use std::io::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const MARKER: &str = "x-kota: 1";

#[tokio::test]
async fn a_batch_is_answered_with_the_marker() {
    let server = Server::start().await;
    let reply = server.front("POST", "/v1/decide", &one_check("k_1")).await;
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains(MARKER) && reply.head.contains("application/octet-stream"), "{}", reply.head);
    let answers = batch::decode_answers(&reply.body).unwrap().answers;
    assert!(matches!(&answers[..], [Answer::Admitted(outcomes)] if outcomes[0].left == 9), "{answers:?}");
}

#[tokio::test]
async fn what_is_no_batch_is_refused_with_the_marker() {
    let server = Server::start().await;
    for (method, path, body, status) in [
        ("POST", "/v1/decide", &b"\x01garbage"[..], 400),
        ("POST", "/v1/decide", b"", 400),
        ("GET", "/v1/rules", b"", 501),
        ("GET", "/v1/decide", b"", 404),
        ("GET", "/metrics", b"", 404),
    ] {
        let reply = server.front(method, path, body).await;
        assert_eq!(reply.status, status, "{method} {path}");
        assert!(
            reply.head.contains(MARKER) && reply.head.contains("application/problem+json"),
            "{}",
            reply.head
        );
        assert_eq!(reply.json()["status"], status);
    }
    let reply = server.front("POST", "/v1/decide", &[9, 0, 0]).await;
    assert_eq!(reply.status, 200);
    let answers = batch::decode_answers(&reply.body).unwrap().answers;
    assert!(answers.iter().all(|answer| *answer == Answer::Unknown(Unknown::Version)));
}

#[tokio::test]
async fn a_body_that_will_be_too_long_is_not_read() {
    let server = Server::start().await;
    let head = format!("POST /v1/decide HTTP/1.1\r\nhost: kota\r\ncontent-length: {}\r\n\r\n", BYTES_MAX + 1);
    let reply = exchange(UnixStream::connect(&server.socket).await.unwrap(), head.as_bytes()).await;
    assert_eq!(reply.status, 413);
    assert!(reply.head.contains(MARKER), "{}", reply.head);
}

/// A body that never says its length is read no further than the bound.
#[tokio::test]
async fn a_body_without_end_is_cut_off() {
    let server = Server::start().await;
    let mut stream = UnixStream::connect(&server.socket).await.unwrap();
    stream
        .write_all(b"POST /v1/decide HTTP/1.1\r\nhost: kota\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let (mut from, mut to) = stream.into_split();
    let chunk = [b"10000\r\n".to_vec(), vec![1; 0x10000], b"\r\n".to_vec()].concat();
    // Until the server has had enough.
    let writer = tokio::spawn(async move { while to.write_all(&chunk).await.is_ok() {} });
    let mut head = [0; 12];
    from.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    drop(from);
    writer.await.unwrap();
}

/// In virtual time, which passes by itself while all wait.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let server = Server::start().await;
    let whole = request("POST", "/v1/decide", &one_check("k_1"));
    let reply = exchange(UnixStream::connect(&server.socket).await.unwrap(), &whole[..whole.len() - 1]).await;
    assert_eq!(reply.status, 408);
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = Server::start().await;
    let head = format!("GET / HTTP/1.1\r\nhost: kota\r\nx-long: {}\r\n\r\n", "x".repeat(64 * 1024));
    let mut stream = UnixStream::connect(&server.socket).await.unwrap();
    // It may be cut off before all is written.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn another_user_is_turned_away_and_counted() {
    let another = rustix::process::geteuid().as_raw() + 1;
    let server = Server::start_with(None, None, another).await;
    let mut stream = UnixStream::connect(&server.socket).await.unwrap();
    let _ = stream.write_all(&request("POST", "/v1/decide", &one_check("k_1"))).await;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer).await {
        Ok(_) => assert!(answer.is_empty()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    let metrics = server.metrics.render(server.decider.store());
    assert!(metrics.contains("kota_refused_connections_total 1"), "{metrics}");
}

#[tokio::test]
async fn a_drain_finishes_what_is_in_flight_and_takes_nothing_new() {
    let server = Server::start().await;
    let whole = request("POST", "/v1/decide", &one_check("k_1"));
    let (first, rest) = whole.split_at(whole.len() - 3);
    let mut stream = UnixStream::connect(&server.socket).await.unwrap();
    stream.write_all(first).await.unwrap();
    // Once another has been answered, the first has been accepted too.
    server.decide("k_2").await;
    server.drain.send_replace(true);
    while UnixStream::connect(&server.socket).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.front.is_finished());
    stream.write_all(rest).await.unwrap();
    assert_eq!(read(stream).await.status, 200);
    server.front.await.unwrap();
}
