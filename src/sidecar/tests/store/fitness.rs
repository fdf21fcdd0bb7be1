//! LR-10, LR-11: a server that can't do the work is found out at once, and by name.

use crate::ask::{admitted, all, begin, one, rule, unknown, until, up};
use crate::fake::{Fake, bulk};
use kota_integration::cluster::Cluster;
use kota_integration::redis::{Redis as Server, Reply};
use kota_integration::workdir::Workdir;
use protocol::batch::Unknown;
use sidecar::store::redis::Redis;
use sidecar::store::{Status, Store};

async fn cause(store: &Redis) -> String {
    until("the server is found unfit", || matches!(store.status(), Status::Unfit(_))).await;
    store.status().reason().to_owned()
}

fn acl(server: &Server, rights: &[&str]) {
    let words: Vec<&str> =
        ["ACL", "SETUSER", "kota", "reset", "on", ">pw"].iter().chain(rights).copied().collect();
    assert_eq!(server.command(&words), Reply::Simple("OK".to_owned()), "{rights:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lr_10_each_missing_right_is_named_and_its_grant_is_noticed() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    each_right_is_named(std::slice::from_ref(&server), &server.url(), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lr_10_each_right_that_is_missing_in_a_cluster_is_named() {
    let workdir = Workdir::new();
    let cluster = Cluster::start(workdir.path(), 3);
    each_right_is_named(cluster.nodes(), &cluster.url(), true).await;
}

/// Of the least rights that are documented: all of them are enough, and without any one of them it is named.
async fn each_right_is_named(servers: &[Server], url: &str, cluster: bool) {
    let url = url.replace("://", "://kota:pw@");
    let rights = Redis::rights(cluster);
    let rights: Vec<&str> = rights.split(' ').collect();
    let grant = |rights: &[&str]| servers.iter().for_each(|server| acl(server, rights));
    // Keys on each node, two rules at once.
    let checks: Vec<_> = (0..16)
        .map(|i| vec![rule(format!("rl:{{k{i}}}a"), 100), rule(format!("rl:{{k{i}}}b"), 100)])
        .collect();
    // Without these two all works; the server only logs each refusal.
    let needed = rights.iter().filter(|right| !["+ping", "+info"].contains(right));
    for missing in needed {
        let others: Vec<&str> = rights.iter().filter(|right| *right != missing).copied().collect();
        grant(&others);
        let (store, _) = begin(&url);
        let cause = cause(&store).await;
        let named = missing.trim_start_matches('+').split('|').next().unwrap().to_lowercase();
        let named = if *missing == "~rl:*" { "key" } else { &named };
        let without_remedy = cause.split("; grant").next().unwrap().to_lowercase();
        assert!(without_remedy.contains(named), "{missing}: {cause}");
        let answers = all(&store, &checks).await;
        assert!(answers.iter().all(|answer| unknown(answer) == Some(Unknown::RedisError)), "{missing}");
        grant(&rights);
        up(&store).await;
        assert!(all(&store, &checks).await.iter().all(admitted), "{missing}");
    }
}

/// A database other than the first has to be selected, which is a right of its own.
#[tokio::test(flavor = "multi_thread")]
async fn lr_10_the_right_to_select_a_database_is_named_where_it_is_needed() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let rights = Redis::rights(false);
    acl(&server, &rights.split(' ').collect::<Vec<_>>());
    let (store, _) = begin(&format!("redis://kota:pw@127.0.0.1:{}/3", server.port()));
    let cause = cause(&store).await;
    assert!(cause.contains("'select'") && cause.contains("grant +select"), "{cause}");
    server.command(&["ACL", "SETUSER", "kota", "+select"]);
    up(&store).await;
    assert!(admitted(&one(&store, &[rule("rl:a", 100)]).await));
    assert_eq!(server.keys(), [""; 0], "it is not in the first database");
}

/// A right that is taken away under a running sidecar is noticed by the checks that need it.
#[tokio::test(flavor = "multi_thread")]
async fn lr_10_a_right_that_is_lost_while_running_is_noticed() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    acl(&server, &["~rl:*", "+@all"]);
    let (store, metrics) = begin(&format!("redis://kota:pw@127.0.0.1:{}", server.port()));
    up(&store).await;
    for lost in ["set", "mget", "time", "evalsha"] {
        assert!(admitted(&one(&store, &[rule("rl:a", 100)]).await));
        server.command(&["ACL", "SETUSER", "kota", &format!("-{lost}")]);
        // Every connection learns it from a check of its own.
        while store.status() == Status::Up {
            assert_eq!(
                unknown(&one(&store, &[rule("rl:a", 100)]).await),
                Some(Unknown::RedisError),
                "{lost}"
            );
        }
        // Away, not unfit: it has worked before.
        let status = || store.status();
        let named = || matches!(status(), Status::Away(cause) if cause.to_lowercase().contains(lost));
        until("the lost right is named", named).await;
        assert!(metrics.render(&store).contains("kota_store_up 0\n"));
        server.command(&["ACL", "SETUSER", "kota", &format!("+{lost}")]);
        up(&store).await;
    }
}

/// A server of the wrong kind is told from one that is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_and_a_single_server_are_told_apart() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let cause_of = async |url: &str| cause(&begin(url).0).await;
    let told = cause_of(&server.url().replace("redis:", "redis+cluster:")).await;
    assert!(told.contains("is no node of a Redis Cluster; say redis://"), "{told}");
    let cluster = Cluster::start(&workdir.path().join("cluster"), 2);
    let told = cause_of(&cluster.node(0).url()).await;
    assert!(told.contains("is a node of a Redis Cluster; say redis+cluster://"), "{told}");
    // Also where neither may be asked what it is.
    acl(cluster.node(0), &Redis::rights(true).split(' ').collect::<Vec<_>>());
    let told = cause_of(&cluster.node(0).url().replace("://", "://kota:pw@")).await;
    assert!(told.contains("is a node of a Redis Cluster; say redis+cluster://"), "{told}");
    acl(&server, &Redis::rights(true).split(' ').collect::<Vec<_>>());
    let told = cause_of(&server.url().replace("redis://", "redis+cluster://kota:pw@")).await;
    assert!(told.contains("is no node of a Redis Cluster; say redis://"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lr_11_a_wrong_password_is_named_and_a_changed_one_does_not_end_readiness() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    acl(&server, &["~rl:*", "+@all"]);
    let (store, _) = begin(&format!("redis://kota:old@127.0.0.1:{}", server.port()));
    let cause = cause(&store).await;
    assert!(cause.contains("connect") && !cause.contains("old"), "{cause}");
    server.command(&["ACL", "SETUSER", "kota", ">old"]);
    up(&store).await;
    // Rotated under a running sidecar: away, not unfit, so that no pod of the API goes out of service.
    server.command(&["ACL", "SETUSER", "kota", "<old"]);
    server.command(&["CLIENT", "KILL", "USER", "kota"]);
    until("the loss is noticed", || matches!(store.status(), Status::Away(_))).await;
    server.command(&["ACL", "SETUSER", "kota", ">old"]);
    up(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lr_10_an_old_server_is_named_with_what_is_needed() {
    let old = |words: &[String]| (words[0] == "INFO").then(|| bulk("redis_version:5.0.14\r\n"));
    let (store, _) = begin(&Fake::start(old).await.url);
    let cause = cause(&store).await;
    assert_eq!(cause, "Redis 5.0.14 is too old; 6.2 or later is needed");
}
