//! What the filter tells a sidecar of slots and costs, as an impostor that keeps a ledger hears it: each slot that was taken is given
//! back once, however its stream ends, and each cost is settled once.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use kota_integration::impostor::{Impostor, Reply};
use kota_integration::workdir::{Workdir, free_port};
use kota_integration::{Client, Delivery, Endpoint, Request, Running, Stack, stack, wait};
use protocol::batch::{Answer, Answers, Outcome, VERSION, Verdict, decode_batch, encode_answers};
use serde_json::{Value, json};

use crate::support::{fresh_key, get, merge};

/// What was heard of one slot.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Entry {
    taken: usize,
    renewed: usize,
    released: usize,
}

/// What was heard.
#[derive(Debug, Default)]
struct Ledger {
    slots: BTreeMap<Vec<u8>, Entry>,
    /// Tokens by rule: reserved, given back, charged after the fact.
    costs: Vec<(String, &'static str, u64)>,
}

/// An Envoy between a ledger and an upstream that does what a path says.
struct Book {
    ledger: Arc<Mutex<Ledger>>,
    stack: Running,
    _impostor: Impostor,
    _dir: Workdir,
}

fn rules(lease_s: u64) -> Value {
    let rule = |id: &str, path: Value, more: Value| {
        let mut rule = json!({ "id": id, "capacity": 1000, "match": { "path": path } });
        merge(&mut rule, more);
        rule
    };
    json!([
        rule(
            "slots",
            json!({ "prefix": "/" }),
            json!({ "algorithm": "CONCURRENCY", "leaseSeconds": lease_s })
        ),
        rule(
            "upload",
            json!("/upload"),
            json!({ "algorithm": "TOKEN_BUCKET", "refillPerSecond": 1,
            "cost": { "body": 10, "default": 50 } })
        ),
        rule(
            "tokens",
            json!(["/header", "/trailer", "/hang"]),
            json!({ "algorithm": "SLIDING_WINDOW",
            "windowSeconds": 60, "cost": { "responseHeader": "x-tokens", "default": 50 } })
        ),
    ])
}

impl Ledger {
    /// Answers a batch, and writes down what it says.
    fn hear(&mut self, body: &[u8]) -> Vec<u8> {
        let batch = decode_batch(body).expect("a batch");
        let id = |rule: u16| batch.rules[usize::from(rule)].id.to_owned();
        let mut answers = Vec::new();
        for check in &batch.checks {
            self.slots.entry(check.slot.to_vec()).or_default().taken += 1;
            let outcome = Outcome { verdict: Verdict::Admit, left: 1, wait_ms: 0, leased: 0 };
            answers.push(Answer::Admitted(vec![outcome; check.calls.len()]));
            let reserved = check.calls.iter().filter(|call| id(call.rule) != "slots");
            self.costs.extend(reserved.map(|call| (id(call.rule), "reserved", call.cost)));
        }
        for release in &batch.releases {
            self.slots.entry(release.id.to_vec()).or_default().released += 1;
        }
        for renewal in &batch.renewals {
            self.slots.entry(renewal.id.to_vec()).or_default().renewed += 1;
        }
        self.costs.extend(batch.give_backs.iter().map(|one| (id(one.rule), "given", one.tokens)));
        self.costs.extend(batch.debits.iter().map(|one| (id(one.rule), "charged", one.tokens)));
        encode_answers(&Answers { answers, unavailable_for_ms: 0 }, VERSION).expect("answers")
    }
}

impl Book {
    fn open(lease_s: u64, delivery: Delivery) -> Self {
        let dir = Workdir::new();
        let ledger: Arc<Mutex<Ledger>> = Arc::default();
        let heard = Arc::clone(&ledger);
        let hear = move |body: &[u8]| Reply::genuine(heard.lock().expect("a ledger").hear(body));
        let impostor = Impostor::start(Endpoint::Unix(dir.path().join("ledger.sock")), hear);
        let upstream = upstream();
        let stack = Stack::new()
            .config(stack::with_rules(rules(lease_s)))
            .sidecar_at(impostor.endpoint().clone())
            .without_upstream()
            .delivery(delivery)
            .bootstrap(move |bootstrap| {
                let route = json!({ "match": { "path": "/timeout" }, "route": { "cluster": "echo", "timeout": "0.3s" } });
                let upgrade = json!([{ "upgrade_type": "websocket" }]);
                bootstrap.http()["upgrade_configs"] = upgrade;
                let routes = &mut bootstrap.http()["route_config"]["virtual_hosts"][0]["routes"];
                routes.as_array_mut().expect("routes").insert(0, route);
                let endpoint = &mut bootstrap.cluster("echo")["load_assignment"]["endpoints"][0]["lb_endpoints"][0];
                endpoint["endpoint"]["address"]["socket_address"]["port_value"] = json!(upstream);
                bootstrap.cluster("echo")["typed_extension_protocol_options"] = json!({
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                        "explicit_http_config": { "http_protocol_options": { "enable_trailers": true } } } });
            })
            .start();
        Self { ledger, stack, _impostor: impostor, _dir: dir }
    }

    fn entries(&self) -> Vec<Entry> {
        self.ledger.lock().expect("a ledger").slots.values().copied().collect()
    }

    fn costs(&self) -> Vec<(String, &'static str, u64)> {
        self.ledger.lock().expect("a ledger").costs.clone()
    }

    /// Waits until so many slots have been taken, and all are given back.
    fn balances(&self, slots: usize, what: &str) {
        let balanced = Entry { taken: 1, renewed: 0, released: 1 };
        wait::until(&format!("each slot is given back once: {what}"), || {
            (self.entries() == vec![balanced; slots]).then_some(())
        });
    }

    /// Sends a request, and waits until its slot is taken.
    fn begin(&self, request: &Request) -> Client {
        let mut client = self.stack.envoy().client();
        let before = self.entries().len();
        client.send_raw(&request.bytes()).expect("an open connection");
        wait::until_true("it is taken", || self.entries().len() > before);
        client
    }
}

/// An upstream that does what the path says, and where it listens.
fn upstream() -> u16 {
    let port = free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    port
}

fn serve(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let answer: &[u8] = match path {
        "/fails" => b"HTTP/1.1 500 Broken\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
        "/reset" => b"",
        "/half" => b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        "/header" => b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\nx-tokens: 80\r\n\r\n",
        "/trailer" => {
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-tokens\r\n\r\n2\r\nok\r\n0\r\nx-tokens: 20\r\n\r\n"
        }
        "/switch" => b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        "/hang" | "/timeout" => {
            let _ = stream.read(&mut [0; 1024]); // until Envoy ends it
            return;
        }
        _ => b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
    };
    if path == "/upload" {
        let mut body = Vec::new();
        while !body.ends_with(b"0\r\n\r\n") {
            let mut bytes = [0; 1024];
            match stream.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(n) => body.extend_from_slice(&bytes[..n]),
            }
        }
    }
    let _ = stream.write_all(answer);
    if path == "/switch" || path == "/trailer" || path == "/stall" {
        let _ = stream.read(&mut [0; 1024]);
    }
}

#[test]
fn cc_05_each_slot_is_given_back_once_however_its_stream_ends() {
    let book = Book::open(60, Delivery::Static);
    let key = fresh_key();
    let mut slots = 0;
    let mut ended = |what: &str| {
        slots += 1;
        book.balances(slots, what);
    };
    for (path, status) in [("/ok", 200), ("/fails", 500), ("/reset", 503), ("/timeout", 504)] {
        assert_eq!(book.stack.envoy().send(&get(path, &key)).status, status, "{path}");
        ended(path);
    }
    let mut client = book.begin(&get("/half", &key));
    assert!(client.read_answer().is_err(), "the answer breaks off");
    ended("an upstream that breaks off");
    book.begin(&get("/hang", &key)).disconnect();
    ended("a client that goes while the upstream works");
    let upload = Request::post("/ok").header("x-api-key", &key).header("transfer-encoding", "chunked");
    let mut client = book.begin(&upload);
    client.send_raw(b"4\r\nsome\r\n").expect("an open connection");
    client.disconnect();
    ended("a client that goes in its body");
    let upgrade = get("/switch", &key).header("connection", "upgrade").header("upgrade", "websocket");
    let mut client = book.begin(&upgrade);
    wait::until_true("it is switched", || {
        book.stack.envoy().stat("http.api.downstream_cx_upgrades_active") == 1
    });
    client.disconnect();
    ended("a WebSocket");
    assert_eq!(book.stack.envoy().vm_reloads(), 0);
}

#[test]
fn a_cost_is_settled_once_by_what_came_and_by_what_the_upstream_says() {
    let book = Book::open(60, Delivery::Static);
    let key = fresh_key();
    let told = |id: &str| -> Vec<(&'static str, u64)> {
        book.costs()
            .into_iter()
            .filter(|(rule, ..)| rule == id)
            .map(|(_, how, tokens)| (how, tokens))
            .collect()
    };
    let upload = Request::post("/upload").header("x-api-key", &key).header("transfer-encoding", "chunked");
    let mut client = book.begin(&upload);
    client.send_raw(b"a\r\n0123456789\r\n").expect("an open connection");
    client.send_raw(b"b\r\n0123456789a\r\n0\r\n\r\n").expect("an open connection");
    assert_eq!(client.read_answer().expect("an answer").status, 200);
    book.balances(1, "an upload");
    assert_eq!(told("upload"), [("reserved", 50), ("given", 47)], "21 bytes are 3 tokens");
    assert_eq!(book.stack.envoy().send(&get("/header", &key)).status, 200);
    book.balances(2, "a header");
    assert_eq!(told("tokens"), [("reserved", 50), ("charged", 30)]);
    assert_eq!(book.stack.envoy().send(&get("/trailer", &key)).status, 200);
    book.balances(3, "a trailer");
    assert_eq!(told("tokens")[2..], [("reserved", 50), ("given", 30)]);
    book.begin(&get("/hang", &key)).disconnect();
    book.balances(4, "an upstream that says nothing");
    assert_eq!(told("tokens")[4..], [("reserved", 50)], "the reserve stays");
}

#[test]
fn a_stream_of_a_replaced_root_keeps_its_slot_and_gives_it_back() {
    for delivery in [Delivery::Ecds, Delivery::Lds] {
        let mut book = Book::open(1, delivery);
        let key = fresh_key();
        let mut client = book.begin(&get("/hang", &key));
        let mut config = stack::with_rules(rules(1));
        config["domain"] = json!("another");
        assert!(book.stack.envoys[0].reconfigure(&config), "{delivery:?}");
        assert_eq!(book.stack.envoy().send(&get("/ok", &key)).status, 200);
        let renewed = book.entries()[0].renewed;
        wait::until_true("the old root renews", || {
            book.entries().iter().any(|entry| entry.renewed >= renewed + 3 && entry.released == 0)
        });
        client.disconnect();
        wait::until_true("both are given back", || {
            let entries = book.entries();
            entries.len() == 2 && entries.iter().all(|entry| (entry.taken, entry.released) == (1, 1))
        });
    }
}
