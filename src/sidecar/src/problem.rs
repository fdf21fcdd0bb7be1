//! Answers that are errors: `application/problem+json` (RFC 9457).

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

/// What every handler answers with: the whole body at once, so that it goes out in one write.
pub type Answer = Response<Full<Bytes>>;

/// An error answer; `detail` is for the one who sent the request and never repeats its values.
#[must_use]
pub fn problem(status: StatusCode, detail: &str) -> Answer {
    let body = serde_json::json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": detail,
    });
    let mut answer = whole(status, "application/problem+json", body.to_string());
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// An answer with this body.
#[must_use]
pub fn whole(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
