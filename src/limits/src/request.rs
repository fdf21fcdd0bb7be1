//! What rules look at: the values of a request's descriptors, each worked out at most once and only if some rule asks.

use crate::descriptor::{DescriptorId, Descriptors, Source};
use crate::route::Routes;
use crate::{address, cookie, host, metadata, path, query};
use core::cell::OnceCell;
use core::net::IpAddr;
use hashbrown::HashMap;
use std::borrow::Cow;

/// The headers that every preflight has.
pub const PREFLIGHT_HEADERS: [&str; 2] = ["access-control-request-method", "origin"];

/// The raw properties of a request, as the host of this crate has them.
pub trait Attributes {
    /// A header by its lower-case name. One that came on several lines is to be reported as absent: which of its values the
    /// upstream reads is anybody's guess, and a client must not choose its bucket by that.
    fn header(&self, name: &str) -> Option<&[u8]>;
    /// The lines of the `cookie` header.
    fn cookies(&self) -> impl Iterator<Item = &[u8]>;
    /// A value of Envoy's dynamic metadata, as the host hands it over. Dear: asked at most once for each descriptor, and only if needed.
    fn metadata(&self, path: &[Box<str>]) -> Option<Vec<u8>>;
    /// The method.
    fn method(&self) -> &[u8];
    /// The raw `:path`, query and all.
    fn path(&self) -> &[u8];
    /// The raw `:authority`.
    fn host(&self) -> &[u8];
    /// The client's address. Dear: asked at most once, and only if needed.
    fn address(&self) -> Option<IpAddr>;
    /// The name of Envoy's route. Dear likewise.
    fn envoy_route(&self) -> Option<Vec<u8>>;
}

/// The values of the descriptors of one request.
pub trait Values {
    /// The descriptor that stands behind another one: for `client` the first present of `api_key`, `user` and `ip`; any other
    /// stands for itself. `None` if it has no value.
    fn kind_and_value(&self, id: DescriptorId) -> Option<(DescriptorId, &[u8])>;

    /// The value of a descriptor. An empty or blank one is none.
    fn value(&self, id: DescriptorId) -> Option<&[u8]> {
        self.kind_and_value(id).map(|(_, value)| value)
    }

    /// The value of a descriptor as a whole address: of `ip` not only the /64.
    fn address(&self, id: DescriptorId) -> Option<IpAddr> {
        self.value(id).and_then(address::parse)
    }
}

/// A request in Envoy.
pub struct Request<'a, A> {
    attributes: &'a A,
    descriptors: &'a Descriptors,
    routes: &'a Routes,
    path: OnceCell<Cow<'a, [u8]>>,
    host: OnceCell<Cow<'a, [u8]>>,
    route: OnceCell<Option<usize>>,
    envoy_route: OnceCell<Option<Vec<u8>>>,
    address: OnceCell<Option<IpAddr>>,
    ip: OnceCell<Option<String>>,
    client: OnceCell<Option<DescriptorId>>,
    /// Values that have to be searched for, by descriptor; none until the first is asked for.
    searched: OnceCell<Vec<OnceCell<Searched<'a>>>>,
}

/// What was found, if anything was.
type Searched<'a> = Option<Cow<'a, [u8]>>;

/// Values given by name, as in `/v1/check`.
pub struct Given<'a> {
    descriptors: &'a Descriptors,
    values: HashMap<DescriptorId, Vec<u8>>,
    address: Option<IpAddr>,
}

/// The form in which values of this source are compared: all spellings of a path or a host are one, an IPv6 address stands for its
/// /64, blanks around are no part of it. `None` if nothing is left.
#[must_use]
pub fn canonical<'v>(source: &Source, raw: &'v [u8]) -> Option<Cow<'v, [u8]>> {
    let raw = raw.trim_ascii();
    let value = match source {
        _ if raw.is_empty() => return None,
        Source::Path => path::normalise(raw),
        Source::Host => host::normalise(raw),
        Source::Ip => {
            address::parse(raw).map_or(Cow::Borrowed(raw), |ip| address::bucket_form(ip).into_bytes().into())
        }
        Source::Header(_)
        | Source::Metadata(_)
        | Source::Query(_)
        | Source::Cookie(_)
        | Source::Method
        | Source::Route
        | Source::EnvoyRoute
        | Source::Client => Cow::Borrowed(raw),
    };
    Some(value).filter(|value| !value.is_empty())
}

// === impl Request ===

impl<'a, A: Attributes> Request<'a, A> {
    /// A request with nothing worked out yet. `descriptors` and `routes` are the rule set's.
    #[must_use]
    pub fn new(attributes: &'a A, descriptors: &'a Descriptors, routes: &'a Routes) -> Self {
        Self {
            attributes,
            descriptors,
            routes,
            path: OnceCell::new(),
            host: OnceCell::new(),
            route: OnceCell::new(),
            envoy_route: OnceCell::new(),
            address: OnceCell::new(),
            ip: OnceCell::new(),
            client: OnceCell::new(),
            searched: OnceCell::new(),
        }
    }

    /// Whether a browser asks here whether a page of another origin may send the request that it means (Fetch §4.8). One of these headers
    /// on several lines is no browser's.
    pub fn is_preflight(&self) -> bool {
        let present = |name| self.attributes.header(name).is_some_and(|value| !value.trim_ascii().is_empty());
        self.attributes.method() == b"OPTIONS" && PREFLIGHT_HEADERS.into_iter().all(present)
    }

    /// A header by its lower-case name; one that came on several lines counts as absent.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.attributes.header(name)
    }

    /// The path as it came, query and all.
    pub fn raw_path(&self) -> &[u8] {
        self.attributes.path()
    }

    /// The normalised path.
    pub fn path(&self) -> &[u8] {
        self.path.get_or_init(|| path::normalise(self.attributes.path()))
    }

    /// The route that the request takes, as its index in [`Routes`].
    pub fn route(&self) -> Option<usize> {
        *self.route.get_or_init(|| self.routes.find(self.attributes.method(), self.path()))
    }

    /// The client's whole address.
    pub fn client_address(&self) -> Option<IpAddr> {
        *self.address.get_or_init(|| self.attributes.address())
    }

    fn client(&self) -> Option<DescriptorId> {
        *self.client.get_or_init(|| first_present(self, self.descriptors))
    }

    /// What the source of this descriptor has to be searched for, once.
    fn searched(&self, id: DescriptorId, source: &Source) -> Option<&[u8]> {
        let all = self.searched.get_or_init(|| vec![OnceCell::new(); self.descriptors.len()]);
        let found = all.get(usize::from(id.0))?.get_or_init(|| match source {
            Source::Query(name) => query::parameter(self.attributes.path(), name.as_bytes()),
            Source::Cookie(name) => cookie::value(self.attributes.cookies(), name.as_bytes()),
            Source::Metadata(path) => {
                let raw = self.attributes.metadata(path)?;
                Some(metadata::text(&raw).into_owned().into())
            }
            _ => None,
        });
        found.as_deref()
    }

    fn source_value(&self, id: DescriptorId, source: &Source) -> Option<&[u8]> {
        let value = match source {
            Source::Metadata(_) | Source::Query(_) | Source::Cookie(_) => {
                self.searched(id, source)?.trim_ascii()
            }
            Source::Header(name) => self.attributes.header(name)?.trim_ascii(),
            Source::Ip => {
                let ip = self.ip.get_or_init(|| self.client_address().map(address::bucket_form));
                ip.as_deref()?.as_bytes()
            }
            Source::Method => self.attributes.method(),
            Source::Path => self.path(),
            Source::Host => self.host.get_or_init(|| host::normalise(self.attributes.host())),
            Source::Route => self.routes.text(self.route()?)?.as_bytes(),
            Source::EnvoyRoute => {
                self.envoy_route.get_or_init(|| self.attributes.envoy_route()).as_deref()?.trim_ascii()
            }
            // Resolved by its callers; no descriptor but `client` has this source.
            Source::Client => return None,
        };
        Some(value).filter(|value| !value.is_empty())
    }
}

impl<A: Attributes> Values for Request<'_, A> {
    fn kind_and_value(&self, id: DescriptorId) -> Option<(DescriptorId, &[u8])> {
        let id = if id == Descriptors::CLIENT { self.client()? } else { id };
        let value = self.source_value(id, &self.descriptors.get(id)?.source)?;
        Some((id, value))
    }

    fn address(&self, id: DescriptorId) -> Option<IpAddr> {
        let id = if id == Descriptors::CLIENT { self.client()? } else { id };
        match self.descriptors.get(id)?.source {
            Source::Ip => self.client_address(),
            _ => self.value(id).and_then(address::parse),
        }
    }
}

fn first_present(values: &impl Values, descriptors: &Descriptors) -> Option<DescriptorId> {
    descriptors.client_kinds().find(|kind| values.value(*kind).is_some())
}

// === impl Given ===

impl<'a> Given<'a> {
    /// The given values in the form in which they are compared. A later value of a descriptor replaces an earlier one. What is not
    /// given but follows from what is: `client` from its kinds, `route` from `method` and `path`.
    #[must_use]
    pub fn new<'v>(
        descriptors: &'a Descriptors,
        routes: &Routes,
        given: impl IntoIterator<Item = (DescriptorId, &'v [u8])>,
    ) -> Self {
        let mut all = Self { descriptors, values: HashMap::new(), address: None };
        for (id, raw) in given {
            let Some(descriptor) = descriptors.get(id) else { continue };
            let value = canonical(&descriptor.source, raw);
            match &descriptor.source {
                Source::Ip => all.address = address::parse(raw),
                Source::Route => {
                    let known = value.as_deref().and_then(|text| routes.spelling(text));
                    all.set(id, known.map(|text| text.as_bytes().into()).or(value));
                    continue;
                }
                _ => {}
            }
            all.set(id, value);
        }
        if let (None, Some(method), Some(path)) =
            (all.value(Descriptors::ROUTE), all.value(Descriptors::METHOD), all.value(Descriptors::PATH))
        {
            let route = routes.find(method, path).and_then(|index| routes.text(index));
            all.set(Descriptors::ROUTE, route.map(|text| text.as_bytes().into()));
        }
        all
    }

    fn set(&mut self, id: DescriptorId, value: Option<Cow<'_, [u8]>>) {
        match value {
            Some(value) => self.values.insert(id, value.into_owned()),
            None => self.values.remove(&id),
        };
    }
}

impl Values for Given<'_> {
    fn kind_and_value(&self, id: DescriptorId) -> Option<(DescriptorId, &[u8])> {
        match self.values.get(&id) {
            Some(value) => Some((id, value)),
            None if id == Descriptors::CLIENT => {
                first_present(self, self.descriptors).and_then(|kind| self.kind_and_value(kind))
            }
            None => None,
        }
    }

    fn address(&self, id: DescriptorId) -> Option<IpAddr> {
        let (kind, value) = self.kind_and_value(id)?;
        match self.descriptors.get(kind)?.source {
            Source::Ip => self.address,
            _ => address::parse(value),
        }
    }
}
