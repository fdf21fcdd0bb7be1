//! The patches of `envoy/istio/envoyfilter.yaml`, put into a bootstrap as Istio would put them, with a real Envoy and sidecar.

use std::path::Path;

use kota_integration::bootstrap::{Bootstrap, substitute};
use kota_integration::workdir::Workdir;
use kota_integration::{Request, Running, Stack, tokens, tools, wait};
use serde::Deserialize;
use serde_json::{Value, json};

/// What a run without Istio replaces in the manifest, each found by literal search or it is an error.
const IMAGE: &str = r#"remote:
                  http_uri: { uri: "oci://registry.example/kota-filter:0.1.0", cluster: _, timeout: 30s }"#;
const CONTROL_PLANE: &str = "ads: {}";
const SIDECAR: &str = "socket_address: { address: 127.0.0.1, port_value: 9181 }";

/// The patches of all documents in the manifest.
fn patches(manifest: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(manifest)
        .map(|document| Value::deserialize(document).expect("YAML"));
    documents
        .flat_map(|document| document["spec"]["configPatches"].as_array().expect("patches").clone())
        .collect()
}

/// Puts a patch where Istio puts it; gives back an extension configuration, which its control plane would serve.
fn apply(bootstrap: &mut Bootstrap, patch: &Value) -> Option<Value> {
    let value = patch["patch"]["value"].clone();
    match (patch["applyTo"].as_str(), patch["patch"]["operation"].as_str()) {
        (Some("CLUSTER"), Some("ADD")) => {
            bootstrap.root()["static_resources"]["clusters"].as_array_mut().expect("clusters").push(value);
        }
        (Some("HTTP_FILTER"), Some("INSERT_BEFORE")) => {
            let next = patch["match"]["listener"]["filterChain"]["filter"]["subFilter"]["name"].clone();
            let place = bootstrap
                .filters()
                .iter()
                .position(|filter| filter["name"] == next)
                .expect("the filter it goes before");
            bootstrap.filters().insert(place, value);
        }
        (Some("BOOTSTRAP"), Some("MERGE")) => {
            for (field, value) in value.as_object().expect("a mapping") {
                bootstrap.root()[field] = value.clone();
            }
        }
        (Some("EXTENSION_CONFIG"), Some("ADD")) => return Some(value),
        other => panic!("the test does not know how Istio applies {other:?}"),
    }
    None
}

/// The shipped bootstrap without anything of Kota's, then the manifest's patches.
fn with_patches(bootstrap: &mut Bootstrap, manifest: &str, discovery: &Path) {
    bootstrap.remove_filter("kota");
    bootstrap.root()["static_resources"]["clusters"]
        .as_array_mut()
        .expect("clusters")
        .retain(|cluster| cluster["name"] != "kota");
    bootstrap.root().as_object_mut().expect("a mapping").remove("stats_config");
    let mut extensions: Vec<_> =
        patches(manifest).iter().filter_map(|patch| apply(bootstrap, patch)).collect();
    for extension in &mut extensions {
        extension["@type"] = json!("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig");
    }
    std::fs::write(discovery, json!({ "resources": extensions }).to_string()).expect("the discovery file");
}

fn start(dir: &Workdir) -> Running {
    let discovery = dir.path().join("ecds.json");
    let path = tools::root().join("envoy/istio/envoyfilter.yaml");
    let shipped = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Stack::new()
        .tcp()
        .bootstrap(move |bootstrap| {
            let address = bootstrap.cluster("kota")["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"].clone();
            let table = [
                (IMAGE, format!("local: {{ filename: {} }}", tools::filter().display())),
                (CONTROL_PLANE, format!("path_config_source: {{ path: {} }}", discovery.display())),
                (SIDECAR, format!("socket_address: {}", address["socket_address"])),
                (r#""deadlineMs": 5 "#, r#""deadlineMs": 1000 "#.to_owned()),
            ];
            let manifest = substitute(&shipped, &table).unwrap_or_else(|e| panic!("envoyfilter.yaml: {e}"));
            with_patches(bootstrap, &manifest, &discovery);
            let jwt = &mut bootstrap.filter("envoy.filters.http.jwt_authn")["typed_config"];
            jwt["providers"]["issuer"]["payload_in_metadata"] = json!("payload"); // as Istio's
        })
        .start()
}

#[test]
fn the_patches_make_an_envoy_that_limits() {
    let dir = Workdir::new();
    let stack = start(&dir);
    let mut client = stack.envoy().client();
    let login = || Request::post("/login");
    let statuses: Vec<_> = (0..5).map(|_| client.send(&login()).status).collect();
    assert_eq!(statuses, [200; 5]);
    // A slow machine may see some tokens come back, so the denial is awaited and not counted to.
    wait::until_true("the limit is met", || client.send(&login()).status == 429);
    assert!(stack.envoy().kota("allowed.sensitive") >= 5);
    assert!(stack.envoy().prometheus().contains(r#"kota_denied{rule="sensitive"} 1"#));
    // The claims of a token are where Istio puts them.
    let order = Request::post("/orders").header("authorization", format!("Bearer {}", tokens::ALICE_GOLD));
    assert_eq!(client.send(&order).header("x-ratelimit-limit"), Some("100"));
}

#[test]
fn the_rules_are_those_of_the_shipped_file_as_far_as_istio_lets_them() {
    let read = |path: &str| std::fs::read_to_string(tools::root().join(path)).expect("a shipped file");
    let patches = patches(&read("envoy/istio/envoyfilter.yaml"));
    let extension = patches.iter().find(|patch| patch["applyTo"] == "EXTENSION_CONFIG").expect("the filter");
    let ours = &extension["patch"]["value"]["typed_config"]["config"]["configuration"]["value"];
    let ours: Value = serde_json::from_str(ours.as_str().expect("text")).expect("JSON");
    let mut expected: Value = serde_json::from_str(&read("envoy/rules.json")).expect("JSON");
    for claim in ["user", "plan"] {
        expected["descriptors"][claim]["metadata"][1] = json!("payload");
    }
    let rules = expected["rules"].as_array_mut().expect("rules");
    let anonymous = rules.iter_mut().find(|rule| rule["id"] == "anonymous").expect("a rule");
    anonymous["match"].as_object_mut().expect("conditions").remove("envoy_route");
    assert_eq!(ours, expected);
}
