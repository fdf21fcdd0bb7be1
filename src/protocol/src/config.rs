//! The plugin configuration: rules, and what the filter needs to apply them.
//!
//! Reading is strict, since people write it: every fault is listed by its JSON path, and nothing of a faulty configuration
//! applies. What the model has and this version can't decide is refused too (see `config/unsupported.rs`).

mod cost;
mod descriptors;
mod exemptions;
mod extras;
mod limit;
mod matching;
mod penalty;
mod routes;
mod rule;
mod text;
mod unsupported;

pub use crate::json::fault::Fault;
pub use exemptions::PREFLIGHT_ID;

use crate::json::fault::excerpt;

use crate::json::spot::{Fields, Notes, Spot};
use crate::json::tree::Node;
use hashbrown::HashMap;
use limits::rule::RULES_MAX;
use limits::ruleset::RuleSet;
use routes::RouteTable;
use rule::{Parsed, Scope};
use sha2::{Digest, Sha256};

/// The largest configuration, in bytes.
pub const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The domain of a configuration that names none.
pub const DOMAIN_DEFAULT: &str = "default";
/// The sidecar's cluster of a configuration that names none.
pub const CLUSTER_DEFAULT: &str = "kota";
/// Milliseconds that a check may take, unless the configuration says otherwise.
pub const DEADLINE_MS_DEFAULT: u32 = 5;
/// The shortest deadline, in milliseconds: of less than 1 ms Envoy makes no timeout at all, so that what arrives with 1 ms to live can't
/// be asked any more.
pub const DEADLINE_MS_MIN: u32 = 2;
/// The longest deadline, in milliseconds.
pub const DEADLINE_MS_MAX: u32 = 60_000;
/// The problem type of a denial, unless the configuration says otherwise.
pub const PROBLEM_TYPE_DEFAULT: &str = crate::problem::QUOTA_EXCEEDED;
/// The most pods that share a limit.
pub const PODS_MAX: u32 = 100_000;

/// The longest cluster name and problem type, in bytes.
const NAME_BYTES_MAX: usize = 256;

const FIELDS: [&str; 12] = [
    "domain",
    "sidecar",
    "descriptors",
    "routes",
    "headers",
    "pods",
    "problemType",
    "exemptions",
    "corsPreflight",
    "rules",
    "rulesFrom",
    "untilRules",
];

/// A configuration without faults.
#[derive(Debug)]
pub struct Config {
    /// The first part of every key: `[A-Za-z0-9._-]{1,64}`.
    pub domain: String,
    /// Names this text of the configuration: 16 hexadecimal digits of its SHA-256.
    pub version: String,
    /// Where checks go.
    pub sidecar: Sidecar,
    /// Which header fields answers carry.
    pub headers: Headers,
    /// The `type` of a denial's problem details.
    pub problem_type: String,
    /// How many pods share the limits, at least 1.
    pub pods: u32,
    /// What `ip` is: Envoy's own `source.address`, or, if given, the address that so many trusted proxies in front tell by
    /// `x-forwarded-for`, exactly as Envoy's `xff_num_trusted_hops` with `use_remote_address`: counted from the right, 0 being
    /// the peer itself.
    pub trusted_hops: Option<u8>,
    /// The rules with their descriptors and routes; DISABLED ones are left out.
    pub rules: RuleSet,
    /// How many rules are DISABLED.
    pub disabled: usize,
    warnings: Vec<Fault>,
}

/// Where checks go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The Envoy cluster of the sidecar.
    pub cluster: String,
    /// Milliseconds that a check may take, [`DEADLINE_MS_MIN`] to [`DEADLINE_MS_MAX`].
    pub deadline_ms: u32,
}

/// Which header fields answers carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The names within `RateLimit`.
    pub dialect: Dialect,
    /// Whether `X-RateLimit-*` are sent too.
    pub legacy: bool,
}

/// A version of draft-ietf-httpapi-ratelimit-headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `r` and `t`.
    Draft11,
    /// `a` and `w`.
    Draft12,
}

// === impl Config ===

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// All its faults, in the order of reading.
    pub fn parse(json: &[u8]) -> Result<Self, Vec<Fault>> {
        let whole = |message: String| vec![Fault { path: "$".to_owned(), message }];
        if json.len() > BYTES_MAX {
            return Err(whole(format!("is {} bytes long, at most {BYTES_MAX} are allowed", json.len())));
        }
        let node = Node::parse(json).map_err(whole)?;
        let notes = Notes::new(unsupported::contains, unsupported::is_offered);
        let config = read(&Spot::root(&node, &notes), version(json));
        let (faults, warnings) = notes.into_parts();
        match config {
            Some(config) if faults.is_empty() => Ok(Self { warnings, ..config }),
            _ => Err(faults),
        }
    }

    /// What is legal and probably unwise.
    #[must_use]
    pub fn warnings(&self) -> &[Fault] {
        &self.warnings
    }
}

fn version(json: &[u8]) -> String {
    Sha256::digest(json).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Reads everything there is; what it gives is of use only if nothing was noted as a fault.
fn read(spot: &Spot<'_>, version: String) -> Option<Config> {
    let fields = spot.fields("configuration", &FIELDS)?;
    let domain =
        fields.get("domain").and_then(|spot| text::domain(&spot)).unwrap_or(DOMAIN_DEFAULT).to_owned();
    let sidecar = sidecar(&fields);
    let headers = headers(&fields);
    let problem_type = problem_type(&fields);
    let pods = fields.get("pods").and_then(|spot| spot.small(1..=PODS_MAX, "")).unwrap_or(1);
    let exemptions = exemptions::read(fields.get("exemptions"));
    let descriptors = descriptors::read(fields.get("descriptors"));
    let trusted_hops = descriptors.trusted_hops;
    let routes = RouteTable::read(fields.get("routes"));
    let mut scope = Scope { domain, descriptors, routes, ids: HashMap::new(), groups: HashMap::new() };
    let (rules, disabled) = rules(&fields, &mut scope);
    let preflight = exemptions::preflight(&fields, &rules);
    let rules = RuleSet::new(scope.descriptors.all, scope.routes.into_routes(), rules).exempting(exemptions);
    Some(Config {
        domain: scope.domain,
        version,
        sidecar,
        headers,
        problem_type,
        pods,
        trusted_hops,
        rules: match preflight {
            Some(rule) => rules.with_preflights(rule),
            None => rules,
        },
        disabled,
        warnings: Vec::new(),
    })
}

/// The active rules, and how many are DISABLED.
fn rules(fields: &Fields<'_>, scope: &mut Scope) -> (Vec<limits::rule::Rule>, usize) {
    let (mut active, mut disabled) = (Vec::new(), 0usize);
    let live = fields.get("rulesFrom").map(|spot| spot.word("rulesFrom", &[("sidecar", ())]));
    if let Some(spot) = fields.get("untilRules") {
        spot.word("untilRules", &[("OPEN", ()), ("CLOSED", ())]);
    }
    match (fields.get("rules"), live) {
        (None, None) => fields.fault("rules", "is missing, want a list"),
        (Some(_), Some(_)) => fields.fault("rulesFrom", "excludes \"rules\"; keep one"),
        _ => {}
    }
    if let Some(spot) = fields.get("rules")
        && let Some(items) = spot.list(RULES_MAX)
    {
        spot.each(items, |index, spot| match rule::read(spot, index, scope) {
            Some(Parsed::Active(rule)) => active.push(*rule),
            Some(Parsed::Disabled) => disabled = disabled.saturating_add(1),
            None => {}
        });
        spot.each(items, |_, spot| rule::warn_of_lone_group(spot, scope));
    }
    (active, disabled)
}

fn sidecar(fields: &Fields<'_>) -> Sidecar {
    let mut sidecar = Sidecar { cluster: CLUSTER_DEFAULT.to_owned(), deadline_ms: DEADLINE_MS_DEFAULT };
    if let Some(spot) = fields.get("sidecar")
        && let Some(fields) = spot.fields("sidecar", &["cluster", "deadlineMs"])
    {
        if let Some(cluster) = fields.get("cluster").and_then(|spot| spot.text(NAME_BYTES_MAX)) {
            sidecar.cluster = cluster.to_owned();
        }
        if let Some(deadline) =
            fields.get("deadlineMs").and_then(|spot| spot.small(DEADLINE_MS_MIN..=DEADLINE_MS_MAX, ""))
        {
            sidecar.deadline_ms = deadline;
        }
    }
    sidecar
}

fn headers(fields: &Fields<'_>) -> Headers {
    let mut headers = Headers { dialect: Dialect::Draft11, legacy: true };
    if let Some(spot) = fields.get("headers")
        && let Some(fields) = spot.fields("headers", &["dialect", "legacy"])
    {
        let words = [("draft-11", Dialect::Draft11), ("draft-12", Dialect::Draft12)];
        if let Some(dialect) = fields.get("dialect").and_then(|spot| spot.word("dialect", &words)) {
            headers.dialect = dialect;
        }
        if let Some(legacy) = fields.get("legacy").and_then(|spot| spot.flag()) {
            headers.legacy = legacy;
        }
    }
    headers
}

fn problem_type(fields: &Fields<'_>) -> String {
    let Some(spot) = fields.get("problemType") else { return PROBLEM_TYPE_DEFAULT.to_owned() };
    let uri = spot.text(NAME_BYTES_MAX).unwrap_or_default();
    if !uri.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte)) {
        spot.fault(format_args!("\"{}\" is no URI reference", excerpt(uri)));
    }
    uri.to_owned()
}
