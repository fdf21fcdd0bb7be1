//! `POST /v1/check`: one decision for whoever is not the filter, in JSON. `/v1/release` and `/v1/renew` take the same descriptors with the
//! slot that a check gave, `/v1/pardon` takes the descriptors alone.
//!
//! ```json
//! {"domain": "public-api", "descriptors": [{"api_key": "k_123", "plan": "gold"}, {"route": "POST /orders"}], "cost": 1}
//! {"decision": "DENY", "remaining": 0, "retryAfterMs": 200, "matchedRule": "gold-orders-create"}
//! ```

use crate::json::fault::{Fault, excerpt, near_miss};
use crate::json::spot::{Fields, Notes, Spot};
use crate::json::tree::Node;
use limits::address;
use limits::descriptor::{DESCRIPTORS_MAX, DescriptorId, Descriptors, Source};
use limits::path;
use limits::route::Routes;
use limits::ruleset::RuleSet;
use limits::token_bucket::CAPACITY_MAX;
use serde::Serialize;

/// The largest request, in bytes.
pub const BYTES_MAX: usize = 64 * 1024;

/// The most maps of descriptors.
const MAPS_MAX: usize = 16;
/// The longest value, in bytes.
const VALUE_BYTES_MAX: usize = 8 * 1024;
/// The most routes among which one is sought that was probably meant: whoever asks wrongly holds nobody else up.
const ROUTES_SOUGHT_MAX: usize = 1_000;

/// The length of a slot's name: base64url of 16 bytes.
const SLOT_CHARS: usize = 22;

/// Values by descriptor, each descriptor once. An empty value is as good as none.
pub type Values = Vec<(DescriptorId, String)>;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whom and what it is about.
    pub values: Values,
    /// Tokens, 0 to [`CAPACITY_MAX`]; without it each rule's own cost.
    pub cost: Option<u64>,
}

/// What is said of a slot that a check gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Those of the check.
    pub values: Values,
    /// The slot's name: 22 characters of base64url.
    pub slot: String,
}

/// Who is pardoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pardon {
    /// Those of the checks that were denied.
    pub values: Values,
}

/// What a pardon came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pardoned<'a> {
    /// The ids of the rules that had denials to forget.
    pub pardoned: Vec<&'a str>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer<'a> {
    /// Whether the request may go on.
    pub decision: Decision,
    /// Whole tokens left in the nearest rule's bucket, rounded down; null where no rule applies.
    pub remaining: Option<u64>,
    /// Milliseconds until the same request would pass; 0 when it does, null when it never will.
    pub retry_after_ms: Option<u64>,
    /// The nearest rule: when allowed the one with the least left, when denied the one with the longest wait. Null where none applies.
    pub matched_rule: Option<&'a str>,
    /// The slot that the request holds, to be named in `/v1/release`; where a rule limits what runs at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Milliseconds after which the slot is free again unless it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

/// Whether a request may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

// === impl Request ===

impl Request {
    /// Reads a request to the `rules` of `domain`.
    ///
    /// # Errors
    /// All its faults, by their paths. They quote names and routes, and no other value.
    pub fn parse(json: &[u8], domain: &str, rules: &RuleSet) -> Result<Self, Vec<Fault>> {
        let cost = |fields: &Fields<'_>| match fields.get("cost") {
            None => Some(None),
            Some(spot) => spot.whole(0..=CAPACITY_MAX, "").map(Some),
        };
        let (values, cost) = read(json, domain, rules, &["domain", "descriptors", "cost"], cost)?;
        Ok(Self { values, cost })
    }
}

// === impl Holding ===

impl Holding {
    /// Reads what is said of a slot, to the `rules` of `domain`.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub fn parse(json: &[u8], domain: &str, rules: &RuleSet) -> Result<Self, Vec<Fault>> {
        let (values, slot) = read(json, domain, rules, &["domain", "descriptors", "slot"], slot)?;
        Ok(Self { values, slot })
    }
}

// === impl Pardon ===

impl Pardon {
    /// Reads who is pardoned, to the `rules` of `domain`.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub fn parse(json: &[u8], domain: &str, rules: &RuleSet) -> Result<Self, Vec<Fault>> {
        let (values, ()) = read(json, domain, rules, &["domain", "descriptors"], |_| Some(()))?;
        Ok(Self { values })
    }
}

// === impl Pardoned ===

impl Pardoned<'_> {
    /// The JSON body; empty only if it could not be written, which nothing can cause.
    #[must_use]
    pub fn to_body(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

// === impl Answer ===

impl Answer<'_> {
    /// The JSON body; empty only if it could not be written, which nothing can cause.
    #[must_use]
    pub fn to_body(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Reads an object of these fields: its descriptors, and what `rest` makes of the others.
fn read<T>(
    json: &[u8],
    domain: &str,
    rules: &RuleSet,
    fields: &[&str],
    rest: impl FnOnce(&Fields<'_>) -> Option<T>,
) -> Result<(Values, T), Vec<Fault>> {
    let whole = |message: String| vec![Fault { path: "$".to_owned(), message }];
    if json.len() > BYTES_MAX {
        return Err(whole(format!("is {} bytes long, at most {BYTES_MAX} are allowed", json.len())));
    }
    let node = Node::parse(json).map_err(whole)?;
    let notes = Notes::new(|_, _| false, |_, _| true);
    let spot = Spot::root(&node, &notes);
    let read = spot.fields("check", fields).and_then(|fields| {
        check_domain(&fields, domain);
        let rest = rest(&fields);
        values(&fields, rules).zip(rest)
    });
    let (faults, _) = notes.into_parts();
    read.filter(|_| faults.is_empty()).ok_or(faults)
}

fn check_domain(fields: &Fields<'_>, domain: &str) {
    if let Some(spot) = fields.get("domain")
        && spot.text(VALUE_BYTES_MAX).is_some_and(|asked| asked != domain)
    {
        spot.fault(format_args!("no such domain; the rules are those of \"{domain}\""));
    }
}

fn values(fields: &Fields<'_>, rules: &RuleSet) -> Option<Values> {
    let maps = fields.need("descriptors", ", want a list of objects")?;
    let mut values = Vec::new();
    maps.each(maps.list(MAPS_MAX)?, |_, map| {
        let Some(entries) = map.entries(DESCRIPTORS_MAX) else { return };
        for (name, spot) in entries.iter() {
            if let (Some(id), Some(value)) = (descriptor(name, &spot, rules.descriptors()), value(&spot))
                && means_something(id, value, &spot, rules)
            {
                add(&mut values, id, value, &spot);
            }
        }
    });
    Some(values)
}

fn slot(fields: &Fields<'_>) -> Option<String> {
    let spot = fields.need("slot", ", want the one that /v1/check answered")?;
    let text = spot.text(VALUE_BYTES_MAX)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if text.len() != SLOT_CHARS || !text.bytes().all(plain) {
        spot.fault("is no slot, want the one that /v1/check answered");
        return None;
    }
    Some(text.to_owned())
}

fn descriptor(name: &str, spot: &Spot<'_>, known: &Descriptors) -> Option<DescriptorId> {
    let found = known.find(name);
    if found.is_none() {
        let names = known.iter().map(|(_, descriptor)| &*descriptor.name);
        let meant =
            near_miss(name, names).map_or_else(String::new, |meant| format!("; did you mean \"{meant}\"?"));
        spot.fault(format_args!("no descriptor is named \"{}\"{meant}", excerpt(name)));
    }
    found
}

/// A value. It is not repeated in a fault, since it may be a secret.
fn value<'t>(spot: &Spot<'t>) -> Option<&'t str> {
    let Node::Text(text) = spot.node else {
        spot.want("a text");
        return None;
    };
    if text.len() > VALUE_BYTES_MAX {
        spot.fault(format_args!("is {} bytes long, at most {VALUE_BYTES_MAX} are allowed", text.len()));
    } else if text.contains(char::is_control) {
        spot.fault("has a control character, which no request can have");
    } else {
        return Some(text);
    }
    None
}

/// Whether a request could have the value: a client's address is one, and a request's route is a template of the configuration. What is
/// neither would be asked of a bucket that nobody else has, or of no rule.
fn means_something(id: DescriptorId, value: &str, spot: &Spot<'_>, rules: &RuleSet) -> bool {
    let value = value.trim_ascii();
    match rules.descriptors().get(id).map(|descriptor| &descriptor.source) {
        _ if value.is_empty() => true,
        Some(Source::Ip) if address::parse(value.as_bytes()).is_none() => {
            spot.fault("is no address, want one such as 203.0.113.7 or 2001:db8::1");
            false
        }
        Some(Source::Route) if rules.routes().spelling(value.as_bytes()).is_none() => {
            let meant = meant_route(value, rules.routes())
                .map_or_else(String::new, |meant| format!("; did you mean \"{}\"?", excerpt(meant)));
            spot.fault(format_args!(
                "\"{}\" is no route of the configuration; give \"method\" and \"path\" instead, or one of its routes as written there{meant}",
                excerpt(value)
            ));
            false
        }
        _ => true,
    }
}

/// The route that a request of this method and path takes, or one that is written much like it.
fn meant_route<'r>(written: &str, routes: &'r Routes) -> Option<&'r str> {
    let (method, path) = written.split_once(' ').unwrap_or(("", written));
    let taken = routes.find(method.as_bytes(), &path::normalise(path.as_bytes()));
    let texts = || (0..routes.len().min(ROUTES_SOUGHT_MAX)).filter_map(|index| routes.text(index));
    taken.and_then(|index| routes.text(index)).or_else(|| near_miss(written, texts()))
}

/// The maps are read as one set: the same value twice is one, two values are a conflict.
fn add(values: &mut Vec<(DescriptorId, String)>, id: DescriptorId, value: &str, spot: &Spot<'_>) {
    match values.iter().find(|(known, _)| *known == id) {
        None => values.push((id, value.to_owned())),
        Some((_, known)) if known == value => {}
        Some(_) => spot.fault("has another value in an earlier object; say which is meant"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> RuleSet {
        let mut known = Descriptors::built_in();
        let source = Source::Header("x-api-key".into());
        known.define(limits::descriptor::Descriptor { name: "api_key".into(), source, secret: true });
        let routes = ["POST /orders", "* /sw1", "GET /orders/{id}"];
        let routes = routes.map(|text| limits::route::Route::parse(text).unwrap());
        RuleSet::new(known, Routes::new(routes.into()), Vec::new())
    }

    fn parse(json: &str) -> Result<Request, Vec<String>> {
        Request::parse(json.as_bytes(), "public-api", &known())
            .map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_maps_are_read_as_one_set() {
        let request = parse(
            r#"{"domain": "public-api", "cost": 2, "descriptors": [{"api_key": "k_123", "route": "POST /orders"}, {"api_key": "k_123", "ip": ""}]}"#,
        )
        .unwrap();
        let known = known();
        let id = |name| known.descriptors().find(name).unwrap();
        let values = [(id("api_key"), "k_123"), (id("route"), "POST /orders"), (id("ip"), "")];
        assert_eq!(request.values, values.map(|(id, value)| (id, value.to_owned())));
        assert_eq!(request.cost, Some(2));
        assert_eq!(parse(r#"{"descriptors": []}"#), Ok(Request { values: vec![], cost: None }));
    }

    #[test]
    fn every_fault_is_listed_and_no_value_is_repeated() {
        let faults = parse(
            r#"{"domain": "other", "cost": -1, "costs": 1,
                "descriptors": [{"api_key": "k_123", "apikey": "k_9"}, {"api_key": "k_124", "ip": 7, "path": "/a\u0000"}, 1]}"#,
        )
        .unwrap_err();
        assert_eq!(
            faults,
            [
                "$.costs: unknown field; did you mean \"cost\"?",
                "$.domain: no such domain; the rules are those of \"public-api\"",
                "$.cost: -1 is out of range, want 0 to 1000000000",
                "$.descriptors[0].apikey: no descriptor is named \"apikey\"; did you mean \"api_key\"?",
                "$.descriptors[1].api_key: has another value in an earlier object; say which is meant",
                "$.descriptors[1].ip: want a text, not a number",
                "$.descriptors[1].path: has a control character, which no request can have",
                "$.descriptors[2]: want an object, not a number",
            ]
        );
        assert_eq!(parse("{}"), Err(vec!["$.descriptors: is missing, want a list of objects".to_owned()]));
        assert_eq!(
            parse(&" ".repeat(65_537)),
            Err(vec!["$: is 65537 bytes long, at most 65536 are allowed".to_owned()])
        );
    }

    #[test]
    fn a_route_is_one_of_the_configuration_and_an_address_is_one() {
        let said = |name: &str, value: &str| {
            parse(&serde_json::json!({ "descriptors": [{ name: value }] }).to_string()).map(|_| ())
        };
        for (route, meant) in [
            ("POST /ordres", "; did you mean \"POST /orders\"?"),
            ("GET /sw1", "; did you mean \"* /sw1\"?"),
            ("GET /orders/7?x=1", "; did you mean \"GET /orders/{id}\"?"),
            ("/sw1", "; did you mean \"* /sw1\"?"),
            ("DELETE /nothing/like/it", ""),
        ] {
            let fault = format!(
                "$.descriptors[0].route: \"{route}\" is no route of the configuration; give \"method\" and \"path\" instead, or one of its routes as written there{meant}"
            );
            assert_eq!(said("route", route), Err(vec![fault]));
        }
        for route in ["POST /orders", " GET /orders/{other} ", "* /SW1", ""] {
            assert_eq!(said("route", route), Ok(()), "{route}");
        }
        for address in ["banana", "010.1.2.3", "1.2.3", "10.0.0.0/8", "1.2.3.4, 5.6.7.8"] {
            let fault = "$.descriptors[0].ip: is no address, want one such as 203.0.113.7 or 2001:db8::1";
            assert_eq!(said("ip", address), Err(vec![fault.to_owned()]), "{address}");
        }
        for address in ["10.1.2.3", "10.1.2.3:80", "[::1]", "::1", ""] {
            assert_eq!(said("ip", address), Ok(()), "{address}");
        }
    }

    #[test]
    fn answers_have_the_documented_form() {
        let denied = Answer {
            decision: Decision::Deny,
            remaining: Some(0),
            retry_after_ms: Some(200),
            matched_rule: Some("r"),
            slot: None,
            lease_ms: None,
        };
        assert_eq!(
            denied.to_body(),
            r#"{"decision":"DENY","remaining":0,"retryAfterMs":200,"matchedRule":"r"}"#
        );
        let free = Answer {
            decision: Decision::Allow,
            remaining: None,
            retry_after_ms: Some(0),
            matched_rule: None,
            slot: Some("AAECAwQFBgcICQoLDA0ODw".to_owned()),
            lease_ms: Some(10_000),
        };
        assert_eq!(
            free.to_body(),
            r#"{"decision":"ALLOW","remaining":null,"retryAfterMs":0,"matchedRule":null,"slot":"AAECAwQFBgcICQoLDA0ODw","leaseMs":10000}"#
        );
    }

    #[test]
    fn a_slot_is_named_as_it_was_answered() {
        let said = |json: &str| {
            Holding::parse(json.as_bytes(), "public-api", &known())
                .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let slot = "AAECAwQFBgcICQoLDA0ODw";
        let holding =
            said(&format!(r#"{{"descriptors": [{{"ip": "1.2.3.4"}}], "slot": "{slot}"}}"#)).unwrap();
        assert_eq!((holding.values.len(), &*holding.slot), (1, slot));
        for (json, fault) in [
            (r#"{"descriptors": []}"#, "$.slot: is missing, want the one that /v1/check answered"),
            (
                r#"{"descriptors": [], "slot": "AAEC"}"#,
                "$.slot: is no slot, want the one that /v1/check answered",
            ),
            (
                r#"{"descriptors": [], "slot": "AAECAwQFBgcICQoLDA0O=="}"#,
                "$.slot: is no slot, want the one that /v1/check answered",
            ),
            (r#"{"descriptors": [], "slot": 7}"#, "$.slot: want a text, not a number"),
            (r#"{"slot": "AAECAwQFBgcICQoLDA0ODw"}"#, "$.descriptors: is missing, want a list of objects"),
        ] {
            assert_eq!(said(json), Err(vec![fault.to_owned()]), "{json}");
        }
        let cost = Pardon::parse(br#"{"descriptors": [], "cost": 1}"#, "public-api", &known()).unwrap_err();
        assert_eq!(cost[0].to_string(), r#"$.cost: unknown field, want one of "domain", "descriptors""#);
        assert_eq!(Pardoned { pardoned: vec!["a"] }.to_body(), r#"{"pardoned":["a"]}"#);
    }
}
