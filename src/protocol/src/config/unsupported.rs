//! What a configuration can say and this version can't decide: such a configuration is refused, never half obeyed.
//!
//! This is the only place that knows. Whoever makes one of these work deletes its line here.

/// Fields by what they are a field of, and words by the field whose value they are.
const UNSUPPORTED: [(&str, &str); 14] = [
    ("configuration", "rulesFrom"),
    ("configuration", "untilRules"),
    ("rule", "lease"),
    ("rule", "penalty"),
    ("rule", "preLimit"),
    ("rule", "regions"),
    ("cost", "header"),
    ("cost", "body"),
    ("cost", "responseHeader"),
    ("cost", "default"),
    ("cost", "max"),
    ("algorithm", "SLIDING_WINDOW"),
    ("algorithm", "CONCURRENCY"),
    ("failMode", "LOCAL"),
];

/// Whether this version can't decide it.
pub(super) fn contains(scope: &str, name: &str) -> bool {
    UNSUPPORTED.contains(&(scope, name))
}

/// Parameters of an algorithm that this version can't decide: refused by that algorithm's name, and not offered either.
const PARAMETERS: [&str; 2] = ["windowSeconds", "leaseSeconds"];

/// Whether messages offer it as what could be written: nothing that is refused then.
pub(super) fn is_offered(scope: &str, name: &str) -> bool {
    let refused = contains(scope, name) || (scope == "rule" && PARAMETERS.contains(&name));
    !refused
}
