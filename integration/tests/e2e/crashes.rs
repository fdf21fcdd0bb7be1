//! CC-01 and CC-04: a pod that dies gives its slots back when their leases end, and nothing brings back what is gone.

use kota_integration::envoy::Envoy;
use kota_integration::redis::Redis;
use kota_integration::{Client, Fault, Request, Running, wait};

use crate::redis::endless;
use crate::slots::{SLOTS, await_live, begin, finish, ids, last_end_ms, live, now_ms, pods};
use crate::support::{fresh_key, get};

/// Short enough to be waited for.
const LEASE_S: u64 = 2;

/// Takes all slots by one pod, and waits until they have been renewed.
fn take_all(stack: &Running, envoy: &Envoy, key: &str) -> Vec<Client> {
    let post = || Request::post("/").header("x-api-key", key);
    let held: Vec<_> = (0..SLOTS).map(|_| begin(envoy, post())).collect();
    await_live(stack, SLOTS, "requests under way");
    let (first, taken) = (last_end_ms(stack.redis()), ids(stack.redis()));
    wait::until_true("their leases would have ended", || now_ms(stack.redis()) > first);
    assert_eq!(ids(stack.redis()), taken, "they are renewed while their requests last");
    assert_eq!(endless(stack.redis()), 0, "the set itself has an end");
    held
}

/// Waits until the leases have ended that nobody renews any more; they must not be longer than they were.
fn await_leases(redis: &Redis, killed_ms: i64) {
    wait::until_true("the last lease ends", || now_ms(redis) > last_end_ms(redis));
    let late_ms = last_end_ms(redis).max(now_ms(redis)) - killed_ms - 1000 * LEASE_S as i64;
    // What is asked for is the lease and a second; a slow machine may look late, but the leases themselves are no longer.
    let end_ms = last_end_ms(redis) - killed_ms;
    assert!(
        end_ms <= 1000 * (LEASE_S as i64 + 1),
        "a lease lasted {end_ms} ms from the kill ({late_ms} ms late)"
    );
    assert_eq!(live(redis), 0);
}

#[test]
fn cc_01_a_killed_envoy_leaves_its_slots_to_their_leases() {
    let stack = pods(LEASE_S).start();
    let key = fresh_key();
    let held = take_all(&stack, &stack.envoys[0], &key);
    stack.envoys[0].process().kill();
    await_leases(stack.redis(), now_ms(stack.redis()));
    for envoy in &stack.envoys[1..] {
        assert_eq!(envoy.send(&get("/", &key)).status, 200, "a client is not blocked by a pod that died");
    }
    drop(held);
    await_live(&stack, 0, "a killed Envoy");
}

#[test]
fn cc_01_a_killed_sidecar_leaves_its_slots_to_their_leases() {
    let mut stack = pods(LEASE_S).start();
    let key = fresh_key();
    let mut held = take_all(&stack, &stack.envoys[0], &key);
    stack.sidecars[0].process().kill();
    await_leases(stack.redis(), now_ms(stack.redis()));
    assert_eq!(stack.envoys[1].send(&get("/", &key)).status, 200);
    stack.sidecars[0].restart();
    wait::until_true("the first pod decides again", || stack.envoys[0].send(&get("/", &key)).status == 200);
    await_live(&stack, 0, "what a lease has ended is not brought back");
    for client in &mut held {
        assert_eq!(finish(client).expect("an answer").status, 200, "a request goes on without its slot");
    }
    wait::until_true("nothing is open", || stack.envoys[0].open_requests() == 0);
    await_live(&stack, 0, "released late");
    assert_eq!(stack.envoys[0].send(&get("/", &key)).status, 200);
    assert_eq!(endless(stack.redis()), 0, "every key has an end");
}

#[test]
fn cc_01_a_release_that_is_lost_blocks_no_answer_and_no_client_for_long() {
    const MINUTE_S: u64 = 60; // no lease ends: what is free was released
    let stack = pods(MINUTE_S).sidecar_faults().start();
    for fault in [Fault::Gone, Fault::Cut, Fault::Swallow, Fault::DropReply] {
        let key = fresh_key();
        let post = || Request::post("/").header("x-api-key", &key);
        let mut held: Vec<_> = (0..SLOTS).map(|_| begin(&stack.envoys[0], post())).collect();
        await_live(&stack, SLOTS, "requests under way");
        let upstream = || stack.envoys[0].stat("cluster.echo.upstream_rq_active");
        wait::until_true("Envoy has heard of its slots", || upstream() == SLOTS as u64);
        stack.sidecar_faults[0].set(fault);
        for client in &mut held {
            assert_eq!(
                finish(client).expect("an answer").status,
                200,
                "{fault:?}: an answer waits for no release"
            );
        }
        wait::until_true("nothing is open", || stack.envoys[0].open_requests() == 0);
        stack.sidecar_faults[0].set(Fault::Pass);
        await_live(&stack, 0, &format!("{fault:?}"));
        wait::until_true("the first pod decides again", || {
            stack.envoys[0].send(&get("/", &key)).status == 200
        });
        await_live(&stack, 0, &format!("{fault:?}, afterwards"));
    }
    assert_eq!(endless(stack.redis()), 0, "every key has an end");
    assert_eq!(stack.envoys[0].vm_reloads(), 0);
}

#[test]
fn cc_04_a_release_after_a_flush_makes_no_slot_and_no_key_without_end() {
    let stack = pods(LEASE_S).start();
    let key = fresh_key();
    let mut held = take_all(&stack, &stack.envoys[0], &key);
    stack.redis().command(&["FLUSHALL"]);
    assert_eq!(live(stack.redis()), 0);
    // Others may have them now, and what ends late takes none from them.
    let post = || Request::post("/").header("x-api-key", &key);
    let mut others: Vec<_> = (0..SLOTS).map(|_| begin(&stack.envoys[1], post())).collect();
    await_live(&stack, SLOTS, "taken anew");
    let taken = ids(stack.redis());
    for client in &mut held {
        assert_eq!(finish(client).expect("an answer").status, 200);
    }
    wait::until_true("nothing is open", || stack.envoys[0].open_requests() == 0);
    assert_eq!(stack.envoys[2].send(&get("/", &key)).status, 429, "nobody else's slot was freed");
    assert_eq!(ids(stack.redis()), taken);
    assert_eq!(endless(stack.redis()), 0, "every key has an end");
    for client in &mut others {
        assert_eq!(finish(client).expect("an answer").status, 200);
    }
    await_live(&stack, 0, "released");
}
