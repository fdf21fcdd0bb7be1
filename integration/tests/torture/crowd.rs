//! Many clients that send at once and wait together.

use kota_integration::{Answer, Running};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

use crate::calm;
use crate::h2::{self, Connection};

/// Streams of one connection: what the shipped bootstrap allows.
const STREAMS: usize = 1_000;

/// Clients that have sent their requests and wait.
pub(crate) struct Crowd {
    runtime: Runtime,
    connections: Vec<JoinHandle<Vec<Result<Answer, ::h2::Error>>>>,
    size: u64,
}

// === impl Crowd ===

impl Crowd {
    /// Sends `size` requests and returns at once.
    pub(crate) fn gather(stack: &Running, size: usize, path: &'static str, want: &'static str) -> Self {
        let port = stack.envoy().port();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let connections = (0..size.div_ceil(STREAMS)).map(|number| {
            let streams = STREAMS.min(size - number * STREAMS);
            runtime.spawn(async move {
                let connection = Connection::open(port).await;
                let mut waiting = JoinSet::new();
                for _ in 0..streams {
                    let mut send = connection.send.clone().ready().await.expect("the connection is open");
                    let key = format!("client-{number}");
                    let head =
                        h2::head("GET", path, &[("x-want", want.as_bytes()), ("x-api-key", key.as_bytes())]);
                    waiting.spawn(async move {
                        let (response, _) = send.send_request(head, true)?;
                        h2::read(response.await?).await
                    });
                }
                waiting.join_all().await
            })
        });
        let connections = connections.collect();
        Self { runtime, connections, size: size as u64 }
    }

    /// Awaits that all of them are in Envoy, with no answer yet.
    pub(crate) fn wait_inside(&self, stack: &Running) {
        calm::await_stat(stack.envoy(), "http.api.downstream_rq_active", self.size);
    }

    /// What became of each.
    pub(crate) fn answers(self) -> Vec<Answer> {
        let all = self.connections.into_iter().flat_map(|connection| {
            self.runtime.block_on(connection).expect("the client's task does not panic")
        });
        all.map(|answer| answer.unwrap_or_else(|error| panic!("a stream was not answered: {error}")))
            .collect()
    }

    /// Cuts all their connections.
    pub(crate) fn leave(self) {
        self.runtime.shutdown_background();
    }
}
