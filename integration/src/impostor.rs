//! Something that listens where a sidecar should, speaks HTTP/2, and answers what a test wants: no marker, half a body, too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;

use crate::bootstrap::Endpoint;

/// What to answer to one request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body, or what is sent of it.
    pub body: Vec<u8>,
    /// How long to wait first.
    pub after: Duration,
    /// How the answer ends.
    pub end: End,
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Whole,
    /// With a reset of the stream, after the headers and what there is of the body.
    Reset,
    /// Never: headers and body are sent, the end is not.
    Never,
}

/// A running impostor; ends when dropped.
#[derive(Debug)]
pub struct Impostor {
    endpoint: Endpoint,
    requests: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

type Script = Arc<dyn Fn(&[u8]) -> Reply + Send + Sync>;

// === impl Reply ===

impl Reply {
    /// 200 with this body and the marker of genuine answers, at once and whole.
    #[must_use]
    pub fn genuine(body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("x-kota", "1".to_owned())];
        Self { status: 200, headers, body: body.into(), after: Duration::ZERO, end: End::Whole }
    }
}

// === impl Impostor ===

impl Impostor {
    /// Listens at `endpoint`; `script` sees a request's body and tells the answer.
    ///
    /// # Panics
    /// When it can't listen.
    #[must_use]
    pub fn start(endpoint: Endpoint, script: impl Fn(&[u8]) -> Reply + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (requests, script): (_, Script) = (Arc::new(AtomicU64::new(0)), Arc::new(script));
        let count = Arc::clone(&requests);
        let _context = runtime.enter();
        match &endpoint {
            Endpoint::Tcp(port) => {
                let listener = std::net::TcpListener::bind(("127.0.0.1", *port)).expect("a free port");
                listener.set_nonblocking(true).expect("a socket can be non-blocking");
                let listener = TcpListener::from_std(listener).expect("a socket");
                runtime.spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&count)));
                    }
                });
            }
            Endpoint::Unix(path) => {
                let listener = UnixListener::bind(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                runtime.spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&count)));
                    }
                });
            }
        }
        Self { endpoint, requests, runtime: Some(runtime) }
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Requests that it has read whole.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // dropping it would wait, which a test in a runtime of its own may not
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, script: Script, count: Arc<AtomicU64>) {
    let Ok(mut connection) = server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let (script, count) = (Arc::clone(&script), Arc::clone(&count));
        // An error is a peer that went away; there is nobody to tell.
        tokio::spawn(async move { answer(request, respond, &script, &count).await });
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    script: &Script,
    count: &AtomicU64,
) -> Result<(), h2::Error> {
    let (mut body, mut asked) = (request.into_body(), Vec::new());
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        asked.extend_from_slice(&chunk);
    }
    count.fetch_add(1, Ordering::Relaxed);
    let reply = script(&asked);
    tokio::time::sleep(reply.after).await;
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(*name, value);
    }
    let mut stream =
        respond.send_response(response.body(()).expect("the test's headers are valid"), false)?;
    stream.send_data(Bytes::from(reply.body), reply.end == End::Whole)?;
    match reply.end {
        End::Whole => {}
        End::Reset => {
            tokio::time::sleep(Duration::from_millis(20)).await; // the reset would overtake what is still queued
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
        End::Never => std::future::pending().await,
    }
    Ok(())
}
