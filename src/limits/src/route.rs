//! Routes: from a method and a normalised path to the template that names them, such as `GET /orders/{id}`.
//!
//! A request takes at most one route, the most specific:
//! - Templates are compared segment by segment from the left. A literal beats a parameter, and both beat `**`; so `/a/b/**` beats
//!   `/a/**`, and `/a/**` beats `/{x}/b`. `**` stands for any number of segments, none as well, and can only be the last.
//! - Among equal templates the named method beats `*`. A `HEAD` that no route names takes the route of `GET`, as servers answer it.
//! - A template that does not serve the method does not count: with `POST /orders/new` and `GET /orders/{id}` a
//!   `GET /orders/new` takes the second.
//! - Of two routes that differ in parameter names alone the first one given stands for both.
//! - Literals match whatever the ASCII case: many servers (Express, ASP.NET) serve `/V1/Login` as `/v1/login`, and each spelling
//!   would have its own budget; for the others it is a 404 that uses up the budget of what it resembles. Methods are
//!   case-sensitive, as HTTP has them.

use crate::path;
use core::fmt;
use core::hash::{Hash, Hasher};
use hashbrown::{Equivalent, HashMap};

/// The most segments in a template. The walk to a route is as deep at most, however long the path.
pub const SEGMENTS_MAX: usize = 32;

/// The methods of the IANA registry. A route with another one is a slip of the pen, and Envoy refuses such requests.
pub const METHODS: [&str; 40] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// A method, or `*` for any, and a path template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    method: Option<Box<str>>,
    segments: Vec<Segment>,
    text: Box<str>,
}

/// Why a text is not a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteError {
    /// Not a method, one space and a path that begins with `/`.
    Form,
    /// The method is none that HTTP knows, or not in upper case.
    Method,
    /// The path has a query or a fragment.
    Query,
    /// Braces that do not make a parameter of a whole segment.
    Parameter,
    /// An asterisk that is not the `**` of the last segment.
    Asterisk,
    /// More than [`SEGMENTS_MAX`] segments.
    Long,
}

/// The routes of a configuration, compiled to a tree of segments.
#[derive(Clone, Debug)]
pub struct Routes {
    texts: Vec<Box<str>>,
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<[u8]>),
    Parameter,
    Rest,
}

#[derive(Clone, Debug, Default)]
struct Node {
    literals: HashMap<Literal, usize>,
    parameter: Option<usize>,
    here: Methods,
    rest: Methods,
}

/// The routes that end at a node, by method; none means any.
#[derive(Clone, Debug, Default)]
struct Methods(Vec<(Option<Box<str>>, usize)>);

#[derive(Clone, Debug)]
struct Literal(Box<[u8]>);

/// A segment that hashes and compares whatever its ASCII case.
struct Folded<'a>(&'a [u8]);

// === impl Route ===

impl Route {
    /// Reads `POST /orders`, `GET /orders/{id}` or `* /public/**`. Literals are normalised as request paths are.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn parse(text: &str) -> Result<Self, RouteError> {
        let (method, template) = text.trim_ascii().split_once(' ').ok_or(RouteError::Form)?;
        if !template.starts_with('/') || template.contains(' ') {
            return Err(RouteError::Form);
        }
        if template.contains(['?', '#']) {
            return Err(RouteError::Query);
        }
        if method != "*" && !METHODS.contains(&method) {
            return Err(RouteError::Method);
        }
        let normal = path::normalise(template.as_bytes());
        let segments: Vec<_> = segments(&normal).map(Segment::parse).collect::<Result<_, _>>()?;
        let last = segments.len().saturating_sub(1);
        if segments.iter().take(last).any(|segment| *segment == Segment::Rest) {
            return Err(RouteError::Asterisk);
        }
        if segments.len() > SEGMENTS_MAX {
            return Err(RouteError::Long);
        }
        let method = (method != "*").then(|| method.into());
        Ok(Self { method, segments, text: text.trim_ascii().into() })
    }

    /// The route as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Segment {
    fn parse(text: &[u8]) -> Result<Self, RouteError> {
        match text {
            b"**" => Ok(Self::Rest),
            [b'{', name @ .., b'}'] if !name.is_empty() => {
                let named =
                    name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
                if named { Ok(Self::Parameter) } else { Err(RouteError::Parameter) }
            }
            _ if text.contains(&b'{') || text.contains(&b'}') => Err(RouteError::Parameter),
            _ if text.contains(&b'*') => Err(RouteError::Asterisk),
            _ => Ok(Self::Literal(text.into())),
        }
    }
}

// === impl Routes ===

impl Routes {
    /// Compiles the routes. One that equals an earlier one but for the names of parameters adds nothing.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        let mut all = Self { texts: Vec::with_capacity(routes.len()), nodes: vec![Node::default()] };
        for route in routes {
            all.insert(route);
        }
        all
    }

    /// The route that a request with this method and this normalised path takes.
    #[must_use]
    pub fn find(&self, method: &[u8], path: &[u8]) -> Option<usize> {
        self.walk(0, method, if path == b"/" { b"" } else { path })
    }

    /// The route as it was first written, by the index that [`Routes::find`] gives.
    #[must_use]
    pub fn text(&self, index: usize) -> Option<&str> {
        self.texts.get(index).map(AsRef::as_ref)
    }

    /// The index of a route, whatever its parameters are called.
    #[must_use]
    pub fn index_of(&self, route: &Route) -> Option<usize> {
        let mut node = self.nodes.first()?;
        for segment in &route.segments {
            let next = match segment {
                Segment::Literal(text) => node.literals.get(&Folded(text)).copied(),
                Segment::Parameter => node.parameter,
                Segment::Rest => return node.rest.exactly(route.method.as_deref()),
            };
            node = self.nodes.get(next?)?;
        }
        node.here.exactly(route.method.as_deref())
    }

    /// How the route that `text` spells was first written; `None` if it is not among these.
    #[must_use]
    pub fn spelling(&self, text: &[u8]) -> Option<&str> {
        let route = Route::parse(core::str::from_utf8(text).ok()?).ok()?;
        self.text(self.index_of(&route)?)
    }

    /// How many different routes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// `rest` is empty or begins with the slash of the next segment. A node is visited at most once, since its depth fixes `rest`.
    fn walk(&self, node: usize, method: &[u8], rest: &[u8]) -> Option<usize> {
        let node = self.nodes.get(node)?;
        let found = match rest.split_first() {
            None => node.here.find(method),
            Some((b'/', rest)) => {
                let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
                let (segment, rest) = rest.split_at_checked(end)?;
                let literal = node.literals.get(&Folded(segment));
                literal
                    .and_then(|next| self.walk(*next, method, rest))
                    .or_else(|| node.parameter.and_then(|next| self.walk(next, method, rest)))
            }
            // `*` and whatever else is no path.
            Some(_) => return None,
        };
        found.or_else(|| node.rest.find(method))
    }

    fn insert(&mut self, route: Route) {
        if self.index_of(&route).is_some() {
            return;
        }
        let index = self.texts.len();
        self.texts.push(route.text);
        let mut node = 0;
        for segment in route.segments {
            if segment == Segment::Rest {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.rest.0.push((route.method, index));
                }
                return;
            }
            node = self.child(node, segment);
        }
        if let Some(node) = self.nodes.get_mut(node) {
            node.here.0.push((route.method, index));
        }
    }

    /// The node below `parent` for a literal or a parameter, made if there is none.
    fn child(&mut self, parent: usize, segment: Segment) -> usize {
        let fresh = self.nodes.len();
        let Some(node) = self.nodes.get_mut(parent) else { return fresh };
        let child = match segment {
            Segment::Literal(text) => *node.literals.entry(Literal(text)).or_insert(fresh),
            Segment::Parameter | Segment::Rest => *node.parameter.get_or_insert(fresh),
        };
        if child == fresh {
            self.nodes.push(Node::default());
        }
        child
    }
}

/// The segments of a normalised path; none for the root.
fn segments(normal: &[u8]) -> impl Iterator<Item = &[u8]> {
    normal.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty())
}

// === impl Methods ===

impl Methods {
    fn find(&self, method: &[u8]) -> Option<usize> {
        let named = |wanted: &[u8]| {
            let entry =
                self.0.iter().find(|(name, _)| name.as_ref().is_some_and(|name| name.as_bytes() == wanted));
            entry.map(|(_, index)| *index)
        };
        let get = || if method == b"HEAD" { named(b"GET") } else { None };
        named(method).or_else(get).or_else(|| self.exactly(None))
    }

    fn exactly(&self, method: Option<&str>) -> Option<usize> {
        self.0.iter().find(|(name, _)| name.as_deref() == method).map(|(_, index)| *index)
    }
}

// === impl Folded ===

impl Hash for Folded<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut folded = [0_u8; 32];
        for chunk in self.0.chunks(folded.len()) {
            for (to, from) in folded.iter_mut().zip(chunk) {
                *to = from.to_ascii_lowercase();
            }
            state.write(folded.get(..chunk.len()).unwrap_or_default());
        }
    }
}

impl Equivalent<Literal> for Folded<'_> {
    fn equivalent(&self, key: &Literal) -> bool {
        self.0.eq_ignore_ascii_case(&key.0)
    }
}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Folded(&self.0).hash(state);
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Literal {}

impl fmt::Display for RouteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => {
                write!(out, "want METHOD /path, such as \"GET /orders/{{id}}\" or \"* /public/**\"")
            }
            Self::Method => write!(out, "want an HTTP method in upper case, such as GET, or * for any"),
            Self::Query => {
                write!(out, "a route is a path without query and fragment; leave off what follows ? or #")
            }
            Self::Parameter => {
                write!(out, "a parameter is a whole segment: {{name}} of letters, digits, _ and -")
            }
            Self::Asterisk => {
                write!(out, "write {{name}} for one segment; ** stands for the rest and comes last")
            }
            Self::Long => write!(out, "at most {SEGMENTS_MAX} segments; end with ** instead"),
        }
    }
}

#[cfg(test)]
mod tests;
