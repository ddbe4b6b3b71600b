//! Loops.

use std::collections::BTreeSet;

use super::branch::finish_region;
use super::region::{Entry, Seen, name_results};
use super::stack::{Stack, region_sizes};
use crate::builder::Builder;
use crate::dim::{Dim, Symbol};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::{Graph, ValueId};
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Tensor, Value};
use crate::types::{Shape, TensorType, Type};

op! {
    /// Runs its region while the condition holds, at most trip-count times. Operands: the trip count (i64) and the first condition (bool) if there, initial values of what is carried, captures. The region takes iteration number, condition, carried values and captures, and gives the next condition, carried values, and one slice of each scan output. Results: final carried values, then the scan outputs stacked along a new first axis.
    pub struct Loop = "loop" {
        /// Number of carried values.
        pub carried: usize,
        /// Number of scan outputs.
        pub scans: usize,
        /// Whether the first operand is the trip count; without it there is no limit.
        pub has_trip_count: bool,
        /// Whether the next operand is the condition; without it, it is true at first.
        pub has_cond: bool,
        /// A symbol for each size of the results that is not known before the run.
        pub defines: Vec<Symbol>,
    }
}

impl Loop {
    fn first_carried(&self) -> usize {
        usize::from(self.has_trip_count) + usize::from(self.has_cond)
    }

    /// Types of the results, their unknown sizes not named yet.
    fn results(&self, cx: &mut InferCx<'_>) -> Result<Vec<Seen>, OpError> {
        let first = self.first_carried();
        let total = cx.operands().len();
        if total < first.saturating_add(self.carried) {
            return Err(OpError::new(format!("needs {first} + {} operands and captures, got {total}", self.carried)));
        }
        let scalar = |d: DType| Type::tensor(d, Shape::scalar());
        let heads = [(self.has_trip_count, "trip count", DType::I64), (self.has_cond, "condition", DType::Bool)];
        for (i, (_, what, d)) in heads.into_iter().filter(|h| h.0).enumerate() {
            let got = cx.operand(i)?.ty;
            if *got != scalar(d) {
                return Err(OpError::new(format!("the {what} must be {d}[], got {got}")));
            }
        }
        let [body] = cx.regions() else {
            return Err(OpError::new(format!("takes one region, got {}", cx.regions().len())));
        };
        let mut args = vec![scalar(DType::I64), scalar(DType::Bool)];
        args.extend(cx.operands().iter().skip(first).map(|o| o.ty.clone()));
        let mut entry = Entry::new(cx, "body", body, &args)?;
        if body.outputs().len() != 1 + self.carried + self.scans {
            return Err(OpError::new(format!(
                "the body must give a condition, {} carried values and {} scan outputs; it gives {} values",
                self.carried,
                self.scans,
                body.outputs().len()
            )));
        }
        let mut outputs = body.outputs().iter().map(|o| o.value);
        let next_cond = outputs.next();
        if let Some(c) = next_cond
            && *body.ty(c) != scalar(DType::Bool)
        {
            return Err(OpError::new(format!("the body's condition must be bool[], got {}", body.ty(c))));
        }
        let pairs: Vec<(&Type, &Type)> = body
            .inputs()
            .iter()
            .skip(2)
            .take(self.carried)
            .zip(outputs.by_ref())
            .map(|(&i, o)| (body.ty(i), body.ty(o)))
            .collect();
        let mut changing = BTreeSet::new();
        for (i, (before, after)) in pairs.iter().enumerate() {
            find_changing(before, after, &mut changing)
                .map_err(|e| OpError { message: format!("carried value {i}: {}", e.message), hint: e.hint })?;
        }
        for s in &changing {
            check_alone(body, s)?;
            entry.hide(s);
        }
        let mut seen: Vec<Seen> = pairs.iter().map(|(before, _)| entry.outside(before)).collect();
        let length = self.known_length(cx, body, next_cond);
        for o in outputs {
            let Seen::Tensor(dtype, mut dims) = entry.outside(body.ty(o)) else {
                return Err(OpError::new(format!("a scan output must be a tensor, got {}", body.ty(o))));
            };
            dims.insert(0, length.clone());
            seen.push(Seen::Tensor(dtype, dims));
        }
        Ok(seen)
    }

    /// The number of iterations, where the condition never stops the loop and the trip count is known.
    fn known_length(&self, cx: &InferCx<'_>, body: &Graph, next_cond: Option<ValueId>) -> Option<Dim> {
        let is_true = |e: Option<&[Dim]>| e.is_some_and(|e| e.iter().all(|d| d.as_const() == Some(1)));
        let first = !self.has_cond || is_true(cx.elems(usize::from(self.has_trip_count)));
        let next = next_cond.is_some_and(|c| is_true(body.elems(c)) || body.inputs().get(1) == Some(&c));
        let trips = cx.elems(0).filter(|_| self.has_trip_count)?.first()?;
        (first && next).then(|| trips.max(Dim::ZERO))
    }
}

/// Adds the symbols that stand for sizes which differ from iteration to iteration.
fn find_changing(before: &Type, after: &Type, out: &mut BTreeSet<Symbol>) -> Result<(), OpError> {
    let differ = || {
        OpError::new(format!("the body takes {before} and gives {after}"))
            .hint("dtype and rank must stay; a size that changes needs a symbol of its own in the body's input")
    };
    match (before, after) {
        (Type::Tensor(x), Type::Tensor(y)) if x.dtype == y.dtype && x.shape.rank() == y.shape.rank() => {
            for (d, e) in x.shape.iter().zip(y.shape.iter()).filter(|(d, e)| d != e) {
                match d.as_symbol() {
                    Some(s) => drop(out.insert(s.clone())),
                    None if d.known_eq(e) == Some(false) => return Err(differ()),
                    None => {}
                }
            }
            Ok(())
        }
        (Type::Sequence(x), Type::Sequence(y)) | (Type::Optional(x), Type::Optional(y)) => find_changing(x, y, out),
        _ => Err(differ()),
    }
}

/// A size that changes must be free to: no other size of the body's inputs may depend on it.
fn check_alone(body: &Graph, s: &Symbol) -> Result<(), OpError> {
    fn uses(ty: &Type, s: &Symbol) -> usize {
        match ty {
            Type::Tensor(t) => t.shape.iter().filter(|d| d.symbols().contains(s)).count(),
            Type::Sequence(t) | Type::Optional(t) => uses(t, s),
        }
    }
    let n: usize = body.inputs().iter().map(|&v| uses(body.ty(v), s)).sum();
    if n > 1 {
        return Err(OpError::new(format!(
            "the size {s} changes from iteration to iteration, but {n} sizes of the body's inputs are tied to it"
        ))
        .hint("give the carried input a symbol of its own"));
    }
    Ok(())
}

impl OpRules for Loop {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        let seen = self.results(cx)?;
        name_results(cx, seen, &self.defines)
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn nested_work(&self, _operands: &[TensorType], results: &[TensorType], regions: &[Dim]) -> Dim {
        // The number of iterations is that of slices; without any it is not known from types, and one is counted.
        let stacked = results.get(self.carried).filter(|_| self.scans > 0);
        let runs = stacked.and_then(|t| t.shape.first().cloned()).unwrap_or(Dim::ONE);
        Dim::sum(regions.iter().cloned()) * runs
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let read = |i: usize| -> Result<Option<i128>, OpError> {
            Ok(arg(args, i)?.elements().ints().and_then(|v| v.first().copied()))
        };
        let trips = if self.has_trip_count { read(0)? } else { None };
        let mut cond = !self.has_cond || read(usize::from(self.has_trip_count))? != Some(0);
        let rest = args.get(self.first_carried()..).unwrap_or(&[]);
        let (mut carried, captures) = match rest.split_at_checked(self.carried) {
            Some((c, rest)) => (c.to_vec(), rest),
            None => return Err(OpError::new("carried values are missing")),
        };
        let body = cx.regions.first().ok_or_else(|| OpError::new("the body is missing"))?;
        let mut stacks = vec![Stack::default(); self.scans];
        let mut iteration = 0i64;
        let scalars = |i: i64, c: bool| -> Result<Vec<Value>, OpError> {
            Ok(vec![Tensor::scalar(i).into(), Tensor::from_bools(&[], &[c])?.into()])
        };
        while cond && trips.is_none_or(|t| i128::from(iteration) < t) {
            let inputs = [scalars(iteration, cond)?, carried.clone(), captures.to_vec()].concat();
            let mut outputs = cx.region(0, &inputs)?.into_iter();
            let next = outputs.next();
            let next = next.as_ref().and_then(Value::as_tensor).map(|t| t.elements());
            cond = next.as_ref().and_then(|e| e.ints()).is_some_and(|v| v.first().is_some_and(|&c| c != 0));
            carried = outputs.by_ref().take(self.carried).collect();
            for (stack, v) in stacks.iter_mut().zip(outputs) {
                stack.push(cx, v)?;
            }
            iteration = iteration.checked_add(1).ok_or_else(|| OpError::new("more than i64::MAX iterations"))?;
        }
        let inputs = [scalars(0, cond)?, carried.clone(), captures.to_vec()].concat();
        let mut results = carried;
        for (stack, o) in stacks.into_iter().zip(body.outputs().iter().skip(1 + self.carried)) {
            results.push(stack.finish(0, || region_sizes(cx, body, o.value, &inputs))?);
        }
        Ok(results)
    }
}

/// What a loop's body works on: values of its own graph.
pub struct LoopArgs<'a> {
    /// Iteration number, an `i64` scalar.
    pub iteration: ValueId,
    /// The condition, true inside.
    pub cond: ValueId,
    /// Carried values.
    pub carried: &'a [ValueId],
    /// Captures.
    pub captures: &'a [ValueId],
}

/// What a loop's body gives.
pub struct LoopStep {
    /// Whether there is a next iteration.
    pub cond: ValueId,
    /// Carried values for it.
    pub carried: Vec<ValueId>,
    /// One slice of each scan output.
    pub scans: Vec<ValueId>,
}

impl Builder {
    /// A loop whose body is there already. The symbols for sizes known only after the run are made here.
    pub fn loop_regions(
        &mut self,
        trip_count: Option<ValueId>,
        cond: Option<ValueId>,
        inits: &[ValueId],
        captures: &[ValueId],
        body: Graph,
    ) -> Result<Vec<ValueId>, IrError> {
        let operands: Vec<ValueId> = trip_count.iter().chain(&cond).chain(inits).chain(captures).copied().collect();
        let mut op = Loop {
            carried: inits.len(),
            scans: body.outputs().len().saturating_sub(1 + inits.len()),
            has_trip_count: trip_count.is_some(),
            has_cond: cond.is_some(),
            defines: Vec::new(),
        };
        let regions = vec![body];
        let seen = self.probe(&op.clone().into(), &operands, &regions, |cx| op.results(cx))?;
        op.defines = self.fresh_symbols("loop", seen.iter().map(Seen::unknowns).sum());
        self.op_with_regions(op, &operands, regions)
    }

    /// A loop whose body the closure builds. It is called again, with symbols in place of sizes, while the sizes of what it gives
    /// differ from those of what it takes.
    pub fn loop_(
        &mut self,
        trip_count: Option<ValueId>,
        cond: Option<ValueId>,
        inits: &[ValueId],
        captures: &[ValueId],
        mut body: impl FnMut(&mut Builder, LoopArgs<'_>) -> Result<LoopStep, IrError>,
    ) -> Result<Vec<ValueId>, IrError> {
        let scalar = |d: DType| Type::tensor(d, Shape::scalar());
        let mut types = vec![scalar(DType::I64), scalar(DType::Bool)];
        for &v in inits {
            types.push(self.ty(v)?.clone());
        }
        loop {
            let (mut b, args) = self.region_builder("body", &types, captures)?;
            let (carried, captured) = args.get(2..).unwrap_or(&[]).split_at(inits.len());
            let step = body(&mut b, LoopArgs { iteration: args[0], cond: args[1], carried, captures: captured })?;
            if step.carried.len() != inits.len() {
                return Err(IrError::Eval(format!(
                    "the loop carries {} values, its body gives {}",
                    inits.len(),
                    step.carried.len()
                )));
            }
            let mut changed = false;
            for (i, (ty, &out)) in types.iter_mut().skip(2).zip(&step.carried).enumerate() {
                changed |= generalise(ty, b.ty(out)?, i);
            }
            if !changed {
                let outputs: Vec<ValueId> = [step.cond].into_iter().chain(step.carried).chain(step.scans).collect();
                return self.loop_regions(trip_count, cond, inits, captures, finish_region(b, &outputs)?);
            }
        }
    }
}

/// Puts a symbol of the body in place of each size that the body changes; true if there was one that is none yet.
fn generalise(before: &mut Type, after: &Type, value: usize) -> bool {
    match (before, after) {
        (Type::Tensor(x), Type::Tensor(y)) if x.shape.rank() == y.shape.rank() => {
            let mut changed = false;
            let dims = x.shape.iter().zip(y.shape.iter()).enumerate().map(|(axis, (d, e))| {
                let own = Dim::symbol(format!("carried{value}_{axis}"));
                if d == e || *d == own {
                    return d.clone();
                }
                changed = true;
                own
            });
            x.shape = dims.collect();
            changed
        }
        (Type::Sequence(x), Type::Sequence(y)) | (Type::Optional(x), Type::Optional(y)) => generalise(x, y, value),
        _ => false,
    }
}
