//! LR-03: requests whose clients lie on several primaries of a cluster. All of a request's rules admit, or none is charged.

use crate::ask::{Rule, admitted, asks, begin, one, outcomes, rule, unknown, until, up};
use crate::suite::suite;
use kota_integration::cluster::Cluster;
use kota_integration::redis::Reply;
use kota_integration::workdir::Workdir;
use limits::decision::Limit;
use protocol::batch::{Answer, Unknown, Verdict};
use sidecar::metrics::Metrics;
use sidecar::store::Store;
use sidecar::store::redis::Redis;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A cluster of three, a store on it, and a client on each primary.
struct Three {
    cluster: Cluster,
    store: Arc<Redis>,
    metrics: Metrics,
    clients: Vec<String>,
    _workdir: Workdir,
}

impl Three {
    async fn start() -> Self {
        let workdir = Workdir::new();
        let cluster = Cluster::start(workdir.path(), 3);
        let (store, metrics) = begin(&cluster.url());
        up(&store).await;
        let on = |owner: usize| {
            let mut names = (0..).map(|nth| format!("{{client{nth}}}"));
            names.find(|name| cluster.owner(cluster.slot(name), 0) == owner).unwrap()
        };
        let clients = (0..3).map(on).collect();
        Self { cluster, store: Arc::new(store), metrics, clients, _workdir: workdir }
    }

    /// A rule of the client on this primary.
    fn rule(&self, owner: usize, id: &str, capacity: u64) -> Rule {
        rule(format!("{}{id}", self.clients[owner]), capacity)
    }

    /// What is left in a bucket.
    async fn left(&self, rule: Rule) -> u64 {
        outcomes(&one(&*self.store, &[rule.cost(0)]).await)[0].left
    }

    /// Charges that are told as lost.
    fn lost(&self) -> u64 {
        let text = self.metrics.render(&*self.store);
        text.lines().find_map(|line| line.strip_prefix("kota_returns_lost_total ")).unwrap().parse().unwrap()
    }

    /// How many slots are held.
    fn held(&self, rule: &Rule) -> u64 {
        let node = self.cluster.node(self.cluster.owner(self.cluster.slot(&rule.key), 0));
        match node.command(&["ZCARD", &rule.key]) {
            Reply::Integer(held) => u64::try_from(held).unwrap(),
            other => panic!("ZCARD: {other:?}"),
        }
    }

    /// Waits until so much is left in a bucket.
    async fn until_left(&self, rule: &Rule, wanted: u64) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let left = match rule.limit() {
                // To ask is to take one.
                Limit::Concurrency(limit) => limit.capacity() - self.held(rule),
                _ => self.left(rule.clone()).await,
            };
            if left == wanted {
                return;
            }
            assert!(Instant::now() < until, "{rule:?}: {left} are left, not {wanted}");
        }
    }
}

/// The suite's checks have rules of several clients, too.
#[tokio::test(flavor = "multi_thread")]
async fn lr_03_a_cluster_does_what_every_store_does() {
    let workdir = Workdir::new();
    let cluster = Cluster::start(workdir.path(), 3);
    let (store, _) = begin(&cluster.url());
    up(&store).await;
    suite(store).await;
}

/// AL-16 over three primaries: a request by address, key and tenant; the order of its rules does not matter.
#[tokio::test(flavor = "multi_thread")]
async fn lr_03_al_16_a_rule_is_not_charged_for_what_another_denies() {
    let three = Three::start().await;
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let id = |owner: usize| format!("{order:?}{owner}");
        let rules = [three.rule(0, &id(0), 10), three.rule(1, &id(1), 1), three.rule(2, &id(2), 100).cost(5)];
        let ordered = order.map(|owner: usize| rules[owner].clone());
        let answer = one(&*three.store, &ordered).await;
        assert!(admitted(&answer));
        let left = |answer: &Answer| {
            order.iter().zip(outcomes(answer)).map(|(owner, told)| (*owner, told.left)).collect::<Vec<_>>()
        };
        let mut told = left(&answer);
        told.sort_unstable();
        assert_eq!(told, [(0, 9), (1, 0), (2, 95)]);
        for _ in 0..19 {
            let answer = one(&*three.store, &ordered).await;
            assert!(!admitted(&answer));
            for (owner, outcome) in order.iter().zip(outcomes(&answer)) {
                // What the others took is back, and their outcomes know nothing of it.
                let wanted = match owner {
                    0 => (Verdict::Admit, 9, true),
                    1 => (Verdict::Wait, 0, false),
                    _ => (Verdict::Admit, 95, true),
                };
                assert_eq!((outcome.verdict, outcome.left, outcome.wait_ms == 0), wanted, "rule {owner}");
            }
        }
        assert_eq!(three.left(rules[0].clone()).await, 9);
        assert_eq!(three.left(rules[2].clone()).await, 95);
    }
}

/// AL-16 as it was seen: one client who is throttled does not use up what is everybody's.
#[tokio::test(flavor = "multi_thread")]
async fn lr_03_al_16_a_throttled_client_does_not_drain_what_all_share() {
    let three = Three::start().await;
    for turned in [false, true] {
        let shared = three.rule(0, &format!("all{turned}"), 10).window();
        let passes = async |user: usize| {
            let mut rules = vec![rule(format!("{{user{user}}}{turned}"), 1).window(), shared.clone()];
            if turned {
                rules.reverse();
            }
            admitted(&one(&*three.store, &rules).await)
        };
        let mut passed = 0;
        for _ in 0..20 {
            passed += usize::from(passes(1).await);
        }
        assert_eq!(passed, 1);
        for user in 2..=10 {
            assert!(passes(user).await, "user {user}");
        }
        assert!(!passes(11).await, "all ten are used");
    }
}

/// A shadow is charged only if the request passes, and it admits itself.
#[tokio::test(flavor = "multi_thread")]
async fn lr_03_a_shadow_elsewhere_denies_nobody_and_gets_its_own_back() {
    let three = Three::start().await;
    let rules = [three.rule(0, "a", 2), three.rule(1, "b", 1).shadow(), three.rule(2, "c", 5)];
    assert!(admitted(&one(&*three.store, &rules).await));
    let answer = one(&*three.store, &rules).await;
    assert!(admitted(&answer) && outcomes(&answer)[1].verdict == Verdict::Wait);
    assert!(!admitted(&one(&*three.store, &rules).await));
    assert_eq!(three.left(rules[2].clone()).await, 3);
    // It took nothing of the denied one, so there is nothing to give back: it is as empty as it was.
    assert_eq!(three.left(rules[1].clone().cost(0)).await, 0);
}

/// Whatever the algorithm, and whichever of them denies.
#[tokio::test(flavor = "multi_thread")]
async fn lr_03_every_algorithm_gets_back_what_another_denies() {
    let three = Three::start().await;
    for denies in 0..3 {
        let capacity = |nth: usize| if nth == denies { 2 } else { 10 };
        let id = format!("d{denies}");
        let rules = [
            three.rule(0, &id, capacity(0)),
            three.rule(1, &id, capacity(1)).window(),
            three.rule(2, &id, capacity(2)).slots(),
        ];
        for left in [9, 8] {
            let answer = one(&*three.store, &rules).await;
            assert!(admitted(&answer));
            for (nth, outcome) in outcomes(&answer).iter().enumerate().filter(|(nth, _)| *nth != denies) {
                assert_eq!(outcome.left, left, "{:?}", rules[nth]);
            }
        }
        for _ in 0..5 {
            let answer = one(&*three.store, &rules).await;
            assert!(!admitted(&answer));
            for (nth, outcome) in outcomes(&answer).iter().enumerate() {
                let verdict = if nth == denies { Verdict::Wait } else { Verdict::Admit };
                let left = if nth == denies { 0 } else { 8 };
                assert_eq!((outcome.verdict, outcome.left), (verdict, left), "{:?}", rules[nth]);
            }
        }
        for (nth, rule) in rules.iter().enumerate() {
            three.until_left(rule, if nth == denies { 0 } else { 8 }).await;
        }
    }
}

/// Many at once, each with some of nine limits of every kind on three primaries: never is more admitted than a limit allows, and
/// when all is quiet, what is gone is what was admitted, to the token.
#[tokio::test(flavor = "multi_thread")]
async fn lr_03_concurrent_denials_never_admit_above_any_limit() {
    const TASKS: u64 = 16;
    const CHECKS: u64 = 120;
    const CAPACITY: u64 = 60;
    let three = Arc::new(Three::start().await);
    let limit = |nth: usize| {
        let rule = three.rule(nth % 3, &format!("b{nth}"), CAPACITY + 40 * (nth as u64 % 2));
        match nth / 3 {
            0 => rule,
            1 => rule.window(),
            _ => rule.slots(),
        }
    };
    let buckets: Arc<Vec<Rule>> = Arc::new((0..9).map(limit).collect());
    let passed: Arc<Vec<AtomicU64>> = Arc::new(buckets.iter().map(|_| AtomicU64::new(0)).collect());
    let denied = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (three, buckets) = (Arc::clone(&three), Arc::clone(&buckets));
            let (passed, denied) = (Arc::clone(&passed), Arc::clone(&denied));
            tokio::spawn(async move {
                let mut seed = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(task + 1);
                for _ in 0..CHECKS {
                    // xorshift64: which buckets, in which order.
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    let mut chosen: Vec<usize> = (0..9).filter(|nth| seed >> (3 * nth) & 3 == 0).collect();
                    let turn = (seed >> 40) as usize % chosen.len().max(1);
                    chosen.rotate_left(turn);
                    let rules: Vec<Rule> = chosen.iter().map(|nth| buckets[*nth].clone()).collect();
                    if admitted(&one(&*three.store, &rules).await) {
                        chosen.iter().for_each(|nth| _ = passed[*nth].fetch_add(1, Ordering::Relaxed));
                    } else {
                        denied.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(denied.load(Ordering::Relaxed) > TASKS * CHECKS / 4, "{denied:?} were denied");
    for (bucket, passed) in buckets.iter().zip(&*passed) {
        let (capacity, passed) = (bucket.limit().capacity(), passed.load(Ordering::Relaxed));
        assert!(passed <= capacity, "{bucket:?}: {passed} of {capacity}");
        three.until_left(bucket, capacity - passed).await;
    }
    assert_eq!(three.lost(), 0);
}

/// A node that stops in the middle: nobody knows, what the others took comes back at once, and what it takes when it goes on
/// comes back too.
#[tokio::test(flavor = "multi_thread")]
async fn lr_03_what_a_late_node_takes_is_given_back() {
    let three = Three::start().await;
    let rules = [three.rule(0, "a", 10), three.rule(1, "b", 10), three.rule(2, "c", 10)];
    three.cluster.node(2).process().freeze();
    let soon = Instant::now() + Duration::from_millis(200);
    let answers = three.store.decide(&asks([&rules[..], &rules[..2]]), soon).await;
    assert_eq!(unknown(&answers[0]), Some(Unknown::RedisTimeout));
    assert!(admitted(&answers[1]), "who does not need that node is decided");
    for rule in &rules[..2] {
        three.until_left(rule, 9).await;
    }
    let evalsha = || three.cluster.node(2).calls("evalsha");
    three.cluster.node(2).process().thaw();
    until("it has charged and given back", || evalsha() >= 2).await;
    three.until_left(&rules[2], 10).await;
    assert!(admitted(&one(&*three.store, &rules).await));
}

/// A node that dies: the others' part comes back.
#[tokio::test(flavor = "multi_thread")]
async fn lr_03_what_others_took_for_a_dead_node_is_given_back() {
    let three = Three::start().await;
    let rules = [three.rule(0, "a", 10), three.rule(2, "c", 10), three.rule(1, "b", 10)];
    three.cluster.node(2).process().kill();
    let answer = one(&*three.store, &rules).await;
    assert_eq!(unknown(&answer), Some(Unknown::RedisError));
    three.until_left(&rules[0], 10).await;
    three.until_left(&rules[2], 10).await;
}

/// What was on its way to a node that dies may be charged there, and is told as lost.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dying_node_may_have_taken_is_counted() {
    let three = Three::start().await;
    let rules = [three.rule(0, "a", 10), three.rule(2, "b", 10), three.rule(2, "c", 10).slots()];
    let (store, check) = (Arc::clone(&three.store), rules.to_vec());
    three.cluster.node(2).process().freeze();
    let asked = three.cluster.node(0).calls("evalsha");
    let answer = tokio::spawn(async move { one(&*store, &check).await });
    until("the others have charged", || three.cluster.node(0).calls("evalsha") > asked).await;
    three.cluster.node(2).process().kill();
    assert_eq!(unknown(&answer.await.unwrap()), Some(Unknown::RedisError));
    assert_eq!(three.lost(), 2);
}

/// A node that stands still while thousands ask: what waits for it is bounded, what is beyond is told as lost at once, and all
/// else comes back.
#[tokio::test(flavor = "multi_thread")]
async fn late_answers_that_are_waited_for_are_bounded() {
    /// `RETURNS_MAX`, and some more.
    const BATCHES: u64 = 1_024 + 100;
    let three = Three::start().await;
    let rules = [three.rule(0, "a", 30_000), three.rule(2, "b", 30_000)];
    three.cluster.node(2).process().freeze();
    let soon = Instant::now() + Duration::from_millis(200);
    let ask = || {
        let (store, asks) = (Arc::clone(&three.store), asks([&rules[..]]));
        tokio::spawn(async move { store.decide(&asks, soon).await })
    };
    let batches: Vec<_> = (0..BATCHES).map(|_| ask()).collect();
    for batch in batches {
        assert_eq!(unknown(&batch.await.unwrap()[0]), Some(Unknown::RedisTimeout));
    }
    // Those that have waited long enough by now are lost, too.
    assert!(three.lost() >= 100, "{}", three.lost());
    three.cluster.node(2).process().thaw();
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let left = three.left(rules[0].clone()).await + three.left(rules[1].clone()).await;
        if 2 * 30_000 - left <= three.lost() {
            return;
        }
        assert!(Instant::now() < until, "{left} are left, {} are told as lost", three.lost());
    }
}
