//! MIR to LIR: values become walks over buffers, nodes become few, general kernels.
//!
//! First a plan is made ([`planner`]): every value is a *root* tensor seen through steps ([`views`]), and every node is an index map, or an
//! instruction of a group ([`groups`]) that one kernel will compute, or a kernel of its own. Then memory is decided ([`layout`],
//! [`place`]) and kernels are emitted in order ([`emit`]). Last, buffers get their intervals ([`buffers`]). [`check`] proves the result
//! independently of how it was made.

mod apart;
mod buffers;
mod claims;
mod contract;
mod control;
mod emit;
mod groups;
mod kernels;
mod layout;
mod place;
mod planner;
mod program;
mod roots;
mod row;
mod scaled;
mod shape;
mod states;
mod structure;
mod views;

pub mod check;

pub use claims::ops_of;

use std::collections::HashSet;

use rlx_ir::{Graph, Module, Symbol};

use crate::error::CompileError;
use crate::lir::Lir;
use crate::options::CompileOptions;
use crate::remark::Remark;
use crate::target::Claims;

/// Lowers a module of claimed ops to a program. What was fused and what could not be is remarked.
pub fn lower(
    module: &Module,
    claims: &Claims,
    options: &CompileOptions,
    remarks: &mut Vec<Remark>,
) -> Result<Lir, CompileError> {
    lower_graph(&module.main, &HashSet::new(), module, claims, options, remarks, rlx_ir::eval::MAX_DEPTH)
}

fn lower_graph(
    graph: &Graph,
    known: &HashSet<Symbol>,
    module: &Module,
    claims: &Claims,
    options: &CompileOptions,
    remarks: &mut Vec<Remark>,
    depth: usize,
) -> Result<Lir, CompileError> {
    let mut plan = planner::Planner::plan(graph, known, claims, options, remarks)?;
    layout::choose(&mut plan);
    emit::Emitter::new(plan, module, claims, options, depth).run()
}
