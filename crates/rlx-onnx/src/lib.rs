//! rlx-onnx
#![forbid(unsafe_code)]
