//! Cases of sliding windows, concurrency and penalties from the field, in virtual time, each through the scripts and the model at
//! once.

use limits::concurrency::Concurrency;
use limits::decision::Verdict::{Admit, Never, Wait};
use limits::decision::{Limit, State};
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::settle::Settlement;
use limits::sliding_window::{SlidingWindow, WINDOW_MAX_S, Windows};
use limits::token_bucket::{CAPACITY_MAX, TokenBucket};

use crate::both::{Both, SECOND_US};
use crate::model::{Ask, Kind};

/// When windows of any length that divides a day begin.
const MIDNIGHT_US: u64 = 1_789_948_800_000_000;

fn window(key: &str, capacity: u64, window_s: u64) -> Ask {
    Ask::new(key, Limit::SlidingWindow(SlidingWindow::new(capacity, window_s).expect("a window")), 1)
}

fn slot(key: &str, capacity: u64, slot: &str) -> Ask {
    let limit = Limit::Concurrency(Concurrency::new(capacity, 30).expect("a limit"));
    Ask { slot: slot.to_owned(), ..Ask::new(key, limit, 1) }
}

fn bucket(key: &str, capacity: u64, refill: &str) -> Ask {
    let refill = Refill::from_decimal(refill).expect("a rate");
    Ask::new(key, Limit::TokenBucket(TokenBucket::new(capacity, refill, 3_600).expect("a bucket")), 1)
}

fn costs(ask: &Ask, cost: u64) -> [Ask; 1] {
    [Ask { cost, ..ask.clone() }]
}

fn counted(start_us: u64, current: u64, previous: u64) -> State {
    State::Windows(Windows { start_ms: start_us / 1_000, current, previous })
}

#[test]
fn the_briefs_example_of_a_sliding_window_is_49_and_a_half() {
    let mut both = Both::start();
    both.remember("brief", counted(MIDNIGHT_US, 18, 42));
    let now_us = MIDNIGHT_US + 15 * SECOND_US;
    assert_eq!(both.call(now_us, &[window("brief", 50, 60)]).rules, [(Wait, 0, 715)]);
    assert!(!both.call(now_us + 714_999, &[window("brief", 50, 60)]).admitted);
    assert!(both.call(now_us + 715_000, &[window("brief", 50, 60)]).admitted);
}

#[test]
fn al_03_a_request_that_a_window_denies_costs_nothing() {
    let mut both = Both::start();
    let rule = window("al-03", 10, 60);
    let mut call = |cost| both.call(MIDNIGHT_US, &costs(&rule, cost)).rules[0];
    assert_eq!(call(8), (Admit, 2, 105_000));
    assert_eq!(call(5), (Wait, 2, 82_500));
    assert_eq!((call(1).0, call(1)), (Admit, (Admit, 0, 66_000)));
    let before = both.script.state("al-03");
    assert_eq!(both.call(MIDNIGHT_US, &costs(&rule, 1_000_000)).rules, [(Never, 0, 0)]);
    assert_eq!(both.script.state("al-03"), before);
}

#[test]
fn al_07_the_largest_counts_and_windows_keep_all_their_digits() {
    let mut both = Both::start();
    let window_us = WINDOW_MAX_S * SECOND_US;
    let start_us = MIDNIGHT_US - MIDNIGHT_US % window_us;
    // Products of 2e9 and 2.7e9 ms: far beyond what a double holds.
    for (current, previous) in
        [(0, 2_000_000_000), (999_999_999, 1), (2_000_000_000, 1_999_999_999), (0, 1_999_999_997)]
    {
        for after_ms in [0, 1, 999_999_937, 1_339_200_001, 2_678_399_999] {
            both.remember("al-07", counted(start_us, current, previous));
            let rule = window("al-07", CAPACITY_MAX, WINDOW_MAX_S);
            let now_us = start_us + after_ms * 1_000;
            for cost in [1, 999_999_999, CAPACITY_MAX] {
                let (verdict, _, wait_ms) = both.call(now_us, &costs(&rule, cost)).rules[0];
                if verdict == Wait {
                    let at_us = now_us + wait_ms * 1_000;
                    assert!(!both.model.ask(&request(at_us - 1_000, &rule, cost)).admitted);
                    assert!(both.model.ask(&request(at_us, &rule, cost)).admitted);
                }
            }
        }
    }
}

fn request(now_us: u64, rule: &Ask, cost: u64) -> crate::model::Request {
    crate::model::Request { now_us, asks: costs(rule, cost).to_vec() }
}

#[test]
fn al_10_a_window_that_ends_lets_no_second_burst_through() {
    let mut both = Both::start();
    let rule = [window("al-10", 100, 60)];
    let mut burst =
        |at_ms: u64| (0..100).filter(|_| both.call(MIDNIGHT_US + at_ms * 1_000, &rule).admitted).count();
    assert_eq!([burst(59_500), burst(60_500), burst(90_000)], [100, 0, 50]);
}

#[test]
fn al_16_a_window_that_admits_counts_nothing_when_another_denies() {
    for reversed in [false, true] {
        let mut both = Both::start();
        let mut call = |user: u64| {
            let mut asks = vec![window(&format!("user-{user}"), 1, 60), window("global", 10, 60)];
            if reversed {
                asks.reverse();
            }
            both.call(MIDNIGHT_US + user, &asks).admitted
        };
        assert_eq!((0..20).filter(|_| call(1)).count(), 1);
        assert!((2..=10).all(&mut call), "the other nine users pass");
        assert!(!call(11), "ten have used the global limit up");
    }
}

#[test]
fn al_16_rules_of_all_algorithms_are_charged_together_or_not_at_all() {
    let mut both = Both::start();
    let rules = |nth: u64| {
        [bucket("bucket", 5, "0.001"), window("window", 4, 60), slot("slots", 3, &format!("slot-{nth}"))]
    };
    for turn in 0..3 {
        let mut asks = rules(turn);
        asks.rotate_left(turn as usize);
        assert!(both.call(MIDNIGHT_US, &asks).admitted);
    }
    let denied = both.call(MIDNIGHT_US, &rules(3));
    assert_eq!(denied.rules, [(Admit, 2, 0), (Admit, 1, 0), (Wait, 0, 30_000)]);
    assert!(both.change(MIDNIGHT_US, &rules(0)[2], Kind::Release));
    assert!(both.call(MIDNIGHT_US, &rules(3)).admitted);
    assert!(both.change(MIDNIGHT_US, &rules(1)[2], Kind::Release));
    let denied = both.call(MIDNIGHT_US, &rules(4));
    assert_eq!(denied.rules, [(Admit, 1, 0), (Wait, 0, 75_000), (Admit, 1, 0)], "no slot is taken");
    assert_eq!(both.script.command(&["ZCARD", "slots"]), kota_integration::redis::Reply::Integer(2));
}

#[test]
fn cc_04_a_release_that_is_early_late_or_repeated_frees_nothing_else() {
    let mut both = Both::start();
    let mut now_us = MIDNIGHT_US;
    let [a, b, c] = ["a", "b", "c"].map(|id| slot("cc-04", 1, id));
    assert!(both.call(now_us, std::slice::from_ref(&a)).admitted);
    for _ in 0..2 {
        both.change(now_us, &a, Kind::Release);
    }
    assert!(both.call(now_us, std::slice::from_ref(&b)).admitted, "a is free, once");
    both.change(now_us, &a, Kind::Release);
    assert!(!both.call(now_us, std::slice::from_ref(&c)).admitted, "b still holds its slot");
    assert_eq!(both.call(now_us, std::slice::from_ref(&a)).rules, [(Admit, 0, 0)], "it was released already");
    assert!(!both.change(now_us, &a, Kind::Renew), "a tombstone is no slot");
    now_us += 30 * SECOND_US;
    assert!(both.call(now_us, std::slice::from_ref(&c)).admitted, "the lease of b has ended");
    both.script.command(&["FLUSHALL"]);
    both.model.buckets.clear();
    assert!(both.change(now_us, &c, Kind::Release));
    assert!(!both.change(now_us, &c, Kind::Renew), "what is gone is not brought back");
    assert!(both.call(now_us, std::slice::from_ref(&a)).admitted);
    assert!(!both.call(now_us, std::slice::from_ref(&b)).admitted);
}

#[test]
fn a_penalty_comes_with_denials_ends_with_behaviour_and_is_pardoned() {
    let mut both = Both::start();
    let stricter = TokenBucket::new(2, Refill::new(1, 5).expect("a rate"), 0).expect("a bucket");
    let penalty = Penalty::new(3, 60, 20, stricter).ok();
    let now_us = MIDNIGHT_US;
    for (rule, wait_ms) in [(bucket("tb", 10, "10"), 100), (window("sw", 10, 60), 66_000)] {
        let rule = Ask { penalty, ..rule };
        let mut call = |now_us, cost| both.call(now_us, &costs(&rule, cost)).rules[0];
        assert_eq!(call(now_us, 10).0, Admit);
        assert_eq!([call(now_us, 1), call(now_us, 1)], [(Wait, 0, wait_ms); 2]);
        assert_eq!(call(now_us, 1), (Wait, 0, wait_ms.max(5_000)), "the third denial");
        let later_us = now_us + 19_999_000;
        assert_eq!(call(later_us, 3).0, Wait, "above the penalty's capacity");
        assert!(both.change(later_us, &rule, Kind::Pardon));
        assert!(!both.change(later_us, &rule, Kind::Pardon));
    }
    let rule = Ask { penalty, ..bucket("tb", 10, "10") };
    assert_eq!(both.call(now_us + 19_999_000, &costs(&rule, 10)).rules, [(Admit, 0, 1_000)]);
    assert_eq!(both.script.state("tb").map(|state| state.len()), Some(12), "nothing is held against it");
}

#[test]
fn a_shadow_is_punished_and_denies_nobody() {
    let mut both = Both::start();
    let stricter = TokenBucket::new(1, Refill::new(1, 50).expect("a rate"), 0).expect("a bucket");
    let rule =
        Ask { penalty: Penalty::new(1, 60, 600, stricter).ok(), shadow: true, ..window("shadow", 2, 1) };
    let mut call = |second: u64| both.call(MIDNIGHT_US + second * SECOND_US, std::slice::from_ref(&rule));
    assert_eq!([0, 0, 0].map(|_| call(0).rules[0].0), [Admit, Admit, Wait]);
    let answer = call(10);
    assert!(answer.admitted);
    assert_eq!(answer.rules[0].0, Wait, "it would be denied by the penalty");
    assert_eq!(call(70).rules[0], (Admit, 0, 50_000));
}

#[test]
fn what_is_settled_goes_both_ways_within_bounds() {
    let mut both = Both::start();
    let now_us = MIDNIGHT_US;
    for rule in [bucket("tb", 10, "0.001"), window("sw", 10, 86_400)] {
        assert!(!both.change(now_us, &rule, Kind::Settle(Settlement::Give, 1, 0)), "nothing to give back to");
        assert_eq!(both.call(now_us, &costs(&rule, 8)).rules[0].1, 2);
        both.change(now_us, &rule, Kind::Settle(Settlement::Give, 5, 0));
        assert_eq!(both.call(now_us, &costs(&rule, 0)).rules[0].1, 7);
        both.change(now_us, &rule, Kind::Settle(Settlement::Take, 11, 0));
        assert_eq!(both.call(now_us, &costs(&rule, 1)).rules[0].0, Wait, "a debt of four");
        both.change(now_us, &rule, Kind::Settle(Settlement::Take, u64::MAX / 2_000_000, 0));
        both.change(now_us, &rule, Kind::Settle(Settlement::Give, 15, 0));
        assert_eq!(both.call(now_us, &costs(&rule, 0)).rules[0].1, 5, "of at most one capacity more");
    }
}

#[test]
fn what_goes_back_into_a_window_comes_off_the_one_in_which_it_was_taken() {
    let mut both = Both::start();
    let rule = window("sw", 100, 60);
    assert!(both.call(MIDNIGHT_US + 59 * SECOND_US, &costs(&rule, 50)).admitted);
    let now_us = MIDNIGHT_US + 61 * SECOND_US;
    let burst =
        |both: &mut Both, now_us| (0..200).filter(|_| both.call(now_us, &costs(&rule, 1)).admitted).count();
    assert_eq!(burst(&mut both, now_us), 50, "49.17 of the window before still count");
    assert!(both.change(now_us, &rule, Kind::Settle(Settlement::Give, 50, 2_000)));
    assert_eq!(burst(&mut both, now_us), 50, "and then none");
    let now_us = MIDNIGHT_US + 119 * SECOND_US;
    assert_eq!(burst(&mut both, now_us), 0, "a hundred in this window, not 149");
    assert!(both.change(now_us, &rule, Kind::Settle(Settlement::Give, 30, 58_000)));
    assert_eq!(burst(&mut both, now_us), 30);
    both.change(now_us, &rule, Kind::Settle(Settlement::Give, 30, 119_001));
    assert_eq!(burst(&mut both, now_us), 0, "too long ago");
}
