//! What a configuration can say and this version can't decide: such a configuration is refused, never half obeyed.
//!
//! This is the only place that knows. Whoever makes one of these work deletes its line here.

/// Fields by what they are a field of, and words by the field whose value they are.
const UNSUPPORTED: [(&str, &str); 18] = [
    ("configuration", "rulesFrom"),
    ("configuration", "untilRules"),
    ("configuration", "exemptions"),
    ("descriptor", "metadata"),
    ("descriptor", "query"),
    ("descriptor", "cookie"),
    ("rule", "lease"),
    ("rule", "penalty"),
    ("rule", "group"),
    ("rule", "priority"),
    ("rule", "preLimit"),
    ("rule", "regions"),
    ("cost", "header"),
    ("cost", "body"),
    ("cost", "responseHeader"),
    ("algorithm", "SLIDING_WINDOW"),
    ("algorithm", "CONCURRENCY"),
    ("failMode", "LOCAL"),
];

/// Whether this version can't decide it.
pub(super) fn contains(scope: &str, name: &str) -> bool {
    UNSUPPORTED.contains(&(scope, name))
}
