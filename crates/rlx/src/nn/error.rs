//! What can be wrong with blocks and their weights.

use rlx_ir::{IrError, TensorType};

/// Why a block could not be applied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NnError {
    /// An op of a block refuses its operands.
    #[error("[nn-block] {block} at `{path}` on ({}): {source}", .operands.join(", "))]
    Block {
        /// Kind of the block.
        block: &'static str,
        /// Where it was applied.
        path: String,
        /// Types of what it was applied to.
        operands: Vec<String>,
        /// What was refused.
        source: Box<IrError>,
    },
    /// A block's own sizes do not fit each other or its operands.
    #[error("[nn-sizes] {block} at `{path}`: {message}")]
    Sizes {
        /// Kind of the block.
        block: &'static str,
        /// Where it was applied.
        path: String,
        /// What does not fit, and what to do.
        message: String,
    },
    /// One path names two parameters of different types.
    #[error(
        "[nn-shared] parameter `{path}` is {first} in one place and {second} in another; give each a path of its own"
    )]
    Shared {
        /// The path.
        path: String,
        /// Its type where it was declared first.
        first: String,
        /// Its type where it was named again.
        second: String,
    },
    /// The weights do not fit the parameters: everything that is wrong with them.
    #[error("[nn-weights] {}", list(.0))]
    Weights(Vec<WeightProblem>),
    /// The graph refuses a declaration.
    #[error(transparent)]
    Graph(#[from] IrError),
}

/// One thing that is wrong with weights.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightProblem {
    /// No weight of that name.
    #[error("`{path}` ({expected}) is missing")]
    Missing {
        /// The parameter.
        path: String,
        /// Its type.
        expected: TensorType,
    },
    /// A weight of another dtype or shape.
    #[error("`{path}` must be {expected}, the weight is {got}")]
    Type {
        /// The parameter.
        path: String,
        /// Its type.
        expected: TensorType,
        /// The weight's.
        got: TensorType,
    },
}

fn list(problems: &[WeightProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(|p| format!("\n  {p}")).collect();
    format!("{} parameter(s) have no fitting weight:{}", problems.len(), lines.concat())
}
