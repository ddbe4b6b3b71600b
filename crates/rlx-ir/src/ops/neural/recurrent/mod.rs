//! Recurrent layers as ONNX defines them. Sequence axis first: x is `[t, b, i]`, the sequence of results `[t, d, b, h]`.

mod activation;
mod gru;
mod layer;
mod lstm;
mod rnn;

pub use activation::{CellActivation, CellFunction};
pub use gru::Gru;
pub use lstm::Lstm;
pub use rnn::Rnn;

crate::attr_enum! {
    /// In which order steps are taken.
    pub enum RnnDirection {
        /// First to last.
        Forward = "forward",
        /// Last to first.
        Reverse = "reverse",
        /// Both, with weights of their own, on an axis of two directions.
        Bidirectional = "bidirectional",
    }
}

impl RnnDirection {
    /// Number of directions.
    pub const fn count(self) -> usize {
        match self {
            RnnDirection::Bidirectional => 2,
            _ => 1,
        }
    }
}
