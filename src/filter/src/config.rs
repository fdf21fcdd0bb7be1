//! The filter's configuration: the shared one, with what is told to clients written out once per rule.

use limits::decision::{Limit, Verdict};
use limits::refill::Refill;
use limits::rule::{Mode, Rule, Test};
use limits::ruleset::RuleSet;
use limits::token_bucket::TokenBucket;
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
            announcements: parsed.rules.rules().iter().map(Announcement::new).collect(),
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
        let Limit::TokenBucket(bucket) = rule.limit;
        let name_item = format!("\"{}\"", rule.policy);
        let (quota, window_s) = announced(&bucket);
        let mut policy_item = format!("{name_item};q={quota}");
        let mut sentence = format!("{} is limited to {quota} requests", subject(rule));
        if let Some(window_s) = window_s {
            let _ = write!(policy_item, ";w={window_s}");
            let _ = write!(sentence, " per {window_s} seconds");
        }
        Self {
            id: Arc::clone(&rule.id),
            policy: Arc::clone(&rule.policy),
            name_item,
            policy_item,
            capacity: bucket.capacity(),
            shadow: rule.mode == Mode::Shadow,
            told: rule.detail.clone(),
            quota: sentence,
        }
    }

    /// The sentence that tells a client why it is denied; `seconds` until it would not be.
    #[must_use]
    pub fn detail(&self, verdict: Verdict, seconds: Option<u64>) -> String {
        match (&self.told, verdict, seconds) {
            (Some(told), _, _) => told.to_string(),
            (None, Verdict::Never, _) => {
                format!("{}; this request costs more than the {} allowed at once.", self.quota, self.capacity)
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

/// What a rule limits, in words.
fn subject(rule: &Rule) -> &str {
    let routes = rule.conditions.iter().filter_map(|condition| match &condition.test {
        Test::OneOf(values) => values.first().filter(|value| values.len() == 1 && value.contains(&b'/')),
        _ => None,
    });
    routes.filter_map(|route| str::from_utf8(route).ok()).next().unwrap_or("This API")
}

/// The quota and window by which a bucket is announced: what it admits in the long run. A bucket that never refills has none
/// but its capacity.
fn announced(bucket: &TokenBucket) -> (u64, Option<u64>) {
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
        announced(&TokenBucket::new(capacity, Refill::from_decimal(refill).unwrap(), 3_600).unwrap())
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
}
