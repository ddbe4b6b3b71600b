//! Constants, views and rearrangements. Sizes in attributes are dims, so that they live on symbolically through the compiler.

mod bitcast;
mod broadcast_to;
mod concat;
mod constant;
mod from_dims;
mod helpers;
mod iota;
pub(crate) mod known;
mod pad;
mod reshape;
mod reverse;
mod shape_of;
mod slice;
mod transpose;

pub use bitcast::BitcastConvert;
pub use broadcast_to::BroadcastTo;
pub use concat::Concat;
pub use constant::Constant;
pub use from_dims::FromDims;
pub use iota::Iota;
pub use pad::{MAX_AXIS_TABLE, Pad, PadMode, pad_sources};
pub use reshape::Reshape;
pub use reverse::Reverse;
pub use shape_of::{ReadDims, ShapeOf};
pub use slice::Slice;
pub use transpose::Transpose;

crate::op_family! {
    /// Constants, views and rearrangements.
    pub enum ShapeOp { Constant, FromDims, Reshape, Transpose, BroadcastTo, Slice, Concat, Pad, Reverse, Iota, ShapeOf, ReadDims, BitcastConvert }
}

#[cfg(test)]
mod tests;
