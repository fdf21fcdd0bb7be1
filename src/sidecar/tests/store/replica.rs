//! A primary with its replicas: whichever is the primary is used.

use crate::ask::{Rule, admitted, begin, one, outcomes, rule, unknown, until, up};
use kota_integration::redis::Redis as Server;
use kota_integration::workdir::Workdir;
use protocol::batch::Unknown;
use sidecar::store::{Status, Store};

fn places(servers: &[&Server]) -> String {
    servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect::<Vec<_>>().join(",")
}

fn check() -> [Rule; 1] {
    [rule("a", 1_000)]
}

async fn left(store: &impl Store) -> u64 {
    outcomes(&one(store, &[rule("a", 1_000).cost(0)]).await)[0].left
}

/// The replica stands first: it is tried, and found to be none.
#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_found_wherever_it_stands_and_after_each_change() {
    let workdir = Workdir::new();
    let dir = |name: &str| {
        let path = workdir.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let primary = Server::start(&dir("primary"));
    let replica = primary.replica(&dir("replica"));
    let (store, _) = begin(&format!("redis://{}", places(&[&replica, &primary])));
    up(&store).await;
    assert!(admitted(&one(&store, &check()).await));
    until("the replica has the primary's decision", || replica.keys() == ["a"]).await;

    // In good order: what is refused meanwhile did not run, and no count is lost.
    assert_eq!(primary.command(&["FAILOVER"]).text(), "OK");
    until("the replica is the primary", || replica.info("replication").contains("role:master")).await;
    let mut answer = one(&store, &check()).await;
    while let Some(reason) = unknown(&answer) {
        assert_eq!(reason, Unknown::RedisError);
        answer = one(&store, &check()).await;
    }
    assert!(admitted(&answer));
    assert_eq!(left(&store).await, 998);

    // By force: the primary dies, and somebody makes the other one it.
    primary.wait_caught_up();
    let state = |server: &Server| server.command(&["GET", "a"]);
    until("the count is on both", || state(&primary) == state(&replica)).await;
    replica.process().kill();
    let told = || matches!(store.status(), Status::Away(reason) if reason.contains("is a replica"));
    until("it is known that there is no primary", told).await;
    assert_eq!(unknown(&one(&store, &check()).await), Some(Unknown::RedisError));
    primary.command(&["REPLICAOF", "NO", "ONE"]);
    up(&store).await;
    assert_eq!(left(&store).await, 998);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_alone_is_named_as_one() {
    let workdir = Workdir::new();
    let dir = |name: &str| {
        let path = workdir.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    let primary = Server::start(&dir("primary"));
    let replica = primary.replica(&dir("replica"));
    let (store, _) = begin(&replica.url());
    until("the server is found unfit", || matches!(store.status(), Status::Unfit(_))).await;
    assert!(store.status().reason().starts_with("is a replica (READONLY)"), "{:?}", store.status());
}
