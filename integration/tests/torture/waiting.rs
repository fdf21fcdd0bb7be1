//! What may happen to a request while it waits for its decision: its rules are replaced, its client leaves, Envoy answers it, the
//! call is refused, the wake gets lost, Envoy ends.

use kota_integration::envoy::Envoy;
use kota_integration::{Delivery, Endpoint, Request, Running, Stack};
use serde_json::{Value, json};

use crate::calm;
use crate::crowd::Crowd;
use crate::h2::{self, Connection};
use crate::rules;

/// More than the callouts that may be in flight carry (4 of 64): some are asked, the others wait to be.
const SOME: usize = 600;
const MANY: u64 = SOME as u64;

fn stack() -> Stack {
    Stack::new().without_upstream().bootstrap(rules::answer_some_directly).config(version(1))
}

/// The rules with a number that clients can see: in the policy's name, and, without a callout, in a sentence.
fn version(number: u32) -> Value {
    let mut config = rules::config(rules::DEADLINE_MS);
    for rule in config["rules"].as_array_mut().expect("rules") {
        match rule["id"].as_str().expect("an id") {
            "ledger" => rule["policy"] = json!(format!("version-{number}")),
            "keyless" => rule["detail"] = json!(format!("version {number}")),
            _ => {}
        }
    }
    config
}

/// Awaits that the worker applies that version.
fn await_version(envoy: &Envoy, number: u32) {
    let wanted = format!("version {number}");
    calm::until(envoy, &wanted, || {
        envoy
            .send(&Request::get("/direct").header("x-want", "keyless"))
            .text()
            .contains(&wanted)
            .then_some(())
    });
}

fn all_allowed_by(crowd: Crowd, version: u32) {
    let policy = format!("\"version-{version}\";q=");
    for answer in crowd.answers() {
        let told = answer.header("ratelimit-policy").unwrap_or_default();
        assert!(answer.status == 200 && told.contains(&policy), "version {version}: {answer:?}");
    }
}

fn gather(stack: &Running) -> Crowd {
    let inside = stack.envoy().open_requests();
    let crowd = Crowd::gather(stack, SOME, "/direct", "allow");
    calm::await_stat(stack.envoy(), "http.api.downstream_rq_active", inside + MANY);
    crowd
}

#[test]
fn requests_that_wait_are_answered_by_the_rules_that_they_met() {
    for delivery in [Delivery::Ecds, Delivery::Lds] {
        let mut stack = stack().delivery(delivery).start();
        rules::prime(&stack);
        stack.sidecar().process().freeze();
        let mut crowds = vec![gather(&stack)];
        for number in 2..=4 {
            assert!(stack.envoys[0].reconfigure(&version(number)));
            await_version(stack.envoy(), number);
            crowds.push(gather(&stack));
        }
        stack.sidecar().process().thaw();
        (1..).zip(crowds).for_each(|(number, crowd)| all_allowed_by(crowd, number));
        assert_eq!(stack.envoy().kota("allowed.ledger"), 4 * MANY + 1);
        assert_eq!(rules::spent(&stack), 4 * MANY + 2);
        calm::settled(stack.envoy());
    }
}

/// Requests that have passed, whose answers come only after their rules were replaced, again and again: by ECDS their root waits for
/// them, by LDS their whole filter chain does.
#[test]
fn answers_under_way_speak_of_the_rules_that_their_requests_met() {
    for delivery in [Delivery::Ecds, Delivery::Lds] {
        let stack = Stack::new().config(version(1)).bootstrap(rules::answer_some_directly);
        let mut stack = stack.delivery(delivery).start();
        rules::prime(&stack);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let connection = runtime.block_on(Connection::open(stack.envoy().port()));
        let begin = |_| {
            let head = h2::head("POST", "/", &[("x-want", b"allow"), ("x-echo", b"body")]);
            let mut send = runtime.block_on(connection.send.clone().ready()).expect("it is open");
            send.send_request(head, false).expect("a stream")
        };
        let begun: Vec<_> = (0..100).map(begin).collect();
        calm::await_stat(stack.envoy(), "wasmcustom.kota.allowed.ledger", 101);
        for number in 2..=6 {
            assert!(stack.envoys[0].reconfigure(&version(number)));
            await_version(stack.envoy(), number);
        }
        for (response, mut body) in begun {
            let answer = runtime.block_on(async {
                h2::send_body(&mut body, "late".into(), h2::End::Whole).await?;
                h2::read(response.await?).await
            });
            let answer = answer.expect("an answer");
            let told = answer.header("ratelimit-policy").unwrap_or_default();
            assert!(told.contains("\"version-1\";q="), "{delivery:?}: {answer:?}");
            assert_eq!((answer.status, &*answer.body), (200, &b"late"[..]));
        }
        drop((connection, runtime));
        calm::settled(stack.envoy());
    }
}

#[test]
fn a_replaced_root_stays_until_its_checks_are_decided_though_all_clients_left() {
    let mut stack = stack().delivery(Delivery::Ecds).start();
    rules::prime(&stack);
    stack.sidecar().process().freeze();
    for number in 2..=4 {
        gather(&stack).leave();
        assert!(stack.envoys[0].reconfigure(&version(number)));
        await_version(stack.envoy(), number);
        calm::await_stat(stack.envoy(), "http.api.downstream_rq_active", 0);
    }
    stack.sidecar().process().thaw();
    // What was sent and charged is counted by the roots that sent it.
    calm::await_stat(stack.envoy(), "wasmcustom.kota.allowed.ledger", 3 * MANY + 1);
    assert_eq!(rules::spent(&stack), 3 * MANY + 2);
    calm::settled(stack.envoy());
}

#[test]
fn a_replaced_root_goes_when_its_checks_time_out() {
    let mut config = version(1);
    config["sidecar"]["deadlineMs"] = json!(1_500);
    let mut stack = stack().config(config).delivery(Delivery::Ecds).start();
    rules::prime(&stack);
    stack.sidecar().process().freeze();
    gather(&stack).leave();
    assert!(stack.envoys[0].reconfigure(&version(2)));
    await_version(stack.envoy(), 2);
    calm::await_stat(stack.envoy(), "cluster.kota.upstream_rq_active", 0);
    stack.sidecar().process().thaw();
    all_allowed_by(gather_unseen(&stack), 2);
    calm::settled(stack.envoy());
}

/// As `gather`, where nothing holds them back.
fn gather_unseen(stack: &Running) -> Crowd {
    Crowd::gather(stack, SOME, "/direct", "allow")
}

/// Another VM in place of the one in which requests wait.
#[test]
fn requests_that_wait_outlive_the_change_of_their_vm() {
    for leaves in [false, true] {
        let mut stack = stack().delivery(Delivery::Ecds).start();
        rules::prime(&stack);
        stack.sidecar().process().freeze();
        let crowd = gather(&stack);
        let crowd = match leaves {
            true => {
                crowd.leave();
                None
            }
            false => Some(crowd),
        };
        assert!(stack.envoys[0].reload(|bootstrap| {
            bootstrap.configure(&version(2));
            bootstrap.filter("kota")["typed_config"]["config"]["vm_config"]["vm_id"] = json!("another");
        }));
        await_version(stack.envoy(), 2);
        let second = gather(&stack);
        stack.sidecar().process().thaw();
        crowd.into_iter().for_each(|crowd| all_allowed_by(crowd, 1));
        all_allowed_by(second, 2);
        calm::until(stack.envoy(), "all is charged", || (rules::spent(&stack) > 2 * MANY).then_some(()));
        calm::settled(stack.envoy());
    }
}

/// Envoy gives up on them before the sidecar answers. They are charged, and counted, and their connection lives on.
#[test]
fn answers_come_after_envoy_has_answered() {
    type Field = (&'static str, fn(&mut Value));
    let limits: [Field; 3] = [
        ("idle", |http| http["stream_idle_timeout"] = json!("1s")),
        ("request", |http| http["request_timeout"] = json!("1s")),
        ("duration", |http| http["common_http_protocol_options"]["max_stream_duration"] = json!("1s")),
    ];
    for (name, limit) in limits {
        let stack = stack().bootstrap(move |bootstrap| limit(bootstrap.http())).start();
        rules::prime(&stack);
        stack.sidecar().process().freeze();
        let statuses: Vec<_> = gather_unseen(&stack).answers().iter().map(|answer| answer.status).collect();
        assert!(statuses.iter().all(|status| matches!(status, 408 | 504)), "{name}: {statuses:?}");
        stack.sidecar().process().thaw();
        calm::await_stat(stack.envoy(), "wasmcustom.kota.allowed.ledger", MANY + 1);
        assert_eq!(rules::spent(&stack), MANY + 2);
        calm::settled(stack.envoy());
    }
}

/// A client that leaves with its check undecided, again and again on one worker that is asked by others.
#[test]
fn clients_come_and_go_while_others_wait() {
    let stack = stack().start();
    rules::prime(&stack);
    stack.sidecar().process().freeze();
    let crowd = gather(&stack);
    for _ in 0..5 {
        gather(&stack).leave();
        calm::await_stat(stack.envoy(), "http.api.downstream_rq_active", MANY);
    }
    stack.sidecar().process().thaw();
    all_allowed_by(crowd, 1);
    calm::await_stat(stack.envoy(), "wasmcustom.kota.allowed.ledger", 6 * MANY + 1);
    assert_eq!(rules::spent(&stack), 6 * MANY + 2);
    calm::settled(stack.envoy());
}

#[test]
fn calls_that_envoy_refuses_at_once() {
    refused_at_once(SOME);
}

#[test]
#[ignore = "minutes; make test-long"]
fn twenty_thousand_calls_that_envoy_refuses_at_once() {
    refused_at_once(20_000);
}

/// Every way in which Envoy says no to a callout within the very call, for many at once.
fn refused_at_once(size: usize) {
    type Case = (&'static str, fn(Stack) -> Stack, &'static [&'static str]);
    let cases: [Case; 5] = [
        (
            "no socket",
            |stack| stack.sidecar_at(Endpoint::Unix("/nonexistent/kota.sock".into())),
            &["refused"],
        ),
        (
            "no host",
            |stack| {
                without_sidecar(stack).bootstrap(|b| {
                    b.cluster("kota")["load_assignment"]["endpoints"] = json!([]);
                })
            },
            &["no_host"],
        ),
        (
            "no cluster",
            |stack| {
                let mut config = version(1);
                config["sidecar"]["cluster"] = json!("nowhere");
                without_sidecar(stack).config(config)
            },
            &["no_cluster"],
        ),
        (
            "no request allowed",
            |stack| {
                without_sidecar(stack).bootstrap(|b| {
                    b.cluster("kota")["circuit_breakers"]["thresholds"][0]["max_requests"] = json!(0);
                })
            },
            &["no_host", "overflow", "refused"],
        ),
        (
            "no pending request allowed",
            |stack| {
                without_sidecar(stack).bootstrap(|b| {
                    b.cluster("kota")["circuit_breakers"]["thresholds"][0]["max_pending_requests"] = json!(0);
                })
            },
            &["no_host", "overflow", "refused"],
        ),
    ];
    for (name, change, reasons) in cases {
        let stack = change(stack()).start();
        for _ in 0..3 {
            let answers = Crowd::gather(&stack, size, "/direct", "allow").answers();
            assert!(answers.iter().all(|answer| answer.status == 503), "{name}");
        }
        let failed =
            reasons.iter().map(|reason| stack.envoy().kota(&format!("failed_closed.ledger.{reason}")));
        assert_eq!(failed.sum::<u64>(), 3 * size as u64, "{name}: {:?}", stack.envoy().kota_counters());
        calm::settled(stack.envoy());
    }
}

fn without_sidecar(stack: Stack) -> Stack {
    stack.sidecars(0)
}

/// One call at a time is allowed: the other checks of a burst are refused, those of the call are answered.
#[test]
fn one_call_goes_through_and_the_others_are_over_the_threshold() {
    let stack = stack()
        .bootstrap(|bootstrap| {
            bootstrap.cluster("kota")["circuit_breakers"]["thresholds"][0]["max_requests"] = json!(1);
        })
        .start();
    rules::prime(&stack);
    stack.sidecar().process().freeze();
    let crowd = gather_unseen(&stack);
    calm::until(stack.envoy(), "one call is left", || {
        let stats = calm::stats(stack.envoy());
        let refused = stats.get("wasmcustom.kota.failed_closed.ledger.overflow").copied().unwrap_or(0);
        let open = stats.get("http.api.downstream_rq_active").copied().unwrap_or(0);
        (refused > 0 && refused + open == MANY).then_some(())
    });
    stack.sidecar().process().thaw();
    let allowed = crowd.answers().iter().filter(|answer| answer.status == 200).count() as u64;
    assert!((1..=64).contains(&allowed), "{allowed}");
    assert_eq!(stack.envoy().kota("allowed.ledger"), allowed + 1);
    calm::settled(stack.envoy());
}

/// Where the root can't be woken, or every wake gets lost, its tick takes the place of the wake.
#[test]
fn lost_wakes_delay_and_lose_nothing() {
    for missing in ["proxy_enqueue_shared_queue", "proxy_register_shared_queue", "proxy_on_queue_ready"] {
        let stack = stack().bootstrap(move |bootstrap| without_capability(bootstrap, missing)).start();
        rules::prime(&stack);
        stack.sidecar().process().freeze();
        let crowd = gather(&stack);
        stack.sidecar().process().thaw();
        all_allowed_by(crowd, 1);
        let denied = Crowd::gather(&stack, SOME, "/direct", "deny").answers();
        assert!(denied.iter().all(|answer| answer.status == 429), "{missing}");
        calm::settled(stack.envoy());
    }
}

fn without_capability(bootstrap: &mut kota_integration::bootstrap::Bootstrap, missing: &str) {
    const HOST: [&str; 14] = [
        "proxy_set_effective_context",
        "proxy_enqueue_shared_queue",
        "proxy_register_shared_queue",
        "proxy_dequeue_shared_queue",
        "proxy_increment_metric",
        "proxy_define_metric",
        "proxy_set_property",
        "proxy_get_property",
        "proxy_continue_stream",
        "proxy_send_local_response",
        "proxy_get_buffer_bytes",
        "proxy_set_tick_period_milliseconds",
        "proxy_log",
        "proxy_http_call",
    ];
    const MAPS: [&str; 4] = [
        "proxy_get_header_map_value",
        "proxy_get_header_map_pairs",
        "proxy_add_header_map_value",
        "proxy_replace_header_map_value",
    ];
    const WASI: [&str; 7] = [
        "random_get",
        "clock_time_get",
        "environ_get",
        "environ_sizes_get",
        "fd_write",
        "proc_exit",
        "proxy_done",
    ];
    const CALLBACKS: [&str; 12] = [
        "proxy_on_configure",
        "proxy_on_context_create",
        "proxy_on_delete",
        "proxy_on_done",
        "proxy_on_http_call_response",
        "proxy_on_log",
        "proxy_on_memory_allocate",
        "proxy_on_queue_ready",
        "proxy_on_request_headers",
        "proxy_on_response_headers",
        "proxy_on_tick",
        "proxy_on_vm_start",
    ];
    let all = HOST.iter().chain(&MAPS).chain(&WASI).chain(&CALLBACKS);
    let allowed: serde_json::Map<_, _> =
        all.filter(|name| **name != missing).map(|name| ((*name).to_owned(), json!({}))).collect();
    bootstrap.filter("kota")["typed_config"]["config"]["capability_restriction_config"] =
        json!({ "allowed_capabilities": allowed });
}

/// Envoy is told to end while requests wait, of the rules in force and of replaced ones, of clients that stay and of some that left:
/// it ends, and does not crash.
#[test]
fn envoy_ends_while_requests_wait() {
    let mut stack = stack().delivery(Delivery::Ecds).start();
    rules::prime(&stack);
    stack.sidecar().process().freeze();
    let mut crowds = Vec::new();
    for number in 2..=4 {
        crowds.push(gather(&stack));
        gather(&stack).leave();
        calm::await_stat(stack.envoy(), "http.api.downstream_rq_active", crowds.len() as u64 * MANY);
        assert!(stack.envoys[0].reconfigure(&version(number)));
        await_version(stack.envoy(), number);
    }
    stack.envoy().process().terminate();
    let status = stack.envoy().process().wait_ended();
    assert!(status.success(), "{status}:\n{}", stack.envoy().process().log());
    crowds.into_iter().for_each(Crowd::leave);
}
