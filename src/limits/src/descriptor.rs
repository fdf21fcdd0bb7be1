//! Descriptors: the named properties of a request that rules match on and key their buckets by.

use hashbrown::HashMap;

/// The longest value that is used as it is, in bytes; a longer one is replaced by its SHA-256 before it goes anywhere.
pub const VALUE_MAX: usize = 256;
/// The most descriptors in one configuration.
pub const DESCRIPTORS_MAX: usize = 64;

/// The index of a descriptor within its [`Descriptors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DescriptorId(pub u16);

/// Where the value of a descriptor comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A request header, by its lower-case name. Sent on several lines it counts as absent.
    Header(Box<str>),
    /// A value of Envoy's dynamic metadata: the filter's name and the keys below it.
    Metadata(Box<[Box<str>]>),
    /// A parameter of the query, by its name. Given several times it counts as absent.
    Query(Box<str>),
    /// A cookie, by its name. Given several times it counts as absent.
    Cookie(Box<str>),
    /// The client's address: IPv6 by its /64, mapped IPv4 as IPv4.
    Ip,
    /// The request method.
    Method,
    /// The normalised path.
    Path,
    /// The authority, lower-case.
    Host,
    /// The template of the route that the request takes, such as `GET /orders/{id}`.
    Route,
    /// The name of Envoy's own route.
    EnvoyRoute,
    /// The first present of `api_key`, `user` and `ip`, under that descriptor's name.
    Client,
}

/// A descriptor: its name, where its value comes from, and whether the value must never be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The name that rules use: `[a-z][a-z0-9_]{0,31}`.
    pub name: Box<str>,
    /// Where the value comes from.
    pub source: Source,
    /// Whether the value is a secret: always hashed before it becomes a key.
    pub secret: bool,
}

/// The descriptors of a configuration: the built-in ones and those that it defines.
#[derive(Clone, Debug)]
pub struct Descriptors {
    all: Vec<Descriptor>,
    by_name: HashMap<Box<str>, DescriptorId>,
    client_kinds: [Option<DescriptorId>; 3],
}

// === impl Descriptors ===

impl Descriptors {
    /// The built-in `ip`.
    pub const IP: DescriptorId = DescriptorId(0);
    /// The built-in `method`.
    pub const METHOD: DescriptorId = DescriptorId(1);
    /// The built-in `path`.
    pub const PATH: DescriptorId = DescriptorId(2);
    /// The built-in `route`.
    pub const ROUTE: DescriptorId = DescriptorId(4);
    /// The built-in `client`.
    pub const CLIENT: DescriptorId = DescriptorId(6);
    /// What `client` can stand for: the first of these that a request has.
    pub const CLIENT_KINDS: [&'static str; 3] = ["api_key", "user", "ip"];

    /// The names that always exist, with their sources.
    pub const BUILT_IN: [(&'static str, Source); 7] = [
        ("ip", Source::Ip),
        ("method", Source::Method),
        ("path", Source::Path),
        ("host", Source::Host),
        ("route", Source::Route),
        ("envoy_route", Source::EnvoyRoute),
        ("client", Source::Client),
    ];

    /// The built-in descriptors alone.
    #[must_use]
    pub fn built_in() -> Self {
        let mut descriptors = Self { all: Vec::new(), by_name: HashMap::new(), client_kinds: [None; 3] };
        for (name, source) in Self::BUILT_IN {
            descriptors.define(Descriptor { name: name.into(), source, secret: false });
        }
        descriptors
    }

    /// Adds a descriptor, or gives the existing one of that name. `None` when [`DESCRIPTORS_MAX`] is reached.
    pub fn define(&mut self, descriptor: Descriptor) -> Option<DescriptorId> {
        if let Some(id) = self.find(&descriptor.name) {
            return Some(id);
        }
        if self.all.len() >= DESCRIPTORS_MAX {
            return None;
        }
        let id = DescriptorId(u16::try_from(self.all.len()).ok()?);
        for (kind, name) in self.client_kinds.iter_mut().zip(Self::CLIENT_KINDS) {
            if *name == *descriptor.name {
                *kind = Some(id);
            }
        }
        self.by_name.insert(descriptor.name.clone(), id);
        self.all.push(descriptor);
        Some(id)
    }

    /// The descriptor of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<DescriptorId> {
        self.by_name.get(name).copied()
    }

    /// The descriptor of that index.
    #[must_use]
    pub fn get(&self, id: DescriptorId) -> Option<&Descriptor> {
        self.all.get(usize::from(id.0))
    }

    /// The descriptors that `client` can stand for, in the order in which they are tried.
    pub fn client_kinds(&self) -> impl Iterator<Item = DescriptorId> {
        self.client_kinds.iter().copied().flatten()
    }

    /// How many there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "the built-in ones are always there")]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// All of them, in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = (DescriptorId, &Descriptor)> {
        (0u16..).map(DescriptorId).zip(&self.all)
    }
}
