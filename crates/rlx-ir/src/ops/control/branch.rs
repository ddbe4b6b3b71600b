//! Two-way branch.

use super::region::{Entry, Seen, name_results};
use crate::builder::Builder;
use crate::dim::{Bounds, Dim, Symbol};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::{Graph, ValueId};
use crate::op;
use crate::op::{EvalCx, InferCx, Op, OpRules, arg};
use crate::tensor::Value;
use crate::types::{TensorType, Type};

op! {
    /// The results of the first region where the condition is true, else of the second; only that one runs. Operands: condition, then captures, which are both regions' inputs.
    pub struct If = "if" {
        /// A symbol for each size of the results that differs between the branches or that a branch alone knows.
        pub defines: Vec<Symbol>,
    }
}

/// Types of the results, their unknown sizes not named yet.
fn join(cx: &mut InferCx<'_>) -> Result<Vec<Seen>, OpError> {
    let cond = cx.tensor(0)?;
    if cond.dtype != DType::Bool || cond.shape.rank() != 0 {
        return Err(OpError::new(format!("the condition must be bool[], got {cond}")));
    }
    let [then, other] = cx.regions() else {
        return Err(OpError::new(format!("takes two regions, got {}", cx.regions().len())));
    };
    let captures: Vec<Type> = cx.operands().iter().skip(1).map(|o| o.ty.clone()).collect();
    let a = Entry::new(cx, "then", then, &captures)?;
    let b = Entry::new(cx, "else", other, &captures)?;
    if then.outputs().len() != other.outputs().len() {
        return Err(OpError::new(format!(
            "then gives {} results, else {}",
            then.outputs().len(),
            other.outputs().len()
        )));
    }
    let pairs = then.outputs().iter().zip(other.outputs()).enumerate();
    pairs
        .map(|(i, (x, y))| {
            let (x, y) = (then.ty(x.value), other.ty(y.value));
            a.outside(x).join(&b.outside(y)).ok_or_else(|| {
                OpError::new(format!("result {i} is {x} in then but {y} in else"))
                    .hint("dtype and rank must be the same in both branches")
            })
        })
        .collect()
}

impl OpRules for If {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let seen = join(cx)?;
        name_results(cx, seen, &self.defines)
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn nested_work(&self, _operands: &[TensorType], _results: &[TensorType], regions: &[Dim]) -> Dim {
        // Only one branch runs: the costlier is counted.
        regions.iter().cloned().reduce(|a, b| a.max(b)).unwrap_or(Dim::ZERO)
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let cond = arg(args, 0)?.elements().ints().is_some_and(|v| v.first().is_some_and(|&x| x != 0));
        cx.region(usize::from(!cond), args.get(1..).unwrap_or(&[]))
    }
}

impl Builder {
    /// A branch whose regions are there already. The symbols for sizes known only after the run are made here.
    pub fn if_regions(
        &mut self,
        cond: ValueId,
        captures: &[ValueId],
        then: Graph,
        otherwise: Graph,
    ) -> Result<Vec<ValueId>, IrError> {
        let operands: Vec<ValueId> = [cond].iter().chain(captures).copied().collect();
        let regions = vec![then, otherwise];
        let need = self.probe(&If { defines: Vec::new() }.into(), &operands, &regions, join)?;
        let defines = self.fresh_symbols("branch", need.iter().map(Seen::unknowns).sum());
        self.op_with_regions(If { defines }, &operands, regions)
    }

    /// A branch whose regions the closures build; they get the captures as values of their own graph and give the results.
    pub fn if_(
        &mut self,
        cond: ValueId,
        captures: &[ValueId],
        then: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, IrError>,
        otherwise: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, IrError>,
    ) -> Result<Vec<ValueId>, IrError> {
        let (mut b, args) = self.region_builder("then", &[], captures)?;
        let outputs = then(&mut b, &args)?;
        let then = finish_region(b, &outputs)?;
        let (mut b, args) = self.region_builder("else", &[], captures)?;
        let outputs = otherwise(&mut b, &args)?;
        let otherwise = finish_region(b, &outputs)?;
        self.if_regions(cond, captures, then, otherwise)
    }

    /// A builder of a region with block arguments of these types and the captures as inputs.
    pub(super) fn region_builder(
        &self,
        name: &str,
        arguments: &[Type],
        captures: &[ValueId],
    ) -> Result<(Builder, Vec<ValueId>), IrError> {
        let mut g = Graph::new(name);
        copy_bounds(self.graph().bounds(), g.bounds_mut());
        let mut inputs = Vec::new();
        for (i, ty) in arguments.iter().enumerate() {
            inputs.push(g.add_input(&format!("arg{i}"), ty.clone())?);
        }
        for (i, &v) in captures.iter().enumerate() {
            let id = g.add_input(&format!("capture{i}"), self.ty(v)?.clone())?;
            g.set_input_elems(id, self.graph().elems(v).map(<[_]>::to_vec));
            inputs.push(id);
        }
        Ok((Builder::from_graph(g), inputs))
    }

    /// Runs a type rule of this family on values and regions.
    pub(super) fn probe<T>(
        &self,
        op: &Op,
        operands: &[ValueId],
        regions: &[Graph],
        rule: impl FnOnce(&mut InferCx<'_>) -> Result<T, OpError>,
    ) -> Result<T, IrError> {
        let mut infos = Vec::new();
        for &v in operands {
            infos.push(crate::op::OperandInfo { ty: self.ty(v)?, elems: self.graph().elems(v) });
        }
        let mut cx = InferCx::new(&infos, regions, self.graph().bounds(), "control");
        rule(&mut cx)
            .map_err(|error| IrError::Op { node: Box::new(self.graph().describe(op, operands, self.loc())), error })
    }

    /// Symbols that the graph does not use yet.
    pub(super) fn fresh_symbols(&self, base: &str, n: usize) -> Vec<Symbol> {
        // One base for each, so that they also differ from each other.
        (0..n).map(|i| self.graph().fresh_symbol(&format!("{base}{i}_"))).collect()
    }
}

fn copy_bounds(from: &Bounds, to: &mut Bounds) {
    for (s, (lo, hi)) in from.iter() {
        to.set(s, lo, hi);
    }
}

/// Declares a region's outputs.
pub(super) fn finish_region(mut b: Builder, outputs: &[ValueId]) -> Result<Graph, IrError> {
    for (i, &v) in outputs.iter().enumerate() {
        b.output(&format!("result{i}"), v)?;
    }
    Ok(b.finish())
}
