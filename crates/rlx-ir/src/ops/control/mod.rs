//! Branches, loops and calls. Regions are graphs of their own, whose inputs are block arguments, then what they capture; the node's
//! operands list the captures last.

mod branch;
mod call;
mod region;
mod repeat;
mod scan;
mod stack;

use crate::builder::Builder;
use crate::error::IrError;
use crate::graph::{Graph, ValueId};
use crate::op::Op;

pub use branch::If;
pub use call::Call;
pub use repeat::{Loop, LoopArgs, LoopStep};
pub use scan::Scan;

crate::op_family! {
    /// Branches, loops and calls.
    pub enum Control { If, Loop, Scan, Call }
}

impl Builder {
    /// Appends a branch or loop that defines as many symbols as its regions and operands ask for now. Where more or less is known than
    /// when the op was made, so that its own symbols do not fit, new ones are made: the types of the results say which.
    pub fn control_again(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
        regions: Vec<Graph>,
    ) -> Result<Vec<ValueId>, IrError> {
        let op = op.into();
        if self.graph().infer(&op, operands, &regions, self.loc()).is_ok() {
            return self.op_with_regions(op, operands, regions);
        }
        match (&op, operands, &regions[..]) {
            (Op::Control(Control::If(_)), [cond, captures @ ..], [then, otherwise]) => {
                self.if_regions(*cond, captures, then.clone(), otherwise.clone())
            }
            (Op::Control(Control::Loop(l)), _, [body]) => {
                let mut rest = operands.iter().copied();
                let trips = if l.has_trip_count { rest.next() } else { None };
                let cond = if l.has_cond { rest.next() } else { None };
                let inits: Vec<ValueId> = rest.by_ref().take(l.carried).collect();
                let captures: Vec<ValueId> = rest.collect();
                self.loop_regions(trips, cond, &inits, &captures, body.clone())
            }
            _ => self.op_with_regions(op, operands, regions),
        }
    }
}

#[cfg(test)]
mod tests;
