//! Branches, loops and calls. Regions are graphs of their own, whose inputs are block arguments, then what they capture; the node's
//! operands list the captures last.

mod branch;
mod call;
mod region;
mod repeat;
mod scan;
mod stack;

pub use branch::If;
pub use call::Call;
pub use repeat::{Loop, LoopArgs, LoopStep};
pub use scan::Scan;

crate::op_family! {
    /// Branches, loops and calls.
    pub enum Control { If, Loop, Scan, Call }
}

#[cfg(test)]
mod tests;
