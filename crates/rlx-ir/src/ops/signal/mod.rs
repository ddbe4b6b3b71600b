//! Transforms of signals.

mod fft;
#[cfg(test)]
mod tests;

pub use fft::Fft;

crate::op_family! {
    /// Transforms of signals.
    pub enum Signal { Fft }
}
