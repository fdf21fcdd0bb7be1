//! What a configuration can say and this version can't decide: such a configuration is refused, never half obeyed.
//!
//! This is the only place that knows. Whoever makes one of these work deletes its line here.

/// Fields by what they are a field of, and words by the field whose value they are.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("configuration", "rulesFrom"),
    ("configuration", "untilRules"),
    ("rule", "lease"),
    ("rule", "preLimit"),
    ("rule", "regions"),
    ("failMode", "LOCAL"),
];

/// Whether this version can't decide it.
pub(super) fn contains(scope: &str, name: &str) -> bool {
    UNSUPPORTED.contains(&(scope, name))
}

/// Whether messages offer it as what could be written: nothing that is refused then.
pub(super) fn is_offered(scope: &str, name: &str) -> bool {
    !contains(scope, name)
}
