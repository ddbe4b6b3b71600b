//! Branches, loops and calls. Regions are graphs of their own, whose inputs are block arguments, then what they capture; the node's
//! operands list the captures last.

mod branch;
mod region;

pub use branch::If;

crate::op_family! {
    /// Branches, loops and calls.
    pub enum Control { If }
}

#[cfg(test)]
mod tests;
