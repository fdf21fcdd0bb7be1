//! The Envoys that are measured. All come from the shipped bootstrap and differ in nothing but the one filter in question.

use crate::bootstrap::Bootstrap;
use crate::stack::with_rules;
use crate::{Running, Stack, tools};
use serde_json::{Value, json};

/// What stands in the chain before the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// Nothing.
    None,
    /// A Wasm filter that does nothing.
    NoopWasm,
    /// Envoy's own limiter, which counts in this process alone; admits all.
    LocalRatelimit,
    /// Kota, its sidecar counting in memory; admits all.
    KotaMemory,
    /// Kota, its sidecar counting in a Redis on a Unix socket that keeps nothing on disk; admits all.
    KotaRedis,
}

/// What answers a request that passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Envoy by itself (`direct_response`), so that the rest of the chain is most of the cost.
    Direct,
    /// An upstream.
    Echo,
}

/// Where Envoy's own limiter counts.
pub const LOCAL_STATS: &str = "local.http_local_rate_limit";

// === impl Chain ===

impl Chain {
    /// Whether Kota decides.
    #[must_use]
    pub fn is_kota(self) -> bool {
        matches!(self, Self::KotaMemory | Self::KotaRedis)
    }

    /// What to start for it.
    #[must_use]
    pub fn stack(self, backend: Backend, deadline_ms: u64) -> Stack {
        let stack = Stack::new().workers(1).config(config()).deadline_ms(deadline_ms);
        let stack = match self {
            Self::KotaMemory => stack,
            Self::KotaRedis => stack.redis_socket(),
            Self::None | Self::NoopWasm | Self::LocalRatelimit => stack.sidecars(0).module(tools::noop()),
        };
        let stack = match backend {
            Backend::Direct => stack.without_upstream().bootstrap(answer_directly),
            Backend::Echo => stack,
        };
        stack.bootstrap(bare).bootstrap(move |bootstrap| self.put(bootstrap))
    }

    /// Starts it.
    #[must_use]
    pub fn start(self, backend: Backend, deadline_ms: u64) -> Running {
        self.stack(backend, deadline_ms).start()
    }

    fn put(self, bootstrap: &mut Bootstrap) {
        match self {
            Self::None => bootstrap.remove_filter("kota"),
            Self::LocalRatelimit => *bootstrap.filter("kota") = local_ratelimit(),
            Self::NoopWasm => bootstrap.replace_module(&tools::noop()),
            Self::KotaMemory | Self::KotaRedis => {}
        }
    }
}

/// One rule, one key, and so many tokens that all requests are admitted.
#[must_use]
pub fn config() -> Value {
    with_rules(json!([{
        "id": "orders-create", "match": { "route": "POST /orders" }, "key": ["api_key"],
        "algorithm": "TOKEN_BUCKET", "capacity": 1_000_000_000, "refillPerSecond": 1_000_000,
    }]))
}

/// Takes out what costs CPU in every scenario and is not in question: the access log, CORS, and the filters that authenticate.
pub fn bare(bootstrap: &mut Bootstrap) {
    if let Some(http) = bootstrap.http().as_object_mut() {
        http.remove("access_log");
    }
    bootstrap.remove_filter("envoy.filters.http.cors");
    bootstrap.remove_filter("envoy.filters.http.jwt_authn");
    bootstrap.remove_filter("envoy.filters.http.api_key_auth");
    // The virtual host and the partners' route configure filters that are gone.
    let host = &mut bootstrap.http()["route_config"]["virtual_hosts"][0];
    host.as_object_mut().map(|host| host.remove("typed_per_filter_config"));
    for route in host["routes"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        route.remove("typed_per_filter_config");
    }
}

/// Envoy answers every request by itself. Filters still see it (but for Envoy's global `ratelimit`, which needs a route to a cluster).
pub fn answer_directly(bootstrap: &mut Bootstrap) {
    bootstrap.http()["route_config"]["virtual_hosts"][0]["routes"] = json!([{
        "name": "all", "match": { "prefix": "/" },
        "direct_response": { "status": 200, "body": { "inline_string": "ok" } },
    }]);
}

fn local_ratelimit() -> Value {
    let all = |key: &str| json!({ "runtime_key": key, "default_value": { "numerator": 100, "denominator": "HUNDRED" } });
    json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "local",
            "token_bucket": { "max_tokens": 1_000_000_000, "tokens_per_fill": 1_000_000_000, "fill_interval": "1s" },
            "filter_enabled": all("local_enabled"),
            "filter_enforced": all("local_enforced"),
        },
    })
}
