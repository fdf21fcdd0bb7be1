//! TLS: to one server and to a cluster, and what is said when it does not come about.

use crate::ask::{admitted, all, begin_with, one, rule, until, up};
use kota_integration::certificates::Authority;
use kota_integration::cluster::Cluster;
use kota_integration::redis::Redis as Server;
use kota_integration::workdir::{Workdir, free_port};
use sidecar::store::redis::{Redis, TlsFiles};
use sidecar::store::{Status, Store};
use std::path::Path;

fn trusting(ca: &Authority) -> TlsFiles {
    TlsFiles { ca: Some(ca.cert().display().to_string()), ..TlsFiles::default() }
}

async fn cause(store: &Redis) -> String {
    until("the server is found unfit", || matches!(store.status(), Status::Unfit(_))).await;
    store.status().reason().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_behind_tls_is_used_by_those_who_trust_its_ca() {
    let workdir = Workdir::new();
    let (ca, port) = (Authority::new(&workdir.path().join("ca")), free_port());
    let own = ca.sign("redis", "IP:127.0.0.1,DNS:localhost");
    let server = Server::start_with(free_port(), workdir.path(), &ca.server_options(port, &own, "no"));
    for host in ["127.0.0.1", "localhost"] {
        let (store, _) = begin_with(&format!("rediss://{host}:{port}"), &trusting(&ca));
        up(&store).await;
        assert!(admitted(&one(&store, &[rule("a", 10)]).await));
    }
    assert_eq!(server.keys(), ["a"]);

    // Whom nobody vouches for is refused, and it is said why.
    let stranger = Authority::new(&workdir.path().join("stranger"));
    let url = format!("rediss://:s3cret@127.0.0.1:{port}");
    for files in [trusting(&stranger), TlsFiles::default()] {
        let cause = cause(&begin_with(&url, &files).0).await;
        assert!(cause.contains("invalid peer certificate") && cause.contains("--redis-ca"), "{cause}");
        assert!(!cause.contains("s3cret"), "{cause}");
    }
    // Who speaks no TLS says nothing.
    let (store, _) = begin_with(&format!("rediss://127.0.0.1:{}", server.port()), &trusting(&ca));
    let told = || matches!(store.status(), Status::Away(reason) if reason.contains("no TLS there"));
    until("it is said what may be wrong", told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_name_is_refused() {
    let workdir = Workdir::new();
    let (ca, port) = (Authority::new(&workdir.path().join("ca")), free_port());
    let own = ca.sign("redis", "DNS:redis.example");
    let _server = Server::start_with(free_port(), workdir.path(), &ca.server_options(port, &own, "no"));
    let cause = cause(&begin_with(&format!("rediss://127.0.0.1:{port}"), &trusting(&ca)).0).await;
    assert!(
        cause.contains("not valid for name") && cause.contains("a name that its certificate bears"),
        "{cause}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_a_certificate_of_ours_gets_it() {
    let workdir = Workdir::new();
    let (ca, port) = (Authority::new(&workdir.path().join("ca")), free_port());
    let own = ca.sign("redis", "IP:127.0.0.1");
    let _server = Server::start_with(free_port(), workdir.path(), &ca.server_options(port, &own, "yes"));
    let url = format!("rediss://127.0.0.1:{port}");
    let cause = cause(&begin_with(&url, &trusting(&ca)).0).await;
    assert!(cause.contains("--redis-cert"), "{cause}");
    let ours = ca.sign("kota", "DNS:kota");
    let path = |path: &Path| Some(path.display().to_string());
    let files = TlsFiles { cert: path(&ours.cert), key: path(&ours.key), ..trusting(&ca) };
    let (store, _) = begin_with(&url, &files);
    up(&store).await;
    assert!(admitted(&one(&store, &[rule("a", 10)]).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_behind_tls_is_found_by_any_of_its_nodes() {
    let workdir = Workdir::new();
    let ca = Authority::new(&workdir.path().join("ca"));
    let own = ca.sign("redis", "IP:127.0.0.1");
    let cluster = Cluster::start_behind_tls(workdir.path(), 3, |port| ca.server_options(port, &own, "no"));
    let (store, metrics) = begin_with(&cluster.url(), &trusting(&ca));
    up(&store).await;
    let checks: Vec<_> = (0..60).map(|i| vec![rule(format!("{{k{i}}}"), 1)]).collect();
    for passes in [true, false] {
        assert!(all(&store, &checks).await.iter().all(|answer| admitted(answer) == passes));
    }
    assert!(cluster.nodes().iter().all(|node| !node.keys().is_empty()));
    assert!(metrics.render(&store).contains("kota_store_up 1\n"));

    let stranger = Authority::new(&workdir.path().join("stranger"));
    let cause = cause(&begin_with(&cluster.url(), &trusting(&stranger)).0).await;
    assert!(cause.contains("name its CA by --redis-ca"), "{cause}");
}
