//! Reading and writing at computed positions, sorting and selecting.
//!
//! Indices are integers; negative ones count from the end, and one out of range is an error before anything is read or written.

mod dynamic_slice;
mod gather;
mod gather_elements;
mod gather_nd;
mod index;
mod non_zero;
mod scatter;
mod sort;

pub use dynamic_slice::{DynamicSlice, DynamicUpdateSlice};
pub use gather::Gather;
pub use gather_elements::GatherElements;
pub use gather_nd::GatherNd;
pub use non_zero::NonZero;
pub use scatter::{Combiner, ScatterElements, ScatterNd};
pub use sort::{Sort, TopK};

crate::op_family! {
    /// Reading and writing at computed positions, sorting and selecting.
    pub enum Indexing {
        Gather, GatherElements, GatherNd, ScatterElements, ScatterNd, Sort, TopK, NonZero, DynamicSlice, DynamicUpdateSlice
    }
}

#[cfg(test)]
mod tests;
