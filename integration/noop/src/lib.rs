//! A Wasm filter that lets every request pass untouched: the floor under what any Wasm filter costs.
#![cfg(target_arch = "wasm32")]

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType, LogLevel};

// The macro exports `_initialize` by `#[unsafe(no_mangle)]`, which rustc counts as unsafe code.
#[allow(unsafe_code)]
mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_log_level(super::LogLevel::Warn);
        proxy_wasm::set_root_context(|_| Box::new(super::Root));
    }}
}

struct Root;

impl Context for Root {}

impl RootContext for Root {
    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Stream))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

struct Stream;

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        Action::Continue
    }
}
