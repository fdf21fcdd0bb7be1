//! What the script refuses: told by the code KOTA, with nothing written.

use kota_integration::redis::Reply;
use limits::refill::Refill;
use limits::token_bucket::TokenBucket;

use crate::script::{Ask, Script};

fn ask(key: &str) -> Ask {
    let bucket = TokenBucket::new(1, Refill::new(1, 1).expect("a rate"), 0).expect("a bucket");
    Ask { key: key.to_owned(), bucket, cost: 1, shadow: false }
}

#[test]
fn what_the_script_does_not_know_is_an_error_and_writes_nothing() {
    let mut script = Script::start();
    let asks = ["first", "second"].map(ask);
    let mut words = script.words("", &asks);
    let last = words.pop().expect("an idle time");
    let told = script.command(&words);
    assert_eq!(told, Reply::Error("KOTA wants 7 arguments for each of 2 rules, not 13".to_owned()));
    words.push(last);
    let tag = words.iter().rposition(|word| word == "tb1").expect("a tag");
    words[tag] = "tb9".to_owned();
    assert_eq!(script.command(&words), Reply::Error("KOTA unknown algorithm tb9".to_owned()));
    assert_eq!(script.redis.keys(), Vec::<String>::new());
}

#[test]
fn a_state_of_another_length_is_an_error_and_writes_nothing() {
    let mut script = Script::start();
    let asks = ["whole", "spoilt"].map(ask);
    for length in [0, 1, 11, 13, 15, 64] {
        let spoilt = "x".repeat(length);
        script.command(&["SET", "spoilt", &spoilt]);
        let told = format!("KOTA rule 2 has a state of {length} bytes, not 12 or 14: delete its key");
        assert_eq!(script.raw("", &asks), Reply::Error(told));
        assert_eq!(script.command(&["GET", "spoilt"]), Reply::Bulk(Some(spoilt.into_bytes())));
        assert_eq!(script.redis.keys(), ["spoilt"]);
    }
}
