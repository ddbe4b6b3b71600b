//! Control: regions and functions become programs of their own, which take dense views and give their results to dense views.

use rlx_ir::ops::Control;
use rlx_ir::{Graph, Node};

use crate::error::CompileError;
use crate::lir::{BranchKernel, CallKernel, Kernel, LoopKernel, ScanKernel, SubProgram, View};

use super::emit::Emitter;
use super::views::Val;

impl Emitter<'_> {
    fn sub_program(&mut self, g: &Graph, own: bool) -> Result<SubProgram, CompileError> {
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(CompileError::Lir(format!(
                "graphs are nested or called more than {} deep at `{}`; a function may not call itself",
                rlx_ir::eval::MAX_DEPTH,
                g.name()
            )));
        };
        // Symbols of the surrounding program are known inside; a function's are its own.
        let mut known = if own { Default::default() } else { self.p.known.clone() };
        known.extend(g.input_symbols());
        let program = super::lower_graph(g, &known, self.module, self.claims, self.options, self.p.remarks, depth)?;
        Ok(SubProgram { program: Box::new(program) })
    }

    fn dense_views(&mut self, values: &[Val]) -> Result<Vec<View>, CompileError> {
        values.iter().map(|v| self.dense_view(v, "a nested program takes it dense")).collect()
    }

    pub(super) fn control(&mut self, node: &Node, op: &Control) -> Result<(), CompileError> {
        let args = self.p.operands(node)?;
        let short = || CompileError::Lir(format!("`{}` has too few operands or regions", node.op));
        let defines = super::planner::defines(node, self.p.graph, &self.p.known);
        match op {
            Control::If(op) => {
                let ([cond, captures @ ..], [then, otherwise]) = (args.as_slice(), node.regions.as_slice()) else {
                    return Err(short());
                };
                let cond = self.dense_view(cond, "a branch takes it dense")?;
                let captures = self.dense_views(captures)?;
                let then_branch = self.sub_program(then, false)?;
                let else_branch = self.sub_program(otherwise, false)?;
                let outputs = self.result_views(node)?;
                let defines = op.defines.clone();
                let kernel = BranchKernel { cond, captures, then_branch, else_branch, outputs, defines };
                self.push(Kernel::Branch(kernel));
            }
            Control::Loop(op) => {
                let [body] = node.regions.as_slice() else { return Err(short()) };
                let mut rest = args.iter();
                let mut take = |there: bool| if there { rest.next().cloned() } else { None };
                let (trip, cond) = (take(op.has_trip_count), take(op.has_cond));
                let rest: Vec<Val> = rest.cloned().collect();
                let (carried, captures) = rest.split_at_checked(op.carried).ok_or_else(short)?;
                let view =
                    |e: &mut Self, v: Option<Val>| v.map(|v| e.dense_view(&v, "a loop takes it dense")).transpose();
                let trip_count = view(self, trip)?;
                let cond = view(self, cond)?;
                let carried = self.dense_views(carried)?;
                let captures = self.dense_views(captures)?;
                let body = self.sub_program(body, false)?;
                let outputs = self.result_views(node)?;
                let defines = op.defines.clone();
                self.push(Kernel::Loop(LoopKernel { trip_count, cond, carried, captures, body, outputs, defines }));
            }
            Control::Scan(op) => {
                let [body] = node.regions.as_slice() else { return Err(short()) };
                let (carried, rest) = args.split_at_checked(op.carried).ok_or_else(short)?;
                let (inputs, captures) = rest.split_at_checked(op.num_scan_inputs).ok_or_else(short)?;
                let steps = inputs
                    .first()
                    .zip(op.input_axes.first())
                    .and_then(|(v, &axis)| v.dims.get(axis).cloned())
                    .ok_or_else(short)?;
                let steps = self.dim(&steps);
                let carried = self.dense_views(carried)?;
                let axes = op.input_axes.iter().copied().zip(op.input_reverse.iter().copied());
                let scanned = self.dense_views(inputs)?.into_iter().zip(axes).map(|(v, (a, r))| (v, a, r)).collect();
                let captures = self.dense_views(captures)?;
                let body = self.sub_program(body, false)?;
                let mut outputs = self.result_views(node)?;
                let stacked = outputs.split_off(op.carried.min(outputs.len()));
                let axes = op.output_axes.iter().copied().zip(op.output_reverse.iter().copied());
                let stacked = stacked.into_iter().zip(axes).map(|(v, (a, r))| (v, a, r)).collect();
                self.push(Kernel::Scan(ScanKernel { steps, carried, scanned, captures, body, outputs, stacked }));
            }
            Control::Call(op) => {
                let module = self.module;
                let f = module
                    .functions
                    .get(&op.callee)
                    .ok_or_else(|| CompileError::Lir(format!("the module has no function `{}`", op.callee)))?;
                let inputs = self.dense_views(&args)?;
                let body = self.sub_program(f, true)?;
                let outputs = self.result_views(node)?;
                self.push(Kernel::Call(CallKernel { inputs, body, outputs, defines }));
            }
        }
        Ok(())
    }
}
