//! A set of rules, compiled once: which of them apply to a request, at a cost that does not grow with those that do not.

use crate::cost::Cost;
use crate::descriptor::{DescriptorId, Descriptors, Source};
use crate::exemption::Exemptions;
use crate::key::Key;
use crate::request::{Attributes, PREFLIGHT_HEADERS, Request, Values};
use crate::route::Routes;
use crate::rule::{OnMissingKey, RULES_MAX, RULES_PER_REQUEST_MAX, Rule};

mod condition;
mod groups;
mod index;

use condition::Compiled;
use groups::Groups;
use index::Index;

/// Descriptors, routes and rules that belong together.
#[derive(Clone, Debug)]
pub struct RuleSet {
    descriptors: Descriptors,
    routes: Routes,
    rules: Vec<Rule>,
    conditions: Vec<Vec<Compiled>>,
    index: Index,
    groups: Groups,
    header_names: Vec<Box<str>>,
    reads_cookies: bool,
    exemptions: Exemptions,
    preflight: Option<Rule>,
}

impl RuleSet {
    /// Compiles the rules, in the order of the file. `routes` holds those of the configuration and those that a rule names; a
    /// condition on a route that is not among them never holds. Rules beyond [`RULES_MAX`], which no configuration has, are left out.
    #[must_use]
    pub fn new(descriptors: Descriptors, routes: Routes, mut rules: Vec<Rule>) -> Self {
        rules.truncate(RULES_MAX);
        let compile = |rule: &Rule| {
            rule.conditions.iter().map(|condition| Compiled::new(condition, &descriptors, &routes)).collect()
        };
        let conditions: Vec<Vec<Compiled>> = rules.iter().map(compile).collect();
        let index = Index::new(&conditions);
        let groups = Groups::new(&rules);
        let read = sources_read(&descriptors, &rules);
        let reads_cookies = read.iter().any(|source| matches!(source, Source::Cookie(_)));
        let header_names = header_names(&read, &rules);
        Self {
            descriptors,
            routes,
            rules,
            conditions,
            index,
            groups,
            header_names,
            reads_cookies,
            exemptions: Exemptions::default(),
            preflight: None,
        }
    }

    /// The same, but for the requests that these exempt.
    #[must_use]
    pub fn exempting(self, exemptions: Exemptions) -> Self {
        Self { exemptions, ..self }
    }

    /// The same, but `rule` alone decides preflights. Its index is the next after the last rule's.
    #[must_use]
    pub fn with_preflights(mut self, rule: Rule) -> Self {
        self.header_names.extend(PREFLIGHT_HEADERS.map(Box::from));
        self.header_names.sort_unstable();
        self.header_names.dedup();
        Self { preflight: Some(rule), ..self }
    }

    /// Puts the indices of the rules that apply to a request of Envoy's into `into`, which is emptied first.
    pub fn applying<A: Attributes>(&self, request: &Request<'_, A>, into: &mut Vec<u16>) {
        into.clear();
        if self.exemptions.cover(request) {
            return;
        }
        if self.preflight.is_some() && request.is_preflight() {
            into.extend(u16::try_from(self.rules.len()).ok());
        } else {
            self.matching(request, into);
        }
    }

    /// Puts the indices of the rules whose conditions hold into `into`, which is emptied first: in the order of the file, of each group the best
    /// one, and of more than [`RULES_PER_REQUEST_MAX`] the first so many.
    pub fn matching(&self, values: &impl Values, into: &mut Vec<u16>) {
        into.clear();
        self.index.candidates(values, |list| self.take(list, values, into));
        into.sort_unstable();
        into.dedup();
        if !self.groups.is_empty() {
            self.groups.resolve(into);
            into.sort_unstable();
        }
        into.truncate(RULES_PER_REQUEST_MAX);
    }

    /// Adds what applies of a list. It is in the order of the file, so that of the rules without a group the first hits are all that can
    /// count; of a group any of them may.
    fn take(&self, list: &[u16], values: &impl Values, into: &mut Vec<u16>) {
        let mut room = RULES_PER_REQUEST_MAX;
        for &rule in list {
            let grouped = self.groups.hold(rule);
            if room == 0 && !grouped {
                if self.groups.is_empty() {
                    break;
                }
            } else if self.applies(rule, values) {
                into.push(rule);
                room = room.saturating_sub(usize::from(!grouped));
            }
        }
    }

    /// The bucket of a rule for a request.
    #[must_use]
    pub fn key<'r>(&self, rule: &Rule, values: &'r impl Values) -> Key<'r> {
        Key::of(rule, values)
    }

    /// All rules but the one for preflights, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What is exempt.
    #[must_use]
    pub fn exemptions(&self) -> &Exemptions {
        &self.exemptions
    }

    /// The rule for preflights.
    #[must_use]
    pub fn preflight(&self) -> Option<&Rule> {
        self.preflight.as_ref()
    }

    /// The rule of that index.
    #[must_use]
    pub fn rule(&self, index: u16) -> Option<&Rule> {
        let index = usize::from(index);
        self.rules.get(index).or_else(|| self.preflight().filter(|_| index == self.rules.len()))
    }

    /// The descriptors that rules speak of.
    #[must_use]
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// The routes.
    #[must_use]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// The names of the headers that any rule can look at, sorted: nothing else of a request's headers needs to be kept.
    #[must_use]
    pub fn header_names(&self) -> &[Box<str>] {
        &self.header_names
    }

    /// Whether any rule can look at a cookie.
    #[must_use]
    pub fn reads_cookies(&self) -> bool {
        self.reads_cookies
    }

    fn applies(&self, rule: u16, values: &impl Values) -> bool {
        let conditions = self.conditions.get(usize::from(rule));
        conditions.is_some_and(|all| all.iter().all(|condition| condition.holds(values)))
            && self.rule(rule).is_some_and(|rule| has_key(rule, values))
    }
}

/// Whether a request has what the rule can't do without.
fn has_key(rule: &Rule, values: &impl Values) -> bool {
    rule.on_missing_key != OnMissingKey::Skip || rule.key.iter().all(|part| values.value(*part).is_some())
}

/// The sources that any rule can look at.
fn sources_read(descriptors: &Descriptors, rules: &[Rule]) -> Vec<Source> {
    let looked_at = |rule: &Rule| {
        let conditions = rule.conditions.iter().map(|condition| condition.descriptor);
        conditions.chain(rule.key.iter().copied()).collect::<Vec<_>>()
    };
    let mut ids: Vec<DescriptorId> = rules.iter().flat_map(looked_at).collect();
    if ids.contains(&Descriptors::CLIENT) {
        ids.extend(descriptors.client_kinds());
    }
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().filter_map(|id| Some(descriptors.get(id)?.source.clone())).collect()
}

fn header_names(read: &[Source], rules: &[Rule]) -> Vec<Box<str>> {
    let name = |source: &Source| match source {
        Source::Header(name) => Some(name.clone()),
        _ => None,
    };
    let mut names: Vec<Box<str>> = read.iter().filter_map(name).collect();
    names.extend(rules.iter().filter_map(|rule| rule.cost.request_header()).map(Box::from));
    if rules.iter().any(|rule| matches!(rule.cost, Cost::Body { .. })) {
        names.push("content-length".into());
    }
    names.sort_unstable();
    names.dedup();
    names
}
