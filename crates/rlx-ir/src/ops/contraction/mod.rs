//! Contractions: products summed over shared axes. Floats accumulate in f32 (f64 on request), integers wrap in the result's dtype.

mod conv;
mod conv_transpose;
mod dot_general;
mod matmul;
mod number;
mod product;
mod window;

pub use conv::Conv;
pub use conv_transpose::ConvTranspose;
pub use dot_general::DotGeneral;

crate::op_family! {
    /// Contractions: products summed over shared axes.
    pub enum Contraction { DotGeneral, Conv, ConvTranspose }
}

#[cfg(test)]
mod tests;
