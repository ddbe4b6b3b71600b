//! Reading and writing at computed positions, sorting and selecting.
//!
//! Indices are integers; negative ones count from the end, and one out of range is an error before anything is read or written.

mod gather;
mod index;

pub use gather::Gather;

crate::op_family! {
    /// Reading and writing at computed positions, sorting and selecting.
    pub enum Indexing { Gather }
}

#[cfg(test)]
mod tests;
