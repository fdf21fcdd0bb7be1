//! The harness itself, with the filter that does nothing in Kota's place and no sidecar.

use std::path::PathBuf;

use kota_integration::bootstrap::{Places, substitute};
use kota_integration::{Delivery, Endpoint, Request};

use crate::bootstrap::bare;

#[test]
fn the_bootstrap_starts_and_an_envoy_answers_and_is_watched() {
    let stack = bare().workers(2).start();
    let answer = stack.envoy().send(&Request::get("/x?secret=1").header("x-odd", b"\xff\xfe"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let log = stack.envoy().access_log_of(1);
    assert_eq!(log[0]["path"], "/x");
    assert_eq!(log[0]["kota_decision"], serde_json::Value::Null);
    assert_eq!(stack.envoy().open_requests(), 0);
    assert_eq!(stack.envoy().vm_reloads(), 0);
    assert!(stack.envoy().process().rss_kib() > 10_000);
}

#[test]
fn envoy_dies_with_its_stack() {
    let stack = bare().start();
    let pid = stack.envoy().process().pid();
    let dir = stack.dir.path().to_path_buf();
    drop(stack);
    assert!(!PathBuf::from(format!("/proc/{pid}")).exists());
    assert!(!dir.exists());
}

#[test]
fn a_configuration_is_reloaded_by_ecds_and_by_lds() {
    for delivery in [Delivery::Ecds, Delivery::Lds] {
        let mut stack = bare().delivery(delivery).start();
        assert_eq!(stack.envoy().send(&Request::get("/")).status, 200, "{delivery:?}");
        for n in 0..3 {
            assert!(stack.envoys[0].reconfigure(&serde_json::json!({ "n": n })), "{delivery:?}");
        }
        let refused =
            stack.envoys[0].reload(|bootstrap| bootstrap.replace_module(&PathBuf::from("/nonexistent.wasm")));
        eprintln!("{}", stack.envoy().admin("/stats?usedonly&filter=extension_config|lds"));
        assert!(!refused, "{delivery:?}: a missing module was taken");
        assert_eq!(stack.envoy().send(&Request::get("/")).status, 200, "{delivery:?}");
    }
}

#[test]
fn a_shipped_value_that_is_gone_is_an_error() {
    let places = Places {
        listener: 1,
        admin: 2,
        echo: 3,
        sidecar: Endpoint::Tcp(4),
        filter: PathBuf::from("/f.wasm"),
    };
    let error =
        substitute("port_value: 10001", &places.bootstrap()).expect_err("nothing of the table is in it");
    assert!(error.contains("port_value: 10000") && error.contains("decide.sock"), "{error}");
}
