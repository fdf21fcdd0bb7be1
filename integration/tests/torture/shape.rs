//! What one request of the mix is like, and what has to become of it.

use std::sync::LazyLock;

use bytes::Bytes;
use kota_integration::Answer;

use crate::random::Random;

/// The largest body, in bytes.
const BODY_MAX: usize = 5 * 1024 * 1024;
/// A header as large as the bootstrap promises to take.
const LARGE_HEADER: usize = 60 * 1024;

/// Every body is the beginning of this.
static BODY: LazyLock<Bytes> = LazyLock::new(|| (0..BODY_MAX).map(|i| (i % 251) as u8).collect());

/// What the rules say to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Two rules admit it.
    Allow,
    /// One rule denies it.
    Deny,
    /// One rule would admit it, another denies it.
    Both,
    /// It lacks the key without which it is denied.
    Keyless,
    /// No rule applies.
    Free,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) want: Want,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) body: Bytes,
    /// Sent in chunks (HTTP/1.1), or in several DATA frames.
    pub(crate) chunked: bool,
    /// The client awaits `100 Continue`.
    pub(crate) expects: bool,
    pub(crate) is_grpc: bool,
    pub(crate) fate: Fate,
}

/// What the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It reads its answer.
    Stays,
    /// It leaves before the head is complete.
    LeavesInHead,
    /// It leaves when all is sent.
    LeavesWaiting,
    /// It leaves with half its body sent.
    LeavesInBody,
}

// === impl Want ===

impl Want {
    pub(crate) const ALL: [Self; 5] = [Self::Allow, Self::Deny, Self::Both, Self::Keyless, Self::Free];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Both => "both",
            Self::Keyless => "keyless",
            Self::Free => "free",
        }
    }

    fn passes(self) -> bool {
        matches!(self, Self::Allow | Self::Free)
    }
}

// === impl Shape ===

impl Shape {
    pub(crate) fn random(random: &mut Random) -> Self {
        let want = match random.below(100) {
            0..45 => Want::Allow,
            45..70 => Want::Deny,
            70..80 => Want::Both,
            80..85 => Want::Keyless,
            _ => Want::Free,
        };
        let body = BODY.slice(..body_size(random));
        let method = match body.is_empty() {
            true => random.pick(&["GET", "GET", "GET", "HEAD", "OPTIONS", "DELETE", "POST"]),
            false => random.pick(&["POST", "POST", "PUT", "PATCH", "DELETE"]),
        };
        let is_grpc = *method == "POST" && random.per_mille(50);
        let mut shape = Self {
            want,
            method,
            path: path(random),
            headers: vec![("x-want", want.word().into())],
            chunked: !body.is_empty() && random.per_mille(300),
            expects: !body.is_empty() && random.per_mille(100),
            body,
            is_grpc,
            fate: match random.below(100) {
                0..80 => Fate::Stays,
                80..85 => Fate::LeavesInHead,
                85..95 => Fate::LeavesWaiting,
                _ => Fate::LeavesInBody,
            },
        };
        shape.add_headers(random);
        shape
    }

    fn add_headers(&mut self, random: &mut Random) {
        let large = random.per_mille(15);
        if self.want != Want::Keyless {
            let key = match random.below(100) {
                0..40 => format!("client-{}", random.below(500)).into_bytes(),
                40..80 => random.field_bytes(1 + random.clone().below(300)),
                80..90 => Vec::new(),
                _ if large => large_value(random),
                _ => vec![0xff; 1 + random.below(16)],
            };
            self.headers.push(("x-api-key", key));
            if random.per_mille(20) {
                self.headers.push(("x-api-key", b"another".to_vec()));
            }
        }
        let has_large = self.headers.iter().any(|(_, value)| value.len() == LARGE_HEADER);
        if large && !has_large {
            self.headers.push(("x-large", large_value(random)));
        }
        for _ in 0..random.below(3) * random.below(20) {
            self.headers.push(("x-other", random.field_bytes(random.clone().below(60))));
        }
        match self.is_grpc {
            true => self.headers.push(("content-type", b"application/grpc".to_vec())),
            false if !self.body.is_empty() => self.headers.push(("x-echo", b"body".to_vec())),
            false => {}
        }
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether that is the right answer; else what is wrong with it.
    pub(crate) fn check(&self, answer: &Answer) -> Result<(), String> {
        let wrong = |what: &str| {
            let Answer { status, headers, body } = answer;
            let body = String::from_utf8_lossy(&body[..body.len().min(300)]);
            Err(format!("{what}: {status} {headers:?} {body}\n  to {}", self.summary()))
        };
        let has = |name: &str| answer.headers.iter().any(|(header, _)| header == name);
        if self.want.passes() {
            let echoes = !self.is_grpc && !self.body.is_empty();
            return match () {
                () if answer.status != 200 || has("grpc-status") => wrong("it had to pass"),
                () if has("ratelimit") != (self.want == Want::Allow) => wrong("the fields do not fit"),
                () if echoes && answer.body != self.body => wrong("the body came back changed"),
                () => Ok(()),
            };
        }
        let denied = match self.is_grpc {
            true => answer.status == 200 && answer.header("grpc-status") == Some("8"),
            false => {
                answer.status == 429 && answer.header("content-type") == Some("application/problem+json")
            }
        };
        match () {
            () if !denied => wrong("it had to be denied"),
            () if has("ratelimit") != (self.want != Want::Keyless) => wrong("the fields do not fit"),
            () if self.is_head() && !answer.body.is_empty() => wrong("HEAD has no body"),
            () => Ok(()),
        }
    }

    pub(crate) fn summary(&self) -> String {
        let sizes: Vec<_> = self.headers.iter().map(|(name, value)| (name, value.len())).collect();
        let Self { want, method, path, chunked, expects, is_grpc, fate, .. } = self;
        let path = &path[..path.len().min(80)];
        let size = self.body.len();
        format!(
            "{want:?} {method} {path} {size} B chunked={chunked} expects={expects} grpc={is_grpc} {fate:?} {sizes:?}"
        )
    }
}

/// Mostly letters: HPACK writes other bytes in up to 30 bits, and Envoy takes no string that is longer than 64 KiB on the wire.
fn large_value(random: &mut Random) -> Vec<u8> {
    let mut value = vec![b'a'; LARGE_HEADER];
    value.iter_mut().step_by(97).for_each(|byte| *byte = 0x80 | random.next() as u8);
    value
}

fn body_size(random: &mut Random) -> usize {
    match random.below(1_000) {
        0..500 => 0,
        500..750 => 1 + random.below(200),
        750..970 => random.below(64 * 1024),
        970..994 => random.below(300 * 1024),
        994..999 => 1024 * 1024,
        _ => BODY_MAX,
    }
}

fn path(random: &mut Random) -> String {
    let segment = |random: &mut Random| match random.below(6) {
        0 => "orders".to_owned(),
        1 => format!("{}", random.next()),
        2 => "%ff%FE%80".to_owned(),
        3 => "%e2%82%ac;v=1".to_owned(),
        4 => "..".to_owned(),
        _ => "a".repeat(1 + random.below(400)),
    };
    let mut path = String::from("/echo");
    for _ in 0..random.below(8) {
        path.push('/');
        path.push_str(&segment(random));
    }
    if random.per_mille(300) {
        path.push_str("?q=%00%ff&tenant=");
        path.push_str(&"t".repeat(random.below(2_000)));
    }
    path
}
