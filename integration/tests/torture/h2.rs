//! Many HTTP/2 streams at once, kept or reset at any point.

use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use kota_integration::Answer;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// One connection. Dropping it resets what is open on it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) send: SendRequest<Bytes>,
    driver: JoinHandle<()>,
}

// === impl Connection ===

impl Connection {
    pub(crate) async fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("Envoy listens");
        let _ = stream.set_nodelay(true);
        let mut settings = client::Builder::new();
        settings
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 24)
            .max_concurrent_reset_streams(4_096);
        let (send, connection) = settings.handshake(stream).await.expect("Envoy speaks HTTP/2");
        let driver = tokio::spawn(async move {
            let _ = connection.await; // its streams report what went wrong
        });
        Self { send, driver }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort(); // drops the socket with it
    }
}

/// A request's head.
pub(crate) fn head(method: &str, path: &str, headers: &[(&str, &[u8])]) -> Request<()> {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://kota.test{path}"))
        .body(())
        .expect("a valid request");
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
        let value = HeaderValue::from_bytes(value).expect("a header value");
        request.headers_mut().append(name, value);
    }
    request
}

/// How what is sent of a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With its last frame.
    Whole,
    /// With trailers.
    Trailers,
    /// Not yet.
    Open,
}

/// Sends as much of a body as the peer takes.
pub(crate) async fn send_body(
    stream: &mut SendStream<Bytes>,
    mut body: Bytes,
    end: End,
) -> Result<(), h2::Error> {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        match std::future::poll_fn(|context| stream.poll_capacity(context)).await {
            Some(granted) => {
                let granted = granted?.min(body.len());
                stream.send_data(body.split_to(granted), false)?;
            }
            None => return Ok(()), // the peer has reset it
        }
    }
    match end {
        End::Whole => stream.send_data(Bytes::new(), true),
        End::Trailers => {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-want", HeaderValue::from_static("free"));
            stream.send_trailers(trailers)
        }
        End::Open => Ok(()),
    }
}

/// Reads an answer to its end.
pub(crate) async fn read(response: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (parts, mut body) = response.into_parts();
    let mut content = Vec::new();
    while let Some(chunk) = body.data().await {
        match chunk {
            Ok(chunk) => {
                body.flow_control().release_capacity(chunk.len())?;
                content.extend_from_slice(&chunk);
            }
            // An answer that came before the request's end: the rest of that is not wanted.
            Err(error) if error.reason() == Some(Reason::NO_ERROR) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(Answer { status: parts.status.as_u16(), headers: fields(&parts.headers), body: content })
}

fn fields(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}
