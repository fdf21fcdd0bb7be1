//! What clients are told of every kind of limit.

use super::*;

const KINDS: &str = r#"{ "rules": [
    { "id": "bucket", "algorithm": "TOKEN_BUCKET", "capacity": 10, "refillPerSecond": 5, "match": { "path": ["/b", "/all"] } },
    { "id": "window", "algorithm": "SLIDING_WINDOW", "capacity": 7, "windowSeconds": 90, "match": { "path": ["/w", "/all"] } },
    { "id": "at-once", "algorithm": "CONCURRENCY", "capacity": 3, "leaseSeconds": 10, "match": { "path": ["/c", "/all"] } } ] }"#;

fn kinds() -> Config {
    Config::parse(KINDS.as_bytes()).unwrap()
}

fn admitted(path: &str, outcomes: Vec<Outcome>) -> Told {
    let config = kinds();
    let mut exchange = waiting(&config, path);
    exchange.on_ruling(&config, &Ruling::Decided(Answer::Admitted(outcomes)), &mut Tally::new());
    exchange.on_response().unwrap()
}

fn denied(path: &str, outcomes: Vec<Outcome>) -> Reply {
    let config = kinds();
    let mut exchange = waiting(&config, path);
    match exchange.on_ruling(&config, &Ruling::Decided(Answer::Denied(outcomes)), &mut Tally::new()) {
        Action::Reply(reply, _) => *reply,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sliding_window_is_announced_with_its_own_window() {
    let told = admitted("/w", vec![admit(6)]);
    assert_eq!(header(&told.fields, "ratelimit-policy"), Some(r#""window";q=7;w=90"#));
    assert_eq!(header(&told.fields, "ratelimit"), Some(r#""window";r=6;t=90"#));
    let reply = denied("/w", vec![outcome(batch::Verdict::Wait, 0, 12_001)]);
    assert_eq!(header(&reply.headers, "ratelimit"), Some(r#""window";r=0;t=13"#));
    assert_eq!(header(&reply.headers, "retry-after"), Some("13"));
    assert_eq!(reply.detail, "This API is limited to 7 requests per 90 seconds; try again in 13 seconds.");
}

#[test]
fn concurrency_is_announced_in_its_own_unit_and_only_a_denial_names_a_time() {
    let told = admitted("/c", vec![admit(2)]);
    assert_eq!(header(&told.fields, "ratelimit-policy"), Some(r#""at-once";q=3;qu="concurrent-requests""#));
    assert_eq!(header(&told.fields, "ratelimit"), Some(r#""at-once";r=2"#));
    assert_eq!(header(&told.legacy, "x-ratelimit-reset"), None);
    for (wait_ms, seconds) in [(0, "1"), (1, "1"), (1_000, "1"), (1_001, "2"), (9_400, "10")] {
        let reply = denied("/c", vec![outcome(batch::Verdict::Wait, 0, wait_ms)]);
        assert_eq!(header(&reply.headers, "retry-after"), Some(seconds), "{wait_ms}");
        assert_eq!(header(&reply.headers, "ratelimit"), Some(&*format!(r#""at-once";r=0;t={seconds}"#)));
    }
    let reply = denied("/c", vec![outcome(batch::Verdict::Wait, 0, 3_000)]);
    assert_eq!(reply.detail, "This API is limited to 3 requests at a time; try again in 3 seconds.");
}

#[test]
fn hh_07_rules_of_every_kind_stand_in_one_list_and_the_tightest_is_told() {
    let policy = r#""bucket";q=300;w=60, "window";q=7;w=90, "at-once";q=3;qu="concurrent-requests""#;
    let told = admitted("/all", vec![admit(9), admit(4), admit(2)]);
    assert_eq!(header(&told.fields, "ratelimit-policy"), Some(policy));
    assert_eq!(header(&told.fields, "ratelimit"), Some(r#""at-once";r=2"#));
    let told = admitted("/all", vec![admit(9), admit(1), admit(2)]);
    assert_eq!(header(&told.fields, "ratelimit"), Some(r#""window";r=1;t=90"#));
    let reply = denied(
        "/all",
        vec![admit(9), outcome(batch::Verdict::Wait, 0, 20_000), outcome(batch::Verdict::Wait, 0, 4_000)],
    );
    assert_eq!(header(&reply.headers, "ratelimit-policy"), Some(policy));
    assert_eq!(header(&reply.headers, "ratelimit"), Some(r#""window";r=0;t=20"#), "the longest wait");
    assert!(reply.body.contains(r#""violated-policies":["window","at-once"]"#), "{}", reply.body);
}
