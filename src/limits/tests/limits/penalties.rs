//! The penalty.

use crate::support::limit;
use limits::decision::Verdict::{self, Admit, Wait};
use limits::decision::{Bucket, Charge, decide};
use limits::penalty::Penalty;
use limits::refill::Refill;
use limits::token_bucket::TokenBucket;

const NOW: u64 = 1_790_000_000_000_000;
const SECOND: u64 = 1_000_000;

/// Ten at once and ten a second; after three denials within 60 s one every five seconds, for 20 s.
struct Client {
    bucket: Option<Bucket>,
    denied_elsewhere: bool,
}

impl Client {
    fn new() -> Self {
        Self { bucket: None, denied_elsewhere: false }
    }

    fn ask(&mut self, now_us: u64, cost: u64) -> (Verdict, u64, u64) {
        let stricter = TokenBucket::new(2, Refill::new(1, 5).unwrap(), 0).unwrap();
        let penalty = Penalty::new(3, 60, 20, stricter).unwrap();
        let (limit, other) = (limit(10, "10"), limit(1, "1"));
        let mut charges = vec![Charge {
            limit,
            penalty: Some(penalty),
            cost,
            shadow: false,
            slot: b"",
            bucket: self.bucket.as_ref(),
        }];
        if self.denied_elsewhere {
            charges.push(Charge {
                limit: other,
                penalty: None,
                cost: 2,
                shadow: false,
                slot: b"",
                bucket: None,
            });
        }
        let (_, rulings) = decide(now_us, &charges);
        let ruling = rulings.into_iter().next().unwrap();
        if let Some(write) = ruling.write {
            assert!(write.ttl_ms >= 1_000);
            self.bucket = Some(write.state);
        }
        (ruling.outcome.verdict, ruling.outcome.left, ruling.outcome.wait_ms)
    }

    fn struck(&self) -> bool {
        self.bucket.as_ref().is_some_and(|bucket| bucket.strikes.is_some())
    }
}

#[test]
fn who_is_never_denied_has_no_strikes() {
    let mut client = Client::new();
    for second in 0..100 {
        assert_eq!(client.ask(NOW + second * SECOND, 10).0, Admit);
    }
    client.denied_elsewhere = true;
    client.ask(NOW + 200 * SECOND, 1);
    assert!(!client.struck(), "another rule's denial is not this one's");
}

#[test]
fn after_so_many_denials_the_stricter_limit_holds_until_the_client_behaves() {
    let mut client = Client::new();
    assert_eq!(client.ask(NOW, 10), (Admit, 0, 1_000));
    assert_eq!(client.ask(NOW, 1), (Wait, 0, 100));
    assert_eq!(client.ask(NOW, 1), (Wait, 0, 100));
    assert_eq!(
        client.ask(NOW, 1),
        (Wait, 0, 5_000),
        "the third brings the penalty about, which starts empty"
    );
    let mut now = NOW + 4_999_000;
    assert_eq!(client.ask(now, 1).0, Wait, "the base limit would admit it");
    now += 1_000;
    assert_eq!(client.ask(now, 1), (Admit, 0, 5_000), "obeying is admitted");
    // The denial at 4.999 s began the 20 s anew.
    assert_eq!(
        client.ask(NOW + 24_998_000, 3),
        (Wait, 2, 20_000),
        "above the penalty's capacity: when it is over"
    );
    now = NOW + 44_998_000;
    assert_eq!(client.ask(now, 10).0, Admit, "behaved for 20 s");
    assert!(!client.struck(), "and it is forgotten");
}

#[test]
fn denials_that_lie_too_far_apart_do_not_count_together() {
    let mut client = Client::new();
    for round in 0..5 {
        let now = NOW + round * 61 * SECOND;
        assert_eq!(client.ask(now, 10).0, Admit, "round {round}");
        assert_eq!(client.ask(now, 1).2, 100);
        assert_eq!(client.ask(now, 1).2, 100);
    }
}
