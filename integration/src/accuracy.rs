//! How often the sliding window counter decides otherwise than a log of every request would: a synthetic day, in virtual time.
//!
//! Both get the same requests and count what they themselves admit. Where one admits what the other denies, the counter is taken to
//! be wrong: *wrongly admitted* or *wrongly denied*. That is the strictest reading: from the first difference on the two have
//! different histories, so that under a client who is denied anyway each admits as many requests as the other, but other ones.
//! Therefore the counter is also judged by a log of what the counter itself admitted: did this one decision keep the promise?

mod log;
mod random;
pub mod settings;
mod traffic;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use limits::decision::Verdict;
use limits::sliding_window::{SlidingWindow, Windows};
use limits::token_bucket::CAPACITY_MAX;
use serde::Serialize;

use log::Log;
pub use traffic::{Kind, Popularity, Traffic};

/// All that comes is counted, whatever is decided.
struct Offered {
    capacity: u64,
    log: Log,
    counter: SlidingWindow,
    state: Option<Windows>,
}

/// A limit under some traffic.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Setting {
    /// What it is called.
    pub name: &'static str,
    /// Requests that the limit admits in a window.
    pub capacity: u64,
    /// The window, in seconds.
    pub window_s: u64,
    /// Who sends.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// What became of the requests of some clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// All of them.
    pub requests: u64,
    /// What the log admitted.
    pub log_admitted: u64,
    /// What the counter admitted.
    pub counter_admitted: u64,
    /// The counter admitted, the log did not.
    pub wrongly_admitted: u64,
    /// The counter denied, the log did not.
    pub wrongly_denied: u64,
    /// The counter admitted although what it had admitted within a window of the request was the whole limit already.
    pub judged_over: u64,
    /// The counter denied although what it had admitted within a window of the request was less than the limit.
    pub judged_under: u64,
    /// Of the requests that came, admitted or not, the counter's estimate was within the limit and a log of them beyond it, or the
    /// other way round. So others have measured who count what they deny, too.
    pub offered_differs: u64,
    /// The most that the counter admitted within any window's length.
    pub most_in_a_window: u64,
}

/// The tallies of one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Day {
    /// All clients together.
    pub all: Tally,
    /// By the way in which clients send.
    pub by_kind: BTreeMap<Kind, Tally>,
}

/// The tallies of some days of one setting.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was tried.
    pub setting: Setting,
    /// The first and the last of the days.
    pub seeds: (u64, u64),
    /// The share of requests that counter and log decided differently, in percent.
    pub wrong_percent: f64,
    /// The share that the log denied, in percent.
    pub denied_percent: f64,
    /// All clients together.
    pub all: Tally,
    /// By the way in which clients send.
    pub by_kind: BTreeMap<Kind, Tally>,
}

/// Runs a day of the setting's traffic. The same seed gives the same day.
///
/// # Panics
/// When the setting has no valid limit.
#[must_use]
pub fn day(setting: &Setting, seed: u64) -> Day {
    let window = SlidingWindow::new(setting.capacity, setting.window_s).expect("a valid limit");
    let mut day = Day { all: Tally::default(), by_kind: BTreeMap::new() };
    for (kind, moments) in setting.traffic.each(seed) {
        let tally = one_client(window, &moments);
        day.all.add(&tally);
        day.by_kind.entry(kind).or_default().add(&tally);
    }
    day
}

/// One client's requests, in milliseconds since the epoch and in their order.
fn one_client(window: SlidingWindow, moments: &[u64]) -> Tally {
    let (mut exact, mut own) = (Log::new(window), Log::new(window));
    let mut state: Option<Windows> = None;
    let mut offered = Offered::new(window);
    let mut tally = Tally { requests: moments.len() as u64, ..Tally::default() };
    for &now_ms in moments {
        let by_log = exact.take(now_ms);
        let room = own.has_room(now_ms);
        let by_counter = window.ask(state, now_ms, 1) == Verdict::Admit;
        if by_counter {
            let (_, write) = window.charge(state, now_ms, 1);
            state = write.map(|write| write.state);
            own.count(now_ms);
            tally.most_in_a_window = tally.most_in_a_window.max(own.len());
        }
        tally.offered_differs += u64::from(offered.differs(now_ms));
        tally.log_admitted += u64::from(by_log);
        tally.counter_admitted += u64::from(by_counter);
        tally.wrongly_admitted += u64::from(by_counter && !by_log);
        tally.wrongly_denied += u64::from(by_log && !by_counter);
        tally.judged_over += u64::from(by_counter && !room);
        tally.judged_under += u64::from(room && !by_counter);
    }
    tally
}

// === impl Report ===

impl Report {
    /// Runs a day for each of the seeds.
    #[must_use]
    pub fn of(setting: Setting, seeds: RangeInclusive<u64>) -> Self {
        let (mut all, mut by_kind) = (Tally::default(), BTreeMap::<Kind, Tally>::new());
        for seed in seeds.clone() {
            let day = day(&setting, seed);
            all.add(&day.all);
            day.by_kind.iter().for_each(|(kind, tally)| by_kind.entry(*kind).or_default().add(tally));
        }
        let (wrong_percent, denied_percent) = (all.wrong_percent(), all.denied_percent());
        Self { setting, seeds: (*seeds.start(), *seeds.end()), wrong_percent, denied_percent, all, by_kind }
    }
}

// === impl Offered ===

impl Offered {
    fn new(window: SlidingWindow) -> Self {
        // A counter that admits all, of which only the estimate is used.
        let counter = SlidingWindow::new(CAPACITY_MAX, window.window_s()).expect("a valid window");
        Self { capacity: window.capacity(), log: Log::new(window), counter, state: None }
    }

    fn differs(&mut self, now_ms: u64) -> bool {
        let room = self.log.has_room(now_ms);
        self.log.count(now_ms);
        let (outcome, write) = self.counter.charge(self.state, now_ms, 1);
        self.state = write.map(|write| write.state);
        let within = CAPACITY_MAX - outcome.left <= self.capacity;
        within != room
    }
}

// === impl Tally ===

impl Tally {
    /// The share of requests that were decided otherwise than by the log, in percent.
    #[must_use]
    pub fn wrong_percent(&self) -> f64 {
        percent(self.wrongly_admitted + self.wrongly_denied, self.requests)
    }

    /// The share of decisions that broke the promise by the counter's own history, in percent.
    #[must_use]
    pub fn judged_percent(&self) -> f64 {
        percent(self.judged_over + self.judged_under, self.requests)
    }

    /// The share of requests at which counter and log differed in what they made of all that came, in percent.
    #[must_use]
    pub fn offered_percent(&self) -> f64 {
        percent(self.offered_differs, self.requests)
    }

    /// The share of requests that the log denied, in percent.
    #[must_use]
    pub fn denied_percent(&self) -> f64 {
        percent(self.requests - self.log_admitted, self.requests)
    }

    /// Adds another one's numbers.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.log_admitted += other.log_admitted;
        self.counter_admitted += other.counter_admitted;
        self.wrongly_admitted += other.wrongly_admitted;
        self.wrongly_denied += other.wrongly_denied;
        self.judged_over += other.judged_over;
        self.judged_under += other.judged_under;
        self.offered_differs += other.offered_differs;
        self.most_in_a_window = self.most_in_a_window.max(other.most_in_a_window);
    }
}

/// `part` of `whole` in percent; 0 of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests;
