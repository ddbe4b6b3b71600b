//! Scans: loops over the slices of their operands.

use super::branch::finish_region;
use super::region::{Entry, Seen, require_same};
use super::stack::{Stack, region_sizes, slice};
use crate::builder::Builder;
use crate::dim::Dim;
use crate::error::{IrError, OpError};
use crate::graph::{Graph, ValueId};
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::Value;
use crate::types::{Shape, TensorType, Type};

op! {
    /// Runs its region once for each slice of the scan inputs. Operands: initial values of what is carried, scan inputs, captures. The region takes carried values, one slice of each scan input and captures, and gives carried values and one slice of each scan output. Results: final carried values, then the scan outputs stacked along a new axis.
    pub struct Scan = "scan" {
        /// Number of carried values.
        pub carried: usize,
        /// Number of scan inputs.
        pub num_scan_inputs: usize,
        /// The axis of each scan input that is cut into slices.
        pub input_axes: Vec<usize>,
        /// Whether each is read from its end.
        pub input_reverse: Vec<bool>,
        /// Where each scan output gets its new axis.
        pub output_axes: Vec<usize>,
        /// Whether each is filled from its end.
        pub output_reverse: Vec<bool>,
    }
}

impl Scan {
    fn check(&self, cx: &InferCx<'_>) -> Result<(), OpError> {
        if self.num_scan_inputs == 0 {
            return Err(OpError::new("needs a scan input, whose length is the number of iterations").hint("use `loop`"));
        }
        if self.input_axes.len() != self.num_scan_inputs || self.input_reverse.len() != self.num_scan_inputs {
            return Err(OpError::new("input_axes and input_reverse need one entry for each scan input"));
        }
        if self.output_axes.len() != self.output_reverse.len() {
            return Err(OpError::new("output_axes and output_reverse need one entry for each scan output"));
        }
        let need = self.carried.saturating_add(self.num_scan_inputs);
        if cx.operands().len() < need {
            return Err(OpError::new(format!("needs {need} operands and captures, got {}", cx.operands().len())));
        }
        Ok(())
    }
}

impl OpRules for Scan {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        self.check(cx)?;
        let [body] = cx.regions() else {
            return Err(OpError::new(format!("takes one region, got {}", cx.regions().len())));
        };
        let mut args: Vec<Type> = cx.operands().iter().map(|o| o.ty.clone()).collect();
        let mut length: Option<Dim> = None;
        for (i, &axis) in self.input_axes.iter().enumerate() {
            let t = cx.tensor(self.carried + i)?;
            let mut dims = t.shape.to_vec();
            if axis >= dims.len() {
                return Err(OpError::new(format!("axis {axis} of scan input {i} is out of range for {t}")));
            }
            let n = dims.remove(axis);
            match &length {
                None => length = Some(n),
                Some(l) => cx.require_eq(l, &n, "lengths of scan inputs")?,
            }
            args[self.carried + i] = Type::tensor(t.dtype, dims);
        }
        let length = length.unwrap_or(Dim::ZERO);
        let entry = Entry::new(cx, "body", body, &args)?;
        if body.outputs().len() != self.carried + self.output_axes.len() {
            return Err(OpError::new(format!(
                "the body must give {} carried values and {} scan outputs; it gives {} values",
                self.carried,
                self.output_axes.len(),
                body.outputs().len()
            )));
        }
        let unknown = |i: usize, ty: &Type| {
            OpError::new(format!("output {i} of the body is {ty}, of which a size is known only inside"))
                .hint("sizes of a scan's results must follow from those of its operands")
        };
        for (i, o) in body.outputs().iter().enumerate() {
            let ty = body.ty(o.value);
            let seen = entry.outside(ty);
            if seen.unknowns() > 0 {
                return Err(unknown(i, ty));
            }
            let outside = seen.clone().name(&mut || Err(unknown(i, ty)))?;
            let Some(k) = i.checked_sub(self.carried) else {
                require_same(cx, &outside, &args[i], &format!("carried value {i} after an iteration"))?;
                cx.result_type(args[i].clone());
                continue;
            };
            let Seen::Tensor(dtype, _) = seen else {
                return Err(OpError::new(format!("a scan output must be a tensor, got {ty}")));
            };
            let mut dims = outside.as_tensor().map(|t| t.shape.to_vec()).unwrap_or_default();
            let axis = self.output_axes[k];
            if axis > dims.len() {
                return Err(OpError::new(format!("output axis {axis} is out of range for slices {ty}")));
            }
            dims.insert(axis, length.clone());
            cx.result(dtype, Shape::from(dims));
        }
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], _results: &[TensorType]) -> Dim {
        Dim::ZERO
    }

    fn nested_work(&self, operands: &[TensorType], _results: &[TensorType], regions: &[Dim]) -> Dim {
        let scanned = operands.get(self.carried).zip(self.input_axes.first());
        let runs = scanned.and_then(|(t, &axis)| t.shape.get(axis).cloned()).unwrap_or(Dim::ONE);
        Dim::sum(regions.iter().cloned()) * runs
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let short = || OpError::new("operands are missing");
        let (inits, rest) = args.split_at_checked(self.carried).ok_or_else(short)?;
        let (scanned, captures) = rest.split_at_checked(self.num_scan_inputs).ok_or_else(short)?;
        let body = cx.regions.first().ok_or_else(|| OpError::new("the body is missing"))?;
        let mut length = None;
        for (i, &axis) in self.input_axes.iter().enumerate() {
            let n = arg(scanned, i)?.dims().get(axis).copied().unwrap_or(0);
            if *length.get_or_insert(n) != n {
                return Err(OpError::new("scan inputs have different lengths"));
            }
        }
        let length = length.unwrap_or(0);
        let slices = |at: usize| -> Result<Vec<Value>, OpError> {
            let pick = |(i, (&axis, &reverse)): (usize, (&usize, &bool))| {
                slice(arg(scanned, i)?, axis, if reverse { length - 1 - at } else { at })
            };
            self.input_axes.iter().zip(&self.input_reverse).enumerate().map(pick).collect()
        };
        let mut carried = inits.to_vec();
        let mut stacks = vec![Stack::default(); self.output_axes.len()];
        for at in 0..length {
            let inputs = [carried, slices(at)?, captures.to_vec()].concat();
            let mut outputs = cx.region(0, &inputs)?.into_iter();
            carried = outputs.by_ref().take(self.carried).collect();
            for (stack, v) in stacks.iter_mut().zip(outputs) {
                stack.push(cx, v)?;
            }
        }
        let inputs = carried.clone();
        let mut results = carried;
        for (k, (mut stack, o)) in stacks.into_iter().zip(body.outputs().iter().skip(self.carried)).enumerate() {
            if self.output_reverse.get(k) == Some(&true) {
                stack.reverse();
            }
            let axis = self.output_axes.get(k).copied().unwrap_or(0);
            results.push(stack.finish(axis, || {
                // Slices of empty inputs do not exist; their sizes are those of the inputs without the axis.
                let mut all = inputs.clone();
                for (i, &axis) in self.input_axes.iter().enumerate() {
                    let t = arg(scanned, i)?;
                    let mut dims = t.dims().to_vec();
                    dims.remove(axis.min(dims.len().saturating_sub(1)));
                    all.push(crate::Tensor::zeros(t.dtype(), &dims)?.into());
                }
                all.extend_from_slice(captures);
                region_sizes(cx, body, o.value, &all)
            })?);
        }
        Ok(results)
    }
}

impl Builder {
    /// A scan whose body is there already.
    pub fn scan_regions(
        &mut self,
        op: Scan,
        inits: &[ValueId],
        scanned: &[ValueId],
        captures: &[ValueId],
        body: Graph,
    ) -> Result<Vec<ValueId>, IrError> {
        let operands: Vec<ValueId> = [inits, scanned, captures].concat();
        self.op_with_regions(op, &operands, vec![body])
    }

    /// A scan along the first axis of each scan input, whose body the closure builds: it gets carried values, slices and captures, and
    /// gives the carried values for the next slice and one slice of each scan output.
    pub fn scan_(
        &mut self,
        inits: &[ValueId],
        scanned: &[ValueId],
        captures: &[ValueId],
        body: impl FnOnce(&mut Builder, &[ValueId], &[ValueId], &[ValueId]) -> Result<(Vec<ValueId>, Vec<ValueId>), IrError>,
    ) -> Result<Vec<ValueId>, IrError> {
        let mut types = Vec::new();
        for &v in inits {
            types.push(self.ty(v)?.clone());
        }
        for &v in scanned {
            let t = self.tensor_type(v)?;
            types.push(Type::tensor(t.dtype, t.shape.iter().skip(1).cloned().collect::<Shape>()));
        }
        let (mut b, args) = self.region_builder("body", &types, captures)?;
        let (carried, rest) = args.split_at(inits.len());
        let (slices, captured) = rest.split_at(scanned.len());
        let (carried, outputs) = body(&mut b, carried, slices, captured)?;
        let op = Scan {
            carried: inits.len(),
            num_scan_inputs: scanned.len(),
            input_axes: vec![0; scanned.len()],
            input_reverse: vec![false; scanned.len()],
            output_axes: vec![0; outputs.len()],
            output_reverse: vec![false; outputs.len()],
        };
        let body = finish_region(b, &[carried, outputs].concat())?;
        self.scan_regions(op, inits, scanned, captures, body)
    }
}
