//! A sidecar's listeners within the test, and a client of a few lines.

use kota_integration::workdir::Workdir;
use protocol::batch::{self, Algorithm, Answer, Batch, Call, Check, RuleForm, Value};
use protocol::config::Config;
use sidecar::api::Api;
use sidecar::decide::Decider;
use sidecar::keys::Keys;
use sidecar::listen::{Address, Listener};
use sidecar::metrics::Metrics;
use sidecar::serve::serve;
use sidecar::store::AnyStore;
use sidecar::store::memory::Memory;
use sidecar::store::redis::{Redis, Target};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Both listeners, running.
pub(crate) struct Server {
    pub(crate) socket: PathBuf,
    pub(crate) api: SocketAddr,
    pub(crate) metrics: Metrics,
    pub(crate) unready: watch::Sender<bool>,
    pub(crate) drain: watch::Sender<bool>,
    pub(crate) front: JoinHandle<()>,
    pub(crate) decider: Arc<Decider>,
    _workdir: Workdir,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A Redis's store, or the memory's.
pub(crate) fn store(url: Option<&str>, metrics: &Metrics) -> AnyStore {
    match url {
        Some(url) => AnyStore::Redis(Redis::connect(&Target::parse(url).unwrap(), metrics.clone())),
        None => AnyStore::Memory(Memory::new(1_000)),
    }
}

impl Server {
    /// On the memory store, without rules, for this user.
    pub(crate) async fn start() -> Self {
        Self::start_with(None, None, rustix::process::geteuid().as_raw()).await
    }

    pub(crate) async fn start_with(redis: Option<&str>, config: Option<&str>, allowed: u32) -> Self {
        let workdir = Workdir::new();
        let metrics = Metrics::new();
        let decider =
            Arc::new(Decider::new(store(redis, &metrics), Keys::new(b"a secret of tests"), metrics.clone()));
        let socket = workdir.path().join("decide.sock");
        let front = Listener::bind(&Address::Unix(socket.clone()), &[allowed]).await.unwrap();
        let back = Listener::bind_tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let api = back.address().trim_start_matches("tcp:").parse().unwrap();
        let (unready, draining) = watch::channel(false);
        let (drain, drained) = watch::channel(false);
        let config = config.map(|text| Config::parse(text.as_bytes()).unwrap());
        let handler = Arc::new(Api::new(Arc::clone(&decider), config, metrics.clone(), draining));
        let patience = Duration::from_secs(10);
        let front =
            tokio::spawn(serve(front, Arc::clone(&decider), metrics.clone(), drained.clone(), patience));
        tokio::spawn(serve(back, handler, metrics.clone(), drained, patience));
        Self { socket, api, metrics, unready, drain, front, decider, _workdir: workdir }
    }

    /// Asks the filter's listener.
    pub(crate) async fn front(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        exchange(stream, &request(method, path, body)).await
    }

    /// Asks the second listener.
    pub(crate) async fn back(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        self.back_as(method, path, "content-type: application/json\r\n", body).await
    }

    /// Asks the second listener with these header lines.
    pub(crate) async fn back_as(&self, method: &str, path: &str, lines: &str, body: &[u8]) -> Reply {
        let stream = TcpStream::connect(self.api).await.unwrap();
        exchange(stream, &request_with(method, path, lines, body)).await
    }

    /// What the filter hears for one check of this API key by the rule `ten`.
    pub(crate) async fn decide(&self, key: &str) -> Answer {
        let reply = self.front("POST", "/v1/decide", &one_check(key)).await;
        assert_eq!(reply.status, 200);
        batch::decode_answers(&reply.body).unwrap().answers.remove(0)
    }
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A batch of one check: ten tokens, none of which comes back during a test.
pub(crate) fn one_check(key: &str) -> Vec<u8> {
    let algorithm = Algorithm::TokenBucket { capacity: 10, refill_num: 1, refill_den: 1_000, idle_s: 0 };
    let check = Check {
        values: vec![Value { kind: "api_key", bytes: Some(key.as_bytes()), secret: true }],
        calls: vec![Call { rule: 0, cost: 1, key: vec![0] }],
        lease: 0,
        slot: &[],
    };
    let batch = Batch {
        domain: "public-api",
        budget_ms: 60_000,
        rules: vec![RuleForm { id: "ten", algorithm, shadow: false, penalty: None }],
        checks: vec![check],
        give_backs: vec![],
        debits: vec![],
        local_counts: vec![],
        releases: vec![],
        renewals: vec![],
    };
    batch::encode_batch(&batch, Vec::new()).unwrap()
}

pub(crate) fn request(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    request_with(method, path, "", body)
}

pub(crate) fn request_with(method: &str, path: &str, lines: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: kota\r\nconnection: close\r\n{lines}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends the bytes and reads the answer to its end.
pub(crate) async fn exchange(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &[u8]) -> Reply {
    stream.write_all(request).await.unwrap();
    read(stream).await
}

/// Reads an answer to its end.
pub(crate) async fn read(mut stream: impl AsyncReadExt + Unpin) -> Reply {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let end = bytes.windows(4).position(|at| at == b"\r\n\r\n").expect("an answer has a head");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head, body: bytes[end + 4..].to_vec() }
}
