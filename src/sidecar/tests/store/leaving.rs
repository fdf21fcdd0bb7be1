//! A cluster that gets smaller while nobody asks it anything.

use crate::ask::{admitted, all, begin, rule, unknown, until, up};
use crate::fake::Fake;
use kota_integration::cluster::Cluster;
use kota_integration::workdir::Workdir;
use protocol::batch::Answer;
use sidecar::store::{Status, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

/// How often the clients ask, and how long they rest between: a tenth of the pause that surveys make when nothing is wrong.
const ROUNDS_MAX: usize = 50;
const REST: Duration = Duration::from_millis(60);

/// A primary that gives its slots away and leaves while nobody asks, and goes on answering: that it knows no owner any more, and
/// of no slot. Who is told so asks the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_leaves_while_all_is_quiet_is_missed_for_a_few_surveys_only() {
    let workdir = Workdir::new();
    let cluster = Cluster::start(workdir.path(), 3);
    let (store, _) = begin(&cluster.url());
    up(&store).await;
    let checks: Vec<_> = (0..60).map(|nth| vec![rule(format!("{{k{nth}}}"), 30_000)]).collect();
    assert!(all(&store, &checks).await.iter().all(admitted));
    cluster.retire(1, 2);
    let lost = |answers: Vec<Answer>| answers.iter().filter(|answer| unknown(answer).is_some()).count();
    let mut rounds = 0;
    while lost(all(&store, &checks).await) > 0 {
        rounds += 1;
        assert!(rounds < ROUNDS_MAX, "its clients are still undecided: {:?}", store.status());
        tokio::time::sleep(REST).await;
    }
    assert_eq!(store.status(), Status::Up);
    // Slots that nobody owns are told, and looked for until somebody does.
    let slot = cluster.slot("{k0}");
    let owner = cluster.owner(slot, 2);
    // The owner first, or it would tell the other again.
    for node in [owner, 2 - owner] {
        cluster.node(node).command(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    }
    until("the slot is missed", || {
        Handle::current().block_on(all(&store, &checks));
        store.status() == Status::Away(format!("slot {slot} has no primary"))
    })
    .await;
    assert_eq!(lost(all(&store, &checks).await), 1);
    cluster.node(owner).command(&["CLUSTER", "ADDSLOTS", &slot.to_string()]);
    up(&store).await;
    assert!(all(&store, &checks).await.iter().all(admitted));
}

/// A node that has left, and was not told, says what it remembers: whom that names is never asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_owns_nothing_is_not_believed_over_others() {
    /// Who is asked first is left to chance.
    const STORES: usize = 8;
    let left = Arc::new(AtomicBool::new(false));
    let gone = Fake::start(|_| None).await;
    let stays =
        node(&left, |own, other| half(0, own) + &half(1, other), |own| half(0, own) + &half(1, own)).await;
    let port = gone.port();
    let leaves =
        node(&left, |own, other| half(0, other) + &half(1, own), move |_| half(0, port) + &half(1, port))
            .await;
    stays.other.store(leaves.fake.port(), Ordering::SeqCst);
    leaves.other.store(stays.fake.port(), Ordering::SeqCst);
    let checks: Vec<_> = (0..10).map(|nth| vec![rule(format!("{{k{nth}}}"), 100)]).collect();
    for _ in 0..STORES {
        left.store(false, Ordering::SeqCst);
        let (store, _) = begin(&stays.fake.url.replace("redis://", "redis+cluster://"));
        up(&store).await;
        assert!(all(&store, &checks).await.iter().all(admitted));
        left.store(true, Ordering::SeqCst);
        while all(&store, &checks).await.iter().any(|answer| unknown(answer).is_some()) {
            tokio::time::sleep(REST).await;
        }
    }
    assert!(!leaves.fake.came("CLUSTER").is_empty() && gone.came("INFO").is_empty());
}

/// A node of a cluster of two.
struct Node {
    fake: Fake,
    other: Arc<AtomicU16>,
}

/// What it says of the slots by its own port and the other's, before and after one has `left`; the one that refuses then is the
/// one that does not name itself any more.
async fn node(
    left: &Arc<AtomicBool>,
    before: impl Fn(u16, u16) -> String + Send + Sync + 'static,
    after: impl Fn(u16) -> String + Send + Sync + 'static,
) -> Node {
    let (own, other) = (Arc::new(AtomicU16::new(0)), Arc::new(AtomicU16::new(0)));
    let (left, (own_port, other_port)) = (Arc::clone(left), (Arc::clone(&own), Arc::clone(&other)));
    let fake = Fake::start(move |words| {
        let (own, other) = (own_port.load(Ordering::SeqCst), other_port.load(Ordering::SeqCst));
        let left = left.load(Ordering::SeqCst);
        match words[0].as_str() {
            "CLUSTER" if left => Some(format!("*2\r\n{}", after(own))),
            "CLUSTER" => Some(format!("*2\r\n{}", before(own, other))),
            "EVALSHA" if left && after(own) != half(0, own) + &half(1, own) => {
                Some("-CLUSTERDOWN Hash slot not served\r\n".to_owned())
            }
            _ => None,
        }
    })
    .await;
    own.store(fake.port(), Ordering::SeqCst);
    Node { fake, other }
}

/// One half of the slots as `CLUSTER SLOTS` tells its owner.
fn half(nth: u16, port: u16) -> String {
    let first = nth * 8_192;
    format!("*3\r\n:{first}\r\n:{}\r\n*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid\r\n", first + 8_191)
}
