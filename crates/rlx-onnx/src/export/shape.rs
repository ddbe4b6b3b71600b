//! Views, constants and rearrangements.

use rlx_ir::attr::AttrValue as _;
use rlx_ir::ops::ShapeOp;
use rlx_ir::ops::shape::Slice;
use rlx_ir::{DType, Dim, Tensor, TensorType};

use super::{Failure, Place, Writer, code, flag, int, ints, string};

/// The operator set that `BitCast` came with.
const BITCAST_OPSET: i64 = 26;

impl Writer {
    pub(super) fn shape_op(
        &mut self,
        op: &ShapeOp,
        x: &[&str],
        from: &[TensorType],
        to: &[TensorType],
    ) -> Result<String, Failure> {
        let to = to.first().ok_or("has no result")?;
        let first = || from.first().ok_or("has no operand".to_owned());
        match op {
            ShapeOp::Constant(c) => self.constant(&c.value),
            ShapeOp::FromDims(op) => {
                let mut v = self.sizes(&op.elems)?;
                if op.shape.len() != 1 {
                    let shape: Vec<i64> = op.shape.iter().map(|&n| n as i64).collect();
                    let shape = self.list(&shape)?;
                    v = self.emit("Reshape", &[&v, &shape], vec![flag("allowzero", true)]);
                }
                if op.dtype == DType::I64 { Ok(v) } else { self.cast(&v, op.dtype) }
            }
            ShapeOp::Reshape(_) => {
                let shape = self.sizes(&to.shape)?;
                Ok(self.emit("Reshape", &[x[0], &shape], vec![flag("allowzero", true)]))
            }
            ShapeOp::Transpose(op) => {
                let perm: Vec<i64> = op.perm.iter().map(|&p| p as i64).collect();
                Ok(self.emit("Transpose", x, vec![ints("perm", &perm)]))
            }
            ShapeOp::BroadcastTo(_) => {
                let shape = self.sizes(&to.shape)?;
                Ok(self.emit("Expand", &[x[0], &shape], vec![]))
            }
            ShapeOp::Slice(op) => self.slice(op, x[0], &first()?.shape),
            ShapeOp::Concat(op) => Ok(self.emit("Concat", x, vec![int("axis", op.axis as i64)])),
            ShapeOp::Pad(op) => {
                let pads: Vec<Dim> = op.low.iter().chain(&op.high).cloned().collect();
                let pads = self.sizes(&pads)?;
                let mode = op.mode.print();
                let mut inputs = vec![x[0], &pads];
                inputs.extend(x.get(1));
                Ok(self.emit("Pad", &inputs, vec![string("mode", &mode)]))
            }
            ShapeOp::Reverse(op) => {
                let n = op.axes.len();
                let axes: Vec<i64> = op.axes.iter().map(|&a| a as i64).collect();
                let (starts, ends) = (self.list(&vec![-1; n])?, self.list(&vec![i64::MIN; n])?);
                let (axes, steps) = (self.list(&axes)?, self.list(&vec![-1; n])?);
                Ok(self.emit("Slice", &[x[0], &starts, &ends, &axes, &steps], vec![]))
            }
            ShapeOp::Iota(op) => {
                let n = op.dims.get(op.axis).ok_or("has no axis")?;
                let n = self.dim(n)?;
                let none = self.list(&[])?;
                let n = self.emit("Reshape", &[&n, &none], vec![]);
                let (zero, one) = (self.scalar(DType::I64, 0.0)?, self.scalar(DType::I64, 1.0)?);
                let mut v = self.emit("Range", &[&zero, &n, &one], vec![]);
                if op.dtype != DType::I64 {
                    v = self.cast(&v, op.dtype)?;
                }
                let mut line = vec![1; op.dims.len()];
                line[op.axis] = -1;
                let (line, whole) = (self.list(&line)?, self.sizes(&op.dims)?);
                let v = self.emit("Reshape", &[&v, &line], vec![]);
                Ok(self.emit("Expand", &[&v, &whole], vec![]))
            }
            ShapeOp::ShapeOf(_) => Ok(self.emit("Shape", x, vec![])),
            ShapeOp::ReadDims(op) => {
                for (i, s) in op.symbols.iter().enumerate() {
                    self.symbols.entry(s.clone()).or_insert_with(|| Place::Element(x[0].to_owned(), i));
                }
                Ok(x[0].to_owned())
            }
            ShapeOp::BitcastConvert(op) => {
                if first()?.dtype.bits() != op.to.bits() {
                    return Err("ONNX reads bits as another dtype of the same width only".into());
                }
                self.opset = self.opset.max(BITCAST_OPSET);
                Ok(self.emit("BitCast", x, vec![int("to", i64::from(code(op.to)?))]))
            }
        }
    }

    fn slice(&mut self, op: &Slice, x: &str, shape: &[Dim]) -> Result<String, Failure> {
        let (mut starts, mut ends, mut axes, mut steps) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut before = false;
        for (axis, n) in shape.iter().enumerate() {
            let (Some(s), Some(l), Some(&step)) = (op.starts.get(axis), op.limits.get(axis), op.strides.get(axis))
            else {
                return Err("its bounds do not fit its axes".into());
            };
            if s.as_const() == Some(0) && l == n && step == 1 {
                continue;
            }
            let end = match (step < 0, l.as_const()) {
                (false, _) => l.clone(),
                // Before the first element, where −1 would be the last.
                (true, Some(e)) if e < 0 => Dim::from(i64::MIN),
                (true, Some(e)) => Dim::from(e),
                (true, None) => {
                    before = true;
                    l.clone()
                }
            };
            starts.push(s.clone());
            ends.push(end);
            axes.push(axis as i64);
            steps.push(step);
        }
        if axes.is_empty() {
            return Ok(x.to_owned());
        }
        let (starts, mut ends) = (self.sizes(&starts)?, self.sizes(&ends)?);
        if before {
            // An end before the first element is only known when it is computed.
            let (zero, lowest) = (self.list(&[0])?, self.list(&[i64::MIN])?);
            let outside = self.emit("Less", &[&ends, &zero], vec![]);
            ends = self.emit("Where", &[&outside, &lowest, &ends], vec![]);
        }
        let (axes, steps) = (self.list(&axes)?, self.list(&steps)?);
        Ok(self.emit("Slice", &[x, &starts, &ends, &axes, &steps], vec![]))
    }

    /// A tensor of one value where an op needs an operand that the graph leaves out.
    pub(super) fn float_list(&mut self, v: &[f32]) -> Result<String, Failure> {
        self.constant(&Tensor::from_slice(&[v.len()], v).map_err(|e| e.to_string())?)
    }
}
