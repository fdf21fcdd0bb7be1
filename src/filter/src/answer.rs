//! What a client is told: the RateLimit fields of every decided response, and the replies to those that do not pass.
//!
//! Sources: draft-ietf-httpapi-ratelimit-headers (-11 and, as a setting, the names of -12), RFC 6585 §4 (429), RFC 9110 §10.2.3
//! (Retry-After), RFC 9457 (problem details), RFC 9651 (structured fields).

use crate::config::{Announcement, Config};
use limits::decision::Verdict;
use protocol::config::Dialect;
use protocol::problem;

/// A header to be added.
pub type Field = (&'static str, String);

/// gRPC's RESOURCE_EXHAUSTED.
pub const GRPC_RESOURCE_EXHAUSTED: u32 = 8;
/// gRPC's UNAVAILABLE.
pub const GRPC_UNAVAILABLE: u32 = 14;

/// A reply in the upstream's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The status for a gRPC client, whom HTTP's would tell to try again at once.
    pub grpc_status: u32,
    /// The headers, but for `content-length`.
    pub headers: Vec<Field>,
    /// The body for an HTTP client.
    pub body: String,
    /// The message for a gRPC client.
    pub detail: String,
}

/// The numbers of the rule that the client hears about.
#[derive(Clone, Copy, Debug)]
pub struct Nearest<'a> {
    /// The rule's names.
    pub rule: &'a Announcement,
    /// Whole tokens left.
    pub left: u64,
    /// Seconds: to full where the request passes, until it would pass where it does not; `None` if it never does.
    pub seconds: Option<u64>,
    /// What the rule says.
    pub verdict: Verdict,
}

/// The fields of a response whose request was decided. `enforcing` are all enforcing rules that applied.
#[must_use]
pub fn fields<'a>(
    config: &Config,
    enforcing: impl Iterator<Item = &'a Announcement>,
    nearest: &Nearest<'_>,
) -> Vec<Field> {
    let mut policy = String::with_capacity(64);
    for rule in enforcing {
        if !policy.is_empty() {
            policy.push_str(", ");
        }
        policy.push_str(&rule.policy_item);
    }
    let (left_name, seconds_name) = match config.dialect {
        Dialect::Draft11 => (";r=", ";t="),
        Dialect::Draft12 => (";a=", ";w="),
    };
    let mut limit = String::with_capacity(64);
    limit.push_str(&nearest.rule.name_item);
    limit.push_str(left_name);
    push_number(&mut limit, nearest.left);
    if let Some(seconds) = nearest.seconds {
        limit.push_str(seconds_name);
        push_number(&mut limit, seconds);
    }
    vec![("ratelimit-policy", policy), ("ratelimit", limit)]
}

/// The fields of old clients, for the same rule.
#[must_use]
pub fn legacy_fields(nearest: &Nearest<'_>) -> Vec<Field> {
    let mut fields = vec![
        ("x-ratelimit-limit", nearest.rule.capacity.to_string()),
        ("x-ratelimit-remaining", nearest.left.to_string()),
    ];
    if let Some(seconds) = nearest.seconds {
        fields.push(("x-ratelimit-reset", seconds.to_string()));
    }
    fields
}

/// The reply to a request that a rule denies; `fields` are its RateLimit fields, `violated` the rules that deny it.
#[must_use]
pub fn denial<'a>(
    config: &Config,
    fields: Vec<Field>,
    nearest: &Nearest<'_>,
    violated: impl Iterator<Item = &'a Announcement>,
) -> Reply {
    let policies: Vec<&str> = violated.map(|rule| &*rule.policy).collect();
    let detail = nearest.rule.detail(nearest.verdict, nearest.seconds);
    let body = problem::quota_exceeded(&config.problem_type, &detail, &policies);
    let mut headers = shell_of_reply();
    if let Some(seconds) = nearest.seconds {
        headers.push(("retry-after", seconds.to_string()));
    }
    headers.extend(fields);
    headers.push(("x-envoy-ratelimited", "true".to_owned()));
    Reply { status: 429, grpc_status: GRPC_RESOURCE_EXHAUSTED, headers, body, detail }
}

/// The reply to a request that lacks the key without which a rule takes none.
#[must_use]
pub fn missing_key(config: &Config, rule: &Announcement) -> Reply {
    let detail = rule.missing_key_detail();
    let body = problem::quota_exceeded(&config.problem_type, &detail, &[&*rule.policy]);
    let mut headers = shell_of_reply();
    headers.push(("ratelimit-policy", rule.policy_item.clone()));
    headers.push(("x-envoy-ratelimited", "true".to_owned()));
    Reply { status: 429, grpc_status: GRPC_RESOURCE_EXHAUSTED, headers, body, detail }
}

/// The reply to a request that nobody could decide, where a rule is CLOSED. It carries no numbers: none are known.
#[must_use]
pub fn unavailable() -> Reply {
    let detail = "The service cannot admit this request at the moment; try again in a second.".to_owned();
    let body = problem::reduced_capacity(&detail);
    let mut headers = shell_of_reply();
    headers.push(("retry-after", "1".to_owned()));
    Reply { status: 503, grpc_status: GRPC_UNAVAILABLE, headers, body, detail }
}

/// The reply to a request with more headers than the filter can read (RFC 6585 §5).
#[must_use]
pub fn too_many_headers() -> Reply {
    let detail = "This request has more headers than are accepted.".to_owned();
    let body = problem::too_many_headers(&detail);
    Reply { status: 431, grpc_status: GRPC_RESOURCE_EXHAUSTED, headers: shell_of_reply(), body, detail }
}

// === impl Reply ===

impl Reply {
    /// The body for a gRPC-Web client: one frame of trailers (gRPC-Web, "Message framing", flag 0x80).
    #[must_use]
    pub fn grpc_web_body(&self) -> Vec<u8> {
        let message = percent_encode(&self.detail);
        let trailers = format!("grpc-status: {}\r\ngrpc-message: {message}\r\n", self.grpc_status);
        let mut frame = vec![0x80];
        frame.extend_from_slice(&u32::try_from(trailers.len()).unwrap_or(u32::MAX).to_be_bytes());
        frame.extend_from_slice(trailers.as_bytes());
        frame
    }
}

/// A text as `grpc-message` carries it: bytes outside of printable ASCII, and `%`, as `%XX` (gRPC over HTTP/2, "Status-Message").
#[must_use]
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn shell_of_reply() -> Vec<Field> {
    vec![("content-type", "application/problem+json".to_owned()), ("cache-control", "no-store".to_owned())]
}

/// Decimal digits without the machinery of `fmt`, which is most of what a header would cost.
fn push_number(text: &mut String, number: u64) {
    let mut digits = [0u8; 20];
    let mut rest = number;
    let mut used = 0usize;
    for digit in digits.iter_mut().rev() {
        *digit = b'0'.saturating_add(u8::try_from(rest % 10).unwrap_or(0));
        rest /= 10;
        used = used.saturating_add(1);
        if rest == 0 {
            break;
        }
    }
    let start = digits.len().saturating_sub(used);
    text.push_str(digits.get(start..).and_then(|digits| str::from_utf8(digits).ok()).unwrap_or("0"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 600, 1_000_000_000, u64::MAX] {
            let mut text = String::from("r=");
            push_number(&mut text, number);
            assert_eq!(text, format!("r={number}"));
        }
    }
}
