//! What the scripts refuse: told by the code KOTA, with nothing written.

use kota_integration::redis::Reply;
use limits::concurrency::Concurrency;
use limits::decision::Limit;
use limits::refill::Refill;
use limits::settle::Settlement;
use limits::token_bucket::TokenBucket;

use crate::model::{Ask, Change, Kind};
use crate::script::Script;

fn ask(key: &str) -> Ask {
    let bucket = TokenBucket::new(1, Refill::new(1, 1).expect("a rate"), 0).expect("a bucket");
    Ask::new(key, Limit::TokenBucket(bucket), 1)
}

#[test]
fn what_the_script_does_not_know_is_an_error_and_writes_nothing() {
    let mut script = Script::start();
    let asks = ["first", "second"].map(ask);
    let mut words = script.words("", &asks);
    let last = words.pop().expect("an idle time");
    let told = script.command(&words);
    assert_eq!(told, Reply::Error("KOTA wants 15 arguments for 2 rules, not 14".to_owned()));
    words.push(last);
    let tag = words.iter().rposition(|word| word == "tb1").expect("a tag");
    words[tag] = "tb9".to_owned();
    assert_eq!(script.command(&words), Reply::Error("KOTA unknown algorithm tb9 of rule 2".to_owned()));
    assert_eq!(script.keys(), Vec::<String>::new());
}

#[test]
fn a_state_of_another_length_is_an_error_and_writes_nothing() {
    let mut script = Script::start();
    let asks = ["whole", "spoilt"].map(ask);
    for length in [0, 1, 11, 13, 15, 64] {
        let spoilt = "x".repeat(length);
        script.command(&["SET", "spoilt", &spoilt]);
        let told = format!("KOTA rule 2 has a state of {length} bytes, not 12, 14, 42 or 44: delete its key");
        assert_eq!(script.raw("", &asks), Reply::Error(told));
        assert_eq!(script.command(&["GET", "spoilt"]), Reply::Bulk(Some(spoilt.into_bytes())));
        assert_eq!(script.keys(), ["spoilt"]);
    }
}

#[test]
fn what_the_other_scripts_do_not_know_is_an_error_too() {
    let mut script = Script::start();
    let slots = Limit::Concurrency(Concurrency::new(1, 10).expect("a limit"));
    let slot = Ask { slot: "slot".to_owned(), ..Ask::new("slots", slots, 1) };
    for (ask, kind) in [
        (ask("tb"), Kind::Settle(Settlement::Give, 1, 0)),
        (ask("tb"), Kind::Settle(Settlement::Take, 1, 0)),
        (slot.clone(), Kind::Release),
        (slot.clone(), Kind::Renew),
    ] {
        let mut words = script.words_of(&Change { now_us: 1_790_000_000_000_000, ask, kind });
        words.pop();
        let told = script.command(&words);
        assert!(matches!(&told, Reply::Error(text) if text.starts_with("KOTA wants ")), "{kind:?}: {told:?}");
    }
    let change = Change { now_us: 0, ask: slot, kind: Kind::Settle(Settlement::Give, 1, 0) };
    let words = script.words_of(&change);
    let told = script.command(&words);
    assert_eq!(told, Reply::Error("KOTA nothing to settle by algorithm cc1".to_owned()));
    assert_eq!(script.keys(), Vec::<String>::new());
}
