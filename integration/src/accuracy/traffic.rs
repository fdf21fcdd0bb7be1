//! Who sends how much and when: clients of a few kinds, popular by Zipf's law, busier by day than by night.

use serde::Serialize;

use super::random::Random;

/// 2026-09-21 00:00 UTC, in milliseconds since the epoch.
const MIDNIGHT_MS: f64 = 1_789_948_800_000.0;
const DAY_S: f64 = 86_400.0;

/// The traffic of a day, or of its first so many seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Traffic {
    /// How many clients.
    pub clients: u64,
    /// How long, in seconds.
    pub seconds: f64,
    /// How busy each of them is.
    pub popularity: Popularity,
    /// How fast a job sends, in requests a second.
    pub job_per_second: f64,
}

/// How busy clients are.
#[derive(Debug, Clone, Copy, Serialize)]
pub enum Popularity {
    /// The n-th of them sends a share of 1/n^exponent of all requests.
    Zipf {
        /// 1 is Zipf's own law.
        exponent: f64,
        /// Requests a second of all together, on the mean of the day.
        per_second: f64,
    },
    /// Each sends so much a second on its own mean, evenly spread over the range.
    Between {
        /// The least.
        low: f64,
        /// The most.
        high: f64,
    },
}

/// How a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A person: visits, each of some pages, each of them some requests within a second; by day more than by night.
    Browsing,
    /// A server that passes on what its own users do: independent requests, by day more than by night.
    Forwarding,
    /// A timer: one request every so often, day and night.
    Polling,
    /// A job that starts every hour and sends what has come together, at its own pace.
    Batch,
}

// === impl Traffic ===

impl Traffic {
    /// How each client sends, and its requests of the day, in milliseconds since the epoch and in their order; the busiest first.
    pub fn each(self, seed: u64) -> impl Iterator<Item = (Kind, Vec<u64>)> {
        let all = match self.popularity {
            Popularity::Zipf { exponent, .. } => (1..=self.clients).map(|rank| weight(rank, exponent)).sum(),
            Popularity::Between { .. } => 1.0,
        };
        (1..=self.clients).map(move |rank| self.client(rank, all, seed))
    }

    fn client(&self, rank: u64, all: f64, seed: u64) -> (Kind, Vec<u64>) {
        let mut random = Random::new(seed, rank);
        let kind = match random.unit() {
            share if share < 0.60 => Kind::Browsing,
            share if share < 0.85 => Kind::Forwarding,
            share if share < 0.95 => Kind::Polling,
            _ => Kind::Batch,
        };
        let rate = match self.popularity {
            Popularity::Zipf { exponent, per_second } => per_second * weight(rank, exponent) / all,
            Popularity::Between { low, high } => random.between(low, high),
        };
        let mut moments = match kind {
            Kind::Browsing => self.browsing(rate, &mut random),
            Kind::Forwarding => self.forwarding(rate, &mut random),
            Kind::Polling => self.polling(rate, &mut random),
            Kind::Batch => self.batch(rate, &mut random),
        };
        moments.retain(|second| *second < self.seconds);
        moments.sort_by(f64::total_cmp);
        (kind, moments.into_iter().map(|second| (MIDNIGHT_MS + second * 1_000.0) as u64).collect())
    }

    fn browsing(&self, rate: f64, random: &mut Random) -> Vec<f64> {
        const PAGES: f64 = 6.0;
        const REQUESTS: f64 = 8.0;
        let mut moments = Vec::new();
        for visit in self.events(rate / (PAGES * REQUESTS), random) {
            let mut page = visit;
            for _ in 0..random.geometric(PAGES) {
                moments.extend((0..random.geometric(REQUESTS)).map(|_| page + random.unit()));
                page += 2.0 + random.exponential(20.0);
            }
        }
        moments
    }

    fn forwarding(&self, rate: f64, random: &mut Random) -> Vec<f64> {
        self.events(rate, random)
    }

    fn polling(&self, rate: f64, random: &mut Random) -> Vec<f64> {
        let every = 1.0 / rate;
        let first = random.between(0.0, every);
        let mut moments = Vec::new();
        let mut moment = first;
        while moment < self.seconds {
            moments.push(moment + random.between(0.0, 0.05));
            moment += every;
        }
        moments
    }

    fn batch(&self, rate: f64, random: &mut Random) -> Vec<f64> {
        const EVERY: f64 = 3_600.0;
        let minute = random.between(0.0, EVERY.min(self.seconds));
        let mut moments = Vec::new();
        let mut start = minute;
        while start < self.seconds {
            let requests = random.geometric(rate * EVERY.min(self.seconds));
            moments.extend((0..requests).map(|i| start + i as f64 / self.job_per_second));
            start += EVERY;
        }
        moments
    }

    /// Independent events at this mean rate a second: three times as many at 15:00 as at 03:00.
    fn events(&self, rate: f64, random: &mut Random) -> Vec<f64> {
        let mut moments = Vec::new();
        let mut moment = 0.0;
        while moment < self.seconds {
            let hour = (moment / DAY_S - 0.375) * core::f64::consts::TAU;
            moment += random.exponential(1.0 / (rate * (1.0 + 0.5 * hour.sin())));
            moments.push(moment);
        }
        moments
    }
}

fn weight(rank: u64, exponent: f64) -> f64 {
    (rank as f64).powf(-exponent)
}
