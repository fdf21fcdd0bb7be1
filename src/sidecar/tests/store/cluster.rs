//! A cluster: every node and every event that there is, and what a check of several slots comes to.

use crate::ask::{admitted, all, begin, rule, up};
use kota_integration::cluster::Cluster;
use kota_integration::workdir::Workdir;

#[tokio::test(flavor = "multi_thread")]
async fn every_key_is_decided_by_the_node_that_owns_it() {
    let workdir = Workdir::new();
    let cluster = Cluster::start(workdir.path(), 3);
    let (store, _) = begin(&cluster.url());
    up(&store).await;
    let checks: Vec<_> =
        (0..300).map(|i| vec![rule(format!("{{k{i}}}a"), 2), rule(format!("{{k{i}}}b"), 3)]).collect();
    for passes in [true, true, false] {
        assert!(all(&store, &checks).await.iter().all(|answer| admitted(answer) == passes));
    }
    let keys: Vec<usize> = cluster.nodes().iter().map(|node| node.keys().len()).collect();
    assert!(keys.iter().sum::<usize>() == 600 && keys.iter().all(|keys| *keys > 100), "{keys:?}");
}
