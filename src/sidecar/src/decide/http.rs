//! The filter's listener: `POST /v1/decide`.

use super::{Decider, Malformed};
use crate::problem::{Answer, problem, whole};
use crate::serve::Handler;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use protocol::batch::{BYTES_MAX, MARKER};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long a body may take from its request's head to its last byte.
const BODY_TIME: Duration = Duration::from_secs(5);
const OCTETS: &str = "application/octet-stream";

impl Handler for Decider {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let arrived = Instant::now();
        let mut answer = match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/decide") => match read_body(request.into_body(), BYTES_MAX).await {
                Ok(body) => decide(&self, body, arrived).await,
                Err(refusal) => refusal,
            },
            (&Method::GET, "/v1/rules") => {
                problem(StatusCode::NOT_IMPLEMENTED, "live rules are not in this version")
            }
            _ => problem(StatusCode::NOT_FOUND, "only POST /v1/decide is served here"),
        };
        // Told from what a proxy makes up, errors included.
        answer.headers_mut().insert(HeaderName::from_static(MARKER.0), HeaderValue::from_static(MARKER.1));
        answer
    }
}

async fn decide(decider: &Arc<Decider>, body: Bytes, arrived: Instant) -> Answer {
    match decider.batch(body, arrived).await {
        Ok(bytes) => whole(StatusCode::OK, OCTETS, bytes),
        Err(Malformed) => problem(StatusCode::BAD_REQUEST, "the body is not a batch of checks"),
    }
}

/// Reads a body of at most `bytes_max` bytes within [`BODY_TIME`].
///
/// # Errors
/// The answer that says why not.
pub async fn read_body(body: Incoming, bytes_max: usize) -> Result<Bytes, Answer> {
    let too_large = || problem(StatusCode::PAYLOAD_TOO_LARGE, &format!("at most {bytes_max} bytes are read"));
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large());
    }
    match timeout(BODY_TIME, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(problem(StatusCode::BAD_REQUEST, "the body ended early")),
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}
