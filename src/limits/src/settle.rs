//! What becomes of a bucket after the fact: tokens that were reserved and not used, or used and not reserved.

use crate::decision::{Bucket, Limit, State, Write};
use crate::penalty::Penalty;
use crate::token_bucket::{MICRO, Used};

/// Which way tokens go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// Back into the bucket.
    Give,
    /// Out of it, whether or not they are there.
    Take,
}

/// Settles at `now_us` so many tokens that were taken `age_ms` ago; `None` if nothing is to be written. Concurrency has no tokens.
///
/// Only what goes back into a sliding window has to know its age. An age that is too high gives back less, never more, than was taken
/// of the window that it came from.
#[must_use]
pub fn settle(
    limit: &Limit,
    penalty: Option<&Penalty>,
    bucket: Option<&Bucket>,
    now_us: u64,
    settlement: Settlement,
    tokens: u64,
    age_ms: u64,
) -> Option<Write<Bucket>> {
    let now_ms = now_us / 1_000;
    let (state, ttl_ms) = match limit {
        Limit::TokenBucket(limit) => {
            let used = bucket.and_then(Bucket::used);
            let write = match settlement {
                Settlement::Give => limit.give(used, now_us, tokens)?,
                Settlement::Take => limit.take(used, now_us, tokens),
            };
            (State::Used(write.state), write.ttl_ms)
        }
        Limit::SlidingWindow(limit) => {
            let windows = bucket.and_then(Bucket::windows);
            let write = match settlement {
                Settlement::Give => limit.give(windows, now_ms, tokens, age_ms)?,
                Settlement::Take => limit.take(windows, now_ms, tokens),
            };
            (State::Windows(write.state), write.ttl_ms)
        }
        Limit::Concurrency(_) => return None,
    };
    let kept = penalty.zip(bucket.and_then(|bucket| bucket.strikes)).and_then(|(penalty, mut strikes)| {
        if strikes.punished(now_us) {
            strikes.used = settled(penalty, strikes.used, now_us, settlement, tokens);
        }
        Some((penalty, penalty.kept(strikes, now_us)?))
    });
    let ttl_ms =
        kept.as_ref().map_or(ttl_ms, |(penalty, strikes)| ttl_ms.max(penalty.ttl_ms(strikes, now_us)));
    let strikes = kept.map(|(_, strikes)| strikes);
    Some(Write { state: Bucket { state, strikes }, ttl_ms })
}

fn settled(penalty: &Penalty, used: Used, now_us: u64, settlement: Settlement, tokens: u64) -> Used {
    match settlement {
        Settlement::Give => {
            let micro_tokens = used.micro_tokens.saturating_sub(tokens.saturating_mul(MICRO));
            Used { micro_tokens, ..used }
        }
        Settlement::Take => penalty.bucket().take(Some(used), now_us, tokens).state,
    }
}
