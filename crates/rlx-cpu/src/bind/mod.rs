//! Binding: from the sizes of a call to sizes, offsets and plans of everything.
//!
//! A program is cut into segments where sizes depend on data. The first segment is bound from the shapes of inputs and
//! parameters; each further one when the kernel before it has reported the symbols that it defines. What is computed
//! for a segment ([`BoundSegment`]) is immutable and cached by the sizes that it was made from.

mod arena;
mod cache;
mod plan;
mod segments;
mod symbols;

pub use arena::{Interval, pack};
pub use cache::BindCache;
pub use plan::{BoundSegment, Plan, bind as bind_segment};
pub use segments::{Segment, Segments};
pub use symbols::{Shapes, StateSizes};

#[cfg(test)]
mod tests;
