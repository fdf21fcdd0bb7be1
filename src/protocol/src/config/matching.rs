//! `match` and `key`: what a rule looks at.

use super::rule::Scope;
use super::text;
use crate::json::fault::{excerpt, near_miss};
use crate::json::spot::Spot;
use crate::json::tree::Node;
use limits::address::{self, Cidr, CidrError};
use limits::descriptor::{DescriptorId, Descriptors, Source};
use limits::path;
use limits::rule::{Condition, PARTS_MAX, Test};

/// The longest value of a condition, in bytes.
const VALUE_BYTES_MAX: usize = 1_024;
/// The most values of one condition.
const VALUES_MAX: usize = 1_000;

/// Reads a rule's `match`; missing, the rule applies to every request.
pub(super) fn conditions(spot: Option<Spot<'_>>, scope: &mut Scope) -> Vec<Condition> {
    let mut conditions = Vec::new();
    let Some(spot) = spot else { return conditions };
    let Some(entries) = spot.entries(PARTS_MAX) else { return conditions };
    for (name, spot) in entries.iter() {
        let Some(descriptor) = find(name, &spot, scope) else { continue };
        if let Some(claim) = scope.descriptors.claims.get(&descriptor) {
            spot.warn(format_args!(
                "trusts what the client says: anybody can send {claim}; authenticate it before this filter, then say \
                 \"authenticated\": true of the descriptor"
            ));
        }
        let spot = if is_secret(descriptor, scope) { spot.as_secret() } else { spot };
        if let Some(test) = test(&spot, descriptor, scope) {
            conditions.push(Condition { descriptor, test });
        }
    }
    conditions
}

/// Reads a rule's `key`; missing, it is the client.
pub(super) fn key(spot: Option<Spot<'_>>, scope: &Scope) -> Vec<DescriptorId> {
    let mut key = Vec::new();
    let Some(spot) = spot else {
        key.extend(scope.descriptors.all.find("client"));
        return key;
    };
    let Some(items) = spot.list(PARTS_MAX) else { return key };
    spot.each(items, |_, spot| {
        let name = spot.text(VALUE_BYTES_MAX);
        match name.and_then(|name| find(name, spot, scope)) {
            Some(id) if key.contains(&id) => spot.fault("is there twice; keep one"),
            Some(id) => key.push(id),
            None => {}
        }
    });
    key
}

/// Whether values are secrets, `client` being whatever it stands for. Faults reach Envoy's log.
fn is_secret(descriptor: DescriptorId, scope: &Scope) -> bool {
    let all = &scope.descriptors.all;
    let secret = |id| all.get(id).is_some_and(|descriptor| descriptor.secret);
    secret(descriptor) || (descriptor == Descriptors::CLIENT && all.client_kinds().any(secret))
}

/// The descriptor of that name, or a fault at `spot`.
fn find(name: &str, spot: &Spot<'_>, scope: &Scope) -> Option<DescriptorId> {
    let found = scope.descriptors.all.find(name);
    if found.is_none() {
        let known = scope.descriptors.all.iter().map(|(_, descriptor)| &*descriptor.name);
        let remedy = match near_miss(name, known) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "define it in $.descriptors".to_owned(),
        };
        spot.fault(format_args!("no descriptor is named \"{}\"; {remedy}", excerpt(name)));
    }
    found
}

fn test(spot: &Spot<'_>, descriptor: DescriptorId, scope: &mut Scope) -> Option<Test> {
    let source = scope.descriptors.all.get(descriptor)?.source.clone();
    match spot.node {
        Node::Null => Some(Test::Absent),
        Node::Text(_) => Some(Test::OneOf(vec![value(spot, &source, scope)?])),
        Node::List(_) => one_of(spot, &source, scope),
        Node::Object(_) => {
            let fields = spot.fields("test", &["prefix", "cidr"])?;
            match (fields.get("prefix"), fields.get("cidr")) {
                (Some(prefix), None) => self::prefix(&prefix, &source),
                (None, Some(cidr)) => self::cidr(&cidr, &source),
                _ => {
                    spot.fault("want exactly one of \"prefix\", \"cidr\"");
                    None
                }
            }
        }
        Node::Bool(_) | Node::Number(_) => {
            spot.want("a text, a list of texts, {\"prefix\": …}, {\"cidr\": …} or null");
            None
        }
    }
}

fn one_of(spot: &Spot<'_>, source: &Source, scope: &mut Scope) -> Option<Test> {
    let items = spot.list(VALUES_MAX)?;
    let mut values = Vec::with_capacity(items.len());
    if items.is_empty() {
        spot.fault("is empty, so that the rule would never apply");
    }
    spot.each(items, |_, item| match value(item, source, scope) {
        Some(value) if values.contains(&value) => item.fault("is there twice; keep one"),
        Some(value) => values.push(value),
        None => {}
    });
    (values.len() == items.len()).then_some(Test::OneOf(values))
}

/// A value in the form in which the descriptor's values come.
fn value(spot: &Spot<'_>, source: &Source, scope: &mut Scope) -> Option<Box<[u8]>> {
    if *source == Source::Route {
        return scope.routes.add(spot).map(|route| route.into_bytes().into());
    }
    let text = spot.text(VALUE_BYTES_MAX)?;
    let form = match source {
        Source::Method => text::is_method(spot, text).then(|| text.to_owned())?,
        Source::Host => text.to_ascii_lowercase(),
        Source::Ip => ip(spot, text)?,
        Source::Path => normal_path(spot, text)?,
        _ if text.trim() != text => {
            let shown = spot.quote(text);
            spot.fault(format_args!("{shown} begins or ends with a space, which no value does"));
            return None;
        }
        _ => text.to_owned(),
    };
    Some(form.into_bytes().into())
}

/// An address as it is compared; IPv6 values are known by their /64 only, so a single address has to be a block.
fn ip(spot: &Spot<'_>, text: &str) -> Option<String> {
    match address::parse(text.as_bytes()) {
        Some(std::net::IpAddr::V4(address)) => return Some(address.to_string()),
        Some(address) => spot.fault(format_args!("say {{\"cidr\": \"{address}/128\"}}")),
        None => {
            spot.fault(format_args!("\"{}\" is no address; for a block say {{\"cidr\": …}}", excerpt(text)))
        }
    }
    None
}

/// A path as requests are compared with it: one that is spelt otherwise would never match.
fn normal_path(spot: &Spot<'_>, text: &str) -> Option<String> {
    if !text.starts_with('/') {
        spot.fault(format_args!("\"{}\" is no path: want a / first", excerpt(text)));
        return None;
    }
    let normal = path::normalise(text.as_bytes());
    if *normal == *text.as_bytes() {
        return Some(text.to_owned());
    }
    let normal = String::from_utf8_lossy(&normal);
    spot.fault(format_args!(
        "\"{}\" never matches, since paths are normalised first: say \"{}\"",
        excerpt(text),
        excerpt(&normal)
    ));
    None
}

fn prefix(spot: &Spot<'_>, source: &Source) -> Option<Test> {
    let text = spot.text(VALUE_BYTES_MAX)?;
    let remedy = match source {
        Source::Ip => "an address has no prefix but a block: say {\"cidr\": …}",
        Source::Route | Source::Method => "it is known by whole names only: list them",
        Source::Path if !text.starts_with('/') => "a path begins with /",
        Source::Path if text.contains(['?', '#']) => "a path is compared without query and fragment",
        Source::Host => return Some(Test::Prefix(text.to_ascii_lowercase().into_bytes().into())),
        _ => return Some(Test::Prefix(text.as_bytes().into())),
    };
    spot.fault(remedy);
    None
}

fn cidr(spot: &Spot<'_>, source: &Source) -> Option<Test> {
    if matches!(source, Source::Method | Source::Path | Source::Route | Source::EnvoyRoute) {
        spot.fault("is never an address");
        return None;
    }
    block(spot).map(Test::Cidr)
}

/// A block of addresses.
pub(super) fn block(spot: &Spot<'_>) -> Option<Cidr> {
    let text = spot.text(VALUE_BYTES_MAX)?;
    match Cidr::parse(text) {
        Ok(block) => Some(block),
        Err(error) => {
            let shown = spot.quote(text);
            match error {
                // It would tell the right block, which is most of what was written.
                CidrError::Loose(_) if spot.is_secret() => {
                    spot.fault(format_args!("{shown} has bits beyond the block"));
                }
                _ => spot.fault(format_args!("{shown} is no address block: {error}")),
            }
            None
        }
    }
}
