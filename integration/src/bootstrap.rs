//! The shipped `envoy/envoy.yaml` with other places in it, and with what a test wants changed.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::tools;

/// Where the parts of one stack are. The one table of what differs between the shipped files and a run of them.
#[derive(Debug, Clone)]
pub struct Places {
    /// Port of Envoy's listener for clients.
    pub listener: u16,
    /// Port of Envoy's admin interface.
    pub admin: u16,
    /// Port of the upstream.
    pub echo: u16,
    /// Where Envoy reaches the sidecar.
    pub sidecar: Endpoint,
    /// The filter's module.
    pub filter: PathBuf,
}

/// An address that may be a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket.
    Unix(PathBuf),
    /// A port on loopback.
    Tcp(u16),
}

/// A bootstrap as Envoy's JSON, open to changes.
#[derive(Debug, Clone)]
pub struct Bootstrap(Value);

/// How the filter's configuration reaches Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// In the bootstrap.
    Static,
    /// As an extension configuration of its own, from a watched file.
    Ecds,
    /// With its whole listener, from a watched file.
    Lds,
}

/// The type of a Wasm filter's configuration.
pub const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";

// === impl Places ===

impl Places {
    /// Each value that the shipped bootstrap holds, and what replaces it.
    #[must_use]
    pub fn bootstrap(&self) -> Vec<(&'static str, String)> {
        let loopback = |port: u16| format!("address: 127.0.0.1, port_value: {port}");
        let sidecar = match &self.sidecar {
            Endpoint::Unix(path) => format!("pipe: {{ path: {} }}", path.display()),
            Endpoint::Tcp(port) => format!("socket_address: {{ {} }}", loopback(*port)),
        };
        vec![
            ("address: 127.0.0.1, port_value: 10000", loopback(self.listener)),
            ("address: 127.0.0.1, port_value: 9901", loopback(self.admin)),
            ("address: 127.0.0.1, port_value: 8080", loopback(self.echo)),
            ("pipe: { path: /run/kota/decide.sock }", sidecar),
            ("/etc/kota/kota_filter.wasm", self.filter.display().to_string()),
        ]
    }
}

/// Replaces every shipped value by literal search.
///
/// # Errors
/// Names the values that the text does not hold: then file and table have drifted apart.
pub fn substitute(text: &str, table: &[(&str, String)]) -> Result<String, String> {
    let missing: Vec<_> =
        table.iter().map(|(shipped, _)| *shipped).filter(|shipped| !text.contains(shipped)).collect();
    if !missing.is_empty() {
        return Err(format!("not found, so it can't be replaced: `{}`", missing.join("`, `")));
    }
    Ok(table.iter().fold(text.to_owned(), |text, (shipped, ours)| text.replace(shipped, ours)))
}

// === impl Endpoint ===

impl Endpoint {
    /// As `kota sidecar --listen` takes it.
    #[must_use]
    pub fn listen(&self) -> String {
        match self {
            Self::Unix(path) => format!("unix:{}", path.display()),
            Self::Tcp(port) => format!("tcp:127.0.0.1:{port}"),
        }
    }
}

// === impl Bootstrap ===

impl Bootstrap {
    /// The shipped bootstrap with `places` in it.
    ///
    /// # Panics
    /// When the file can't be read, or lacks a value of the table.
    #[must_use]
    pub fn shipped(places: &Places) -> Self {
        let path = tools::root().join("envoy/envoy.yaml");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let text =
            substitute(&text, &places.bootstrap()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(serde_yaml_ng::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    }

    /// As JSON text, which Envoy reads as it reads YAML.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:#}", self.0)
    }

    /// All of it.
    pub fn root(&mut self) -> &mut Value {
        &mut self.0
    }

    /// The listener for clients.
    pub fn listener(&mut self) -> &mut Value {
        &mut self.0["static_resources"]["listeners"][0]
    }

    /// Its HTTP connection manager.
    pub fn http(&mut self) -> &mut Value {
        &mut self.listener()["filter_chains"][0]["filters"][0]["typed_config"]
    }

    /// The HTTP filters, in order; the last is the router.
    pub fn filters(&mut self) -> &mut Vec<Value> {
        self.http()["http_filters"].as_array_mut().expect("the bootstrap has HTTP filters")
    }

    /// The filter of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn filter(&mut self, name: &str) -> &mut Value {
        let found = self.filters().iter_mut().find(|filter| filter["name"] == name);
        found.unwrap_or_else(|| panic!("the bootstrap has no filter `{name}`"))
    }

    /// The cluster of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn cluster(&mut self, name: &str) -> &mut Value {
        let clusters =
            self.0["static_resources"]["clusters"].as_array_mut().expect("the bootstrap has clusters");
        let found = clusters.iter_mut().find(|cluster| cluster["name"] == name);
        found.unwrap_or_else(|| panic!("the bootstrap has no cluster `{name}`"))
    }

    /// The configuration of Kota's filter.
    ///
    /// # Panics
    /// When it is no JSON in a string.
    #[must_use]
    pub fn configuration(&mut self) -> Value {
        let value = &self.filter("kota")["typed_config"]["config"]["configuration"]["value"];
        let text = value.as_str().expect("the plugin configuration is a string");
        serde_json::from_str(text).expect("the plugin configuration is JSON")
    }

    /// Gives Kota's filter this configuration.
    pub fn configure(&mut self, config: &Value) {
        self.filter("kota")["typed_config"]["config"]["configuration"]["value"] = json!(config.to_string());
    }

    /// Adds a second Kota filter with a configuration of its own behind the first: same module, same VM, another root.
    pub fn add_kota(&mut self, name: &str, config: &Value) {
        let mut second = self.filter("kota").clone();
        second["name"] = json!(name);
        second["typed_config"]["config"]["name"] = json!(name);
        second["typed_config"]["config"]["root_id"] = json!(name);
        second["typed_config"]["config"]["configuration"]["value"] = json!(config.to_string());
        let before_router = self.filters().len() - 1;
        self.filters().insert(before_router, second);
    }

    /// Runs another module in place of Kota's, with no configuration.
    pub fn replace_module(&mut self, module: &Path) {
        let config = &mut self.filter("kota")["typed_config"]["config"];
        config["vm_config"]["vm_id"] = json!("other");
        config["vm_config"]["code"]["local"]["filename"] = json!(module);
        config["configuration"]["value"] = json!("{}");
    }

    /// Takes a filter out of the chain.
    pub fn remove_filter(&mut self, name: &str) {
        self.filters().retain(|filter| filter["name"] != name);
    }

    /// Moves what `delivery` delivers into a discovery file of `dir`: its name and text, or nothing when all is static.
    pub fn deliver(&mut self, delivery: Delivery, dir: &Path) -> Option<(&'static str, String)> {
        match delivery {
            Delivery::Static => None,
            Delivery::Ecds => {
                let resource = self.filter("kota")["typed_config"].take();
                *self.filter("kota") = json!({
                    "name": "kota",
                    "config_discovery": { "config_source": watched(&dir.join("ecds.json")), "type_urls": [WASM] },
                });
                let resource = json!({
                    "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
                    "name": "kota", "typed_config": resource,
                });
                Some(("ecds.json", discovery(resource)))
            }
            Delivery::Lds => {
                let mut listener = self.listener().take();
                self.0["static_resources"]["listeners"] = json!([]);
                self.0["dynamic_resources"] = json!({ "lds_config": watched(&dir.join("lds.json")) });
                listener["@type"] = json!("type.googleapis.com/envoy.config.listener.v3.Listener");
                Some(("lds.json", discovery(listener)))
            }
        }
    }
}

fn watched(path: &Path) -> Value {
    json!({ "path_config_source": { "path": path }, "resource_api_version": "V3" })
}

fn discovery(resource: Value) -> String {
    json!({ "resources": [resource] }).to_string()
}
