//! The way of calls through a cluster: to the owners of their slots, one pipeline per node, and on to where a node points.

use super::Inner;
use crate::store::redis::call::Refusal;
use crate::store::redis::server::{Reply, Server};
use crate::store::redis::target::Place;
use redis::{Cmd, Pipeline};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// How often a call is sent on.
const HOPS_MAX: u8 = 5;

/// Calls that are under way. The channel is bounded by them: each is told once per hop.
pub(super) struct Post {
    inner: Arc<Inner>,
    calls: Vec<Call>,
    /// Calls that have not been sent.
    fresh: Vec<usize>,
    /// How many are not answered.
    open: usize,
    /// How long to wait for a node that is just being connected to; then nothing more is sent on.
    deadline: Instant,
    /// How long replies are listened for.
    patience: Instant,
    tell: UnboundedSender<Told>,
    told: UnboundedReceiver<Told>,
    done: VecDeque<(usize, Reply)>,
}

/// A call, who was asked, and what it came to there.
type Told = (usize, Arc<Server>, Reply);

struct Call {
    slot: u16,
    command: Cmd,
    hops: u8,
}

/// Calls to one node.
struct Bundle {
    server: Arc<Server>,
    asking: bool,
    numbers: Vec<usize>,
}

// === impl Post ===

impl Post {
    /// Calls are sent, and sent on, until `deadline`; what was sent is listened for until `patience`.
    pub(super) fn new(inner: Arc<Inner>, deadline: Instant, patience: Instant) -> Self {
        let (tell, told) = unbounded_channel();
        let (calls, fresh, done) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { inner, calls, fresh, open: 0, deadline, patience, tell, told, done }
    }

    /// Takes a call and gives it a number. It waits for [`Self::send`].
    pub(super) fn add(&mut self, slot: u16, command: Cmd) -> usize {
        let number = self.calls.len();
        self.calls.push(Call { slot, command, hops: 0 });
        self.fresh.push(number);
        self.open += 1;
        number
    }

    /// Sends what waits.
    pub(super) fn send(&mut self) {
        let map = self.inner.map();
        let mut bundles = Vec::new();
        for number in std::mem::take(&mut self.fresh) {
            match map.owner(self.calls[number].slot) {
                Some(server) => bundle(&mut bundles, server, false, number),
                None => {
                    self.inner.stale.notify_one();
                    self.done.push_back((number, Err(Refusal::Away)));
                }
            }
        }
        self.carry(bundles);
    }

    /// The next call that is done, and what it came to. `None`: all are.
    pub(super) async fn next(&mut self) -> Option<(usize, Reply)> {
        loop {
            if let Some(done) = self.done.pop_front() {
                self.open -= 1;
                return Some(done);
            }
            if self.open == 0 {
                return None;
            }
            let first = self.told.recv().await?;
            self.sort(first);
        }
    }

    /// Takes in what has been told: what a node points elsewhere goes there, all else is done.
    fn sort(&mut self, first: Told) {
        let mut bundles = Vec::new();
        let mut next = Some(first);
        while let Some((number, asked, reply)) = next {
            match self.onward(number, &asked, &reply) {
                Some((server, asking)) => bundle(&mut bundles, &server, asking, number),
                None => self.done.push_back((number, reply)),
            }
            next = self.told.try_recv().ok();
        }
        self.carry(bundles);
    }

    /// Where a call goes next, and whether it has to ask there for a slot that is on its way.
    fn onward(&mut self, number: usize, asked: &Server, reply: &Reply) -> Option<(Arc<Server>, bool)> {
        // A node that has left its cluster knows no owner, and can't point at one: others can.
        if matches!(reply, Err(Refusal::Moved(_) | Refusal::ClusterDown)) {
            self.inner.stale.notify_one();
        }
        let (place, asking) = match reply {
            Err(Refusal::Moved(place)) => (place, false),
            Err(Refusal::Ask(place)) => (place, true),
            _ => return None,
        };
        let call = &mut self.calls[number];
        if call.hops >= HOPS_MAX || Instant::now() >= self.deadline {
            return None;
        }
        call.hops += 1;
        let place = Place::told(place, asked.place())?;
        Some((self.inner.node(&place, call.slot)?, asking))
    }

    fn carry(&self, bundles: Vec<Bundle>) {
        for Bundle { server, asking, numbers } in bundles {
            let mut calls = Pipeline::with_capacity(numbers.len());
            for number in &numbers {
                calls.add_command(self.calls[*number].command.clone());
            }
            let (tell, deadline) = (self.tell.clone(), self.deadline);
            let calling = timeout_at(self.patience, async move {
                server.begun(deadline).await;
                // Nobody may be left to hear it.
                let told = |nth: usize, reply| _ = tell.send((numbers[nth], Arc::clone(&server), reply));
                server.call(calls, asking, told).await;
            });
            let deserted = self.tell.clone();
            tokio::spawn(async move {
                tokio::select! {
                    _ = calling => {}
                    // A server that stands still holds no more than what is listened for.
                    () = deserted.closed() => {}
                }
            });
        }
    }
}

fn bundle(bundles: &mut Vec<Bundle>, server: &Arc<Server>, asking: bool, number: usize) {
    match bundles.iter_mut().find(|one| one.asking == asking && Arc::ptr_eq(&one.server, server)) {
        Some(bundle) => bundle.numbers.push(number),
        None => bundles.push(Bundle { server: Arc::clone(server), asking, numbers: vec![number] }),
    }
}
