//! Products, reductions, indexing, layers.

use rlx_ir::attr::AttrValue as _;
use rlx_ir::attr::FloatBits;
use rlx_ir::ops::contraction::DotGeneral;
use rlx_ir::ops::indexing::Combiner;
use rlx_ir::ops::neural::{Resize, RnnDirection};
use rlx_ir::ops::reduction::{ArgKind, CumKind, Reduce, ReduceKind, ReduceWindow, WindowKind};
use rlx_ir::ops::{Contraction, Indexing, Neural, Op, Reduction, Signal};
use rlx_ir::{DType, Dim, TensorType};

use super::{Failure, Writer, flag, float, int, ints, string};
use crate::proto::AttributeProto;

type Written = Result<Option<Vec<String>>, Failure>;

/// The operator set that `CumProd` came with.
const CUMPROD_OPSET: i64 = 26;

fn fixed(dims: &[Dim]) -> Result<Vec<i64>, Failure> {
    dims.iter().map(|d| d.as_const().ok_or_else(|| format!("padding {d} is not fixed"))).collect()
}

fn combiner(c: Combiner) -> &'static str {
    match c {
        Combiner::Set => "none",
        Combiner::Add => "add",
        Combiner::Mul => "mul",
        Combiner::Min => "min",
        Combiner::Max => "max",
    }
}

impl Writer {
    /// `None` for what is written as its decomposition.
    pub(super) fn compute(&mut self, op: &Op, x: &[&str], from: &[TensorType], to: &[TensorType]) -> Written {
        let one = |name: String| Ok(Some(vec![name]));
        match op {
            Op::Contraction(Contraction::DotGeneral(op)) => self.dot(op, x, from).map(|n| Some(vec![n])),
            Op::Contraction(Contraction::Conv(op)) => {
                if op.lhs_dilation.iter().any(|&d| d != 1) {
                    return Err("its input is dilated".into());
                }
                let pads = [fixed(&op.pad_low)?, fixed(&op.pad_high)?].concat();
                if pads.iter().any(|&p| p < 0) {
                    return Err("its padding crops".into());
                }
                let attributes = vec![
                    ints("strides", &op.strides),
                    ints("dilations", &op.dilations),
                    ints("pads", &pads),
                    int("group", op.groups),
                ];
                one(self.emit("Conv", x, attributes))
            }
            Op::Contraction(Contraction::ConvTranspose(op)) => {
                let pads = [fixed(&op.pad_low)?, fixed(&op.pad_high)?].concat();
                if pads.iter().any(|&p| p < 0) {
                    return Err("its padding is negative".into());
                }
                let attributes = vec![
                    ints("strides", &op.strides),
                    ints("dilations", &op.dilations),
                    ints("pads", &pads),
                    ints("output_padding", &op.output_pad),
                    int("group", op.groups),
                ];
                one(self.emit("ConvTranspose", x, attributes))
            }
            Op::Reduction(op) => self.reduction(op, x, from),
            Op::Indexing(op) => self.indexing(op, x, to),
            Op::Neural(op) => self.neural(op, x, from, to),
            Op::Signal(Signal::Fft(op)) => {
                let length = self.dim(&op.length)?;
                let (scalar, axis) = (self.list(&[])?, self.scalar(DType::I64, op.axis as f64)?);
                let length = self.emit("Reshape", &[&length, &scalar], vec![]);
                let attributes = vec![flag("inverse", op.inverse), flag("onesided", op.onesided)];
                one(self.emit("DFT", &[x[0], &length, &axis], attributes))
            }
            _ => Ok(None),
        }
    }

    fn dot(&mut self, op: &DotGeneral, x: &[&str], from: &[TensorType]) -> Result<String, Failure> {
        let (&[a, b], [ta, tb]) = (x, from) else { return Err("takes two operands".into()) };
        let (mut a, mut b) = (a.to_owned(), b.to_owned());
        if let Some(wide) = op.accumulate {
            (a, b) = (self.cast(&a, wide)?, self.cast(&b, wide)?);
        }
        let (ra, rb, n) = (ta.shape.rank(), tb.shape.rank(), op.lhs_batch.len());
        let leading = |v: &[usize]| v.iter().copied().eq(0..v.len());
        let plain = leading(&op.lhs_batch)
            && leading(&op.rhs_batch)
            && op.lhs_contract == [ra.wrapping_sub(1)]
            && op.rhs_contract == [n]
            && ra == n + 2
            && rb == n + 2;
        if plain {
            return Ok(self.emit("MatMul", &[&a, &b], vec![]));
        }
        // Letters: batch, sums, then what is left on either side.
        let mut next = b'a';
        let mut letter = || {
            let l = char::from(next);
            next = next.saturating_add(1);
            l
        };
        let (mut left, mut right) = (vec![' '; ra], vec![' '; rb]);
        let mut out = String::new();
        for (&i, &j) in op.lhs_batch.iter().zip(&op.rhs_batch) {
            let l = letter();
            (left[i], right[j]) = (l, l);
            out.push(l);
        }
        for (&i, &j) in op.lhs_contract.iter().zip(&op.rhs_contract) {
            let l = letter();
            (left[i], right[j]) = (l, l);
        }
        for side in [&mut left, &mut right] {
            for l in side.iter_mut().filter(|l| **l == ' ') {
                *l = letter();
                out.push(*l);
            }
        }
        if next > b'z' {
            return Err("it has too many axes".into());
        }
        let text = |v: &[char]| v.iter().collect::<String>();
        let equation = format!("{},{}->{out}", text(&left), text(&right));
        Ok(self.emit("Einsum", &[&a, &b], vec![string("equation", &equation)]))
    }

    fn reduction(&mut self, op: &Reduction, x: &[&str], from: &[TensorType]) -> Written {
        let rank = from.first().map_or(0, |t| t.shape.rank());
        let result = match op {
            Reduction::Reduce(op) => self.reduce(op, x)?,
            Reduction::ArgReduce(op) => {
                let name = if op.kind == ArgKind::Max { "ArgMax" } else { "ArgMin" };
                let attributes = vec![
                    int("axis", op.axis as i64),
                    flag("keepdims", op.keep_dims),
                    flag("select_last_index", op.select_last),
                ];
                let at = self.emit(name, x, attributes);
                if op.dtype == DType::I64 { at } else { self.cast(&at, op.dtype)? }
            }
            Reduction::Cumulative(op) if matches!(op.kind, CumKind::Sum | CumKind::Prod) => {
                let axis = self.scalar(DType::I64, op.axis as f64)?;
                let attributes = vec![flag("exclusive", op.exclusive), flag("reverse", op.reverse)];
                let name = if op.kind == CumKind::Sum { "CumSum" } else { "CumProd" };
                if op.kind == CumKind::Prod {
                    self.opset = self.opset.max(CUMPROD_OPSET);
                }
                self.emit(name, &[x[0], &axis], attributes)
            }
            Reduction::ReduceWindow(op) if op.window.len() + 2 == rank => self.pool(op, x, from)?,
            _ => return Ok(None),
        };
        Ok(Some(vec![result]))
    }

    fn reduce(&mut self, op: &Reduce, x: &[&str]) -> Result<String, Failure> {
        if op.axes.is_empty() {
            return Ok(x[0].to_owned());
        }
        let axes: Vec<i64> = op.axes.iter().map(|&a| a as i64).collect();
        let axes = self.list(&axes)?;
        let (name, bools) = match op.kind {
            ReduceKind::Sum => ("ReduceSum", false),
            ReduceKind::Prod => ("ReduceProd", false),
            ReduceKind::Max => ("ReduceMax", false),
            ReduceKind::Min => ("ReduceMin", false),
            ReduceKind::Any => ("ReduceMax", true),
            ReduceKind::All => ("ReduceMin", true),
        };
        // Of bytes: the largest of none is 0, the smallest 255.
        let v = if bools { self.cast(x[0], DType::U8)? } else { x[0].to_owned() };
        let y = self.emit(name, &[&v, &axes], vec![flag("keepdims", op.keep_dims)]);
        if bools { self.cast(&y, DType::Bool) } else { Ok(y) }
    }

    fn pool(&mut self, op: &ReduceWindow, x: &[&str], from: &[TensorType]) -> Result<String, Failure> {
        let pads = [fixed(&op.pad_low)?, fixed(&op.pad_high)?].concat();
        let mut attributes = vec![
            ints("kernel_shape", &op.window),
            ints("strides", &op.strides),
            ints("dilations", &op.dilations),
            ints("pads", &pads),
            flag("ceil_mode", op.ceil),
        ];
        match op.kind {
            WindowKind::Max => Ok(self.emit("MaxPool", x, attributes)),
            WindowKind::Mean => {
                attributes.push(flag("count_include_pad", op.count_include_pad));
                Ok(self.emit("AveragePool", x, attributes))
            }
            WindowKind::Sum => {
                let dtype = from.first().map_or(DType::F32, |t| t.dtype);
                if op.ceil || !dtype.is_float() {
                    return Err("there is no pooling by sums of integers or with `ceil`".into());
                }
                // The mean over all taps, padding being zeros, times their number.
                attributes.push(flag("count_include_pad", true));
                let mean = self.emit("AveragePool", x, attributes);
                let taps = self.scalar(dtype, op.window.iter().map(|&w| w as f64).product())?;
                Ok(self.emit("Mul", &[&mean, &taps], vec![]))
            }
        }
    }

    fn indexing(&mut self, op: &Indexing, x: &[&str], to: &[TensorType]) -> Written {
        let axis = |a: usize| int("axis", a as i64);
        let results = match op {
            Indexing::Gather(op) => vec![self.emit("Gather", x, vec![axis(op.axis)])],
            Indexing::GatherElements(op) => vec![self.emit("GatherElements", x, vec![axis(op.axis)])],
            Indexing::GatherNd(op) => vec![self.emit("GatherND", x, vec![int("batch_dims", op.batch_dims as i64)])],
            Indexing::ScatterElements(op) => {
                let attributes = vec![axis(op.axis), string("reduction", combiner(op.combiner))];
                vec![self.emit("ScatterElements", x, attributes)]
            }
            Indexing::ScatterNd(op) => {
                vec![self.emit("ScatterND", x, vec![string("reduction", combiner(op.combiner))])]
            }
            Indexing::Sort(op) => {
                let n = to.first().and_then(|t| t.shape.get(op.axis)).cloned().ok_or("has no axis")?;
                let n = self.dim(&n)?;
                self.emit_n("TopK", &[x[0], &n], 2, vec![axis(op.axis), flag("largest", op.descending)])
            }
            Indexing::TopK(op) => {
                let k = self.dim(&op.k)?;
                self.emit_n("TopK", &[x[0], &k], 2, vec![axis(op.axis), flag("largest", op.largest)])
            }
            Indexing::NonZero(_) => vec![self.emit("NonZero", x, vec![])],
            Indexing::DynamicSlice(_) | Indexing::DynamicUpdateSlice(_) => return Ok(None),
        };
        Ok(Some(results))
    }

    fn neural(&mut self, op: &Neural, x: &[&str], from: &[TensorType], to: &[TensorType]) -> Written {
        let results = match op {
            Neural::Softmax(op) => {
                let name = if op.log { "LogSoftmax" } else { "Softmax" };
                vec![self.emit(name, x, vec![int("axis", op.axis as i64)])]
            }
            Neural::LayerNorm(op) if op.has_scale => {
                let axis = op.axes.first().copied().ok_or("has no axes")?;
                let attributes = vec![int("axis", axis as i64), float("epsilon", op.eps.get())];
                vec![self.emit("LayerNormalization", x, attributes)]
            }
            Neural::BatchNorm(op) => vec![self.emit("BatchNormalization", x, vec![float("epsilon", op.eps.get())])],
            Neural::Resize(op) => vec![self.resize(op, x, from, to)?],
            Neural::Lstm(op) if op.activations.is_empty() => {
                let more = if op.input_forget { vec![flag("input_forget", true)] } else { vec![] };
                let given = [op.has_bias, op.has_lengths, op.has_init_h, op.has_init_c, op.has_peephole];
                self.recurrent("LSTM", x, (op.direction, op.hidden, op.clip), &given, 3, more)?
            }
            Neural::Gru(op) if op.activations.is_empty() => {
                let more = vec![flag("linear_before_reset", op.linear_before_reset)];
                let given = [op.has_bias, op.has_lengths, op.has_init_h];
                self.recurrent("GRU", x, (op.direction, op.hidden, op.clip), &given, 2, more)?
            }
            Neural::Rnn(op) if op.activations.is_empty() => {
                let given = [op.has_bias, op.has_lengths, op.has_init_h];
                self.recurrent("RNN", x, (op.direction, op.hidden, op.clip), &given, 2, vec![])?
            }
            _ => return Ok(None),
        };
        Ok(Some(results))
    }

    fn resize(&mut self, op: &Resize, x: &[&str], from: &[TensorType], to: &[TensorType]) -> Result<String, Failure> {
        let attributes = vec![
            string("mode", &op.mode.print()),
            string("coordinate_transformation_mode", &op.coords.print()),
            string("nearest_mode", &op.nearest.print()),
            float("cubic_coeff_a", op.cubic_a.get()),
            flag("exclude_outside", op.exclude_outside),
            flag("antialias", op.antialias),
            float("extrapolation_value", op.extrapolation.get()),
        ];
        let (Some(f), Some(t)) = (from.first(), to.first()) else { return Err("has no operand".into()) };
        let roi: Vec<f32> = op.roi_start.iter().chain(&op.roi_end).map(|v| v.get() as f32).collect();
        let roi = if roi.is_empty() { String::new() } else { self.float_list(&roi)? };
        if op.scales.iter().all(Option::is_none) {
            let sizes = self.sizes(&t.shape)?;
            return Ok(self.emit("Resize", &[x[0], &roi, "", &sizes], attributes));
        }
        for ((n, m), s) in f.shape.iter().zip(t.shape.iter()).zip(&op.scales) {
            if let (Some(n), Some(m), Some(s)) = (n.as_const(), m.as_const(), s)
                && (n as f32 * s.get() as f32).floor() != m as f32
            {
                return Err(format!("its size {m} does not follow from {n} and the scale {}", s.get()));
            }
        }
        let scale = |(i, s): (usize, &Option<rlx_ir::attr::FloatBits>)| match s {
            Some(s) => Ok(s.get() as f32),
            None if f.shape.get(i) == t.shape.get(i) => Ok(1.0),
            None => Err("some of its axes have scales and some have sizes".to_owned()),
        };
        let scales = op.scales.iter().enumerate().map(scale).collect::<Result<Vec<f32>, _>>()?;
        let scales = self.float_list(&scales)?;
        Ok(self.emit("Resize", &[x[0], &roi, &scales], attributes))
    }

    /// A recurrent layer of which some of the operands after the third are there.
    fn recurrent(
        &mut self,
        name: &str,
        x: &[&str],
        (direction, hidden, clip): (RnnDirection, i64, Option<FloatBits>),
        there: &[bool],
        results: usize,
        mut attributes: Vec<AttributeProto>,
    ) -> Result<Vec<String>, Failure> {
        let direction = match direction {
            RnnDirection::Forward => "forward",
            RnnDirection::Reverse => "reverse",
            RnnDirection::Bidirectional => "bidirectional",
        };
        attributes.extend([string("direction", direction), int("hidden_size", hidden)]);
        if let Some(c) = clip {
            attributes.push(float("clip", c.get()));
        }
        let (always, mut given) = (x.get(..3).ok_or("takes three operands or more")?, x.iter().skip(3));
        let mut inputs = always.to_vec();
        for &there in there {
            inputs.push(if there { given.next().copied().unwrap_or_default() } else { "" });
        }
        while inputs.last().is_some_and(|n| n.is_empty()) {
            inputs.pop();
        }
        Ok(self.emit_n(name, &inputs, results, attributes))
    }
}
