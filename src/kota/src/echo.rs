//! `kota echo`: an upstream for trials and tests that tells what reached it, and that misbehaves when a request asks it to.

mod answer;
mod body;
mod wish;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// How long to leave the listener alone when connections can't be accepted (no file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Run an upstream that answers with what it received. HTTP/1.1 and HTTP/2 (h2c with prior knowledge).
///
/// Every request is answered 200 with JSON: `method`, `path`, `headers`, and the body's `length` and `sha256`. A request for an upgrade
/// (a WebSocket's handshake, say) is answered 101, and then every byte comes back.
///
/// A request can ask for other answers by its headers: `x-echo: body` returns the body itself as it comes, `x-echo-status: 503` sets the
/// status, `x-echo-set: NAME: VALUE` and `x-echo-trailer: NAME: VALUE` (repeatable) add a header or trailer, `x-echo-hold: MS` waits before
/// the answer and `x-echo-stall: MS` in the middle of its body (at most an hour), `x-echo-break: head` or `body` breaks off there, and
/// `x-echo-break: goaway` ends the connection once its requests have ended.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen, an IP address and a port.
    #[arg(long, value_name = "HOST:PORT")]
    listen: SocketAddr,
}

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
    let goaway = Arc::new(Notify::new());
    let asked = Arc::clone(&goaway);
    let service = service_fn(move |request| answer::answer(request, Arc::clone(&asked)));
    let serving = server.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(serving);
    // How a client ends its connection is its own affair.
    tokio::select! {
        _ = serving.as_mut() => {}
        () = goaway.notified() => {
            serving.as_mut().graceful_shutdown();
            let _ = serving.await;
        }
    }
}
