//! Operators of ONNX Runtime's domain that exporters and its optimiser write.

mod attention;
mod cached;
mod fused;
mod quantised;

use super::OpEntry;

/// Their tables.
pub(super) fn tables() -> [&'static [OpEntry]; 4] {
    [attention::OPS, cached::OPS, fused::OPS, quantised::OPS]
}
