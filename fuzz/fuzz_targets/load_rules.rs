//! libFuzzer's entry to the rule loader.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    tollgate_fuzz::load_rules(input);
});
