//! The host functions that run for every request, called as the ABI defines them (proxy-wasm 0.2.1).
//!
//! The SDK's wrappers panic on every status that they do not expect, and a panic traps the VM of a whole worker; some unwrap
//! UTF-8. These answer with what the host said. Only here is `unsafe` needed: the host fills memory that it asked this module for.
#![allow(unsafe_code, reason = "the ABI hands over raw pointers")]

use core::ptr;

/// `WasmHeaderMapType` of the ABI.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Map {
    /// The request's headers.
    Request = 0,
    /// The response's headers.
    Response = 2,
    /// The response's trailers.
    ResponseTrailers = 3,
    /// The headers of a callout's answer.
    Callout = 6,
}

/// `WasmBufferType` of the ABI.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Buffer {
    /// The body of a callout's answer.
    Callout = 4,
    /// The plugin configuration.
    Configuration = 7,
}

const OK: u32 = 0;

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_get_header_map_value(
        map: u32,
        key: *const u8,
        key_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_add_header_map_value(
        map: u32,
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_register_shared_queue(name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_enqueue_shared_queue(id: u32, value: *const u8, value_size: usize) -> u32;
    fn proxy_dequeue_shared_queue(id: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_done() -> u32;
}

/// Takes over what the host wrote into memory that it allocated here; `None` unless it said OK.
fn taken(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<Vec<u8>> {
    let mut data: *mut u8 = ptr::null_mut();
    let mut size: usize = 0;
    if call(&raw mut data, &raw mut size) != OK {
        return None;
    }
    if data.is_null() {
        return Some(Vec::new());
    }
    // SAFETY: the host got this memory from the SDK's `proxy_on_memory_allocate`, a boxed slice of exactly `size` bytes, filled
    // it and gave it up.
    Some(unsafe { Vec::from_raw_parts(data, size, size) })
}

/// A whole header map, in the form of [`crate::pairs`].
pub(crate) fn header_map(map: Map) -> Option<Vec<u8>> {
    // SAFETY: both pointers are valid for the call.
    taken(|data, size| unsafe { proxy_get_header_map_pairs(map as u32, data, size) })
}

/// The first value of a header; `None` if there is none.
pub(crate) fn header(map: Map, name: &str) -> Option<Vec<u8>> {
    // SAFETY: all pointers are valid for the call.
    let value = taken(|data, size| unsafe {
        proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), data, size)
    });
    value.filter(|value| !value.is_empty())
}

/// Adds a line to a header.
pub(crate) fn add_header(map: Map, name: &str, value: &str) {
    // SAFETY: all pointers are valid for the call. A map that is gone by now takes nothing.
    let _ = unsafe {
        proxy_add_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    };
}

/// Replaces all lines of a header by one.
pub(crate) fn replace_header(map: Map, name: &str, value: &str) {
    // SAFETY: as above.
    let _ = unsafe {
        proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    };
}

/// A property by its path, the parts joined by zeros.
pub(crate) fn property(path: &str) -> Option<Vec<u8>> {
    // SAFETY: all pointers are valid for the call.
    taken(|data, size| unsafe { proxy_get_property(path.as_ptr(), path.len(), data, size) })
}

/// Sets a property of the effective stream.
pub(crate) fn set_property(path: &str, value: &str) {
    // SAFETY: all pointers are valid for the call.
    let _ = unsafe { proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) };
}

/// At most `max` bytes of a buffer.
pub(crate) fn buffer(buffer: Buffer, max: usize) -> Option<Vec<u8>> {
    // SAFETY: all pointers are valid for the call.
    taken(|data, size| unsafe { proxy_get_buffer_bytes(buffer as u32, 0, max, data, size) })
}

/// Answers the effective stream in the upstream's place. `headers` in the form of [`crate::pairs`].
pub(crate) fn send_reply(status: u16, body: &[u8], headers: &[u8], grpc_status: Option<u32>) {
    let details = "kota";
    let grpc_status = grpc_status.and_then(|status| i32::try_from(status).ok()).unwrap_or(-1);
    // SAFETY: all pointers are valid for the call.
    let _ = unsafe {
        proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            grpc_status,
        )
    };
}

/// Lets the effective stream's request go on.
pub(crate) fn resume_request() {
    // SAFETY: takes no pointer.
    let _ = unsafe { proxy_continue_stream(0) };
}

/// Makes the context of that id the one that host functions act on; false if it is gone.
pub(crate) fn set_effective_context(context: u32) -> bool {
    // SAFETY: takes no pointer.
    unsafe { proxy_set_effective_context(context) == OK }
}

/// Defines a counter; `None` if the host refuses it.
pub(crate) fn define_counter(name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: all pointers are valid for the call.
    (unsafe { proxy_define_metric(0, name.as_ptr(), name.len(), &raw mut id) } == OK).then_some(id)
}

/// Raises a counter by one.
pub(crate) fn increment(counter: u32) {
    // SAFETY: takes no pointer.
    let _ = unsafe { proxy_increment_metric(counter, 1) };
}

/// Registers a shared queue, whose messages then reach the root of the present context.
pub(crate) fn register_queue(name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: all pointers are valid for the call.
    (unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &raw mut id) } == OK).then_some(id)
}

/// Puts one byte into a queue; false if it is gone.
pub(crate) fn enqueue(queue: u32) -> bool {
    // SAFETY: all pointers are valid for the call.
    unsafe { proxy_enqueue_shared_queue(queue, b"1".as_ptr(), 1) == OK }
}

/// Takes one message out of a queue.
pub(crate) fn dequeue(queue: u32) -> Option<Vec<u8>> {
    // SAFETY: all pointers are valid for the call.
    taken(|data, size| unsafe { proxy_dequeue_shared_queue(queue, data, size) })
}

/// Sets the period of the root's tick, in milliseconds.
pub(crate) fn set_tick_period(period_ms: u32) {
    // SAFETY: takes no pointer.
    let _ = unsafe { proxy_set_tick_period_milliseconds(period_ms) };
}

/// Tells the host that a root which asked to be kept can go.
pub(crate) fn done() {
    // SAFETY: takes no pointer.
    let _ = unsafe { proxy_done() };
}
