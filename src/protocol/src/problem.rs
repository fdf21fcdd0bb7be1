//! Problem details (RFC 9457): the body of an answer that is no success.

use serde::Serialize;

/// The media type of the body.
pub const MEDIA_TYPE: &str = "application/problem+json";
/// The type of a 429: the quota is used up (draft-ietf-httpapi-ratelimit-headers).
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The type of a 503: nobody could decide in time, and a rule says CLOSED (same draft).
pub const TEMPORARY_REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// A problem, in the order in which its members are written.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    /// The draft's own spelling.
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    violated_policies: &'a [&'a str],
}

/// The body of a denial: `detail` in words, and the names of the policies that deny.
#[must_use]
pub fn quota_exceeded(r#type: &str, detail: &str, violated_policies: &[&str]) -> String {
    body(&Problem { r#type, title: "Too Many Requests", status: 429, detail, violated_policies })
}

/// The body of an answer without a decision.
#[must_use]
pub fn reduced_capacity(detail: &str) -> String {
    let r#type = TEMPORARY_REDUCED_CAPACITY;
    body(&Problem { r#type, title: "Service Unavailable", status: 503, detail, violated_policies: &[] })
}

/// The body of the answer to a request with too many headers.
#[must_use]
pub fn too_many_headers(detail: &str) -> String {
    let title = "Request Header Fields Too Large";
    body(&Problem { r#type: "about:blank", title, status: 431, detail, violated_policies: &[] })
}

/// Empty only if it could not be written, which no text can cause.
fn body(problem: &Problem<'_>) -> String {
    serde_json::to_string(problem).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_the_policies_and_a_failure_has_none() {
        let denial = quota_exceeded(QUOTA_EXCEEDED, "Kota doldu: \"10\"", &["gold-orders"]);
        assert_eq!(
            denial,
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too Many Requests","status":429,"detail":"Kota doldu: \"10\"","violated-policies":["gold-orders"]}"#
        );
        assert_eq!(
            reduced_capacity("x"),
            r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Service Unavailable","status":503,"detail":"x"}"#
        );
    }
}
