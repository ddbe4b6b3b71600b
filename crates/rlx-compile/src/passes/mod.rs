//! The passes, one a file. Each goes from one module to another that means the same; which run, and in what order, says
//! [`pipeline`](crate::pipeline).

pub mod bind_dims;
pub mod bind_params;
pub mod canonicalise;
pub mod cse;
pub mod dce;
pub mod fold;
pub mod hoist;
pub mod join;
pub mod legalise;
pub mod precision;
pub mod recognise;
mod regions;
pub mod scaled_quant;
pub mod split;
pub mod split_reduce;

use crate::pass::Pass;

/// All passes, in the order in which the pipeline first runs them.
pub const ALL: &[&Pass] = &[
    &bind_params::PASS,
    &bind_dims::PASS,
    &dce::PASS,
    &canonicalise::PASS,
    &fold::PASS,
    &cse::PASS,
    &recognise::PASS,
    &scaled_quant::PASS,
    &precision::PASS,
    &join::PASS,
    &legalise::PASS,
    &split_reduce::PASS,
    &hoist::PASS,
    &split::PASS,
];
