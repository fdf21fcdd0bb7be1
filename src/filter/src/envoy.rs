//! The shell: Envoy's callbacks in, host calls out. The only module that names the SDK.
//!
//! All state belongs to a root context and is shared with its streams: a configuration change makes a second root in the same
//! VM. The exceptions are what the host gives out per VM and never takes back: metric ids and queues.

use crate::callout::{Arrival, Refusal};
use crate::capture::{Capture, Connection};
use crate::check::{self, Plan};
use crate::config::Config;
use crate::exchange::{self, Tally};
use crate::host::{self, Buffer, Map};
use crate::pairs;
use crate::shared::{Shared, Waiting};
use crate::speech::{self, Speech};
use crate::worker::ANSWERS_MAX;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use limits::request::Request;
use protocol::batch::{BYTES_MAX, MARKER};
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel, Status};
use std::rc::Rc;

/// How long a root that is replaced waits for what it still has to tell the sidecar, in microseconds.
const CLOSING_MAX_US: u64 = 10_000_000;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Warn);
    proxy_wasm::set_root_context(|id| Box::new(Root(Rc::new(Shared::new(id)))));
}}

struct Root(Rc<Shared>);

struct Stream {
    shared: Rc<Shared>,
    waiting: Rc<Waiting>,
}

/// The parts of a request that are no headers, asked of the host.
struct HostConnection;

// === impl HostConnection ===

impl Connection for HostConnection {
    fn source_address(&self) -> Option<Vec<u8>> {
        host::property("source\0address")
    }

    fn route_name(&self) -> Option<Vec<u8>> {
        host::property("xds\0route_name")
    }

    fn metadata(&self, path: &[Box<str>]) -> Option<Vec<u8>> {
        host::property(&format!("metadata\0filter_metadata\0{}", path.join("\0")))
    }
}

// === impl Root ===

impl Root {
    /// Sends what is queued and answers what is decided, each within its bounds; the rest gets a turn of its own.
    fn turn(&self) {
        let Some(config) = self.0.config.get() else { return };
        self.send_queued(config);
        self.answer(config);
    }

    /// Answers what is decided, and asks for a turn for what is left.
    fn answer(&self, config: &Config) {
        self.answer_decided(config);
        self.0.wake();
        self.close(config);
    }

    /// Lets a root that is replaced go, once nothing is left to be done, or its time is over.
    fn close(&self, config: &Config) {
        let Some(until_us) = self.0.closing_until_us.get() else { return };
        if !self.0.worker.borrow().is_idle() {
            if self.0.now_us() < until_us {
                return;
            }
            let mut tally = Tally::new();
            self.0.worker.borrow_mut().abandon();
            self.0.worker.borrow_mut().count_lost(&mut tally);
            self.0.count(config, tally);
        }
        self.0.closing_until_us.set(None);
        self.0.stop_ticks();
        host::done();
    }

    fn send_queued(&self, config: &Config) {
        loop {
            let next =
                self.0.worker.borrow_mut().next_callout(&config.rules, &config.domain, self.0.now_us());
            let Some(callout) = next else { break };
            let headers = vec![(":method", "POST"), (":path", "/v1/decide"), (":authority", "kota")];
            let timeout = Duration::from_millis(u64::from(callout.timeout_ms));
            let sent =
                self.dispatch_http_call(&config.cluster, headers, Some(&callout.body), Vec::new(), timeout);
            let mut worker = self.0.worker.borrow_mut();
            match sent {
                Ok(token) => worker.sent(token, callout, self.0.now_us()),
                Err(Status::BadArgument) => worker.refused(callout, Refusal::NoCluster, self.0.now_us()),
                Err(_) => worker.refused(callout, Refusal::NotSent, self.0.now_us()),
            }
        }
    }

    fn answer_decided(&self, config: &Config) {
        let mut tally = self.0.tally.take();
        let mut answered = 0;
        while answered < ANSWERS_MAX {
            let next = self.0.worker.borrow_mut().next_decided();
            let Some((waiting, ruling)) = next else { break };
            let action = waiting.exchange.borrow_mut().on_ruling(config, &ruling, &mut tally);
            if matches!(action, exchange::Action::Reply(..)) {
                // Where nobody could decide, a slot may be held that is of no use.
                let slot = waiting.exchange.borrow_mut().take_slot();
                self.0.release(slot);
            }
            if action != exchange::Action::Nothing && host::set_effective_context(waiting.id) {
                self.0.carry_out(config, action, waiting.dialect.get());
                answered = answered.saturating_add(1);
            }
        }
        self.0.worker.borrow_mut().count_lost(&mut tally);
        if answered > 0 {
            host::set_effective_context(self.0.root); // The host sends callouts from the effective context's root.
        }
        self.0.count(config, tally);
    }
}

impl RootContext for Root {
    // Runs in the canary VM of every new configuration too: no side effect beyond the root itself.
    fn on_configure(&mut self, _size: usize) -> bool {
        let json = host::buffer(Buffer::Configuration, usize::MAX).unwrap_or_default();
        match Config::parse(&json) {
            Ok(config) => self.0.config.set(config).is_ok(),
            Err(faults) => {
                faults.iter().for_each(|fault| log::error!("kota: configuration refused: {fault}"));
                false
            }
        }
    }

    fn on_queue_ready(&mut self, queue: u32) {
        let _ = host::dequeue(queue);
        self.0.worker.borrow_mut().woken();
        self.turn();
    }

    fn on_tick(&mut self) {
        let has_work = !self.0.worker.borrow().is_idle() || self.0.worker.borrow().holds_slots();
        if has_work || self.0.closing_until_us.get().is_some() {
            self.0.worker.borrow_mut().woken();
            self.0.worker.borrow_mut().tick(self.0.now_us());
            self.turn();
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let waiting = Waiting { id, dialect: Cell::default(), exchange: RefCell::default() };
        Some(Box::new(Stream { shared: Rc::clone(&self.0), waiting: Rc::new(waiting) }))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body_size: usize, _trailers: usize) {
        // Without headers there is no map to read.
        let genuine = headers > 0
            && host::header(Map::Callout, MARKER.0).is_some_and(|value| value == MARKER.1.as_bytes());
        let status = if genuine || headers == 0 { None } else { host::header(Map::Callout, ":status") };
        let readable = genuine && body_size > 0 && body_size <= BYTES_MAX;
        let body =
            if readable { host::buffer(Buffer::Callout, body_size).unwrap_or_default() } else { Vec::new() };
        let arrival = Arrival { headers, genuine, status: status.as_deref(), body: &body };
        self.0.worker.borrow_mut().arrived(token, &arrival, self.0.now_us());
        // No call from here: Envoy is in the midst of reading from the sidecar's connection, and where that goes wrong it crashes on
        // a call made meanwhile. The next turn sends.
        if let Some(config) = self.0.config.get() {
            self.answer(config);
        }
    }

    /// A root that is replaced stays until its streams are answered, and what they leave behind is told.
    fn on_done(&mut self) -> bool {
        if self.0.worker.borrow().is_idle() {
            self.0.stop_ticks();
            return true;
        }
        self.0.closing_until_us.set(Some(self.0.now_us().saturating_add(CLOSING_MAX_US)));
        false
    }
}

// === impl Stream ===

impl Stream {
    /// `None` if the request's headers can't be read: the host hands over at most 1,024.
    fn plan(&self, config: &Config, has_body: bool) -> Option<Plan> {
        let map = host::header_map(Map::Request)?;
        let capture = Capture::new(&map, &config.rules, config.trusted_hops, HostConnection)?;
        self.waiting.dialect.set(match () {
            () if capture.is_grpc() => Speech::Grpc,
            () if capture.is_grpc_web() => Speech::GrpcWeb,
            () => Speech::Http,
        });
        let request = Request::new(&capture, config.rules.descriptors(), config.rules.routes());
        Some(check::plan(&config.rules, &request, has_body, &mut self.shared.matched.borrow_mut()))
    }

    /// Reads what the response says of the request's cost, where that counts.
    fn read_cost(&self, map: Map) {
        let Some(config) = self.shared.config.get() else { return };
        let mut exchange = self.waiting.exchange.borrow_mut();
        if exchange.awaits_cost(&config.rules) {
            let all = host::header_map(map).unwrap_or_default();
            let settlements =
                exchange.on_cost(&config.rules, |name| pairs::only(&all, name).map(<[u8]>::to_vec));
            self.shared.settle(settlements);
        }
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _headers: usize, is_end: bool) -> Action {
        let Some(config) = self.shared.config.get() else { return Action::Continue };
        match self.plan(config, !is_end) {
            Some(Plan::Pass) => Action::Continue,
            None => {
                let action = self.waiting.exchange.borrow_mut().refuse_unreadable();
                self.shared.carry_out(config, action, self.waiting.dialect.get());
                Action::Pause
            }
            Some(Plan::Deny(rule)) => {
                let mut tally = self.shared.tally.take();
                let action = self.waiting.exchange.borrow_mut().deny_missing_key(config, rule, &mut tally);
                self.shared.count(config, tally);
                if action == exchange::Action::Nothing {
                    return Action::Continue; // Nobody would ever answer it.
                }
                self.shared.carry_out(config, action, self.waiting.dialect.get());
                Action::Pause
            }
            Some(Plan::Ask(mut check)) => {
                self.shared.listen();
                let mut exchange = self.waiting.exchange.borrow_mut();
                let now_us = self.shared.now_us();
                exchange.ask(&mut check, now_us);
                let deadline_us = now_us.saturating_add(config.deadline_us);
                let waiting = Rc::clone(&self.waiting);
                exchange.hold(self.shared.worker.borrow_mut().queue(waiting, check, deadline_us));
                self.shared.wake();
                Action::Pause
            }
        }
    }

    // Called once the request was let go on: while it waits, Envoy keeps the body.
    fn on_http_request_body(&mut self, size: usize, is_end: bool) -> Action {
        let Some(config) = self.shared.config.get() else { return Action::Continue };
        let mut exchange = self.waiting.exchange.borrow_mut();
        if exchange.is_waiting() {
            return Action::Pause;
        }
        let settlements = exchange.on_body(&config.rules, size, is_end);
        self.shared.settle(settlements);
        Action::Continue
    }

    // Runs for Kota's own replies and for those that Envoy makes while the request waits, too.
    fn on_http_response_headers(&mut self, _headers: usize, _end: bool) -> Action {
        let told = self.waiting.exchange.borrow_mut().on_response();
        told.iter().for_each(speech::add_fields);
        self.read_cost(Map::Response);
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _trailers: usize) -> Action {
        self.read_cost(Map::ResponseTrailers);
        Action::Continue
    }
}

// Every ending comes here, once and last, after `on_log` and `on_done` (seen on Envoy 1.40): an answer of the upstream, of Envoy or of
// another filter; an upstream that resets, breaks off, is too slow or says GOAWAY; a client that goes before the answer, within it,
// within its own body or while it is decided; a gRPC call that is cancelled, a WebSocket or a connection that closes, a drain.
impl Drop for Stream {
    fn drop(&mut self) {
        let Some(config) = self.shared.config.get() else { return };
        let mut exchange = self.waiting.exchange.borrow_mut();
        let settlements = exchange.on_gone(&config.rules);
        self.shared.settle(settlements);
        self.shared.release(exchange.take_slot());
    }
}
