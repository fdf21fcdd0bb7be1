//! A Redis that says what a test wants, for what a real one can't be made to do on time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Answers a command (its words) with raw bytes of the protocol; `None` for the usual answer.
type Answers = dyn Fn(&[String]) -> Option<String> + Send + Sync;

/// A listening fake.
pub(crate) struct Fake {
    pub(crate) url: String,
    commands: Arc<Mutex<Vec<Vec<String>>>>,
    /// Connections of an earlier generation are dead: they read and never answer.
    generation: Arc<AtomicU64>,
}

impl Fake {
    pub(crate) async fn start(answers: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let commands = Arc::new(Mutex::new(Vec::new()));
        let (log, answers) = (Arc::clone(&commands), Arc::new(answers));
        let generation = Arc::new(AtomicU64::new(0));
        let now = Arc::clone(&generation);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(
                    stream,
                    Arc::clone(&log),
                    Arc::clone(&answers) as Arc<Answers>,
                    Arc::clone(&now),
                ));
            }
        });
        Self { url, commands, generation }
    }

    /// Its port on loopback.
    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Lets all connections that exist now die in silence, as when a firewall forgets them.
    pub(crate) fn bury(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// The commands of this name that came, but for those of the self-check.
    pub(crate) fn came(&self, name: &str) -> Vec<Vec<String>> {
        let commands = self.commands.lock().unwrap();
        commands
            .iter()
            .filter(|words| words[0] == name && !words.iter().any(|word| word.contains("self-check")))
            .cloned()
            .collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<Vec<String>>>>,
    answers: Arc<Answers>,
    now: Arc<AtomicU64>,
) {
    let born = now.load(Ordering::SeqCst);
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await.is_ok_and(|length| length > 0) {
        let mut out = String::new();
        while let Some(words) = take_command(&mut bytes) {
            out.push_str(&answers(&words).unwrap_or_else(|| usual(&words)));
            log.lock().unwrap().push(words);
        }
        if now.load(Ordering::SeqCst) != born {
            continue;
        }
        if stream.write_all(out.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn usual(words: &[String]) -> String {
    match words[0].as_str() {
        "INFO" => bulk("redis_version:7.4.0\r\n"),
        "SCRIPT" => bulk("f00"),
        "EVALSHA" => "*4\r\n:1\r\n:1\r\n:9\r\n:0\r\n".to_owned(),
        _ => "+OK\r\n".to_owned(),
    }
}

/// A text as an answer.
pub(crate) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Takes a whole command off the front.
fn take_command(bytes: &mut Vec<u8>) -> Option<Vec<String>> {
    let mut at = 0;
    let count = take_number(bytes, &mut at)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let length = take_number(bytes, &mut at)?;
        let word = bytes.get(at..at + length)?;
        words.push(String::from_utf8_lossy(word).into_owned());
        at += length + 2;
    }
    if at > bytes.len() {
        return None;
    }
    bytes.drain(..at);
    Some(words)
}

/// The number of a `*` or `$` line.
fn take_number(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let line = &bytes.get(*at..)?;
    let end = line.iter().position(|byte| *byte == b'\n')?;
    let text = std::str::from_utf8(&line[1..end]).ok()?;
    *at += end + 1;
    text.trim().parse().ok()
}
