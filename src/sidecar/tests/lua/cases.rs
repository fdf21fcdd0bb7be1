//! Cases of token buckets from the field, in virtual time, each through the script and the model at once.

use std::time::{SystemTime, UNIX_EPOCH};

use kota_integration::redis::Reply;
use limits::decision::Verdict::{Admit, Never, Wait};
use limits::decision::{Limit, State};
use limits::refill::Refill;
use limits::token_bucket::{CAPACITY_MAX, MICRO, TokenBucket, TokenBucketError, Used};

use crate::both::{Both, SECOND_US, START_US};
use crate::model::{Answer, Ask, packed};

fn bucket(capacity: u64, refill: &str) -> TokenBucket {
    let refill = Refill::from_decimal(refill).unwrap_or_else(|e| panic!("{refill}: {e}"));
    TokenBucket::new(capacity, refill, 3_600).unwrap_or_else(|e| panic!("{capacity}: {e}"))
}

fn ask(key: &str, bucket: TokenBucket, cost: u64) -> Ask {
    Ask::new(key, Limit::TokenBucket(bucket), cost)
}

#[test]
fn the_briefs_trial_admits_ten_of_twelve() {
    let mut both = Both::start();
    let rule = [ask("brief", bucket(10, "5"), 1)];
    for call in 0..12 {
        let answer = both.call(START_US + call * 100, &rule);
        let (_, left, wait_ms) = answer.rules[0];
        assert_eq!(answer.admitted, call < 10, "call {call}");
        assert_eq!(left, 9u64.saturating_sub(call));
        assert!(wait_ms <= 200 && (wait_ms > 0) == (call >= 9), "call {call} waits {wait_ms} ms");
    }
}

#[test]
fn al_01_rates_below_one_a_second_refill_however_often_they_are_asked() {
    let mut both = Both::start();
    for (rate, period_us) in [("0.0167", 59_880_240), ("0.0166666667", 60_000_000)] {
        let rule = [ask(rate, bucket(1, rate), 1)];
        let polls = (0..5 * 60 * 5).map(|poll| START_US + poll * 200_000);
        let admitted: Vec<_> = polls.filter(|now| both.call(*now, &rule).admitted).collect();
        assert_eq!(admitted.len(), 5, "{rate}: at 0 and then once a minute");
        for pair in admitted.windows(2) {
            assert!((pair[1] - pair[0]).abs_diff(period_us) <= 300_000, "{rate}: {pair:?}");
        }
    }
}

#[test]
fn al_03_a_request_that_is_denied_costs_nothing() {
    let mut both = Both::start();
    let rule = bucket(10, "0.01");
    let call = |both: &mut Both, cost| both.call(START_US, &[ask("al-03", rule, cost)]);
    assert_eq!(call(&mut both, 8).rules, [(Admit, 2, 600_000)]);
    assert_eq!(call(&mut both, 5).rules, [(Wait, 2, 300_000)]);
    assert_eq!(call(&mut both, 1).rules, [(Admit, 1, 0)]);
    assert_eq!(call(&mut both, 1).rules, [(Admit, 0, 100_000)]);
    let before = both.script.state("al-03");
    assert_eq!(call(&mut both, 1_000_000).rules, [(Never, 0, 0)]);
    assert_eq!(both.script.state("al-03"), before);
}

#[test]
fn al_07_large_numbers_keep_all_their_digits() {
    let mut both = Both::start();
    let (huge, rate) = (bucket(CAPACITY_MAX, "31.0123456789"), 310_123_456_789u128);
    let mut now_us = START_US;
    both.call(now_us, &[ask("al-07", huge, CAPACITY_MAX - 100_000)]);
    let mut taken = u128::from(CAPACITY_MAX - 100_000);
    for call in 0..100_000u64 {
        now_us += 32_000 + call % 7;
        taken += u128::from(both.call(now_us, &[ask("al-07", huge, 1)]).admitted);
    }
    let bucket = &both.model.buckets["al-07"];
    assert_eq!(both.script.state("al-07"), Some(packed(bucket)));
    let state = bucket.used().expect("a token bucket");
    assert_eq!(state.at_us, now_us);
    let exact = taken * u128::from(MICRO) - rate * u128::from(now_us - START_US) / 10_000_000_000;
    let drift = u128::from(state.micro_tokens) - exact;
    assert!(drift < u128::from(MICRO) / 2, "{drift} micro-tokens after 100,000 charges");
    for above in [CAPACITY_MAX + 1, 1_000_000_000_000_000, (1 << 53) + 1] {
        assert_eq!(TokenBucket::new(above, Refill::NEVER, 1), Err(TokenBucketError::Capacity), "{above}");
    }
}

#[test]
fn al_07_a_wait_is_exact_where_doubles_round_it_up_or_down() {
    let mut both = Both::start();
    // Found by search: used x den / num, in doubles, comes out a millisecond too long for the first two, too short for the others.
    let found = [
        (997_519_556_219_762, 195_032_738_896_884, 10_000_000_000, 51_146_262),
        (993_136_564_947_858, 164_733_178_228_078, 10_000_000_000, 60_287_586),
        (309_144_838_116_829, 104_029_940_568_124, 10_000_000_000, 29_716_911),
        (981_094_273_432_835, 169_197_709_726_853, 1_000_000_000, 5_798_509),
    ];
    for (used, num, den, wait_ms) in found {
        let rule =
            TokenBucket::new(CAPACITY_MAX, Refill::new(num, den).expect("a rate"), 0).expect("a bucket");
        both.remember("al-07", State::Used(Used { micro_tokens: used, at_us: START_US }));
        let (verdict, _, waits) = both.call(START_US, &[ask("al-07", rule, CAPACITY_MAX)]).rules[0];
        assert_eq!((verdict, waits), (Wait, wait_ms), "{used} at {num}/{den}");
        let admits = |both: &mut Both, ms| {
            both.call(START_US + ms * 1_000, &[ask("al-07", rule, CAPACITY_MAX)]).admitted
        };
        assert!(!admits(&mut both, wait_ms - 1) && admits(&mut both, wait_ms), "{used} at {num}/{den}");
    }
}

#[test]
fn al_13_every_key_lives_until_it_is_full_and_a_second_more() {
    let mut both = Both::start();
    let windows = [
        ("1000000", 1),
        ("1", 1),
        ("10", 600),
        ("0.0167", 1),
        ("0.0001", 100),
        ("0.0000115741", 30),
        ("0", 9),
    ];
    for (rate, capacity) in windows {
        let rule = bucket(capacity, rate);
        let full_ms =
            rule.refill().time_for(capacity * MICRO).map_or(rule.idle_ms(), |us| us.div_ceil(1_000));
        for cost in [1, capacity] {
            // The server's clock, and no virtual time: this life is the real one.
            both.script.raw("", &[ask(&format!("{rate}/{cost}"), rule, cost)]);
            let Reply::Integer(life_ms) = both.script.command(&["PTTL", &format!("{rate}/{cost}")]) else {
                panic!()
            };
            assert!(
                0 < life_ms && life_ms as u64 <= full_ms + 1_001,
                "{rate}: {life_ms} ms, full in {full_ms} ms"
            );
        }
    }
}

#[test]
fn al_16_a_rule_that_admits_is_not_charged_when_another_denies() {
    for reversed in [false, true] {
        let mut both = Both::start();
        let mut call = |user: u64| {
            let mut asks = vec![
                ask(&format!("user-{user}"), bucket(1, "0.001"), 1),
                ask("global", bucket(10, "0.001"), 1),
            ];
            if reversed {
                asks.reverse();
            }
            both.call(START_US + user, &asks).admitted
        };
        assert_eq!((0..20).filter(|_| call(1)).count(), 1);
        assert!((2..=10).all(&mut call), "the other nine users pass");
        assert!(!call(11), "ten have used the global limit up");
    }
}

#[test]
fn a_shadow_denies_nobody_and_is_charged_only_when_the_request_passes() {
    let mut both = Both::start();
    let shadow = Ask { shadow: true, ..ask("shadow", bucket(1, "0.001"), 1) };
    let enforcing = ask("enforcing", bucket(2, "0.001"), 1);
    let mut call = || both.call(START_US, &[shadow.clone(), enforcing.clone()]);
    assert_eq!(call(), Answer { admitted: true, rules: vec![(Admit, 0, 1_000_000), (Admit, 1, 0)] });
    assert_eq!(call(), Answer { admitted: true, rules: vec![(Wait, 0, 1_000_000), (Admit, 0, 1_000_000)] });
    assert_eq!(call(), Answer { admitted: false, rules: vec![(Wait, 0, 1_000_000), (Wait, 0, 1_000_000)] });
}

#[test]
fn an_edited_limit_keeps_what_was_used() {
    let mut both = Both::start();
    let mut call = |capacity, rate, seconds| {
        let answer = both.call(START_US + seconds * SECOND_US, &[ask("edited", bucket(capacity, rate), 1)]);
        answer.rules[0]
    };
    assert_eq!((0..10).map(|_| call(10, "0.1", 0)).last(), Some((Admit, 0, 10_000)));
    assert_eq!(call(10, "0.1", 0), (Wait, 0, 10_000));
    assert_eq!(call(20, "0.1", 0), (Admit, 9, 0), "raised: the new ten at once");
    assert_eq!(call(5, "0.1", 0), (Wait, 0, 70_000), "lowered: eleven are used of five");
    // GCRA would turn the ten tokens' worth of time into 1,000 tokens, or into a tenth of one.
    assert_eq!(call(11, "10", 0), (Wait, 0, 100), "a faster refill does not change what was used");
    assert_eq!(call(11, "0.001", 0), (Wait, 0, 1_000_000), "nor does a slower one");
    assert_eq!(call(11, "0", 0), (Wait, 0, 3_600_000), "nor none at all");
}

#[test]
fn a_clock_that_goes_back_mints_nothing() {
    let mut both = Both::start();
    let rule = [ask("back", bucket(5, "5"), 5)];
    assert!(both.call(START_US, &rule).admitted);
    assert_eq!(both.call(START_US - 30 * SECOND_US, &rule).rules, [(Wait, 0, 31_000)]);
    assert_eq!(both.call(START_US + SECOND_US - 1, &rule).rules, [(Wait, 4, 1)]);
    assert!(both.call(START_US + SECOND_US, &rule).admitted);
}

#[test]
fn without_a_given_time_the_servers_clock_counts() {
    let mut both = Both::start();
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).expect("past 1970").as_micros() as u64;
    let before = clock();
    both.script.raw("", &[ask("clock", bucket(7, "1"), 3)]);
    let state = both.script.state("clock").expect("written");
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let at_us = number(&state[..7]);
    assert_eq!(number(&state[7..]), 3 * MICRO);
    assert!((before..=clock()).contains(&at_us), "{at_us}");
}
