//! Random numbers: a counter-based generator, so that a number depends on seed, position and place alone.
//!
//! Chance enters a graph as a state: [`RNG_STATE`] holds `[seed, position]`, and each run leaves the position one further. A graph
//! so stays a function: the same state gives the same numbers on every device, at any number of threads, whatever was compiled,
//! folded or shared. Each op draws from a stream of its own.

mod bits;
mod distributions;
mod philox;

use crate::tensor::{Element, Tensor};

pub use bits::RandomBits;
pub use philox::philox4x32_10;

crate::op_family! {
    /// Random numbers of a counter-based generator.
    pub enum Random { RandomBits }
}

/// Name of the state that holds the generator's seed and position: `u64[2]`.
pub const RNG_STATE: &str = "rng";

/// Where the generator stands: what a session's runs draw from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct RngOptions {
    /// Which sequence of numbers.
    pub seed: u64,
    /// Position in it; each run moves on by one.
    pub offset: u64,
}

impl RngOptions {
    /// The contents of [`RNG_STATE`].
    pub fn to_tensor(self) -> Tensor {
        let words = [self.seed, self.offset];
        // Two elements for two places: this cannot fail.
        Tensor::from_slice(&[2], &words).unwrap_or_else(|_| Tensor::scalar(self.seed))
    }

    /// What a tensor of [`RNG_STATE`] says; `None` if it is no `u64[2]`.
    pub fn from_tensor(t: &Tensor) -> Option<RngOptions> {
        if t.dtype() != u64::DTYPE {
            return None;
        }
        match *t.as_slice::<u64>().ok()? {
            [seed, offset] => Some(RngOptions { seed, offset }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
