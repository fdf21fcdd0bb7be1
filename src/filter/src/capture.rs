//! What is kept of a request's headers: read once, in one pass, as bytes. Nothing can be read again once the request waits.

use crate::pairs::Pairs;
use limits::address;
use limits::request::Attributes;
use limits::ruleset::RuleSet;
use std::net::IpAddr;

/// What Kota reads besides headers. Each costs a call into the host, so it is made only where a rule needs it.
pub trait Connection {
    /// The client's address as Envoy resolved it, `IP:port`.
    fn source_address(&self) -> Option<Vec<u8>>;
    /// The name of Envoy's route.
    fn route_name(&self) -> Option<Vec<u8>>;
    /// A value of Envoy's dynamic metadata: the filter's name and the keys below it.
    fn metadata(&self, path: &[Box<str>]) -> Option<Vec<u8>>;
}

/// The headers of one request that rules can ask for.
pub struct Capture<'a, C> {
    connection: C,
    trusted_hops: Option<u8>,
    method: &'a [u8],
    path: &'a [u8],
    host: &'a [u8],
    content_type: &'a [u8],
    forwarded_for: Vec<&'a [u8]>,
    /// The lines of `cookie`; none where no rule reads cookies.
    cookies: Option<Vec<&'a [u8]>>,
    wanted: Vec<(&'a str, Line<'a>)>,
}

/// A header that comes on several lines counts as absent: which of them the upstream believes is not known here, and an honest
/// client says once who it is.
#[derive(Clone, Copy)]
enum Line<'a> {
    None,
    One(&'a [u8]),
    Several,
}

// === impl Capture ===

impl<'a, C: Connection> Capture<'a, C> {
    /// Goes through a serialised header map once, for what `rules` can ask for; `None` if it is none.
    pub fn new(map: &'a [u8], rules: &'a RuleSet, trusted_hops: Option<u8>, connection: C) -> Option<Self> {
        let pairs = Pairs::new(map)?;
        let mut capture = Self {
            connection,
            trusted_hops,
            method: b"",
            path: b"",
            host: b"",
            content_type: b"",
            forwarded_for: Vec::new(),
            cookies: rules.reads_cookies().then(Vec::new),
            wanted: rules.header_names().iter().map(|name| (&**name, Line::None)).collect(),
        };
        for (name, value) in pairs {
            capture.take(name, value);
        }
        Some(capture)
    }

    fn take(&mut self, name: &'a [u8], value: &'a [u8]) {
        match name {
            b":method" => self.method = value,
            b":path" => self.path = value,
            b":authority" => self.host = value,
            b"content-type" => self.content_type = value,
            b"cookie" => {
                if let Some(cookies) = &mut self.cookies {
                    cookies.push(value);
                }
            }
            b"x-forwarded-for" if self.trusted_hops.is_some() => self.forwarded_for.push(value),
            _ => {}
        }
        for (wanted, line) in &mut self.wanted {
            if wanted.as_bytes() == name {
                *line = match *line {
                    Line::None => Line::One(value),
                    Line::One(_) | Line::Several => Line::Several,
                };
            }
        }
    }

    /// Whether the client speaks gRPC and would misread a plain HTTP reply. As Envoy sees it, which writes the reply: where the two
    /// disagree, a denial would go out as a plain 200.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        match self.content_type.strip_prefix(b"application/grpc") {
            Some(rest) => matches!(rest.first(), None | Some(b'+')),
            None => false,
        }
    }

    /// Whether the client speaks gRPC-Web to a listener that does not translate it.
    #[must_use]
    pub fn is_grpc_web(&self) -> bool {
        self.content_type.starts_with(b"application/grpc-web")
    }

    /// The address that so many trusted hops vouch for, as Envoy's `xff_num_trusted_hops` counts them: Envoy has appended the
    /// peer's own address, which 0 hops name. Too few entries name the peer.
    fn forwarded(&self, hops: u8) -> Option<IpAddr> {
        let entries = || self.forwarded_for.iter().rev().flat_map(|line| line.rsplit(|&byte| byte == b','));
        let entry = entries().nth(usize::from(hops)).or_else(|| entries().next())?;
        address::parse(entry.trim_ascii())
    }
}

impl<C: Connection> Attributes for Capture<'_, C> {
    fn header(&self, name: &str) -> Option<&[u8]> {
        self.wanted.iter().find(|(wanted, _)| *wanted == name).and_then(|(_, line)| match *line {
            Line::One(value) => Some(value),
            Line::None | Line::Several => None,
        })
    }

    fn cookies(&self) -> impl Iterator<Item = &[u8]> {
        self.cookies.iter().flatten().copied()
    }

    fn metadata(&self, path: &[Box<str>]) -> Option<Vec<u8>> {
        self.connection.metadata(path)
    }

    fn method(&self) -> &[u8] {
        self.method
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn host(&self) -> &[u8] {
        self.host
    }

    fn address(&self) -> Option<IpAddr> {
        let forwarded = self.trusted_hops.and_then(|hops| self.forwarded(hops));
        forwarded.or_else(|| address::parse(&self.connection.source_address()?))
    }

    fn envoy_route(&self) -> Option<Vec<u8>> {
        self.connection.route_name()
    }
}
