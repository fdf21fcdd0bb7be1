//! `descriptors`: what a configuration adds to the built-in ones.

use super::text;
use crate::json::fault::excerpt;
use crate::json::spot::{Fields, Spot};
use crate::name;
use hashbrown::HashMap;
use limits::descriptor::{DESCRIPTORS_MAX, Descriptor, DescriptorId, Descriptors, Source};

/// The most proxies in front that may be trusted to have told the client's address.
const TRUSTED_HOPS_MAX: u64 = 32;
/// The longest segment of a metadata path, name of a query parameter or of a cookie, in bytes.
const NAME_MAX: usize = 128;
/// The most segments of a metadata path.
const SEGMENTS_MAX: usize = 8;

/// What a descriptor needs.
const ONE_SOURCE: &str = "want exactly one source: {\"header\": NAME}, {\"metadata\": [FILTER, KEY, …]}, {\"query\": NAME} or {\"cookie\": NAME}";

/// What `descriptors` says.
pub(super) struct Defined {
    pub(super) all: Descriptors,
    /// What nobody vouches for, and where the client says it.
    pub(super) claims: HashMap<DescriptorId, String>,
    pub(super) trusted_hops: Option<u8>,
}

/// Where a defined descriptor's value comes from.
struct Origin {
    source: Source,
    /// Where the client says it, if the client says it.
    claim: Option<String>,
}

/// Reads `descriptors`, which may be missing.
pub(super) fn read(spot: Option<Spot<'_>>) -> Defined {
    let mut defined = Defined { all: Descriptors::built_in(), claims: HashMap::new(), trusted_hops: None };
    let Some(spot) = spot else { return defined };
    let most = DESCRIPTORS_MAX.saturating_sub(Descriptors::BUILT_IN.len()).saturating_add(1);
    let Some(entries) = spot.entries(most) else { return defined };
    for (name, spot) in entries.iter() {
        if name == "ip" {
            defined.trusted_hops = trusted_hops(&spot);
        } else if Descriptors::BUILT_IN.iter().any(|(built_in, _)| *built_in == name) {
            spot.fault("is built in and can't be defined anew; choose another name");
        } else if name::is_descriptor(name) {
            define(&mut defined, name, &spot);
        } else {
            spot.fault(format_args!(
                "\"{}\" is no descriptor's name: want at most 32 lower-case letters, digits and _, a letter first",
                excerpt(name)
            ));
        }
    }
    for feeder in ["user", "api_key"] {
        let claim = defined.all.find(feeder).and_then(|id| defined.claims.get(&id)).cloned();
        if let (Some(claim), Some(client)) = (claim, defined.all.find("client")) {
            defined.claims.insert(client, claim);
        }
    }
    defined
}

fn trusted_hops(spot: &Spot<'_>) -> Option<u8> {
    let hops = spot.fields("ip", &["trustedHops"])?.need("trustedHops", "")?;
    u8::try_from(hops.whole(0..=TRUSTED_HOPS_MAX, "")?).ok()
}

fn define(defined: &mut Defined, name: &str, spot: &Spot<'_>) {
    let Some(fields) =
        spot.fields("descriptor", &["header", "metadata", "query", "cookie", "secret", "authenticated"])
    else {
        return;
    };
    // One that is not clearly none is taken for a secret, of which no fault repeats anything.
    let secret = fields.get("secret").is_some_and(|spot| spot.flag().unwrap_or(true));
    let authenticated = fields.get("authenticated").and_then(|spot| spot.flag()).unwrap_or(false);
    let origin = origin(&fields, spot);
    // A faulty one is defined all the same, so that the rules that use it are not called faulty too.
    let source = origin.as_ref().map_or(Source::Header("".into()), |origin| origin.source.clone());
    let id = defined.all.define(Descriptor { name: name.into(), source, secret });
    let claim = origin.and_then(|origin| origin.claim).filter(|_| !authenticated);
    match (id, claim) {
        (Some(id), Some(claim)) => {
            defined.claims.insert(id, claim);
        }
        (Some(_), None) => {}
        (None, _) => {
            spot.fault(format_args!("at most {DESCRIPTORS_MAX} descriptors, built-in ones included"))
        }
    }
}

/// The one source of a descriptor.
fn origin(fields: &Fields<'_>, spot: &Spot<'_>) -> Option<Origin> {
    let header = fields.get("header").map(|spot| {
        let name = text::header_name(&spot)?;
        Some(Origin { claim: Some(format!("the header {name}")), source: Source::Header(name) })
    });
    // What a filter has put there is taken for verified; that is what `jwt_authn` does.
    let metadata = fields
        .get("metadata")
        .map(|spot| metadata(&spot).map(|path| Origin { source: Source::Metadata(path), claim: None }));
    let query = fields.get("query").map(|spot| {
        let name = spot.text(NAME_MAX)?;
        let claim = Some(format!("the query parameter {}", excerpt(name)));
        Some(Origin { source: Source::Query(name.into()), claim })
    });
    let cookie = fields.get("cookie").map(|spot| {
        let name = text::cookie_name(&spot)?;
        Some(Origin { claim: Some(format!("the cookie {name}")), source: Source::Cookie(name) })
    });
    let mut given = [header, metadata, query, cookie].into_iter().flatten();
    let first = given.next();
    if first.is_none() || given.next().is_some() {
        spot.fault(ONE_SOURCE);
    }
    first.flatten()
}

/// The name of the filter that wrote it, and the keys below.
fn metadata(spot: &Spot<'_>) -> Option<Box<[Box<str>]>> {
    let items = spot.list(SEGMENTS_MAX)?;
    if items.len() < 2 {
        spot.fault("want a filter's name and at least one key");
    }
    let mut path = Vec::with_capacity(items.len());
    spot.each(items, |_, segment| path.extend(segment.text(NAME_MAX).map(Box::from)));
    Some(path.into())
}
