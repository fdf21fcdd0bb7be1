//! What a request asks of its answer, by its headers.

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;

/// No answer is held for longer.
const HOLD_MAX: Duration = Duration::from_secs(3600);

/// Where an answer breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Break {
    /// Before its head.
    Head,
    /// In the middle of its body.
    Body,
}

/// What a request asks for; what can't be read is as if it were not there.
#[derive(Debug, Default)]
pub(super) struct Wish {
    /// The body itself, as it comes.
    pub(super) raw: bool,
    pub(super) status: Option<StatusCode>,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) trailers: Option<HeaderMap>,
    /// Before the head.
    pub(super) hold: Option<Duration>,
    /// In the middle of the body.
    pub(super) stall: Option<Duration>,
    pub(super) breaks: Option<Break>,
    /// The connection takes no further requests.
    pub(super) goaway: bool,
}

// === impl Wish ===

impl Wish {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let is = |name: &str, word: &str| headers.get(name).is_some_and(|value| value == word);
        let fields = |name: &str| headers.get_all(name).iter().filter_map(field).collect::<Vec<_>>();
        let trailers = fields("x-echo-trailer");
        let breaks = [("head", Break::Head), ("body", Break::Body)];
        Self {
            raw: is("x-echo", "body"),
            status: headers.get("x-echo-status").and_then(status),
            headers: fields("x-echo-set"),
            trailers: (!trailers.is_empty()).then(|| trailers.into_iter().collect()),
            hold: headers.get("x-echo-hold").and_then(duration),
            stall: headers.get("x-echo-stall").and_then(duration),
            breaks: breaks.into_iter().find(|(word, _)| is("x-echo-break", word)).map(|(_, at)| at),
            goaway: is("x-echo-break", "goaway"),
        }
    }
}

fn status(value: &HeaderValue) -> Option<StatusCode> {
    // An informational status would end neither the request nor the connection.
    StatusCode::from_bytes(value.as_bytes()).ok().filter(|status| status.as_u16() >= 200)
}

fn field(value: &HeaderValue) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = value.to_str().ok()?.split_once(':')?;
    Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
}

fn duration(value: &HeaderValue) -> Option<Duration> {
    let ms = value.to_str().ok()?.parse().ok()?;
    Some(Duration::from_millis(ms).min(HOLD_MAX))
}
