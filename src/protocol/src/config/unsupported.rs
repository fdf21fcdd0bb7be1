//! What a configuration can say and this version can't decide: such a configuration is refused, never half obeyed.
//!
//! This is the only place that knows. Whoever makes one of these work deletes its line here.

/// What is said of them.
pub(super) const MESSAGE: &str = "not in this version";

/// Fields, by what they are a field of.
const FIELDS: [(&str, &str); 15] = [
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
];

/// Words, by the field whose value they are.
const WORDS: [(&str, &str); 3] =
    [("algorithm", "SLIDING_WINDOW"), ("algorithm", "CONCURRENCY"), ("failMode", "LOCAL")];

/// Whether this version can't decide a field.
pub(super) fn field(scope: &str, name: &str) -> bool {
    FIELDS.contains(&(scope, name))
}

/// Whether this version can't decide a word.
pub(super) fn word(field: &str, word: &str) -> bool {
    WORDS.contains(&(field, word))
}
