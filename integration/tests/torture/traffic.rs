//! 100,000 requests of every kind, from clients of every kind.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kota_integration::{Answer, Running, Stack};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::calm::{self, Memory};
use crate::h2::End;
use crate::random::{self, Random};
use crate::shape::{Fate, Shape, Want};
use crate::{h1, h2, refused, rules};

/// Clients at the same time.
const CLIENTS: usize = 24;
/// No answer may take longer: the deadline and as much again.
const PATIENCE: Duration = Duration::from_millis(2 * rules::DEADLINE_MS);

/// What has become of the requests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    answered: [AtomicU64; Want::ALL.len()],
    left: AtomicU64,
    refused: AtomicU64,
    /// Pipelines that Envoy cut because answers queued up.
    flooded: AtomicU64,
    wrong: std::sync::Mutex<Vec<String>>,
}

// === impl Tally ===

impl Tally {
    fn answered(&self, shape: &Shape, answer: &Answer) {
        match shape.check(answer) {
            Ok(()) => drop(self.answered[shape.want as usize].fetch_add(1, Ordering::Relaxed)),
            Err(what) => self.wrong(what),
        }
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().expect("no client panics").push(what);
    }

    /// Shows one of each kind of what was wrong.
    fn assert_all_right(&self) {
        let wrong = self.wrong.lock().expect("no client panics");
        let kind = |what: &str| what.chars().take(60).collect::<String>();
        let kinds: BTreeMap<_, _> = wrong.iter().map(|what| (kind(what), what)).collect();
        let shown: Vec<_> = kinds.values().take(12).map(|what| what.as_str()).collect();
        assert!(wrong.is_empty(), "{} wrong, of each kind one:\n{}", wrong.len(), shown.join("\n"));
    }

    fn left(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, want: Want) -> u64 {
        self.answered[want as usize].load(Ordering::Relaxed)
    }
}

/// One client: `count` requests in episodes, each on a connection of its own.
async fn client(port: u16, mut random: Random, count: usize, tally: Arc<Tally>) {
    let mut sent = 0;
    while sent < count {
        let most = |bound: usize| bound.min(count - sent);
        sent += match random.below(100) {
            0..40 => one_by_one(port, &mut random, most(20), &tally).await,
            40..55 => pipelined(port, &mut random, most(16), &tally).await,
            55..95 => multiplexed(port, &mut random, most(64), &tally).await,
            _ => unacceptable(port, &mut random, most(16), &tally).await,
        };
    }
}

/// Requests that Envoy itself refuses, each on a connection of its own.
async fn unacceptable(port: u16, random: &mut Random, count: usize, tally: &Tally) -> usize {
    for _ in 0..count {
        match timeout(PATIENCE, refused::send(port, random)).await {
            Ok(Ok(())) => drop(tally.refused.fetch_add(1, Ordering::Relaxed)),
            Ok(Err(what)) => tally.wrong(what),
            Err(_) => tally.wrong("what Envoy should refuse got no answer".to_owned()),
        }
    }
    count
}

/// A request's head as HTTP/1.1 has it.
fn head(shape: &Shape) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nhost: kota.test\r\n", shape.method, shape.path).into_bytes();
    for (name, value) in &shape.headers {
        head.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    match (shape.chunked, shape.body.len()) {
        (true, _) => head.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        (false, 0) if shape.method == "GET" => {}
        (false, length) => head.extend_from_slice(format!("content-length: {length}\r\n").as_bytes()),
    }
    if shape.expects {
        head.extend_from_slice(b"expect: 100-continue\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// A request's body as HTTP/1.1 has it.
fn body(shape: &Shape) -> Vec<u8> {
    if !shape.chunked {
        return shape.body.to_vec();
    }
    let mut body = Vec::new();
    let size = 1 + shape.body.len() / 3;
    for chunk in shape.body.chunks(size) {
        body.extend_from_slice(format!("{:x};note=\"x\"\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\nx-trailer: t\r\n\r\n");
    body
}

/// Requests on a kept connection, each after the other's answer. Gives how many.
async fn one_by_one(port: u16, random: &mut Random, most: usize, tally: &Tally) -> usize {
    let mut connection = h1::Connection::open(port).await;
    for sent in 1..=most {
        let shape = Shape::random(random);
        let (head, body) = (head(&shape), body(&shape));
        let part = |bytes: &[u8], random: &mut Random| bytes[..random.below(bytes.len().max(1))].to_vec();
        let begun = match shape.fate {
            Fate::Stays => None,
            Fate::LeavesInHead => Some(part(&head, random)),
            Fate::LeavesWaiting => Some([&head[..], &body].concat()),
            Fate::LeavesInBody => Some([head.clone(), part(&body, random)].concat()),
        };
        if let Some(begun) = begun {
            let _ = connection.write(&begun).await; // Envoy may have answered, and closed
            tally.left();
            if random.per_mille(500) {
                connection.reset();
            }
            return sent;
        }
        match timeout(PATIENCE, exchange(&mut connection, &shape, &head, &body)).await {
            Ok(Ok(answer)) => {
                tally.answered(&shape, &answer);
                if h1::Connection::ends_with(&answer) {
                    return sent;
                }
            }
            Ok(Err(error)) => return failed(tally, sent, &format!("{error}"), &shape),
            Err(_) => return failed(tally, sent, "no answer", &shape),
        }
    }
    most
}

fn failed(tally: &Tally, sent: usize, error: &str, shape: &Shape) -> usize {
    tally.wrong(format!("HTTP/1.1: {error}\n  to {}", shape.summary()));
    sent
}

async fn exchange(
    connection: &mut h1::Connection,
    shape: &Shape,
    head: &[u8],
    body: &[u8],
) -> std::io::Result<Answer> {
    if !shape.expects {
        return connection.converse(&[head, body], shape.is_head()).await;
    }
    connection.write(head).await?;
    match connection.status().await? {
        100 => connection.converse(&[body], shape.is_head()).await,
        status => Err(std::io::Error::other(format!("100 was expected, not {status}"))),
    }
}

/// Requests written at once; the answers come in their order. Where Envoy closes after one, the others have gone.
async fn pipelined(port: u16, random: &mut Random, most: usize, tally: &Tally) -> usize {
    let mut connection = h1::Connection::open(port).await;
    let mut shapes: Vec<_> = (0..1 + random.below(most)).map(|_| Shape::random(random)).collect();
    for shape in &mut shapes {
        shape.body.truncate(64 * 1024);
        shape.expects = false;
    }
    let bytes: Vec<u8> = shapes.iter().flat_map(|shape| [head(shape), body(shape)].concat()).collect();
    if random.per_mille(200) {
        let _ = connection.write(&bytes[..random.below(bytes.len())]).await;
        tally.left.fetch_add(shapes.len() as u64, Ordering::Relaxed);
        return shapes.len();
    }
    let bodiless: Vec<_> = shapes.iter().map(Shape::is_head).collect();
    let mut answers = Vec::new();
    let end =
        timeout(PATIENCE, connection.pipeline(&[&bytes], &bodiless, |answer| answers.push(answer))).await;
    shapes.iter().zip(&answers).for_each(|(shape, answer)| tally.answered(shape, answer));
    let rest = &shapes[answers.len()..];
    match (end, rest.first()) {
        (Ok(Ok(())), _) => drop(tally.left.fetch_add(rest.len() as u64, Ordering::Relaxed)),
        // Envoy queues two answers on a connection, then it suspects a flood.
        (Ok(Err(error)), Some(_)) if error.kind() == ErrorKind::UnexpectedEof && !answers.is_empty() => {
            tally.flooded.fetch_add(1, Ordering::Relaxed);
            tally.left.fetch_add(rest.len() as u64, Ordering::Relaxed);
        }
        (Ok(Err(error)), Some(shape)) => drop(failed(tally, 0, &format!("pipelined: {error}"), shape)),
        (Err(_), Some(shape)) => drop(failed(tally, 0, "pipelined: no answer", shape)),
        (_, None) => unreachable!("an answer is missing"),
    }
    shapes.len()
}

/// Streams of one connection, all at once.
async fn multiplexed(port: u16, random: &mut Random, most: usize, tally: &Arc<Tally>) -> usize {
    let connection = h2::Connection::open(port).await;
    let count = 1 + random.below(most);
    let is_dropped = random.per_mille(50);
    let mut streams = JoinSet::new();
    for _ in 0..count {
        let (shape, random) = (Shape::random(random), Random::new(random.next()));
        let (send, tally) = (connection.send.clone(), Arc::clone(tally));
        streams.spawn(async move {
            let result = timeout(PATIENCE, stream(send, &shape, random)).await;
            match result {
                _ if is_dropped => tally.left(),
                Ok(Ok(Some(answer))) => tally.answered(&shape, &answer),
                Ok(Ok(None)) => tally.left(),
                Ok(Err(error)) => tally.wrong(format!("HTTP/2: {error}\n  to {}", shape.summary())),
                Err(_) => tally.wrong(format!("HTTP/2: no answer\n  to {}", shape.summary())),
            }
        });
    }
    if is_dropped {
        for _ in 0..random.below(20) {
            tokio::task::yield_now().await;
        }
        drop(connection);
    }
    streams.join_all().await;
    count
}

/// One stream; `None` if its client left.
async fn stream(
    send: ::h2::client::SendRequest<bytes::Bytes>,
    shape: &Shape,
    mut random: Random,
) -> Result<Option<Answer>, ::h2::Error> {
    let mut send = send.ready().await?;
    let headers: Vec<_> = shape.headers.iter().map(|(name, value)| (*name, &value[..])).collect();
    let head = h2::head(shape.method, &shape.path, &headers);
    let (response, mut stream) = send.send_request(head, shape.body.is_empty())?;
    let leaves = shape.fate != Fate::Stays;
    let sent = match shape.fate {
        Fate::LeavesInHead => 0,
        Fate::LeavesInBody => random.below(shape.body.len().max(1)),
        Fate::Stays | Fate::LeavesWaiting => shape.body.len(),
    };
    if leaves {
        if !shape.body.is_empty() {
            let part = shape.body.slice(..sent.min(64 * 1024));
            let end = if sent == shape.body.len() { End::Whole } else { End::Open };
            let _ = h2::send_body(&mut stream, part, end).await;
        }
        for _ in 0..random.below(10) {
            tokio::task::yield_now().await; // lets the connection's task send what there is
        }
        stream.send_reset(::h2::Reason::CANCEL);
        return Ok(None);
    }
    let body = shape.body.clone();
    let write = async {
        if !body.is_empty() {
            let end = if shape.chunked { End::Trailers } else { End::Whole };
            let _ = h2::send_body(&mut stream, body, end).await; // the answer tells what was wrong
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = async { h2::read(response.await?).await } => answer.map(Some),
        () = write => unreachable!("it never ends"),
    }
}

/// One round: `count` requests, whose answers are right and whose counts add up.
fn round(stack: &Running, count: usize, seed: u64) -> Memory {
    let envoy = stack.envoy();
    let counter = |name: &str| envoy.kota(name);
    let names = ["allowed.ledger", "denied.empty", "denied.keyless", "shadow_denied.watch"];
    let (spent, before) = (rules::spent(stack), names.map(counter));
    let floods = envoy.stat("http1.response_flood");
    let tally = Arc::new(Tally::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let random = Random::new(seed ^ (number as u64) << 48);
            clients.spawn(client(envoy.port(), random, count / CLIENTS, Arc::clone(&tally)));
        }
        clients.join_all().await;
    });
    tally.assert_all_right();
    let memory = calm::settled(envoy);

    let left = tally.left.load(Ordering::Relaxed);
    let refused = tally.refused.load(Ordering::Relaxed);
    let flooded = tally.flooded.load(Ordering::Relaxed);
    assert!(flooded <= envoy.stat("http1.response_flood") - floods, "pipelines were cut for another reason");
    let answered = Want::ALL.map(|want| (want.word(), tally.of(want)));
    eprintln!(
        "answered {answered:?}, left {left}, refused by Envoy {refused}, pipelines cut {flooded}; {memory:?}"
    );
    let after = names.map(counter);
    let made = |i: usize| after[i] - before[i];
    let is_between = |made: u64, least: u64| (least..=least + left + refused).contains(&made);
    assert!(is_between(made(0), tally.of(Want::Allow)), "{names:?}: {before:?} {after:?}");
    assert!(is_between(made(1), tally.of(Want::Deny) + tally.of(Want::Both)), "{before:?} {after:?}");
    assert!(is_between(made(2), tally.of(Want::Keyless)), "{before:?} {after:?}");
    assert!(made(3) >= tally.of(Want::Allow), "a shadow rule watches what passes");
    // Whoever left: what was charged was counted, and nothing else.
    assert_eq!(rules::spent(stack) - spent, made(0) + 1);
    let strange = envoy
        .kota_counters()
        .into_iter()
        .find(|(name, value)| *value > 0 && (name.starts_with("failed") || name.contains("spared")));
    assert_eq!(strange, None);
    memory
}

fn mix(count: usize) {
    let seed = random::seed("the mix");
    let config = rules::config(rules::DEADLINE_MS);
    let stack = Stack::new().workers(2).config(config).bootstrap(rules::answer_some_directly).start();
    rules::prime(&stack);
    round(&stack, count / 2, seed); // fills the pools
    let first = round(&stack, count, seed);
    round(&stack, count, seed);
    calm::no_growth(stack.envoy(), first);
}

#[test]
fn ten_thousand_requests_of_every_kind() {
    mix(10_000);
}

#[test]
#[ignore = "minutes; make test-long"]
fn a_hundred_thousand_requests_of_every_kind() {
    mix(100_000);
}
