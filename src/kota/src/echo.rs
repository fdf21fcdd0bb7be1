//! `kota echo`: an upstream for trials and tests that tells what reached it.

use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};

/// How long to leave the listener alone when connections can't be accepted (no file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Run an upstream that answers with what it received. HTTP/1.1 and HTTP/2 (h2c with prior knowledge).
///
/// Every request is answered 200 with JSON: `method`, `path`, `headers`, and the body's `length` and `sha256`.
/// A request can ask for other answers by its headers: `x-echo: body` returns the body itself, `x-echo-status: 503` sets the
/// status, `x-echo-set: NAME: VALUE` (repeatable) adds a response header.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen, an IP address and a port.
    #[arg(long, value_name = "HOST:PORT")]
    listen: SocketAddr,
}

type Body = Either<Full<Bytes>, Incoming>;

pub(crate) fn run(args: &Args) -> ExitCode {
    let served = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(serve(args.listen)));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kota echo: can't listen on {}: {error}", args.listen);
            ExitCode::FAILURE
        }
    }
}

/// Serves until SIGTERM or SIGINT; connections that are open then are cut.
async fn serve(address: SocketAddr) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    eprintln!("kota echo: listening on {}", listener.local_addr()?);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(connection(stream))),
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

async fn connection(stream: TcpStream) {
    // A small answer behind Nagle's algorithm waits for the acknowledgement of the last one.
    let _ = stream.set_nodelay(true);
    let server = auto::Builder::new(TokioExecutor::new());
    // How a client ends its connection is its own affair.
    let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let raw = parts.headers.get("x-echo").is_some_and(|wanted| wanted == "body");
    let mut response = if raw {
        Response::new(Either::Right(body))
    } else {
        let (length, sha256) = digest(body).await;
        let told = json!({
            "method": parts.method.as_str(),
            "path": parts.uri.path_and_query().map_or_else(|| parts.uri.to_string(), ToString::to_string),
            "headers": headers(&parts.headers),
            "length": length,
            "sha256": sha256,
        });
        let mut response = Response::new(Either::Left(Full::new(Bytes::from(format!("{told}\n")))));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    };
    if let Some(status) = parts.headers.get("x-echo-status").and_then(status) {
        *response.status_mut() = status;
    }
    for wanted in parts.headers.get_all("x-echo-set") {
        if let Some((name, value)) = field(wanted) {
            response.headers_mut().append(name, value);
        }
    }
    Ok(response)
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

fn status(value: &HeaderValue) -> Option<StatusCode> {
    // An informational status would end neither the request nor the connection.
    StatusCode::from_bytes(value.as_bytes()).ok().filter(|status| status.as_u16() >= 200)
}

fn field(value: &HeaderValue) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = value.to_str().ok()?.split_once(':')?;
    Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
}
