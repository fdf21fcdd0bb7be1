//! What a node of a cluster may answer, and how often a call is sent then: again only if it certainly did not run.

use crate::ask::{admitted, asks, begin, one, rule, unknown, until, up};
use crate::fake::Fake;
use protocol::batch::Unknown;
use sidecar::store::redis::Redis;
use sidecar::store::{Status, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A cluster of one node, which answers a call of the key `odd` as it is told.
async fn node(odd: impl Fn(usize, u16) -> Option<String> + Send + Sync + 'static) -> (Fake, Redis) {
    let (port, calls) = (Arc::new(AtomicU16::new(0)), AtomicUsize::new(0));
    let own = Arc::clone(&port);
    let fake = Fake::start(move |words| match (words[0].as_str(), words.get(3).map(String::as_str)) {
        ("CLUSTER", _) => {
            let port = own.load(Ordering::SeqCst);
            Some(format!("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$-1\r\n:{port}\r\n$2\r\nid\r\n"))
        }
        ("EVALSHA", Some("odd")) => odd(calls.fetch_add(1, Ordering::SeqCst), own.load(Ordering::SeqCst)),
        _ => None,
    })
    .await;
    port.store(fake.port(), Ordering::SeqCst);
    let (store, _) = begin(&fake.url.replace("redis://", "redis+cluster://"));
    up(&store).await;
    (fake, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_goes_on_to_where_a_node_points_and_asks_there_if_it_has_to() {
    let (fake, store) = node(|nth, port| match nth {
        0 => Some(format!("-MOVED 1 127.0.0.1:{port}\r\n")),
        1 => Some(format!("-ASK 1 :{port}\r\n")),
        _ => None,
    })
    .await;
    let asked = fake.came("ASKING").len();
    assert!(admitted(&one(&store, &[rule("odd", 10)]).await));
    assert_eq!(fake.came("EVALSHA").len(), 3);
    assert_eq!(fake.came("ASKING").len() - asked, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_point_at_each_other_are_not_followed_for_ever() {
    let (fake, store) = node(|_, port| Some(format!("-MOVED 1 127.0.0.1:{port}\r\n"))).await;
    assert_eq!(unknown(&one(&store, &[rule("odd", 10)]).await), Some(Unknown::RedisError));
    assert_eq!(fake.came("EVALSHA").len(), 6);
    assert!(admitted(&one(&store, &[rule("even", 10)]).await));
}

/// LR-09 in a cluster: none of it is sent again, or reaches anybody as it is.
#[tokio::test(flavor = "multi_thread")]
async fn lr_09_what_a_node_refuses_otherwise_is_unknown_and_sent_once() {
    for code in [
        "CLUSTERDOWN",
        "TRYAGAIN",
        "LOADING",
        "MASTERDOWN",
        "READONLY",
        "MISCONF",
        "MOVED nonsense",
        "ASK 1 ?:1",
    ] {
        let (fake, store) = node(move |_, _| Some(format!("-{code} what a server says\r\n"))).await;
        assert_eq!(unknown(&one(&store, &[rule("odd", 10)]).await), Some(Unknown::RedisError), "{code}");
        assert_eq!(fake.came("EVALSHA").len(), 1, "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_is_lost_is_not_sent_again() {
    let (fake, store) = node(|_, _| Some(String::new())).await;
    let soon = Instant::now() + Duration::from_millis(100);
    let answers = store.decide(&asks([&[rule("odd", 10)][..]]), soon).await;
    assert_eq!(unknown(&answers[0]), Some(Unknown::RedisTimeout));
    // The connection is found dead and replaced, and others go on.
    fake.bury();
    until("the silence is noticed", || matches!(store.status(), Status::Away(_))).await;
    up(&store).await;
    assert!(admitted(&one(&store, &[rule("even", 10)]).await));
    assert_eq!(fake.came("EVALSHA").iter().filter(|words| words[3] == "odd").count(), 1);
}
