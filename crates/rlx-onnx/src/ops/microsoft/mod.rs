//! Operators of ONNX Runtime's domain that exporters and its optimiser write.

mod attention;
mod blocks;
mod cached;
mod diffusion;
mod fused;
mod packed;
mod plain;
mod quantised;

use super::OpEntry;

/// Their tables.
pub(super) fn tables() -> [&'static [OpEntry]; 8] {
    [attention::OPS, blocks::OPS, cached::OPS, diffusion::OPS, fused::OPS, packed::OPS, plain::OPS, quantised::OPS]
}
