//! What is settled of a sliding window after the fact, and what a window promises all the same.

use limits::decision::{Bucket, Charge, Limit, Verdict, decide};
use limits::settle::{Settlement, settle};
use limits::sliding_window::SlidingWindow;
use proptest::prelude::*;

/// When windows of any length that divides a day begin, in milliseconds.
const MIDNIGHT_MS: u64 = 1_789_948_800_000;
const SECOND_MS: u64 = 1_000;

/// A request that was admitted.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    at_ms: u64,
    /// What it took, less what was given back.
    tokens: u64,
    settled: bool,
}

/// One client of one window, whose bucket is forgotten when its TTL is over, as Redis does.
struct Client {
    limit: Limit,
    bucket: Option<Bucket>,
    forgotten_at_ms: u64,
    admitted: Vec<Admitted>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Ask(u64),
    /// So many percent of what one of the last requests took, told as so many milliseconds older than it is.
    Give(usize, u64, u64),
    Take(u64),
}

impl Client {
    fn new(capacity: u64, window_s: u64) -> Self {
        let limit = Limit::SlidingWindow(SlidingWindow::new(capacity, window_s).unwrap());
        Self { limit, bucket: None, forgotten_at_ms: 0, admitted: Vec::new() }
    }

    fn ask(&mut self, now_ms: u64, cost: u64) -> bool {
        self.forget(now_ms);
        let bucket = self.bucket.as_ref();
        let charge = Charge { limit: self.limit, penalty: None, cost, shadow: false, slot: b"", bucket };
        let (admitted, mut rulings) = decide(now_ms * 1_000, &[charge]);
        assert_eq!(admitted, rulings[0].outcome.verdict == Verdict::Admit);
        if let Some(write) = rulings.remove(0).write {
            (self.bucket, self.forgotten_at_ms) = (Some(write.state), now_ms + write.ttl_ms);
        }
        if admitted {
            self.admitted.push(Admitted { at_ms: now_ms, tokens: cost, settled: false });
        }
        admitted
    }

    fn settle(&mut self, now_ms: u64, way: Settlement, tokens: u64, age_ms: u64) {
        self.forget(now_ms);
        let bucket = self.bucket.as_ref();
        if let Some(write) = settle(&self.limit, None, bucket, now_ms * 1_000, way, tokens, age_ms) {
            (self.bucket, self.forgotten_at_ms) = (Some(write.state), now_ms + write.ttl_ms);
        }
    }

    fn give(&mut self, now_ms: u64, which: usize, percent: u64, too_old_ms: u64) {
        let Some(which) = self.admitted.len().checked_sub(which + 1) else { return };
        let one = &mut self.admitted[which];
        if !std::mem::replace(&mut one.settled, true) {
            let given = one.tokens * percent / 100;
            one.tokens -= given;
            let age_ms = now_ms - one.at_ms + too_old_ms;
            self.settle(now_ms, Settlement::Give, given, age_ms);
        }
    }

    /// What was admitted in the window of the clock that this moment lies in, less what was given back.
    fn of_window(&self, now_ms: u64, window_ms: u64) -> u64 {
        let same = |one: &&Admitted| one.at_ms / window_ms == now_ms / window_ms;
        self.admitted.iter().filter(same).map(|one| one.tokens).sum()
    }

    fn forget(&mut self, now_ms: u64) {
        if now_ms >= self.forgotten_at_ms {
            self.bucket = None;
        }
    }
}

#[test]
fn what_goes_back_into_the_window_before_makes_no_room_in_this_one() {
    let mut client = Client::new(100, 60);
    assert!(client.ask(MIDNIGHT_MS + 59 * SECOND_MS, 50));
    let now_ms = MIDNIGHT_MS + 61 * SECOND_MS;
    let burst = |client: &mut Client, now_ms| (0..200).filter(|_| client.ask(now_ms, 1)).count();
    assert_eq!(burst(&mut client, now_ms), 50, "49.17 of the window before still count");
    client.settle(now_ms, Settlement::Give, 50, 2 * SECOND_MS);
    assert_eq!(burst(&mut client, now_ms), 50, "and then none");
    assert_eq!(burst(&mut client, MIDNIGHT_MS + 119_999), 0, "a hundred in this window, not 149");
}

#[test]
fn what_is_given_back_within_the_window_makes_room_there() {
    let mut client = Client::new(100, 60);
    assert!(client.ask(MIDNIGHT_MS, 100));
    client.settle(MIDNIGHT_MS + 59_999, Settlement::Give, 100, 59_999);
    assert!(client.ask(MIDNIGHT_MS + 59_999, 100));
}

fn steps() -> impl Strategy<Value = Vec<(u64, Kind)>> {
    let pause_ms = prop_oneof![Just(0), 0..50_u64, 0..3_000_u64];
    let kind = prop_oneof![
        6 => (0..30_u64).prop_map(Kind::Ask),
        4 => (0..8_usize, 0..=100_u64, prop_oneof![Just(0), 0..1_000_u64])
            .prop_map(|(which, percent, too_old_ms)| Kind::Give(which, percent, too_old_ms)),
        1 => (0..100_u64).prop_map(Kind::Take),
    ];
    prop::collection::vec((pause_ms, kind), 1..300)
}

proptest! {
    /// However late what was reserved goes back, and however much too old it is said to be: what was admitted in a window of the
    /// clock, less what was given back, is never more than the capacity.
    #[test]
    fn no_settlement_lets_a_window_of_the_clock_admit_more(capacity in 1..60_u64, window_s in 1..8_u64, steps in steps()) {
        let mut client = Client::new(capacity, window_s);
        let mut now_ms = MIDNIGHT_MS;
        for (pause_ms, kind) in steps {
            now_ms += pause_ms;
            match kind {
                Kind::Ask(cost) => _ = client.ask(now_ms, cost),
                Kind::Give(which, percent, too_old_ms) => client.give(now_ms, which, percent, too_old_ms),
                Kind::Take(tokens) => client.settle(now_ms, Settlement::Take, tokens, 0),
            }
            let used = client.of_window(now_ms, window_s * SECOND_MS);
            prop_assert!(used <= capacity, "{} of {}", used, capacity);
        }
    }
}
