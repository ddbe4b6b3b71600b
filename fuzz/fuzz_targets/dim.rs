//! `cargo fuzz run dim --features libfuzzer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::dim(data));
