//! The passes, one a file. Each goes from one module to another that means the same; which run, and in what order, says
//! [`pipeline`](crate::pipeline).

pub mod bind_dims;
pub mod cse;
pub mod dce;
pub mod fold;
pub mod legalise;
mod regions;

use crate::pass::Pass;

/// All passes, in the order in which the pipeline first runs them.
pub const ALL: &[&Pass] = &[&bind_dims::PASS, &dce::PASS, &fold::PASS, &cse::PASS, &legalise::PASS];
