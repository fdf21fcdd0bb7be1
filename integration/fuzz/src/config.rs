//! The plugin configuration: whatever it is, it is a configuration or a list of faults that a person can read.

use filter::config::Config;
use limits::decision::Verdict;
use limits::descriptor::Descriptors;
use limits::request::Given;
use limits::route::Routes;
use limits::ruleset::RuleSet;

/// Any bytes as a configuration, and as a check for the sidecar's `/v1/check`.
pub fn holds(json: &[u8]) {
    match Config::parse(json) {
        Ok(config) => usable(&config),
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in faults {
                let one_line = |text: &str| !text.is_empty() && !text.contains(char::is_control);
                assert!(fault.path.starts_with('$') && one_line(&fault.path), "{fault}");
                assert!(one_line(&fault.message), "{fault}");
            }
        }
    }
    let no_rules = RuleSet::new(Descriptors::built_in(), Routes::new(Vec::new()), Vec::new());
    if let Err(faults) = protocol::check::Request::parse(json, "default", &no_rules) {
        assert!(!faults.is_empty());
    }
}

/// Every rule can be matched and spoken of.
fn usable(config: &Config) {
    let set = &config.rules;
    let address = set.descriptors().find("ip").map(|ip| (ip, &b"203.0.113.7"[..]));
    let given = Given::new(set.descriptors(), set.routes(), address);
    let mut found = Vec::new();
    set.matching(&given, &mut found);
    for (index, rule) in (0..).zip(set.rules()) {
        let told = config.announcement(index).expect("a rule is announced");
        assert_eq!(told.id, rule.id);
        let _ = set.key(rule, &given);
        for (verdict, seconds) in
            [(Verdict::Wait, Some(1)), (Verdict::Wait, Some(u64::MAX)), (Verdict::Never, None)]
        {
            assert!(!told.detail(verdict, seconds).is_empty());
        }
        assert!(!told.missing_key_detail().is_empty());
    }
}
