//! How long keys live, by the server's own clock: no virtual time here.

use std::time::{SystemTime, UNIX_EPOCH};

use kota_integration::redis::Reply;
use limits::concurrency::Concurrency;
use limits::decision::Limit;
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::settle::Settlement;
use limits::sliding_window::{SlidingWindow, WINDOW_MAX_S};
use limits::token_bucket::TokenBucket;

use crate::model::{Ask, Change, Kind};
use crate::script::Script;

/// From a second to 31 days.
const LENGTHS_S: [u64; 6] = [1, 2, 60, 3_600, 86_400, WINDOW_MAX_S];
const MINUTE_MS: i64 = 60_000;

/// A window, a bucket that is full again in that time, and slots on such leases.
fn kinds(seconds: u64) -> Vec<Ask> {
    let never = TokenBucket::new(3, Refill::NEVER, seconds).expect("a bucket");
    let mut kinds = vec![
        Ask::new("sw", Limit::SlidingWindow(SlidingWindow::new(3, seconds).expect("a window")), 1),
        Ask::new("tb", Limit::TokenBucket(never), 1),
    ];
    if let Ok(limit) = Concurrency::new(3, seconds) {
        kinds.push(Ask { slot: "slot".to_owned(), ..Ask::new("cc", Limit::Concurrency(limit), 1) });
    }
    kinds
}

fn life_ms(script: &mut Script, key: &str) -> i64 {
    match script.command(&["PTTL", key]) {
        Reply::Integer(life_ms) => life_ms,
        other => panic!("{other:?}"),
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("past 1970").as_micros() as u64
}

#[test]
fn al_13_every_key_lives_as_long_as_it_matters_and_a_second_more() {
    let mut script = Script::start();
    for seconds in LENGTHS_S {
        for rule in kinds(seconds) {
            let length_ms = seconds as i64 * 1_000;
            let most = if rule.key == "sw" { 2 * length_ms } else { length_ms } + 1_001;
            script.command(&["FLUSHALL"]);
            script.raw("", std::slice::from_ref(&rule));
            let life = life_ms(&mut script, &rule.key);
            assert!(0 < life && life <= most, "{} of {seconds} s lives {life} ms", rule.key);
            // The window before counts during the whole of the next.
            assert!(rule.key != "sw" || life > length_ms, "{life} ms of a window of {seconds} s");
            changed(&mut script, &rule, most);
        }
    }
}

/// What is changed lives no longer either, and nothing is left without an end.
fn changed(script: &mut Script, rule: &Ask, most: i64) {
    let kinds: &[Kind] = match rule.limit {
        Limit::Concurrency(_) => &[Kind::Renew, Kind::Release, Kind::Release],
        _ => &[Kind::Settle(Settlement::Give, 1, 0), Kind::Settle(Settlement::Take, 2, 0), Kind::Pardon],
    };
    for kind in kinds {
        let change = Change { now_us: now_us(), ask: rule.clone(), kind: *kind };
        let words = script.words_of(&change);
        script.command(&words);
        let life = life_ms(script, &rule.key);
        // A slot that is released leaves no key, of none there stays a tombstone. Clocks differ by what passes meanwhile.
        assert!(life == -2 || 0 < life && life <= most + MINUTE_MS, "{kind:?} of {rule:?}: {life} ms");
    }
}

#[test]
fn al_13_strikes_live_as_long_as_they_matter() {
    let mut script = Script::start();
    let stricter = TokenBucket::new(1, Refill::NEVER, 1).expect("a bucket");
    for (within_s, for_s) in [(1, 1), (60, 3_600), (3_600, 60), (WINDOW_MAX_S, WINDOW_MAX_S)] {
        for rule in kinds(1).into_iter().filter(|rule| rule.key != "cc") {
            script.command(&["FLUSHALL"]);
            let penalty = Penalty::new(2, within_s, for_s, stricter).ok();
            let rule = Ask { cost: 4, penalty, ..rule };
            for (denials, matter_s) in [(1, within_s), (2, for_s)] {
                script.raw("", std::slice::from_ref(&rule));
                let (life, matter_ms) = (life_ms(&mut script, &rule.key), matter_s as i64 * 1_000);
                let most = matter_ms.max(2_000) + 1_001;
                assert!(
                    0 < life && life <= most && life > matter_ms.min(most) - MINUTE_MS,
                    "{denials}: {life} ms"
                );
            }
            let change = Change { now_us: now_us(), ask: rule.clone(), kind: Kind::Pardon };
            let words = script.words_of(&change);
            assert_eq!(script.command(&words), Reply::Integer(1));
            assert!(life_ms(&mut script, &rule.key) > 0, "a pardon leaves the life as it is");
        }
    }
}

/// MP-06: the window is chosen by the server's clock, which all sidecars share, however wrong their own are.
#[test]
fn mp_06_a_window_is_the_servers() {
    let mut script = Script::start();
    for seconds in LENGTHS_S {
        let limit = SlidingWindow::new(3, seconds).expect("a window");
        let (key, window_ms) = (format!("mp-06-{seconds}"), limit.window_ms());
        let clock = |script: &mut Script| match script.command(&["TIME"]) {
            Reply::Array(parts) => {
                let number = |part: &Reply| part.text().parse::<u64>().expect("a number");
                number(&parts[0]) * 1_000 + number(&parts[1]) / 1_000
            }
            other => panic!("{other:?}"),
        };
        let start = |now_ms: u64| now_ms - now_ms % window_ms;
        let before = start(clock(&mut script));
        script.raw("", &[Ask::new(&key, Limit::SlidingWindow(limit), 1)]);
        let after = start(clock(&mut script));
        let state = script.state(&key).expect("counted");
        let began = 1_000 * state[..4].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        assert!(began == before || began == after, "{began}, not {before} or {after}");
    }
}
