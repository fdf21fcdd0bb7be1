//! Connections: accepted within bounds, served as HTTP/1.1 or HTTP/2, and drained.

use crate::listen::Listener;
use crate::logging::Throttle;
use crate::metrics::Metrics;
use crate::problem::Answer;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The most connections of one listener.
pub const CONNECTIONS_MAX: usize = 1_024;
/// The most requests at once on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1_024;
/// The largest head of a request, in bytes.
const HEAD_MAX: usize = 16 * 1024;
/// How long the head of an HTTP/1.1 request may take.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How much of bodies may be on the way, per request and per connection, in bytes.
const WINDOW: (u32, u32) = (1024 * 1024, 8 * 1024 * 1024);
/// How long to wait when no connection can be accepted, say for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that are turned away are logged at most so often, in milliseconds.
const LOG_EVERY_MS: u64 = 1_000;

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one.
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// Serves until `drain` is true, then lets what is in flight finish within `patience`.
pub async fn serve(
    listener: Listener,
    handler: Arc<impl Handler>,
    metrics: Metrics,
    mut drain: watch::Receiver<bool>,
    patience: Duration,
) {
    let graceful = GracefulShutdown::new();
    let complaints = Throttle::new(LOG_EVERY_MS);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener) => accepted,
            _ = drain.wait_for(|drain| *drain) => break,
        };
        match accepted {
            Ok(stream) => match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => connection(stream, Arc::clone(&handler), &graceful, place),
                Err(_) => metrics.refuse(),
            },
            Err(error) => {
                if let Some(held_back) = complaints.pass() {
                    log::warn!("{}: {error} ({held_back} more since the last line)", listener.address());
                }
                match error.kind() {
                    io::ErrorKind::PermissionDenied => metrics.refuse(),
                    _ => tokio::time::sleep(ACCEPT_PAUSE).await,
                }
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(patience, graceful.shutdown()).await.is_err() {
        log::warn!("some requests did not finish within {} ms", patience.as_millis());
    }
}

fn connection(
    stream: Box<dyn Stream>,
    handler: Arc<impl Handler>,
    graceful: &GracefulShutdown,
    place: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(handler.answer(request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD_MAX);
    builder
        .http2()
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        // After a stall all calls that missed their deadline arrive as already reset. That is no attack, and the default of 20 would
        // end the connection, with the checks on it that still could be answered.
        .max_pending_accept_reset_streams(Some(STREAMS_MAX as usize))
        .initial_stream_window_size(WINDOW.0)
        .initial_connection_window_size(WINDOW.1);
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            log::debug!("a connection ended early: {error}");
        }
        drop(place);
    });
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn accept(listener: &Listener) -> io::Result<Box<dyn Stream>> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, _) = listener.accept().await?;
            // Without it answers only wait longer; an ended connection refuses it.
            let _ = stream.set_nodelay(true);
            Ok(Box::new(stream))
        }
        Listener::Unix(listener, allowed) => {
            let (stream, _) = listener.accept().await?;
            let uid = stream.peer_cred()?.uid();
            if !allowed.contains(&uid) {
                let message =
                    format!("refused a connection of user {uid}; to admit it say --allow-uid {uid}");
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
            }
            Ok(Box::new(stream))
        }
    }
}
