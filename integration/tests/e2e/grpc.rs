//! What gRPC clients hear (WE-13): RESOURCE_EXHAUSTED, which they do not take for a failure of the connection, and no HTTP error.

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use kota_integration::{Answer, Delivery, Running, Stack, stack};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::{fresh_key, merge, rule};

fn config(cluster: &str) -> Value {
    let mut config = stack::with_rules(json!([rule(
        "calls",
        2,
        json!({ "failMode": "CLOSED", "detail": "Kota doldu: 100 %" })
    ),]));
    merge(&mut config["sidecar"], json!({ "cluster": cluster }));
    config
}

async fn connect(stack: &Running) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(("127.0.0.1", stack.envoy().port())).await.expect("Envoy listens");
    let (send, connection) = h2::client::handshake(stream).await.expect("Envoy speaks HTTP/2");
    tokio::spawn(async move {
        let _ = connection.await; // its streams report what went wrong
    });
    send
}

fn call(key: &str, content_type: &str) -> Request<()> {
    let request = Request::post("http://kota.test/shop.Orders/Create").header("te", "trailers");
    request.header("content-type", content_type).header("x-api-key", key).body(()).expect("a valid request")
}

/// How a client sends its messages.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// One message, then its end.
    Unary,
    /// Several messages; the answer may come before the end.
    Stream,
    /// Nothing yet: the answer must not wait for a message.
    Silent,
}

/// The headers of the answer, and whether it is trailers-only.
async fn answer(send: &SendRequest<Bytes>, request: Request<()>, kind: Kind) -> (HeaderMap, u16, bool) {
    let mut send = send.clone().ready().await.expect("an open connection");
    let (response, mut stream) = send.send_request(request, false).expect("a stream");
    let message = Bytes::from_static(b"\0\0\0\0\x02\x08\x01");
    let messages = match kind {
        Kind::Unary => 1,
        Kind::Stream => 3,
        Kind::Silent => 0,
    };
    for n in 1..=messages {
        let last = n == messages && matches!(kind, Kind::Unary);
        let _ = stream.send_data(message.clone(), last); // fails where the answer is here already, as it may be
    }
    let response = response.await.expect("an answer");
    let only_headers = response.body().is_end_stream();
    (response.headers().clone(), response.status().as_u16(), only_headers)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().expect("ASCII"))
}

#[tokio::test(flavor = "multi_thread")]
async fn we_13_calls_over_the_limit_are_resource_exhausted_in_trailers_only() {
    let mut stack = Stack::new().config(config("kota")).delivery(Delivery::Ecds).start();
    let send = connect(&stack).await;
    for content_type in ["application/grpc", "application/grpc+proto", "application/grpc+json"] {
        let key = fresh_key();
        for _ in 0..2 {
            let (headers, status, _) = answer(&send, call(&key, content_type), Kind::Unary).await;
            assert_eq!((status, text(&headers, "grpc-status")), (200, None), "the echo answers");
        }
        let upstream = (
            stack.envoy().stat("cluster.echo.upstream_rq_total"),
            stack.envoy().stat("cluster.echo.upstream_rq_5xx"),
        );
        for kind in [Kind::Unary, Kind::Stream, Kind::Silent] {
            let (headers, status, trailers_only) = answer(&send, call(&key, content_type), kind).await;
            assert_eq!((status, text(&headers, "grpc-status")), (200, Some("8")), "{kind:?}: {headers:?}");
            assert!(trailers_only, "{kind:?}: no body");
            assert_eq!(text(&headers, "grpc-message"), Some("Kota doldu: 100 %25"), "{kind:?}");
            assert!(
                text(&headers, "content-type").is_some_and(|kind| kind.starts_with("application/grpc")),
                "{headers:?}"
            );
            assert!(
                text(&headers, "retry-after")
                    .is_some_and(|seconds| seconds.parse::<u64>().is_ok_and(|s| s >= 1))
            );
            assert!(
                text(&headers, "ratelimit").is_some_and(|field| field.starts_with(r#""calls";r=0;t="#)),
                "{headers:?}"
            );
        }
        let after = (
            stack.envoy().stat("cluster.echo.upstream_rq_total"),
            stack.envoy().stat("cluster.echo.upstream_rq_5xx"),
        );
        assert_eq!(after, upstream, "no failure of the upstream's");
    }
    // What is not gRPC to Envoy is told in HTTP's words, and never by a 200.
    let key = fresh_key();
    for expected in [200, 200, 429] {
        let (_, status, _) = answer(&send, call(&key, "application/grpc;charset=utf-8"), Kind::Unary).await;
        assert_eq!(status, expected);
    }
    assert!(stack.envoys[0].reconfigure(&config("nobody")));
    let fails = async || {
        text(&answer(&send, call(&fresh_key(), "application/grpc"), Kind::Unary).await.0, "grpc-status")
            == Some("14")
    };
    while !fails().await {} // until the worker has the new configuration
    let (headers, status, trailers_only) =
        answer(&send, call(&fresh_key(), "application/grpc"), Kind::Silent).await;
    assert_eq!(
        (status, text(&headers, "grpc-status"), trailers_only),
        (200, Some("14"), true),
        "{headers:?}"
    );
    assert_eq!(text(&headers, "ratelimit"), None, "no invented numbers");
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn we_13_grpc_web_gets_its_status_in_a_frame_of_trailers() {
    let stack = Stack::new().config(config("kota")).start();
    let (mut client, key) = (stack.envoy().client(), fresh_key());
    let message = b"\0\0\0\0\x02\x08\x01".to_vec();
    let call = kota_integration::Request::post("/shop.Orders/Create").header("x-api-key", &key);
    let call = call.header("content-type", "application/grpc-web+proto").body(message);
    let answers: Vec<Answer> = (0..3).map(|_| client.send(&call)).collect();
    let denied = &answers[2];
    assert_eq!(
        (denied.status, denied.header("content-type")),
        (200, Some("application/grpc-web+proto")),
        "{denied:?}"
    );
    let trailers = "grpc-status: 8\r\ngrpc-message: Kota doldu: 100 %25\r\n";
    let length = u32::try_from(trailers.len()).expect("short").to_be_bytes();
    assert_eq!(denied.body, [&[0x80], &length[..], trailers.as_bytes()].concat());
    assert!(answers[..2].iter().all(|answer| answer.body.first() != Some(&0x80)), "{answers:?}");
    assert!(denied.header("retry-after").is_some());
}
