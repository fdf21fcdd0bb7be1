//! Where the programs that tests run are found. The one place that knows: a missing one says how to get it.

use std::env;
use std::path::{Path, PathBuf};

/// The root of the source tree.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies inside the workspace").to_path_buf()
}

/// Cargo's target directory: the one that holds the running test, else what Cargo would use.
#[must_use]
pub fn target() -> PathBuf {
    let exe = env::current_exe().unwrap_or_default();
    let beside_exe = exe.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists());
    beside_exe.map_or_else(
        || env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from),
        Path::to_path_buf,
    )
}

/// Envoy: `ENVOY`, else what `make tools` fetched.
#[must_use]
pub fn envoy() -> PathBuf {
    find("Envoy", "ENVOY", &[root().join("target/tools/envoy")], "make tools")
}

/// Redis: `REDIS_SERVER`, else `target/tools`, else the system's.
#[must_use]
pub fn redis_server() -> PathBuf {
    let mut places = vec![root().join("target/tools/redis-server")];
    places.extend(on_path("redis-server"));
    find("Redis", "REDIS_SERVER", &places, "make tools")
}

/// OpenSSL's command, which makes certificates for tests: the system's.
#[must_use]
pub fn openssl() -> PathBuf {
    find("openssl", "OPENSSL", &on_path("openssl"), "make tools")
}

/// Prometheus' promtool: `PROMTOOL`, else the system's.
#[must_use]
pub fn promtool() -> PathBuf {
    find("promtool", "PROMTOOL", &on_path("promtool"), "make tools")
}

/// The load generator wrk: `WRK`, else the system's.
#[must_use]
pub fn wrk() -> PathBuf {
    find("wrk", "WRK", &on_path("wrk"), "integration/tools.sh bench")
}

/// The load generator oha: `OHA`, else `target/tools`, else the system's.
#[must_use]
pub fn oha() -> PathBuf {
    let mut places = vec![root().join("target/tools/bin/oha")];
    places.extend(on_path("oha"));
    find("oha", "OHA", &places, "integration/tools.sh bench")
}

/// The `kota` binary: `KOTA`, else the release build.
#[must_use]
pub fn kota() -> PathBuf {
    find("the kota binary", "KOTA", &[target().join("release/kota")], "make build")
}

/// Kota's filter: `KOTA_WASM`, else the build under `target/`.
#[must_use]
pub fn filter() -> PathBuf {
    find("Kota's filter", "KOTA_WASM", &[wasm("kota_filter")], "make wasm")
}

/// The filter that does nothing: `NOOP_WASM`, else the build under `target/`.
#[must_use]
pub fn noop() -> PathBuf {
    find("the filter that does nothing", "NOOP_WASM", &[wasm("kota_noop")], "make wasm")
}

fn wasm(name: &str) -> PathBuf {
    target().join("wasm32-wasip1/wasm").join(name).with_extension("wasm")
}

fn on_path(program: &str) -> Vec<PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).map(|dir| dir.join(program)).collect()
}

/// A test without its tool has not passed, so this panics where a skip would look green.
fn find(what: &str, variable: &str, places: &[PathBuf], remedy: &str) -> PathBuf {
    if let Some(given) = env::var_os(variable).map(PathBuf::from) {
        assert!(given.is_file(), "{variable}={}: no such file; unset it or run `{remedy}`", given.display());
        return given;
    }
    places.iter().find(|place| place.is_file()).cloned().unwrap_or_else(|| {
        let looked = places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ");
        panic!("{what} is missing (looked at {looked}): run `{remedy}`, or set {variable} to it")
    })
}
