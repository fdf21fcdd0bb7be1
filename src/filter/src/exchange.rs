//! One HTTP exchange, from its headers to its end: events go in, actions come out, nothing else happens.
//!
//! `Fresh` ─plan─▶ `Waiting` ─ruling─▶ `Passed` ─response─▶ `Over`. Envoy may answer a stream itself while it waits, and a client
//! may go at any time (`Waiting` ─▶ `Left`): a ruling that then comes is counted, for it was charged, and does nothing else.

use crate::answer::{self, Field, Nearest, Reply};
use crate::bill::{Bill, Settlement};
use crate::check::Pending;
use crate::config::{Announcement, Config};
use crate::reason::Reason;
use crate::worker::Ruling;
use crate::worker::slots::SlotId;
use limits::decision::Verdict;
use limits::rule::{FailMode, Mode, Rule};
use limits::ruleset::RuleSet;
use protocol::batch::{self, Answer};

/// An exchange that Kota has seen the request of.
#[derive(Debug, Default)]
pub struct Exchange {
    state: State,
    slot: Option<SlotId>,
    /// What has to be settled once the request has passed.
    bill: Option<Box<Bill>>,
}

#[derive(Debug, Default)]
enum State {
    /// No rule applies, or none has been looked for.
    #[default]
    Fresh,
    /// The rules of these indices have been asked.
    Waiting(Vec<u16>),
    /// The request passed; the response will say so.
    Passed(Told),
    /// The stream was answered by somebody else, or is gone, before the ruling on these rules came.
    Left(Vec<u16>),
    /// Nothing more is to be done.
    Over,
}

/// What the response of an admitted request will say.
#[derive(Debug)]
pub struct Told {
    /// The RateLimit fields, which are lists: they go beside what the upstream says.
    pub fields: Vec<Field>,
    /// The X-RateLimit fields, which are not: the stricter stay.
    pub legacy: Vec<Field>,
    /// Whole tokens left.
    pub left: u64,
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// The request goes on.
    Resume(Note),
    /// The client gets a reply.
    Reply(Box<Reply>, Note),
}

/// What the access log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// `allow`, `would_deny` (it passes, but a shadow rule says no), `deny`, `failed_open` or `failed_closed`.
    pub decision: &'static str,
    /// The rule that decided, where one did.
    pub rule: Option<u16>,
    /// Why nobody could decide.
    pub reason: Option<Reason>,
}

/// A counter of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Requests that the rule admitted, and that passed.
    Allowed,
    /// Requests that the rule denied.
    Denied,
    /// Requests that passed although the rule, which only watches, says no.
    ShadowDenied,
    /// Requests that passed undecided.
    FailedOpen(Reason),
    /// Requests that were refused undecided.
    FailedClosed(Reason),
    /// Slots of requests that have ended, but that stay taken until their lease ends: the sidecar could not be told.
    SlotLost,
    /// Requests whose cost could not be settled.
    SettlementLost,
}

/// Counters to be raised by one, each of the rule of that index.
pub type Tally = Vec<(u16, Counter)>;

// === impl Exchange ===

impl Exchange {
    /// The rules that apply are to be asked, and the request waits since `now_us`.
    pub fn ask(&mut self, check: &mut Pending, now_us: u64) {
        self.state = State::Waiting(check.rules().collect());
        self.bill = check.take_bill();
        self.bill.iter_mut().for_each(|bill| bill.asked(now_us));
    }

    /// The check takes this slot.
    pub fn hold(&mut self, slot: Option<SlotId>) {
        self.slot = slot;
    }

    /// What can't be read can't be limited, and must not pass by that.
    pub fn refuse_unreadable(&mut self) -> Action {
        self.state = State::Over;
        let note = Note { decision: "deny", rule: None, reason: None };
        Action::Reply(Box::new(answer::too_many_headers()), note)
    }

    /// The rule of that index denies a request that lacks its key.
    pub fn deny_missing_key(&mut self, config: &Config, rule: u16, tally: &mut Tally) -> Action {
        let Some(announcement) = config.announcement(rule) else { return Action::Nothing };
        self.state = State::Over;
        tally.push((rule, Counter::Denied));
        let note = Note { decision: "deny", rule: Some(rule), reason: None };
        Action::Reply(Box::new(answer::missing_key(config, announcement)), note)
    }

    /// The check was decided, or can't be. Counted even if the stream is gone by now: what was charged was charged.
    pub fn on_ruling(&mut self, config: &Config, ruling: &Ruling, tally: &mut Tally) -> Action {
        let (rules, gone) = match core::mem::replace(&mut self.state, State::Over) {
            State::Waiting(rules) => (rules, false),
            State::Left(rules) => (rules, true),
            _ => return Action::Nothing,
        };
        let action = match ruling {
            Ruling::Decided(Answer::Admitted(outcomes)) => {
                said(config, &rules, outcomes).map(|said| self.pass(config, &said, tally))
            }
            Ruling::Decided(Answer::Denied(outcomes)) => {
                said(config, &rules, outcomes).and_then(|said| deny(config, &said, tally))
            }
            Ruling::Decided(Answer::Unknown(unknown)) => Some(fail(config, &rules, (*unknown).into(), tally)),
            Ruling::Failed(_) if gone => None,
            Ruling::Failed(reason) => Some(fail(config, &rules, *reason, tally)),
        };
        let action = match action {
            _ if gone => {
                self.state = State::Over;
                Action::Nothing
            }
            Some(action) => action,
            None => fail(config, &rules, Reason::Garbage, tally),
        };
        self.charge(ruling, &action);
        action
    }

    /// The response begins. Gives what it has to say, once; a reply of Kota's own, and one that Envoy made while the request
    /// waited, say nothing more.
    pub fn on_response(&mut self) -> Option<Told> {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Passed(told) => Some(told),
            // Both may happen to one stream, Envoy's answer and then its end.
            State::Waiting(rules) | State::Left(rules) => {
                self.state = State::Left(rules);
                None
            }
            State::Fresh | State::Over => None,
        }
    }

    /// Whether the request must not go on yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// So many more bytes of the request's body go by. Gives what is to be settled.
    pub fn on_body(&mut self, rules: &RuleSet, bytes: usize, is_end: bool) -> Vec<Settlement> {
        self.bill.as_mut().map_or_else(Vec::new, |bill| bill.body(rules, bytes, is_end))
    }

    /// Whether the response may tell a cost.
    #[must_use]
    pub fn awaits_cost(&self, rules: &RuleSet) -> bool {
        self.bill.as_ref().is_some_and(|bill| bill.awaits_response(rules))
    }

    /// The response's headers or trailers can be read, by `header`. Gives what is to be settled.
    pub fn on_cost(&mut self, rules: &RuleSet, header: impl Fn(&str) -> Option<Vec<u8>>) -> Vec<Settlement> {
        self.bill.as_mut().map_or_else(Vec::new, |bill| bill.response(rules, header))
    }

    /// The slot that is to be released, once; none if the request took none.
    pub fn take_slot(&mut self) -> Option<SlotId> {
        self.slot.take()
    }

    /// The stream is gone. Gives what is to be settled.
    pub fn on_gone(&mut self, rules: &RuleSet) -> Vec<Settlement> {
        let _ = self.on_response();
        // A bill that was not charged yet never will be: the request does not pass any more.
        self.bill.take().map_or_else(Vec::new, |mut bill| bill.end(rules))
    }

    /// Only what was charged has to be settled, and only of a request that passed.
    fn charge(&mut self, ruling: &Ruling, action: &Action) {
        match (&mut self.bill, ruling, action) {
            (Some(bill), Ruling::Decided(Answer::Admitted(outcomes)), Action::Resume(note))
                if note.reason.is_none() =>
            {
                bill.charged(outcomes);
            }
            (bill, _, _) => *bill = None,
        }
    }

    fn pass(&mut self, config: &Config, said: &[Said<'_>], tally: &mut Tally) -> Action {
        let mut note = Note { decision: "allow", rule: None, reason: None };
        for one in said {
            if one.rule.shadow && one.outcome.verdict != batch::Verdict::Admit {
                note = Note { decision: "would_deny", rule: Some(one.index), reason: None };
                tally.push((one.index, Counter::ShadowDenied));
            } else {
                tally.push((one.index, Counter::Allowed));
            }
        }
        if let Some(least) = enforcing(said).min_by_key(|one| one.outcome.left) {
            let left = least.outcome.left;
            let seconds = config.rules.rule(least.index).and_then(|rule| rule.limit.seconds_to_full(left));
            let nearest = Nearest { rule: least.rule, left, seconds, verdict: Verdict::Admit };
            let fields = answer::fields(config, enforcing(said).map(|one| one.rule), &nearest);
            let legacy = if config.legacy { answer::legacy_fields(&nearest) } else { Vec::new() };
            self.state = State::Passed(Told { fields, legacy, left });
        }
        Action::Resume(note)
    }
}

/// What one rule says.
#[derive(Clone, Copy)]
struct Said<'a> {
    index: u16,
    rule: &'a Announcement,
    outcome: batch::Outcome,
}

/// Brings rules and outcomes together; `None` if the sidecar answered something else than what it was asked.
fn said<'a>(config: &'a Config, rules: &[u16], outcomes: &[batch::Outcome]) -> Option<Vec<Said<'a>>> {
    if rules.len() != outcomes.len() {
        return None;
    }
    let one = |(&index, &outcome)| Some(Said { index, rule: config.announcement(index)?, outcome });
    rules.iter().zip(outcomes).map(one).collect()
}

fn enforcing<'s, 'a>(said: &'s [Said<'a>]) -> impl Iterator<Item = &'s Said<'a>> {
    said.iter().filter(|one| !one.rule.shadow)
}

/// The rules that deny, if any does.
fn denying<'s, 'a>(said: &'s [Said<'a>]) -> impl Iterator<Item = &'s Said<'a>> {
    enforcing(said).filter(|one| one.outcome.verdict != batch::Verdict::Admit)
}

/// The client hears of the longest wait; `None` if no rule denies.
fn deny(config: &Config, said: &[Said<'_>], tally: &mut Tally) -> Option<Action> {
    let longest = denying(said).max_by_key(|one| match one.outcome.verdict {
        batch::Verdict::Never => u64::MAX,
        _ => one.outcome.wait_ms,
    })?;
    tally.extend(denying(said).map(|one| (one.index, Counter::Denied)));
    let (verdict, seconds) = match longest.outcome.verdict {
        batch::Verdict::Never => (Verdict::Never, None),
        _ => (Verdict::Wait, Some(longest.outcome.wait_ms.div_ceil(1_000).max(1))),
    };
    let nearest = Nearest { rule: longest.rule, left: longest.outcome.left, seconds, verdict };
    let mut fields = answer::fields(config, enforcing(said).map(|one| one.rule), &nearest);
    if config.legacy {
        fields.extend(answer::legacy_fields(&nearest));
    }
    let reply = answer::denial(config, fields, &nearest, denying(said).map(|one| one.rule));
    Some(Action::Reply(Box::new(reply), Note { decision: "deny", rule: Some(longest.index), reason: None }))
}

/// Nobody could decide: CLOSED wins over OPEN, and a rule that only watches closes nothing.
fn fail(config: &Config, rules: &[u16], reason: Reason, tally: &mut Tally) -> Action {
    let is_closed = |rule: &Rule| rule.mode == Mode::Enforce && rule.fail_mode == FailMode::Closed;
    let closed = || rules.iter().copied().filter(|&rule| config.rules.rule(rule).is_some_and(is_closed));
    if let Some(first) = closed().next() {
        tally.extend(closed().map(|rule| (rule, Counter::FailedClosed(reason))));
        let note = Note { decision: "failed_closed", rule: Some(first), reason: Some(reason) };
        return Action::Reply(Box::new(answer::unavailable()), note);
    }
    tally.extend(rules.iter().map(|&rule| (rule, Counter::FailedOpen(reason))));
    Action::Resume(Note { decision: "failed_open", rule: rules.first().copied(), reason: Some(reason) })
}

#[cfg(test)]
mod tests;
