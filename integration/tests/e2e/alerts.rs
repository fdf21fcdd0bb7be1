//! `envoy/alerts.yaml`: Prometheus' own tool tries when each alert fires, and a real Envoy and sidecar have every series it names.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use kota_integration::{Request, Stack, tools};
use serde_json::{Value, json};

/// What exists only after the fault that it counts; `e2e/failure.rs`, and of what is lost the filter's own `aftermath.rs`, see it.
const AFTER_A_FAULT: [&str; 4] =
    ["kota_failed_open", "kota_failed_closed", "kota_slots_lost", "kota_settlements_lost"];

#[test]
fn ob_04_each_alert_fires_when_it_should_and_not_before() {
    let tests = tools::root().join("integration/tests/alerts.test.yaml");
    let output =
        Command::new(tools::promtool()).args(["test", "rules"]).arg(tests).output().expect("promtool runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
}

#[test]
fn every_series_of_the_alerts_exists() {
    let rule: Value = json!([{
        "id": "one", "key": ["api_key"], "algorithm": "TOKEN_BUCKET", "capacity": 1, "refillPerSecond": 0.001
    }]);
    let stack = Stack::new().rules(rule).start();
    let mut client = stack.envoy().client();
    let request = Request::get("/").header("x-api-key", "alerts");
    assert_eq!([client.send(&request).status, client.send(&request).status], [200, 429]);
    let there = format!("{}\n{}", stack.envoy().prometheus(), stack.sidecar().metrics());
    let there: BTreeSet<&str> = there.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let alerts = fs::read_to_string(tools::root().join("envoy/alerts.yaml")).expect("the alerts are there");
    for series in series(&alerts).difference(&AFTER_A_FAULT.into()) {
        assert!(there.contains(series), "no such series: {series}, among {there:?}");
    }
}

/// The names of series in the expressions.
fn series(alerts: &str) -> BTreeSet<&str> {
    let code = alerts
        .lines()
        .filter(|line| !line.trim_start().starts_with(['#', '-']) && !line.contains("description:"));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let found: BTreeSet<&str> =
        words.filter(|word| word.starts_with("kota_") || word.starts_with("envoy_")).collect();
    assert!(found.len() >= 7, "{found:?}");
    found
}
