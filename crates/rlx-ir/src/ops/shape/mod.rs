//! Constants, views and rearrangements. Sizes in attributes are dims, so that they live on symbolically through the compiler.

mod constant;
mod from_dims;
mod reshape;
mod transpose;

pub use constant::Constant;
pub use from_dims::FromDims;
pub use reshape::Reshape;
pub use transpose::Transpose;

crate::op_family! {
    /// Constants, views and rearrangements.
    pub enum ShapeOp { Constant, FromDims, Reshape, Transpose }
}
