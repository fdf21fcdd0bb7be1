//! What a root context shares with its streams, and what any of them does through it.

use crate::bill::Settlement;
use crate::config::Config;
use crate::exchange::{self, Exchange, Tally};
use crate::speech::{self, Speech};
use crate::worker::Worker;
use crate::worker::slots::SlotId;
use crate::{host, metrics};
use core::cell::{Cell, OnceCell, RefCell};
use hashbrown::HashMap;
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How often a root looks for a wake that was lost, and for slots to be renewed.
const TICK_MS: u32 = 100;

thread_local! {
    /// The names of the queues whose roots have gone. The host never frees a queue (some 4.6 KB each), so the next root takes one over.
    static QUEUES: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
}

/// What a root shares with its streams.
pub(crate) struct Shared {
    pub(crate) root: u32,
    pub(crate) started: Instant,
    pub(crate) config: OnceCell<Config>,
    pub(crate) listens: Cell<bool>,
    pub(crate) queue_name: Cell<Option<u128>>,
    pub(crate) wake_queue: Cell<Option<u32>>,
    pub(crate) worker: RefCell<Worker<Rc<Waiting>>>,
    pub(crate) counters: RefCell<HashMap<(u16, usize), u32>>,
    pub(crate) matched: RefCell<Vec<u16>>,
    pub(crate) tally: RefCell<Tally>,
    /// When a root that is replaced goes at the latest.
    pub(crate) closing_until_us: Cell<Option<u64>>,
}

/// A stream, as the root finds it again.
pub(crate) struct Waiting {
    pub(crate) id: u32,
    pub(crate) dialect: Cell<Speech>,
    pub(crate) exchange: RefCell<Exchange>,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(root: u32) -> Self {
        Self {
            root,
            started: Instant::now(),
            config: OnceCell::new(),
            listens: Cell::new(false),
            queue_name: Cell::new(None),
            wake_queue: Cell::new(None),
            worker: RefCell::default(),
            counters: RefCell::default(),
            matched: RefCell::default(),
            tally: RefCell::default(),
            closing_until_us: Cell::new(None),
        }
    }

    /// Microseconds on a clock that nobody sets.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Asks for a turn of the root after this one, if there is something to do.
    pub(crate) fn wake(&self) {
        if self.worker.borrow_mut().wants_wake() && !self.wake_queue.get().is_some_and(host::enqueue) {
            self.worker.borrow_mut().woken(); // The next tick takes its place.
        }
    }

    /// Begins to take wakes and ticks, at the root's first check: the VMs of the main thread and canaries never have one. From a
    /// stream the host registers its root. A queue's name is random, since queues are common to all workers, and nothing numbers
    /// those.
    pub(crate) fn listen(&self) {
        if self.listens.replace(true) {
            return;
        }
        host::set_tick_period(TICK_MS);
        let name = QUEUES.with_borrow_mut(Vec::pop).or_else(|| random().map(u128::from_le_bytes));
        self.queue_name.set(name);
        self.wake_queue.set(name.and_then(|name| host::register_queue(&format!("kota-wake-{name:032x}"))));
        self.worker.borrow_mut().seed(random().unwrap_or_else(unlikely_twice));
    }

    /// A stream has ended, or has at least no use for its slot any more.
    pub(crate) fn release(&self, slot: Option<SlotId>) {
        if let Some(slot) = slot {
            self.worker.borrow_mut().end(slot);
            self.wake();
        }
    }

    /// Requests cost something else than they took.
    pub(crate) fn settle(&self, settlements: Vec<Settlement>) {
        if !settlements.is_empty() {
            self.worker.borrow_mut().settle(settlements, self.now_us());
            self.wake();
        }
    }

    /// Ends the ticks, which the host would go on with after the root has gone.
    pub(crate) fn stop_ticks(&self) {
        if self.listens.get() {
            host::set_tick_period(0);
        }
    }

    /// Raises counters, which are defined at their first use, and keeps the emptied tally for the next.
    pub(crate) fn count(&self, config: &Config, mut tally: Tally) {
        let mut known = self.counters.borrow_mut();
        for (rule, counter) in tally.drain(..) {
            let id = known.get(&(rule, counter.index())).copied().or_else(|| {
                let id = metrics::id(config, rule, counter)?;
                known.insert((rule, counter.index()), id);
                Some(id)
            });
            id.into_iter().for_each(host::increment);
        }
        self.tally.replace(tally);
    }

    /// Carries out what an exchange wants done with its stream, which is the effective context.
    pub(crate) fn carry_out(&self, config: &Config, action: exchange::Action, speech: Speech) {
        match action {
            exchange::Action::Nothing => {}
            exchange::Action::Resume(note) => {
                speech::write_note(config, note);
                host::resume_request();
            }
            exchange::Action::Reply(reply, note) => {
                speech::write_note(config, note);
                speech::send(&reply, speech);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(name) = self.queue_name.take() {
            QUEUES.with_borrow_mut(|names| names.push(name));
        }
    }
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes).ok().map(|()| bytes)
}

/// Where the host gives no random bytes: the time.
fn unlikely_twice() -> [u8; 8] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}
