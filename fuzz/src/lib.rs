//! What is fuzzed: every reader of text or files, on any bytes. A target passes if it returns.
//!
//! `cargo xtask fuzz onnx SECONDS` searches with coverage; `cargo run --release --bin smoke -- SECONDS` mutates the corpus blindly, without a
//! C++ compiler.

#[cfg(feature = "artefact")]
mod artefacts;

#[cfg(feature = "artefact")]
pub use artefacts::{artefact, artefacts};

use rlx_ir::Dim;
use rlx_onnx::{ImportOptions, OnnxFile, ReadOptions};

/// A target: its name and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("onnx", onnx),
    ("text", text),
    ("dim", dim),
    #[cfg(feature = "artefact")]
    ("artefact", artefact),
];

/// Reading, checking and importing an ONNX file.
pub fn onnx(data: &[u8]) {
    let Ok(file) = OnnxFile::from_bytes(data.to_vec(), None, &ReadOptions::default()) else { return };
    let Ok(model) = file.into_model() else { return };
    if let Err(e) = rlx_onnx::import(&model, &ImportOptions::default()) {
        assert!(!e.to_string().is_empty());
    }
}

/// The text form: what parses prints, and what is printed parses to the same.
pub fn text(data: &[u8]) {
    let Ok(s) = std::str::from_utf8(data) else { return };
    let Ok(module) = rlx_ir::text::parse_module(s) else { return };
    let printed = module.to_string();
    match rlx_ir::text::parse_module(&printed) {
        Ok(again) => assert_eq!(again.to_string(), printed, "printing is not stable"),
        Err(e) => panic!("what was printed does not parse: {e}\n{printed}"),
    }
}

/// Dim expressions: parse, print, parse.
pub fn dim(data: &[u8]) {
    let Ok(s) = std::str::from_utf8(data) else { return };
    let Ok(d) = Dim::parse(s) else { return };
    let printed = d.to_string();
    assert_eq!(Dim::parse(&printed).ok().map(|e| e.to_string()), Some(printed));
}
