//! An HTTP/2 client over plain TCP with prior knowledge, for many streams at once.

use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderName, HeaderValue, Method};
use tokio::net::TcpStream;

use crate::http1::Answer;

/// One connection; clones share it.
#[derive(Debug, Clone)]
pub struct Connection {
    send: SendRequest<Bytes>,
}

/// A request under way, whose body is sent piece by piece and whose answer is read as it comes. Dropping it resets its stream.
#[derive(Debug)]
pub struct Exchange {
    sending: SendStream<Bytes>,
    response: Option<ResponseFuture>,
    receiving: Option<RecvStream>,
}

/// A request without body.
#[derive(Debug, Clone)]
pub struct Request {
    inner: http::Request<()>,
}

// === impl Request ===

impl Request {
    /// A request with this method and path.
    ///
    /// # Panics
    /// When the two make no valid request.
    #[must_use]
    pub fn new(method: &str, path: &str) -> Self {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let uri = format!("http://kota.test{path}");
        Self { inner: http::Request::builder().method(method).uri(uri).body(()).expect("a valid request") }
    }

    /// Adds a header; the value may be any bytes that HTTP allows.
    ///
    /// # Panics
    /// When HTTP does not allow it.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
        self.inner
            .headers_mut()
            .append(name, HeaderValue::from_bytes(value.as_ref()).expect("a header value"));
        self
    }
}

// === impl Connection ===

impl Connection {
    /// Connects to a port on loopback; the connection is driven by a task of its own.
    ///
    /// # Errors
    /// When connecting or the handshake fails.
    pub async fn open(port: u16) -> Result<Self, h2::Error> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(|_| h2::Reason::CONNECT_ERROR)?;
        let _ = stream.set_nodelay(true);
        let mut settings = client::Builder::new();
        settings
            .initial_window_size(1 << 20)
            .initial_connection_window_size(1 << 24)
            .max_concurrent_reset_streams(4096);
        let (send, connection) = settings.handshake(stream).await?;
        tokio::spawn(async move {
            let _ = connection.await; // its streams report what went wrong
        });
        Ok(Self { send })
    }

    /// Sends a request with a body and reads its answer; waits while the connection has all the streams that the server allows.
    ///
    /// # Errors
    /// When the stream or the connection fails.
    pub async fn send(&self, request: &Request, body: Bytes) -> Result<Answer, h2::Error> {
        self.send_with_trailers(request, body, &[]).await
    }

    /// As [`Connection::send`], with trailers behind the body.
    ///
    /// # Errors
    /// When the stream or the connection fails.
    pub async fn send_with_trailers(
        &self,
        request: &Request,
        body: Bytes,
        trailers: &[(&'static str, &'static str)],
    ) -> Result<Answer, h2::Error> {
        let mut send = self.send.clone().ready().await?;
        let ends_at_once = body.is_empty() && trailers.is_empty();
        let (response, mut stream) = send.send_request(request.inner.clone(), ends_at_once)?;
        // Either fails where the server has answered already; then the answer is what counts.
        if !body.is_empty() {
            let _ = stream.send_data(body, trailers.is_empty());
        }
        if !trailers.is_empty() {
            let fields = trailers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            let _ = stream.send_trailers(fields.collect());
        }
        let (parts, mut body) = response.await?.into_parts();
        let mut content = Vec::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk?;
            body.flow_control().release_capacity(chunk.len())?;
            content.extend_from_slice(&chunk);
        }
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = parts.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        Ok(Answer { status: parts.status.as_u16(), headers, body: content })
    }

    /// Sends a request and resets its stream at once: the client that goes away.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn send_and_reset(&self, request: &Request) -> Result<(), h2::Error> {
        let mut send = self.send.clone().ready().await?;
        let (_response, mut stream) = send.send_request(request.inner.clone(), false)?;
        tokio::task::yield_now().await; // lets the connection's task send the headers first
        stream.send_reset(h2::Reason::CANCEL);
        Ok(())
    }

    /// Begins a request whose body stays open.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn begin(&self, request: &Request) -> Result<Exchange, h2::Error> {
        let mut send = self.send.clone().ready().await?;
        let (response, sending) = send.send_request(request.inner.clone(), false)?;
        Ok(Exchange { sending, response: Some(response), receiving: None })
    }
}

// === impl Exchange ===

impl Exchange {
    /// Sends a piece of the body; the last one ends it.
    ///
    /// # Errors
    /// When the stream has ended.
    pub fn send(&mut self, piece: &[u8], last: bool) -> Result<(), h2::Error> {
        self.sending.send_data(Bytes::copy_from_slice(piece), last)
    }

    /// Waits for the head of the answer: its status.
    ///
    /// # Errors
    /// When the stream ends without one, or it was asked for before.
    pub async fn status(&mut self) -> Result<u16, h2::Error> {
        let response = self.response.take().ok_or(h2::Reason::INTERNAL_ERROR)?;
        let (parts, body) = response.await?.into_parts();
        self.receiving = Some(body);
        Ok(parts.status.as_u16())
    }

    /// The next piece of the answer's body; None at its end. After [`Exchange::status`].
    ///
    /// # Errors
    /// When the stream breaks off.
    pub async fn receive(&mut self) -> Result<Option<Bytes>, h2::Error> {
        let receiving = self.receiving.as_mut().ok_or(h2::Reason::INTERNAL_ERROR)?;
        let piece = receiving.data().await.transpose()?;
        receiving.flow_control().release_capacity(piece.as_ref().map_or(0, Bytes::len))?;
        Ok(piece)
    }

    /// Resets the stream: the client has lost interest.
    pub fn cancel(mut self) {
        self.sending.send_reset(h2::Reason::CANCEL);
    }
}
