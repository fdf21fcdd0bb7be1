#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kota_fuzz::query::holds(data));
