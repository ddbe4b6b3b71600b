//! `cargo fuzz run artefact --features libfuzzer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rlx_fuzz::artefact(data));
