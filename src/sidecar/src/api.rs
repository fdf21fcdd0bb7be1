//! The second listener, for everybody but the filter: health, metrics, `POST /v1/check` and what follows from it: `/v1/release`,
//! `/v1/renew`, `/v1/pardon`.

mod applying;
mod changes;
mod check;
mod slot;

use crate::decide::Decider;
use crate::decide::http::read_body;
use crate::metrics::Metrics;
use crate::problem::{Answer, problem, whole};
use crate::serve::Handler;
use crate::store::{Status, Store};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use hyper::{HeaderMap, Method, Request, StatusCode};
use protocol::check::BYTES_MAX;
use protocol::config::{Config, Fault};
use std::sync::Arc;
use tokio::sync::watch;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const JSON: &str = "application/json";

/// Answers on the second listener.
#[derive(Debug)]
pub struct Api {
    decider: Arc<Decider>,
    config: Option<Config>,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
}

// === impl Api ===

impl Api {
    /// Answers for `decider`, checks by the rules of `config`. Once `draining` is true it is not ready.
    #[must_use]
    pub fn new(
        decider: Arc<Decider>,
        config: Option<Config>,
        metrics: Metrics,
        draining: watch::Receiver<bool>,
    ) -> Self {
        Self { decider, config, metrics, draining }
    }

    async fn route(&self, request: Request<Incoming>) -> Answer {
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/check" | "/v1/release" | "/v1/renew" | "/v1/pardon") => {
                self.about_buckets(request).await
            }
            (&Method::GET, "/healthz") => whole(StatusCode::OK, "text/plain", "ok\n"),
            (&Method::GET, "/readyz") => self.ready(),
            (&Method::GET, "/metrics") => {
                whole(StatusCode::OK, OPEN_METRICS, self.metrics.render(self.decider.store()))
            }
            _ => problem(
                StatusCode::NOT_FOUND,
                "served here: POST /v1/check, /v1/release, /v1/renew, /v1/pardon, GET /metrics, /healthz, /readyz",
            ),
        }
    }

    async fn about_buckets(&self, request: Request<Incoming>) -> Answer {
        let Some(config) = &self.config else {
            return problem(
                StatusCode::NOT_IMPLEMENTED,
                "this sidecar has no rules: start it with --rules FILE",
            );
        };
        if !is_json(request.headers()) {
            return problem(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body has to be JSON and to say so: send the header `content-type: application/json`",
            );
        }
        let path = request.uri().path().to_owned();
        let body = match read_body(request.into_body(), BYTES_MAX).await {
            Ok(body) => body,
            Err(refusal) => return refusal,
        };
        match &*path {
            "/v1/release" => slot::act(&self.decider, config, &body, slot::Act::Release).await,
            "/v1/renew" => slot::act(&self.decider, config, &body, slot::Act::Renew).await,
            "/v1/pardon" => changes::pardon(&self.decider, config, &body).await,
            _ => check::check(&self.decider, config, &body).await,
        }
    }

    /// Whether requests should be sent to this pod.
    ///
    /// A store that is away does not make it unready: the rules' fail modes are there for that, and readiness would take every
    /// pod of the API out of service at once. One that was reached and can't do its work is different: it never has worked, so
    /// a roll-out must stop here.
    fn ready(&self) -> Answer {
        let status = self.decider.store().status();
        let draining = *self.draining.borrow();
        let ready = !draining && !matches!(status, Status::Connecting | Status::Unfit(_));
        let mut body = serde_json::json!({ "ready": ready, "store": status.word() });
        if !status.reason().is_empty() {
            body["reason"] = status.reason().into();
        }
        if draining {
            body["draining"] = true.into();
        }
        let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        whole(code, JSON, body.to_string())
    }
}

impl Handler for Api {
    async fn answer(self: Arc<Self>, mut request: Request<Incoming>) -> Answer {
        if request.method() != Method::HEAD {
            return self.route(request).await;
        }
        *request.method_mut() = Method::GET;
        without_body(self.route(request).await)
    }
}

/// The answer to a body that has faults.
fn refused(faults: &[Fault]) -> Answer {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    problem(StatusCode::BAD_REQUEST, &lines.join("\n"))
}

/// Whether the body is declared as JSON. A browser sends that for a page of another origin only after it has asked, which is not
/// allowed here; without it any page that somebody on this machine opens could use limits up.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(first), None) = (types.next(), types.next()) else { return false };
    let essence = first.to_str().ok().and_then(|text| text.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(JSON))
}

/// The answer to HEAD: the head of the one to GET. HTTP/1 would drop the body by itself, HTTP/2 would not.
fn without_body(answer: Answer) -> Answer {
    let (mut head, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(CONTENT_LENGTH, length.into());
    }
    Answer::from_parts(head, Full::default())
}
