//! The protobuf messages of the ONNX format, as generated.
//!
//! The rest of the crate reads them once, checks them and turns them into the plain structures of
//! [`crate::model`] and [`crate::tensor`]; they are public so that a file can be written with them.
// Their fields are described in `onnx-ml.proto`, which has no place here.
#![allow(missing_docs)]

#[rustfmt::skip]
pub mod onnx;
#[rustfmt::skip]
pub mod onnx_data;

pub use onnx::*;
pub use onnx_data::*;
