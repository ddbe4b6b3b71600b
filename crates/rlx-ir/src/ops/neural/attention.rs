//! Scaled dot-product attention.

use super::rows;
use crate::attr::FloatBits;
use crate::builder::Builder;
use crate::dim::{Constraint, Dim};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::eval::broadcast_index;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::tensor::{Tensor, Value};
use crate::types::TensorType;

mod decompose;

crate::attr_enum! {
    /// Order of the axes of queries, keys, values and result.
    pub enum AttnLayout {
        /// Batch, heads, sequence, features.
        Bhsd = "bhsd",
        /// Batch, sequence, heads, features.
        Bshd = "bshd",
    }
}

impl AttnLayout {
    /// Position of the axis of heads.
    pub const fn heads(self) -> usize {
        match self {
            AttnLayout::Bhsd => 1,
            AttnLayout::Bshd => 2,
        }
    }

    /// Position of the axis of sequence positions.
    pub const fn sequence(self) -> usize {
        3 - self.heads()
    }
}

crate::attr_enum! {
    /// What the mask operand means.
    pub enum MaskKind {
        /// There is none.
        None = "none",
        /// Booleans: true where the query sees the key.
        Bool = "bool",
        /// Floats added to the scores; −∞ hides a key.
        Additive = "additive",
    }
}

op! {
    /// `softmax(cap(q·kᵀ·scale) + mask)·v` per head, where query i of s stands at position `p = i + t − s` of the t keys. A query that sees no key gives zeros.
    pub struct Attention = "attention" {
        /// Order of axes of q, k, v and the result.
        pub layout: AttnLayout,
        /// Factor of the scores.
        pub scale: FloatBits,
        /// Whether a query sees only keys up to its own position.
        pub causal: bool,
        /// Whether a query sees only keys nearer than this to its position (itself at distance 0).
        pub window: Option<i64>,
        /// Scores become `cap · tanh(score / cap)`, before the mask.
        pub softcap: Option<FloatBits>,
        /// Kind of the fourth operand, which broadcasts to `[b, h, s, t]`.
        pub mask: MaskKind,
    }
}

impl Attention {
    /// Plain attention with a scale: no mask of any kind.
    pub fn new(layout: AttnLayout, scale: f64) -> Self {
        Attention { layout, scale: scale.into(), causal: false, window: None, softcap: None, mask: MaskKind::None }
    }

    /// Whether a query may be unable to see some key.
    fn can_hide(&self) -> bool {
        self.mask != MaskKind::None || self.causal || self.window.is_some()
    }

    /// Whether causality and window let the query at position `p` see key `j`.
    pub fn in_reach(&self, p: i64, j: i64) -> bool {
        (!self.causal || j <= p) && self.window.is_none_or(|w| (p - j).abs() < w)
    }
}

impl OpRules for Attention {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(3 + usize::from(self.mask != MaskKind::None))?;
        let dtype = rows::float_dtype(cx, 0..3)?;
        let (q, k, v) = (cx.shape(0)?, cx.shape(1)?, cx.shape(2)?);
        for (name, s) in [("q", q), ("k", k), ("v", v)] {
            if s.rank() != 4 {
                return Err(OpError::new(format!("{name} must have the four axes {}, got {s}", self.layout.name())));
            }
        }
        let (h, s) = (self.layout.heads(), self.layout.sequence());
        for (other, name) in [(k, "k"), (v, "v")] {
            cx.require_eq(&q[0], &other[0], &format!("batch of q and {name}"))?;
        }
        cx.require_eq(&k[h], &v[h], "heads of k and v")?;
        cx.require_eq(&k[s], &v[s], "sequence of k and v")?;
        cx.require_eq(&q[3], &k[3], "features of q and k")?;
        if q[h] != k[h] {
            cx.require(Constraint::Divisible(q[h].clone(), k[h].clone()), "heads of q by heads of k")?;
        }
        if self.window.is_some_and(|w| w < 1) {
            return Err(OpError::new("window must be ≥ 1"));
        }
        if self.softcap.is_some_and(|c| c.get().is_nan() || c.get() <= 0.0) {
            return Err(OpError::new("softcap must be positive").hint("leave it out for no cap"));
        }
        let want = match self.mask {
            MaskKind::None => None,
            MaskKind::Bool => Some(DType::Bool),
            MaskKind::Additive => Some(dtype),
        };
        if let Some(want) = want {
            let got = cx.dtype(3)?;
            if got != want {
                return Err(OpError::new(format!("the mask must be {want}, got {got}")));
            }
            let scores = [q[0].clone(), q[h].clone(), q[s].clone(), k[s].clone()];
            rows::require_broadcasts_to(cx, 3, &scores, "mask")?;
        }
        let mut dims: Vec<Dim> = q.to_vec();
        dims[3] = v[3].clone();
        cx.result(dtype, dims);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], results: &[TensorType]) -> Dim {
        // Two products: each result element takes a multiply-add with each key, each score one with each feature.
        let [q, k, ..] = operands else { return Dim::ZERO };
        let keys = k.shape.get(self.layout.sequence()).cloned().unwrap_or(Dim::ZERO);
        let elements = q.shape.numel() + results.first().map_or(Dim::ZERO, |r| r.shape.numel());
        elements * keys * 2
    }

    fn eval(&self, _cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (q, k, v) =
            (Heads::new(args, 0, self.layout)?, Heads::new(args, 1, self.layout)?, Heads::new(args, 2, self.layout)?);
        let mask =
            if self.mask == MaskKind::None { None } else { Some(Mask::new(arg(args, 3)?, [q.b, q.h, q.s, k.s])?) };
        if q.h > 0 && (k.h == 0 || q.h % k.h != 0) {
            return Err(OpError::new(format!("{} query heads are no multiple of {} key heads", q.h, k.h)));
        }
        let mut dims = arg(args, 0)?.dims().to_vec();
        dims[3] = v.d;
        let mut out = vec![0.0; crate::tensor::checked_numel(&dims)?];
        let result = Heads { values: Vec::new(), d: v.d, ..q };
        let mut scores = vec![0.0; k.s];
        for b in 0..q.b {
            for h in 0..q.h {
                let kv = h / (q.h / k.h);
                for i in 0..q.s {
                    let query = q.row(b, h, i);
                    let position = i as i64 + k.s as i64 - q.s as i64;
                    for (j, score) in scores.iter_mut().enumerate() {
                        let bias = mask.as_ref().map_or(0.0, |m| m.bias(b, h, i, j));
                        if bias == f64::NEG_INFINITY || !self.in_reach(position, j as i64) {
                            *score = f64::NEG_INFINITY;
                            continue;
                        }
                        let dot: f64 = query.iter().zip(k.row(b, kv, j)).map(|(x, y)| x * y).sum();
                        let x = dot * self.scale.get();
                        *score = self.softcap.map_or(x, |c| c.get() * (x / c.get()).tanh()) + bias;
                    }
                    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    if self.can_hide() && scores.iter().all(|&x| x == f64::NEG_INFINITY) {
                        continue;
                    }
                    scores.iter_mut().for_each(|x| *x = (*x - max).exp());
                    let sum: f64 = scores.iter().sum();
                    let at = result.start(b, h, i);
                    let row = &mut out[at..at + v.d];
                    for (j, weight) in scores.iter().enumerate().filter(|(_, w)| **w != 0.0) {
                        row.iter_mut().zip(v.row(b, kv, j)).for_each(|(o, x)| *o += weight / sum * x);
                    }
                }
            }
        }
        Ok(vec![rows::tensor(arg(args, 0)?.dtype(), &dims, out)?])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.in_primitives(b, args).map(|y| vec![y]))
    }
}

/// An operand seen as rows of features by batch, head and position.
struct Heads {
    values: Vec<f64>,
    layout: AttnLayout,
    b: usize,
    h: usize,
    s: usize,
    d: usize,
}

impl Heads {
    fn new(args: &[Value], i: usize, layout: AttnLayout) -> Result<Self, OpError> {
        let &[b, x, y, d] = arg(args, i)?.dims() else {
            return Err(OpError::new(format!("operand {i} must have four axes")));
        };
        let (h, s) = if layout == AttnLayout::Bhsd { (x, y) } else { (y, x) };
        Ok(Heads { values: rows::floats(args, i)?, layout, b, h, s, d })
    }

    fn start(&self, b: usize, h: usize, s: usize) -> usize {
        match self.layout {
            AttnLayout::Bhsd => ((b * self.h + h) * self.s + s) * self.d,
            AttnLayout::Bshd => ((b * self.s + s) * self.h + h) * self.d,
        }
    }

    fn row(&self, b: usize, h: usize, s: usize) -> &[f64] {
        let at = self.start(b, h, s);
        &self.values[at..at + self.d]
    }
}

/// A mask as numbers added to scores.
struct Mask {
    values: Vec<f64>,
    sizes: Vec<usize>,
    dims: [usize; 4],
}

impl Mask {
    fn new(t: &Tensor, dims: [usize; 4]) -> Result<Self, OpError> {
        let values = match t.elements() {
            crate::element::Elements::Float(v) => v,
            e => {
                let hide = |&x: &i128| if x != 0 { 0.0 } else { f64::NEG_INFINITY };
                e.ints().unwrap_or(&[]).iter().map(hide).collect()
            }
        };
        let fits = t.dims().iter().rev().zip(dims.iter().rev()).all(|(&a, &b)| a == b || a == 1);
        if !fits || t.rank() > 4 {
            return Err(OpError::new(format!("a mask of shape {:?} does not broadcast to {dims:?}", t.dims())));
        }
        Ok(Mask { values, sizes: t.dims().to_vec(), dims })
    }

    fn bias(&self, b: usize, h: usize, i: usize, j: usize) -> f64 {
        let [_, heads, s, t] = self.dims;
        self.values[broadcast_index(((b * heads + h) * s + i) * t + j, &self.dims, &self.sizes)]
    }
}

impl Builder {
    /// Attention of queries, keys and values; the mask must be there if the op says so.
    pub fn attention(
        &mut self,
        op: Attention,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        mask: Option<ValueId>,
    ) -> Result<ValueId, IrError> {
        let operands: Vec<ValueId> = [q, k, v].into_iter().chain(mask).collect();
        self.op1(op, &operands)
    }
}
