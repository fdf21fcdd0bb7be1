mod extras;

use super::*;
use crate::store::memory::Memory;
use protocol::batch::{Call, Outcome, Value, Verdict};

fn decider() -> Arc<Decider> {
    let keys = Keys::new(&[7; 32]);
    Arc::new(Decider::new(AnyStore::Memory(Memory::new(1_000)), keys, Metrics::new()))
}

fn bucket(id: &str, capacity: u64) -> RuleForm<'_> {
    let algorithm = Algorithm::TokenBucket { capacity, refill_num: 1, refill_den: 1_000, idle_s: 0 };
    RuleForm { id, algorithm, shadow: false, penalty: None }
}

fn check(client: &[u8], rules: std::ops::Range<u16>) -> Check<'_> {
    Check {
        values: vec![Value { kind: "api_key", bytes: Some(client), secret: true }],
        calls: rules.map(|rule| Call { rule, cost: 1, key: vec![0] }).collect(),
        lease: 0,
        slot: &[],
    }
}

fn batch<'a>(rules: Vec<RuleForm<'a>>, checks: Vec<Check<'a>>) -> Batch<'a> {
    Batch {
        domain: "public-api",
        budget_ms: 1_000,
        rules,
        checks,
        give_backs: vec![],
        debits: vec![],
        local_counts: vec![],
        releases: vec![],
        renewals: vec![],
    }
}

async fn send(decider: &Arc<Decider>, batch: &Batch<'_>) -> Result<Vec<Answer>, Malformed> {
    let bytes = batch::encode_batch(batch, Vec::new()).unwrap();
    let answer = decider.batch(bytes.into(), Instant::now()).await?;
    Ok(batch::decode_answers(&answer).unwrap().answers)
}

fn left(answer: &Answer) -> Vec<u64> {
    match answer {
        Answer::Admitted(outcomes) | Answer::Denied(outcomes) => outcomes.iter().map(|it| it.left).collect(),
        Answer::Unknown(_) => vec![],
    }
}

#[tokio::test]
async fn checks_are_answered_in_their_order_and_charge_their_own_buckets() {
    let decider = decider();
    let rules = vec![bucket("one", 1), bucket("ten", 10)];
    let checks = vec![check(b"a", 0..2), check(b"b", 0..2), check(b"a", 0..2), check(b"a", 1..2)];
    let answers = send(&decider, &batch(rules, checks)).await.unwrap();
    assert!(matches!(answers[0], Answer::Admitted(_)) && matches!(answers[1], Answer::Admitted(_)));
    assert_eq!((left(&answers[0]), left(&answers[1])), (vec![0, 9], vec![0, 9]));
    // The first rule denies, so the second is not charged.
    assert!(matches!(answers[2], Answer::Denied(_)));
    assert_eq!((left(&answers[2]), left(&answers[3])), (vec![0, 9], vec![8]));
}

#[tokio::test]
async fn a_check_without_rules_and_a_batch_without_checks_pass() {
    let decider = decider();
    let answers = send(&decider, &batch(vec![], vec![check(b"a", 0..0)])).await.unwrap();
    assert_eq!(answers, [Answer::Admitted(vec![])]);
    assert_eq!(send(&decider, &batch(vec![], vec![])).await, Ok(vec![]));
}

#[tokio::test]
async fn a_rule_of_another_version_leaves_only_its_own_checks_undecided() {
    let decider = decider();
    let later =
        RuleForm { algorithm: Algorithm::SlidingWindow { capacity: 1, window_s: 0 }, ..bucket("slots", 1) };
    let never = RuleForm { id: "zero", ..bucket("zero", 0) };
    let rules = vec![bucket("one", 1), later, never];
    let checks = vec![check(b"a", 1..2), check(b"a", 0..2), check(b"a", 0..1), check(b"a", 2..3)];
    let answers = send(&decider, &batch(rules, checks)).await.unwrap();
    let unknown = Answer::Unknown(Unknown::Version);
    let outcome = |wait_ms| Outcome { verdict: Verdict::Admit, left: 0, wait_ms, leased: 0 };
    assert_eq!(
        answers,
        [unknown.clone(), unknown.clone(), Answer::Admitted(vec![outcome(1_000_000)]), unknown]
    );
}

#[tokio::test]
async fn another_version_of_the_wire_gets_unknown_answers() {
    let answer = decider().batch(Bytes::from_static(&[9, 1, 2, 3]), Instant::now()).await.unwrap();
    let answers = batch::decode_answers(&answer).unwrap().answers;
    assert!(!answers.is_empty() && answers.iter().all(|it| *it == Answer::Unknown(Unknown::Version)));
}

#[tokio::test]
async fn what_could_forge_a_key_is_malformed() {
    let decider = decider();
    let twice = Check { calls: vec![Call { rule: 0, cost: 1, key: vec![0] }; 2], ..check(b"a", 0..1) };
    let kind = Check {
        values: vec![Value { kind: "user:x}", bytes: Some(b"a"), secret: false }],
        ..check(b"a", 0..1)
    };
    let good = batch(vec![bucket("one", 1)], vec![check(b"a", 0..1)]);
    for bad in [
        Batch { domain: "a:b", ..good.clone() },
        Batch { domain: "", ..good.clone() },
        Batch { rules: vec![bucket("}x", 1)], ..good.clone() },
        Batch { checks: vec![twice], ..good.clone() },
        Batch { checks: vec![kind], ..good.clone() },
    ] {
        assert_eq!(send(&decider, &bad).await, Err(Malformed), "{bad:?}");
    }
    assert_eq!(decider.batch(Bytes::from_static(b"\x01garbage"), Instant::now()).await, Err(Malformed));
    assert_eq!(decider.batch(Bytes::new(), Instant::now()).await, Err(Malformed));
    assert!(matches!(send(&decider, &good).await.unwrap()[0], Answer::Admitted(_)));
}

#[test]
fn the_store_has_less_time_than_the_caller_so_that_the_reason_gets_home() {
    let budgets = [0, 1, 2, 5, 20, 1_000, 60_000, u32::MAX].map(|ms| store_budget(ms).as_micros());
    assert_eq!(budgets, [1_000, 1_000, 1_000, 3_500, 18_000, 900_000, 54_000_000, 54_000_000]);
}
