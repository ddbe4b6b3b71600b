//! The op families. Each op's whole truth stands in its family's folder.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::attr::{AttrReader, AttrWriter};
use crate::op::{OpDef, OpFamily};
use crate::tensor::Tensor;

pub mod contraction;
pub mod control;
pub mod custom;
pub mod elementwise;
pub mod indexing;
pub mod neural;
pub mod random;
#[cfg(test)]
mod random_tests;
pub mod reduction;
pub mod shape;
pub mod signal;
#[cfg(test)]
mod testing;

pub use contraction::Contraction;
pub use control::Control;
pub use custom::Custom;
pub use elementwise::Elementwise;
pub use indexing::Indexing;
pub use neural::Neural;
pub use random::Random;
pub use reduction::Reduction;
pub use shape::ShapeOp;
pub use signal::Signal;

macro_rules! families {
    ($($(#[$doc:meta])* $family:ident),* $(,)?) => {
        /// An op: plain data, equal and hashed by value.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Op {
            $($(#[$doc])* $family($family),)*
        }

        impl Op {
            /// The op's rules.
            pub fn def(&self) -> &dyn OpDef {
                match self { $(Op::$family(op) => op.def(),)* }
            }

            /// Reads an op from its mnemonic and attributes.
            pub fn parse(name: &str, mut attrs: AttrReader) -> Result<Op, String> {
                $(if let Some(op) = <$family as OpFamily>::parse(name, &mut attrs) {
                    let op = op?;
                    attrs.finish().map_err(|e| format!("`{name}`: {e}"))?;
                    return Ok(Op::$family(op));
                })*
                Err(format!("unknown op `{name}`"))
            }

            /// Mnemonics of all ops with what each does, by family.
            pub fn families() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
                vec![$((stringify!($family), <$family as OpFamily>::docs()),)*]
            }
        }
    };
}

families! {
    /// Scalar functions applied to each element, with NumPy broadcasting.
    Elementwise,
    /// Views, constants and rearrangements.
    ShapeOp,
    /// Products summed over shared axes.
    Contraction,
    /// Branches, loops and calls.
    Control,
    /// Composites of neural networks, which decompose into the other families.
    Neural,
    /// Reductions, scans and windows.
    Reduction,
    /// Reading and writing at computed positions, sorting and selecting.
    Indexing,
    /// Random numbers of a counter-based generator.
    Random,
    /// Transforms of signals.
    Signal,
    /// Ops that users bring, by name.
    Custom,
}

impl Op {
    /// The mnemonic.
    pub fn name(&self) -> &'static str {
        self.def().name()
    }

    /// The literal of a `constant`.
    pub fn as_constant(&self) -> Option<&Tensor> {
        match self {
            Op::ShapeOp(ShapeOp::Constant(c)) => Some(&c.value),
            _ => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let def = self.def();
        f.write_str(def.name())?;
        let mut w = AttrWriter::default();
        def.attrs(&mut w);
        for (i, (name, value)) in w.entries().iter().enumerate() {
            write!(f, "{}{name} = {value}", if i == 0 { " {" } else { ", " })?;
        }
        if !w.entries().is_empty() {
            f.write_str("}")?;
        }
        Ok(())
    }
}
