//! One request's answer.

use super::body::Body;
use super::wish::{Break, Wish};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, TRAILER, UPGRADE};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::io;
use std::sync::Arc;
use tokio::sync::Notify;

/// An error breaks the connection off, or in HTTP/2 the stream.
pub(super) async fn answer(request: Request<Incoming>, goaway: Arc<Notify>) -> io::Result<Response<Body>> {
    let mut wish = Wish::read(request.headers());
    if wish.goaway {
        goaway.notify_one();
    }
    if let Some(hold) = wish.hold {
        tokio::time::sleep(hold).await;
    }
    if let Some(protocol) = upgrade(request.headers()) {
        return Ok(upgraded(protocol, request));
    }
    let (parts, body) = request.into_parts();
    if wish.breaks == Some(Break::Head) {
        digest(body).await; // a server that breaks down has begun to work
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let mut response = match wish.raw {
        true => Response::new(Body::Returned(body)),
        false => told(&parts, body, &mut wish).await,
    };
    if let Some(status) = wish.status {
        *response.status_mut() = status;
    }
    for (name, value) in wish.headers {
        response.headers_mut().append(name, value);
    }
    Ok(response)
}

/// What reached us.
async fn told(parts: &Parts, body: Incoming, wish: &mut Wish) -> Response<Body> {
    let (length, sha256) = digest(body).await;
    let told = json!({
        "method": parts.method.as_str(),
        "path": parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), ToString::to_string),
        "headers": headers(&parts.headers),
        "length": length,
        "sha256": sha256,
    });
    // In HTTP/1.1 only announced trailers are sent.
    let names = wish.trailers.iter().flat_map(HeaderMap::keys).map(HeaderName::as_str).collect::<Vec<_>>();
    let announced = HeaderValue::from_str(&names.join(", ")).ok().filter(|names| !names.is_empty());
    let mut response = Response::new(Body::told(format!("{told}\n"), wish));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(announced) = announced {
        response.headers_mut().insert(TRAILER, announced);
    }
    response
}

/// The protocol that an HTTP/1.1 request wants to go on with.
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = headers.get(CONNECTION)?.to_str().ok()?.to_ascii_lowercase().contains("upgrade");
    headers.get(UPGRADE).filter(|_| wants).cloned()
}

/// Goes on with that protocol: every byte comes back. (Not as a WebSocket's frames: a trial has no need of masks.)
fn upgraded(protocol: HeaderValue, request: Request<Incoming>) -> Response<Body> {
    tokio::spawn(async move {
        if let Ok(connection) = hyper::upgrade::on(request).await {
            let (mut from, mut to) = tokio::io::split(TokioIo::new(connection));
            let _ = tokio::io::copy(&mut from, &mut to).await; // until either side ends it
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(UPGRADE, protocol);
    response
}

/// The length and the SHA-256 of a body; of what arrived, if it breaks off.
async fn digest(mut body: Incoming) -> (u64, String) {
    let (mut length, mut hash) = (0, Sha256::new());
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            length += data.len() as u64;
            hash.update(data);
        }
    }
    (length, hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Several lines of one name are joined by a comma; bytes that are no UTF-8 show as U+FFFD.
fn headers(headers: &HeaderMap) -> Map<String, Value> {
    let joined = |name: &HeaderName| {
        let values = headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect::<Vec<_>>().join(", ")
    };
    headers.keys().map(|name| (name.to_string(), Value::String(joined(name)))).collect()
}
