//! The filter's configuration: the shared one, with what is told to clients written out once per rule.

use limits::cost::Cost;
use limits::decision::{Limit, Verdict};
use limits::descriptor::Descriptors;
use limits::refill::Refill;
use limits::rule::{Condition, Mode, Rule, Test};
use limits::ruleset::RuleSet;
use limits::token_bucket::{MICRO, TokenBucket};
use protocol::config::{Dialect, Fault};
use std::fmt::Write;
use std::sync::Arc;

/// The windows in which a rate is announced, in seconds, the first that makes the quota whole.
const WINDOWS_S: [u64; 3] = [60, 3_600, 86_400];

/// Everything that a root context and its streams need to know.
#[derive(Debug)]
pub struct Config {
    /// The first part of every key.
    pub domain: String,
    /// Envoy's name for the sidecar's cluster.
    pub cluster: String,
    /// Microseconds that a check may take, from the request's arrival.
    pub deadline_us: u64,
    /// Which names the RateLimit fields use.
    pub dialect: Dialect,
    /// Whether old clients get X-RateLimit fields too.
    pub legacy: bool,
    /// The `type` of a denial's problem details.
    pub problem_type: String,
    /// Hops of `x-forwarded-for` that are trusted, where that is not Envoy's business.
    pub trusted_hops: Option<u8>,
    /// The rules.
    pub rules: RuleSet,
    announcements: Vec<Announcement>,
}

/// How a rule is spoken of.
#[derive(Clone, Debug)]
pub struct Announcement {
    /// The rule's id, for metrics and the access log.
    pub id: Arc<str>,
    /// The policy's name.
    pub policy: Arc<str>,
    /// The name as a structured field's string.
    pub name_item: String,
    /// The whole item of `RateLimit-Policy`.
    pub policy_item: String,
    /// Tokens.
    pub capacity: u64,
    /// Whether the rule only watches.
    pub shadow: bool,
    told: Option<Arc<str>>,
    quota: String,
}

// === impl Config ===

impl Config {
    /// Reads a plugin configuration.
    ///
    /// # Errors
    /// Every fault, with its path.
    pub fn parse(json: &[u8]) -> Result<Self, Vec<Fault>> {
        let parsed = protocol::config::Config::parse(json)?;
        Ok(Self {
            domain: parsed.domain,
            cluster: parsed.sidecar.cluster,
            deadline_us: u64::from(parsed.sidecar.deadline_ms).saturating_mul(1_000),
            dialect: parsed.headers.dialect,
            legacy: parsed.headers.legacy,
            problem_type: parsed.problem_type,
            trusted_hops: parsed.trusted_hops,
            announcements: {
                let rules = parsed.rules.rules().iter();
                rules.chain(parsed.rules.preflight()).map(Announcement::new).collect()
            },
            rules: parsed.rules,
        })
    }

    /// How the rule of that index is spoken of.
    #[must_use]
    pub fn announcement(&self, rule: u16) -> Option<&Announcement> {
        self.announcements.get(usize::from(rule))
    }
}

// === impl Announcement ===

impl Announcement {
    fn new(rule: &Rule) -> Self {
        let name_item = format!("\"{}\"", rule.policy);
        let (quota, window_s) = announced(&rule.limit);
        let mut policy_item = format!("{name_item};q={quota}");
        if let Limit::Concurrency(_) = rule.limit {
            policy_item.push_str(";qu=\"concurrent-requests\"");
        }
        if let Some(window_s) = window_s {
            let _ = write!(policy_item, ";w={window_s}");
        }
        Self {
            id: Arc::clone(&rule.id),
            policy: Arc::clone(&rule.policy),
            name_item,
            policy_item,
            capacity: rule.limit.capacity(),
            shadow: rule.mode == Mode::Shadow,
            told: rule.detail.clone(),
            quota: quota_in_words(rule),
        }
    }

    /// The sentence that tells a client why it is denied; `seconds` until it would not be.
    #[must_use]
    pub fn detail(&self, verdict: Verdict, seconds: Option<u64>) -> String {
        match (&self.told, verdict, seconds) {
            (Some(told), _, _) => told.to_string(),
            (None, Verdict::Never, _) => {
                format!("{}; this request costs more than that.", self.quota)
            }
            (None, _, Some(1)) => format!("{}; try again in 1 second.", self.quota),
            (None, _, seconds) => format!("{}; try again in {} seconds.", self.quota, seconds.unwrap_or(1)),
        }
    }

    /// The sentence that tells a client that it did not say who it is.
    #[must_use]
    pub fn missing_key_detail(&self) -> String {
        match &self.told {
            Some(told) => told.to_string(),
            None => format!("{}, and requests that do not say who sends them are not accepted.", self.quota),
        }
    }
}

/// What a rule limits and to how much, in words.
fn quota_in_words(rule: &Rule) -> String {
    let unit = if rule.cost == Cost::Fixed(1) { "request" } else { "token" };
    let mut words = format!("{} is limited to ", subject(rule));
    match &rule.limit {
        Limit::TokenBucket(bucket) => bucket_in_words(&mut words, rule, bucket, unit),
        Limit::SlidingWindow(limit) => {
            push_count(&mut words, limit.capacity(), unit, "");
            let _ = write!(words, " per {}", span(limit.window_s()));
        }
        Limit::Concurrency(limit) => push_count(&mut words, limit.capacity(), unit, " at a time"),
    }
    match rule.cost {
        Cost::Fixed(1) => {}
        Cost::Fixed(tokens) => _ = write!(words, ", of which this one takes {tokens}"),
        _ => {}
    }
    words
}

fn bucket_in_words(words: &mut String, rule: &Rule, bucket: &TokenBucket, unit: &str) {
    let (quota, window_s) = announced(&rule.limit);
    match window_s.filter(|&window_s| bucket.refill().credit(window_s.saturating_mul(1_000_000)) >= MICRO) {
        Some(60) => push_count(words, quota, unit, " per minute, "),
        Some(3_600) => push_count(words, quota, unit, " per hour, "),
        Some(_) => push_count(words, quota, unit, " per day, "),
        // Less than one in the longest window that a header can name.
        None if window_s.is_some() => {
            let seconds = bucket.seconds_to_full(bucket.capacity().saturating_sub(1));
            let _ = write!(words, "1 {unit} per {}, ", span(seconds));
        }
        None => {}
    }
    push_count(words, bucket.capacity(), unit, " at once");
}

/// So many seconds in the largest unit in which they are whole: `minute`, `31 days`.
fn span(seconds: u64) -> String {
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    let whole = units.into_iter().find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit));
    let (unit, name) = whole.unwrap_or((1, "second"));
    match seconds.checked_div(unit).unwrap_or(seconds) {
        1 => name.to_owned(),
        count => format!("{count} {name}s"),
    }
}

fn push_count(words: &mut String, count: u64, unit: &str, rest: &str) {
    let _ = write!(words, "{count} {unit}{}{rest}", if count == 1 { "" } else { "s" });
}

/// The one route or path that a rule is about. Of other descriptors no value is shown: it may be a secret.
fn subject(rule: &Rule) -> &str {
    let shown =
        |condition: &&Condition| [Descriptors::ROUTE, Descriptors::PATH].contains(&condition.descriptor);
    let mut values = rule.conditions.iter().filter(shown).filter_map(|condition| match &condition.test {
        Test::OneOf(values) => values.first().filter(|_| values.len() == 1),
        _ => None,
    });
    values.find_map(|value| str::from_utf8(value).ok()).unwrap_or("This API")
}

/// The quota and window by which a bucket is announced: what it admits in the long run. A bucket that never refills has none
/// but its capacity, and so has a limit of what runs at once.
fn announced(limit: &Limit) -> (u64, Option<u64>) {
    let bucket = match limit {
        Limit::TokenBucket(bucket) => bucket,
        Limit::SlidingWindow(limit) => return (limit.capacity(), Some(limit.window_s())),
        Limit::Concurrency(limit) => return (limit.capacity(), None),
    };
    let refill: Refill = bucket.refill();
    if refill.is_never() {
        return (bucket.capacity(), None);
    }
    let per_window = |window_s: u64| {
        let product = u128::from(refill.num()).saturating_mul(u128::from(window_s));
        let den = u128::from(refill.den());
        (product.checked_div(den).unwrap_or(0), product.checked_rem(den) == Some(0))
    };
    let whole = WINDOWS_S.into_iter().find(|&window_s| per_window(window_s).1);
    let window_s = whole.unwrap_or(86_400);
    let quota = u64::try_from(per_window(window_s).0).unwrap_or(u64::MAX);
    (quota.max(1), Some(window_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(capacity: u64, refill: &str) -> (u64, Option<u64>) {
        announced(&Limit::TokenBucket(
            TokenBucket::new(capacity, Refill::from_decimal(refill).unwrap(), 3_600).unwrap(),
        ))
    }

    #[test]
    fn spans_are_told_in_the_largest_whole_unit() {
        for (seconds, told) in [
            (0, "0 seconds"),
            (1, "second"),
            (90, "90 seconds"),
            (60, "minute"),
            (120, "2 minutes"),
            (3_600, "hour"),
            (5_400, "90 minutes"),
            (86_400, "day"),
            (129_600, "36 hours"),
            (2_678_400, "31 days"),
        ] {
            assert_eq!(span(seconds), told);
        }
    }

    #[test]
    fn a_rate_is_announced_in_the_first_window_that_makes_it_whole() {
        assert_eq!(item(100, "10"), (600, Some(60)));
        assert_eq!(item(100, "0.5"), (30, Some(60)));
        assert_eq!(item(1, "0.01"), (36, Some(3_600)));
        assert_eq!(item(1, "0.0001"), (8, Some(86_400)), "8.64 a day is floored");
        assert_eq!(item(1, "0.0000115741"), (1, Some(86_400)));
        assert_eq!(item(7, "0"), (7, None));
    }

    fn detail(rule: &str) -> String {
        let json = format!(
            r#"{{ "descriptors": {{ "api_key": {{ "header": "x-api-key", "secret": true }} }},
                 "rules": [ {{ "id": "r", "algorithm": "TOKEN_BUCKET", {rule} }} ] }}"#
        );
        Config::parse(json.as_bytes()).unwrap().announcement(0).unwrap().detail(Verdict::Wait, Some(2))
    }

    #[test]
    fn a_denial_tells_the_quota_in_words_that_are_true() {
        for (rule, told) in [
            (
                r#""capacity": 10, "refillPerSecond": 5, "match": { "route": "POST /orders" }"#,
                "POST /orders is limited to 300 requests per minute, 10 requests at once; try again in 2 seconds.",
            ),
            (
                r#""capacity": 1, "refillPerSecond": 0.00001"#,
                "This API is limited to 1 request per 100000 seconds, 1 request at once; try again in 2 seconds.",
            ),
            (
                r#""capacity": 10, "refillPerSecond": 1, "cost": 5"#,
                "This API is limited to 60 tokens per minute, 10 tokens at once, of which this one takes 5; try again in 2 seconds.",
            ),
            (
                r#""capacity": 3, "refillPerSecond": 0, "idleSeconds": 9"#,
                "This API is limited to 3 requests at once; try again in 2 seconds.",
            ),
        ] {
            assert_eq!(detail(rule), told);
        }
    }

    #[test]
    fn a_denial_shows_no_value_but_of_a_route_or_a_path() {
        let told = detail(r#""capacity": 1, "refillPerSecond": 1, "match": { "api_key": "s3cr/et" }"#);
        assert!(told.starts_with("This API "), "{told}");
    }
}
