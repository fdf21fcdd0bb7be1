//! A sidecar that breaks HTTP/2 itself, frame by frame: good answers and bad frames in one write, so that Envoy resets streams, or
//! tears its connection down, while Kota hears of the answers.
//!
//! One vandal breaks streams, another connections. With both in one write Envoy 1.40 itself crashes now and then (once in some 50,000
//! requests), whatever the filter does: it trusts its upstreams, as Kota trusts its sidecar.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;

use crate::random::Random;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// What a vandal breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// Some answers' streams.
    Streams,
    /// The connection, behind good answers.
    Connections,
}

/// Listens while it lives.
pub(crate) struct Vandal {
    is_mad: Arc<AtomicBool>,
    runtime: Option<Runtime>,
}

struct Shared {
    random: Mutex<Random>,
    is_mad: Arc<AtomicBool>,
    breaks: Breaks,
    answer: fn(&[u8]) -> Vec<u8>,
}

// === impl Vandal ===

impl Vandal {
    /// `answer` makes a good answer's body of a request's.
    pub(crate) fn start(path: &Path, breaks: Breaks, random: Random, answer: fn(&[u8]) -> Vec<u8>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let (runtime, is_mad) = (runtime.expect("a runtime"), Arc::new(AtomicBool::new(true)));
        let shared = Shared { random: Mutex::new(random), is_mad: Arc::clone(&is_mad), breaks, answer };
        let shared = Arc::new(shared);
        let _context = runtime.enter();
        let listener = UnixListener::bind(path).expect("a free path");
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { serve(stream, &shared).await });
            }
        });
        Self { is_mad, runtime: Some(runtime) }
    }

    /// Keeps to the rules from now on.
    pub(crate) fn calm_down(&self) {
        self.is_mad.store(false, Ordering::Relaxed);
    }
}

impl Drop for Vandal {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reads frames until the peer has had enough.
async fn serve(mut stream: UnixStream, shared: &Shared) -> io::Result<()> {
    stream.read_exact(&mut [0; 24]).await?; // the preface
    stream.write_all(&frame(SETTINGS, 0, 0, b"")).await?;
    let mut bodies: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut asked = Vec::new();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await?;
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, b"")).await?,
            PING if flags & ACK == 0 => stream.write_all(&frame(PING, ACK, 0, &payload)).await?,
            RST_STREAM => asked.retain(|(of, _)| *of != id),
            DATA => {
                let window = u32::try_from(payload.len()).unwrap_or(0).max(1).to_be_bytes();
                let updates = [frame(WINDOW_UPDATE, 0, 0, &window), frame(WINDOW_UPDATE, 0, id, &window)];
                stream.write_all(&updates.concat()).await?;
                bodies.entry(id).or_default().extend_from_slice(&payload);
                if flags & END_STREAM != 0 {
                    asked.push((id, bodies.remove(&id).unwrap_or_default()));
                }
            }
            _ => {}
        }
        if let Some(bytes) = reply(shared, &mut asked) {
            stream.write_all(&bytes).await?;
        }
    }
}

/// What to write now. A mad one often waits for several requests.
fn reply(shared: &Shared, asked: &mut Vec<(u32, Vec<u8>)>) -> Option<Vec<u8>> {
    let is_mad = shared.is_mad.load(Ordering::Relaxed);
    let random = &mut *shared.random.lock().expect("no panic");
    if asked.is_empty() || (is_mad && asked.len() < 4 && random.per_mille(600)) {
        return None;
    }
    let mut bytes = Vec::new();
    let last = asked.iter().map(|(id, _)| *id).max().unwrap_or(1);
    for (id, body) in asked.drain(..) {
        let good = good((shared.answer)(&body), id);
        match random.below(10) {
            _ if !is_mad || shared.breaks == Breaks::Connections => bytes.extend(good),
            0..6 => bytes.extend(good),
            6 => bytes.extend([head(b"204", id, 0), data(b"no body is allowed", id)].concat()),
            7 => bytes.extend(frame(RST_STREAM, 0, id, &2u32.to_be_bytes())),
            8 => bytes.extend([head(b"200", id, 0), data(b"x", id), data(b"after the end", id)].concat()),
            _ => bytes.extend([head(b"100", id, 0), good].concat()),
        }
    }
    if is_mad && shared.breaks == Breaks::Connections && random.per_mille(300) {
        bytes.extend(vandalism(random, last));
    }
    Some(bytes)
}

/// Something that breaks the connection, or strains it.
fn vandalism(random: &mut Random, last: u32) -> Vec<u8> {
    let setting = |id: u16, value: u32| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    match random.below(12) {
        0 => random.field_bytes(40),
        1 => data(b"on no stream", 0),
        2 => data(b"on one that never was", last + 1_001),
        3 => frame(GOAWAY, 0, 0, &[0; 8]),
        4 => frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &11u32.to_be_bytes()].concat()),
        5 => frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()),
        6 => frame(WINDOW_UPDATE, 0, last, &0u32.to_be_bytes()),
        7 => frame(SETTINGS, 0, 0, &setting(3, 1)), // one stream at a time
        8 => frame(SETTINGS, 0, 0, &setting(4, 0x8000_0000)), // a window that is too large
        9 => frame(PUSH_PROMISE, END_HEADERS, last, &[0, 0, 0, 2, 0x88]),
        10 => frame(HEADERS, END_HEADERS, last + 2, &[0xff; 20]),
        _ => frame(SETTINGS, 0, 7, &setting(4, 10)),
    }
}

fn good(body: Vec<u8>, id: u32) -> Vec<u8> {
    [head(b"200", id, 0), data(&body, id)].concat()
}

/// `:status` and the sidecar's marker, as HPACK literals.
fn head(status: &[u8; 3], id: u32, flags: u8) -> Vec<u8> {
    let block = [&[8, 3][..], status, b"\x00\x06x-kota\x011"].concat();
    frame(HEADERS, END_HEADERS | flags, id, &block)
}

fn data(body: &[u8], id: u32) -> Vec<u8> {
    frame(DATA, END_STREAM, id, body)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
