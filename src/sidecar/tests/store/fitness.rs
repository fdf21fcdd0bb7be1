//! LR-10, LR-11: a server that can't do the work is found out at once, and by name.

use crate::ask::{admitted, begin, one, rule, unknown, until, up};
use crate::fake::{Fake, bulk};
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
async fn lr_10_a_missing_right_is_named_and_its_grant_is_noticed() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    let url = format!("redis://kota:pw@127.0.0.1:{}", server.port());
    for (rights, named) in [
        (&["~rl:*", "+@all", "-evalsha"][..], "evalsha"),
        (&["~rl:*", "+@all", "-time"], "time"),
        (&["~rl:*", "+@all", "-set"], "set"),
        (&["~rl:*", "+@all", "-script"], "script"),
        (&["~other:*", "+@all"], "key"),
    ] {
        acl(&server, rights);
        let (store, _) = begin(&url);
        let cause = cause(&store).await;
        assert!(cause.to_lowercase().contains(named), "{rights:?}: {cause}");
        assert_eq!(unknown(&one(&store, &[rule("rl:a", 10)]).await), Some(Unknown::RedisError));
        acl(&server, &["~rl:*", "+@all"]);
        up(&store).await;
        assert!(admitted(&one(&store, &[rule("rl:a", 100)]).await));
    }
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

/// What the script and the sidecar need, and no more: the README's ACL line.
#[tokio::test(flavor = "multi_thread")]
async fn the_rights_that_are_documented_are_enough() {
    let workdir = Workdir::new();
    let server = Server::start(workdir.path());
    acl(&server, &["~rl:*", "+evalsha", "+script|load", "+time", "+mget", "+set"]);
    let (store, _) = begin(&format!("redis://kota:pw@127.0.0.1:{}", server.port()));
    up(&store).await;
    assert!(admitted(&one(&store, &[rule("rl:a", 10), rule("rl:b", 10)]).await));
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
