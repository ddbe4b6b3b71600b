//! Composites of neural networks. Each keeps its structure until a target says whether it has a kernel for it, and decomposes otherwise.
//!
//! Evaluations compute in f64 and round once to the result's dtype.

mod attention;
mod layer_norm;
mod rows;
mod softmax;

pub use attention::{Attention, AttnLayout, MaskKind};
pub use layer_norm::LayerNorm;
pub use softmax::Softmax;

crate::op_family! {
    /// Composites of neural networks.
    pub enum Neural { Softmax, LayerNorm, Attention }
}

#[cfg(test)]
mod tests;
