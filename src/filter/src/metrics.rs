//! The counters of this VM. Their ids are the host's and per VM: it does not tell two definitions of one name apart.

use crate::config::Config;
use crate::counters::{OTHER, RULES_MAX};
use crate::exchange::Counter;
use crate::host;
use core::cell::RefCell;
use hashbrown::{HashMap, HashSet};

thread_local! {
    static METRICS: RefCell<Metrics> = RefCell::new(Metrics::default());
}

/// The counters that this VM has defined.
#[derive(Default)]
struct Metrics {
    ids: HashMap<String, u32>,
    rules: HashSet<Box<str>>,
}

/// The id of a rule's counter, which is defined at its first use. `None` if the host refuses.
pub(crate) fn id(config: &Config, rule: u16, counter: Counter) -> Option<u32> {
    METRICS.with_borrow_mut(|metrics| metrics.define(config, rule, counter))
}

// === impl Metrics ===

impl Metrics {
    fn define(&mut self, config: &Config, rule: u16, counter: Counter) -> Option<u32> {
        let id = &*config.announcement(rule)?.id;
        let named =
            usize::from(rule) < RULES_MAX && (self.rules.contains(id) || self.rules.len() < RULES_MAX);
        if named {
            self.rules.insert(id.into());
        }
        let name = counter.name(if named { id } else { OTHER });
        if let Some(&id) = self.ids.get(&name) {
            return Some(id);
        }
        let id = host::define_counter(&name)?;
        self.ids.insert(name, id);
        Some(id)
    }
}
