//! Which rules of the sidecar's file apply to given values, and the names of their buckets.

use crate::decide::Decider;
use crate::keys;
use limits::descriptor::Descriptors;
use limits::key::{Key, Parts};
use limits::request::Given;
use limits::rule::{Mode, Rule};
use protocol::check::Values;
use protocol::config::Config;
use protocol::value::bound;

/// A rule that applies, with its bucket.
pub(super) struct Applying<'r> {
    pub(super) rule: &'r Rule,
    pub(super) key: Vec<u8>,
}

/// The rules that apply, or the one that denies whoever lacks a part of its key. Exemptions and preflights are the filter's: whoever asks
/// here says which values count.
pub(super) fn applying<'r>(
    decider: &Decider,
    config: &'r Config,
    values: &Values,
) -> Result<Vec<Applying<'r>>, &'r Rule> {
    let descriptors = config.rules.descriptors();
    let values = values.iter().map(|(id, value)| (*id, value.as_bytes()));
    let given = Given::new(descriptors, config.rules.routes(), values);
    let mut matching = Vec::new();
    config.rules.matching(&given, &mut matching);
    let mut all = Vec::with_capacity(matching.len());
    for rule in matching.into_iter().filter_map(|index| config.rules.rule(index)) {
        match config.rules.key(rule, &given) {
            Key::Skip => {}
            Key::Deny if rule.mode == Mode::Shadow => {}
            Key::Deny => return Err(rule),
            Key::Parts(parts) => {
                all.push(Applying { rule, key: key(decider, &config.domain, descriptors, rule, &parts) });
            }
        }
    }
    Ok(all)
}

/// The key that the filter's check of the same values has.
fn key(
    decider: &Decider,
    domain: &str,
    descriptors: &Descriptors,
    rule: &Rule,
    parts: &Parts<'_>,
) -> Vec<u8> {
    let written: Vec<(&str, Vec<u8>)> = parts
        .as_slice()
        .iter()
        .filter_map(|(id, value)| {
            let descriptor = descriptors.get(*id)?;
            let mut text = Vec::new();
            let value = value.map(bound);
            decider.keys().write_value(
                &mut text,
                domain,
                &descriptor.name,
                value.as_deref(),
                descriptor.secret,
            );
            Some((&*descriptor.name, text))
        })
        .collect();
    let parts = written.iter().map(|(kind, text)| (*kind, text.as_slice()));
    let mut key = Vec::with_capacity(128);
    keys::write_key(&mut key, domain, &rule.id, rule.limit.tag(), parts);
    key
}
