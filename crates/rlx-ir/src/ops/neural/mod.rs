//! Composites of neural networks. Each keeps its structure until a target says whether it has a kernel for it, and decomposes otherwise.
//!
//! Evaluations compute in f64 and round once to the result's dtype.

mod activations;
mod attention;
mod batch_norm;
mod group_norm;
mod layer_norm;
mod recurrent;
mod resize;
mod rms_norm;
mod rotary;
mod rows;
mod softmax;

pub use attention::{Attention, AttnLayout, MaskKind};
pub use batch_norm::BatchNorm;
pub use group_norm::GroupNorm;
pub use layer_norm::LayerNorm;
pub use recurrent::{CellActivation, CellFunction, Gru, Lstm, Rnn, RnnDirection};
pub use resize::{CoordMode, NearestMode, Resize, ResizeMode, Taps};
pub use rms_norm::RmsNorm;
pub use rotary::RotaryEmbedding;
pub use softmax::Softmax;

crate::op_family! {
    /// Composites of neural networks.
    pub enum Neural { Softmax, LayerNorm, RmsNorm, BatchNorm, GroupNorm, Attention, RotaryEmbedding, Lstm, Gru, Rnn, Resize }
}

#[cfg(test)]
mod tests;
