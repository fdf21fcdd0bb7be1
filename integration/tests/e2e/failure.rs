//! Nobody can decide: what passes, what is refused, which reason is counted, and that all is well again afterwards without a restart.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kota_integration::bootstrap::Bootstrap;
use kota_integration::impostor::{End, Impostor, Reply};
use kota_integration::stack::with_rules;
use kota_integration::workdir::{Workdir, free_port};
use kota_integration::{Delivery, Endpoint, Fault, Running, Stack, wait};
use protocol::batch::{Answer, Answers, Check, Outcome, VERSION, Verdict, decode_batch, encode_answers};
use serde_json::{Value, json};

use crate::support::{fresh_key, get, merge, rule, tells_no_numbers};

/// Long enough for a decision on a slow machine, and short enough to be waited for often.
const DEADLINE_MS: u64 = 1000;

/// `open` and `closed`, each alone and both together.
fn rules() -> Value {
    json!([
        rule("open", 1000, json!({ "match": { "path": ["/open", "/both"] } })),
        rule("closed", 1000, json!({ "match": { "path": ["/closed", "/both"] }, "failMode": "CLOSED" })),
    ])
}

fn stack() -> Stack {
    Stack::new().rules(rules()).deadline_ms(DEADLINE_MS)
}

fn config() -> Value {
    let mut config = with_rules(rules());
    config["sidecar"]["deadlineMs"] = json!(DEADLINE_MS);
    config
}

/// That a request nobody can decide meets each rule's fail mode, is counted with one of these reasons, and hears no invented number.
fn fails(stack: &Running, situation: &str, reasons: &[&str]) {
    let count =
        |kind: &str| reasons.iter().map(|reason| stack.kota(&format!("{kind}.{reason}"))).sum::<u64>();
    let counts = || (count("failed_open.open"), count("failed_closed.closed"), count("failed_open.closed"));
    let reached = || stack.envoy().stat("cluster.echo.upstream_rq_total");
    let (before, reached_before) = (counts(), reached());
    let send = |path| move || stack.envoy().send(&get(path, &fresh_key()));
    let answers = thread::scope(|scope| {
        let answers = ["/open", "/closed", "/both"].map(|path| (path, scope.spawn(send(path))));
        answers.map(|(path, answer)| (path, answer.join().expect("an answer")))
    });
    for (path, answer) in answers {
        let (status, counters) = (if path == "/open" { 200 } else { 503 }, stack.envoy().kota_counters());
        assert_eq!(answer.status, status, "{situation}: {path}: {}, {counters:?}", answer.text());
        assert!(tells_no_numbers(&answer), "{situation}: HH-09: {:?}", answer.headers);
        if status == 503 {
            assert_eq!(answer.header("retry-after"), Some("1"), "{situation}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{situation}");
            let problem = answer.json();
            let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
            assert_eq!((&problem["type"], &problem["status"]), (&json!(kind), &json!(503)), "{situation}");
        }
    }
    let expected = (before.0 + 1, before.1 + 2, before.2);
    assert_eq!(counts(), expected, "{situation}: {:?}", stack.envoy().kota_counters());
    assert_eq!(reached(), reached_before + 1, "{situation}: what is refused never reaches the upstream");
}

/// That decisions are made again.
fn recovers(stack: &Running, situation: &str) {
    let mut client = stack.envoy().client();
    wait::until_true(&format!("decisions are made again after {situation}"), || {
        client.send(&get("/both", &fresh_key())).header("ratelimit").is_some()
    });
    for path in ["/open", "/closed", "/both"] {
        let answer = client.send(&get(path, &fresh_key()));
        assert_eq!(
            (answer.status, answer.header("x-ratelimit-remaining")),
            (200, Some("999")),
            "{situation}: {path}"
        );
    }
}

fn nothing_is_left(stack: &Running) {
    wait::until_true("no request is left paused", || stack.envoy().open_requests() == 0);
    assert_eq!(stack.envoy().vm_reloads(), 0);
}

#[test]
fn fm_02_whatever_becomes_of_the_sidecar_each_rule_fails_as_it_says() {
    let stack = stack().sidecar_faults().start();
    let late = Fault::Delay(Duration::from_millis(DEADLINE_MS * 3));
    for (situation, fault, reason) in [
        ("a missing socket", Fault::Gone, "refused"),
        ("one that hangs up", Fault::Cut, "refused"),
        ("silence", Fault::Swallow, "deadline"),
        ("bytes that are no HTTP/2", Fault::Garbage, "garbage"),
        ("half a frame, then silence", Fault::Half(12), "deadline"),
        ("half a frame, then the end", Fault::HalfThenCut(12), "refused"),
        ("a lost answer", Fault::DropReply, "deadline"),
        ("an answer that is late", late, "deadline"),
    ] {
        recovers(&stack, "the start, or what was before");
        stack.sidecar_faults[0].set(fault);
        stack.sidecar_faults[0].disconnect();
        fails(&stack, situation, &[reason]);
        stack.sidecar_faults[0].set(Fault::Pass);
        recovers(&stack, situation);
    }
    stack.sidecar().process().freeze();
    fails(&stack, "a stopped sidecar", &["deadline"]);
    stack.sidecar().process().thaw();
    recovers(&stack, "a stopped sidecar");
    nothing_is_left(&stack);
}

#[test]
fn fm_02_a_redis_that_is_away_is_named() {
    // The sidecar gives up a tenth of the deadline before Envoy does, to tell why.
    let mut stack = stack().deadline_ms(2000).redis().start();
    recovers(&stack, "the start");
    stack.redis().process().freeze();
    fails(&stack, "a stopped Redis", &["redis_timeout"]);
    stack.redis().process().thaw();
    recovers(&stack, "a stopped Redis");
    stack.redis().process().kill();
    fails(&stack, "a dead Redis", &["redis_error", "redis_timeout"]);
    stack.redis.as_mut().expect("asked for").restart();
    recovers(&stack, "a dead Redis");
    nothing_is_left(&stack);
}

#[test]
fn we_04_a_cluster_that_is_not_there_or_has_no_host_fails_on_the_spot() {
    let no_hosts = |bootstrap: &mut Bootstrap| {
        bootstrap.cluster("kota")["load_assignment"]["endpoints"] = json!([]);
    };
    let no_dns = |bootstrap: &mut Bootstrap| {
        let cluster = bootstrap.cluster("kota");
        merge(cluster, json!({ "type": "STRICT_DNS" }));
        let nowhere = json!({ "socket_address": { "address": "kota.invalid", "port_value": 1 } });
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] = nowhere;
    };
    let unhealthy = |bootstrap: &mut Bootstrap| {
        let cluster = bootstrap.cluster("kota");
        merge(cluster, json!({ "common_lb_config": { "healthy_panic_threshold": { "value": 0 } } }));
        cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["health_status"] = json!("UNHEALTHY");
    };
    // A deadline of half a minute: none of these may wait for it.
    let stack = || stack().deadline_ms(30_000).sidecars(0);
    let mut elsewhere = with_rules(rules());
    elsewhere["sidecar"] = json!({ "cluster": "nobody", "deadlineMs": 30_000 });
    fails(&stack().config(elsewhere).start(), "a wrong cluster name", &["no_cluster"]);
    fails(&stack().bootstrap(no_hosts).start(), "no hosts", &["no_host"]);
    fails(&stack().bootstrap(no_dns).start(), "a name that does not resolve", &["no_host"]);
    let stack = stack().bootstrap(unhealthy).start();
    fails(&stack, "only unhealthy hosts", &["no_host"]);
    nothing_is_left(&stack);
}

#[test]
fn we_04_a_wrong_cluster_name_is_put_right_without_a_restart() {
    let mut wrong = config();
    wrong["sidecar"]["cluster"] = json!("nobody");
    let mut stack = stack().config(wrong).delivery(Delivery::Ecds).start();
    fails(&stack, "a wrong cluster name", &["no_cluster"]);
    assert!(stack.envoys[0].reconfigure(&config()));
    recovers(&stack, "a wrong cluster name");
}

#[test]
fn fm_02_a_cluster_over_its_thresholds_is_named() {
    let narrow = |bootstrap: &mut Bootstrap| {
        bootstrap.cluster("kota")["circuit_breakers"]["thresholds"][0]["max_requests"] = json!(1);
    };
    let stack = stack().deadline_ms(3000).sidecar_faults().bootstrap(narrow).start();
    recovers(&stack, "the start");
    stack.sidecar_faults[0].set(Fault::Swallow);
    thread::scope(|scope| {
        let held = scope.spawn(|| stack.envoy().send(&get("/open", &fresh_key())));
        wait::until_true("one call is in flight", || {
            stack.envoy().stat("cluster.kota.upstream_rq_active") == 1
        });
        fails(&stack, "a full cluster", &["overflow"]);
        assert_eq!(held.join().expect("an answer").status, 200);
    });
    assert_eq!(stack.kota("failed_open.open.deadline"), 1, "the one that held the place");
    stack.sidecar_faults[0].set(Fault::Pass);
    recovers(&stack, "a full cluster");
}

#[test]
fn we_09_what_answers_like_no_sidecar_decides_nothing() {
    let dir = Workdir::new();
    let unmarked = |status| Reply { status, headers: Vec::new(), ..Reply::genuine("") };
    let cases: Vec<(&str, &str, Reply)> = vec![
        ("somebody else's server", "garbage", unmarked(200)),
        ("a proxy's error page", "refused", unmarked(503)),
        ("a marked answer of nonsense", "garbage", Reply::genuine([VERSION, 0xff, 0xff, 0xff])),
        ("a marked answer that is empty", "garbage", Reply::genuine("")),
        ("a newer sidecar", "version", Reply::genuine([VERSION + 1, 0, 0])),
        ("headers only", "deadline", Reply { end: End::Never, ..Reply::genuine("") }),
        ("half a body", "deadline", Reply { end: End::Never, ..Reply::genuine([VERSION, 1]) }),
        ("half a body and a reset", "refused", Reply { end: End::Reset, ..Reply::genuine([VERSION, 1]) }),
    ];
    let socket = Endpoint::Unix(dir.path().join("decide.sock"));
    let said = Arc::new(Mutex::new(Reply::genuine("")));
    let script = Arc::clone(&said);
    let impostor = Impostor::start(socket.clone(), move |_| script.lock().expect("nobody panics").clone());
    let stack = stack().sidecar_at(socket).start();
    for (situation, reason, reply) in cases {
        let asked = impostor.requests();
        *said.lock().expect("nobody panics") = reply;
        fails(&stack, situation, &[reason]);
        assert!(impostor.requests() > asked, "{situation}");
    }
    nothing_is_left(&stack);
}

#[test]
fn we_09_a_host_that_drops_connections_costs_the_deadline_and_no_more() {
    // Never accepted from, and full: the kernel drops every further SYN, as a firewall would.
    let full = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let to = full.local_addr().expect("an address");
    let open = || TcpStream::connect_timeout(&to, Duration::from_millis(300));
    let waiting: Vec<_> = std::iter::repeat_with(open).map_while(Result::ok).take(100_000).collect();
    let stack = stack().deadline_ms(300).sidecar_at(Endpoint::Tcp(to.port())).start();
    fails(&stack, &format!("a full queue of {}", waiting.len()), &["deadline"]);
    nothing_is_left(&stack);
}

#[test]
fn hh_09_no_number_is_invented_and_none_is_below_zero() {
    let rules = json!([rule("r", 2, json!({ "failMode": "CLOSED" }))]);
    let stack = Stack::new().redis().rules(rules).start();
    let (mut client, key) = (stack.envoy().client(), fresh_key());
    let mut told = || {
        let answer = client.send(&get("/", &key));
        let field = |name| answer.header(name).map(str::to_owned);
        (answer.status, field("x-ratelimit-remaining"), field("retry-after").is_some())
    };
    let left = |left: &str| Some(left.to_owned());
    assert_eq!(told(), (200, left("1"), false), "who passes has nothing to wait for");
    assert_eq!(told(), (200, left("0"), false));
    for _ in 0..5 {
        assert_eq!(told(), (429, left("0"), true), "however often it is denied");
    }
    stack.redis().process().freeze();
    assert_eq!(told(), (503, None, true), "what is not known is not told");
    stack.redis().process().thaw();
    wait::until("the same count goes on", || (told() == (429, left("0"), true)).then_some(()));
}

#[test]
fn ob_04_failing_open_is_counted_logged_once_and_in_the_access_log() {
    let stack = stack().redis().start();
    recovers(&stack, "the start");
    let before = stack.sidecar().process().log().lines().count();
    stack.redis().process().kill();
    let mut client = stack.envoy().client();
    for _ in 0..50 {
        assert_eq!(client.send(&get("/open", &fresh_key())).status, 200);
    }
    let metrics = stack.envoy().prometheus();
    let line = |reason: &str| format!("kota_failed_open{{rule=\"open\",reason=\"{reason}\"}}");
    assert!(metrics.contains(&line("redis_error")) || metrics.contains(&line("redis_timeout")), "{metrics}");
    let open = |(name, count): &(String, u64)| name.starts_with("failed_open.open.").then_some(*count);
    assert_eq!(stack.envoy().kota_counters().iter().filter_map(open).sum::<u64>(), 50);
    let lines = wait::until("the sidecar tells", || {
        let log = stack.sidecar().process().log();
        let lines: Vec<_> = log.lines().skip(before).map(str::to_owned).collect();
        lines.iter().any(|line| line.contains("Redis") && line.contains("is away")).then_some(lines)
    });
    assert!(lines.len() <= 3, "50 failures, one event: {lines:#?}");
    let last = stack.envoy().access_log_of(50).pop().expect("lines");
    assert_eq!(
        (&last["kota_decision"], &last["kota_rule"]),
        (&json!("failed_open"), &json!("open")),
        "{last}"
    );
    assert!(last["kota_reason"].as_str().is_some_and(|reason| reason.starts_with("redis_")), "{last}");
}

#[test]
fn the_deadline_is_five_milliseconds_unless_the_configuration_says_otherwise() {
    let dir = Workdir::new();
    let socket = Endpoint::Unix(dir.path().join("decide.sock"));
    let (budgets, heard) = std::sync::mpsc::channel();
    let budgets = Mutex::new(budgets);
    let _impostor = Impostor::start(socket.clone(), move |body| {
        let batch = decode_batch(body).expect("a batch");
        let _ = budgets.lock().expect("nobody panics").send(batch.budget_ms); // the test may be over
        Reply { end: End::Never, ..Reply::genuine("") }
    });
    let config = json!({ "rules": [rule("open", 10, json!({ "key": ["client"] }))] });
    let stack = Stack::new().sidecar_at(socket).config(config).start();
    assert_eq!(stack.envoy().send(&get("/", "k")).status, 200);
    wait::until_true("a call reached the sidecar in time", || {
        assert_eq!(stack.envoy().send(&get("/", "k")).status, 200);
        heard.try_recv().is_ok_and(|budget| (1..=5).contains(&budget))
    });
    let log = stack.envoy().access_log_of(1);
    assert_eq!(
        (&log[0]["kota_decision"], &log[0]["kota_reason"]),
        (&json!("failed_open"), &json!("deadline"))
    );
}

#[test]
fn fm_07_a_sidecar_starts_without_redis_and_finds_it_later() {
    let (dir, redis_port) = (Workdir::new(), free_port());
    let socket = Endpoint::Unix(dir.path().join("decide.sock"));
    let sidecar = start_sidecar(&dir, socket.clone(), &format!("redis://127.0.0.1:{redis_port}"));
    let stack = stack().sidecar_at(socket).start();
    fails(&stack, "no Redis yet", &["redis_error", "redis_timeout"]);
    assert!(sidecar.process().ended().is_none());
    let _redis = kota_integration::redis::Redis::start_at(redis_port, dir.path());
    recovers(&stack, "no Redis yet");
    nothing_is_left(&stack);
}

#[test]
fn fm_07_an_envoy_starts_without_a_sidecar_and_finds_it_later() {
    let dir = Workdir::new();
    let socket = Endpoint::Unix(dir.path().join("decide.sock"));
    let stack = stack().sidecar_at(socket.clone()).start();
    fails(&stack, "no sidecar yet", &["refused"]);
    let mut sidecar = start_sidecar(&dir, socket, "memory");
    recovers(&stack, "no sidecar yet");
    sidecar.restart();
    recovers(&stack, "a restarted sidecar");
    nothing_is_left(&stack);
}

fn start_sidecar(dir: &Workdir, listen: Endpoint, store: &str) -> kota_integration::sidecar::Sidecar {
    kota_integration::sidecar::Sidecar::start(kota_integration::sidecar::Setup {
        name: "sidecar".to_owned(),
        listen,
        api: free_port(),
        store: store.to_owned(),
        key_file: Some(dir.write("kota.keys", &format!("{}\n", "0f".repeat(32)))),
        flags: Vec::new(),
        env: Vec::new(),
        dir: dir.path().to_path_buf(),
    })
}

#[test]
fn we_09_a_good_answer_counts_only_with_the_sidecars_marker() {
    let dir = Workdir::new();
    let socket = Endpoint::Unix(dir.path().join("decide.sock"));
    let marked = Arc::new(AtomicBool::new(true));
    let genuine = Arc::clone(&marked);
    let _impostor = Impostor::start(socket.clone(), move |body| {
        let batch = decode_batch(body).expect("a batch");
        let admit = Outcome { verdict: Verdict::Admit, left: 999, wait_ms: 0, leased: 0 };
        let answer = |check: &Check<'_>| Answer::Admitted(vec![admit; check.calls.len()]);
        let answers = Answers { answers: batch.checks.iter().map(answer).collect(), unavailable_for_ms: 0 };
        let mut reply = Reply::genuine(encode_answers(&answers, VERSION).expect("an answer"));
        if !genuine.load(Ordering::Relaxed) {
            reply.headers.clear();
        }
        reply
    });
    let stack = stack().sidecar_at(socket).start();
    recovers(&stack, "the start");
    marked.store(false, Ordering::Relaxed);
    fails(&stack, "the same answers from who knows whom", &["garbage"]);
}
