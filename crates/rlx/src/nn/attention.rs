//! Multi-head attention.

use rlx_ir::ops::neural::{Attention as AttentionOp, AttnLayout, MaskKind};
use rlx_ir::{DType, Dim, ValueId};

use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::linear::Linear;
use super::net::Scope;
use super::rotary::RotaryTables;

/// Multi-head attention with grouped heads. Parameters: those of the linear layers `query`, `key`, `value` and `output`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    width: usize,
    context: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    bias: [bool; 2],
    transposed: bool,
    causal: bool,
    window: Option<i64>,
    scale: Option<f64>,
    softcap: Option<f64>,
    names: [String; 4],
}

/// What a run's data hides or weighs, besides what the block says (causal, window).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionMask {
    /// Nothing.
    #[default]
    None,
    /// Booleans `[batch, keys]`: true where a key is no padding.
    Padding(ValueId),
    /// Booleans that broadcast to `[batch, heads, queries, keys]`: true where the query sees the key.
    Seen(ValueId),
    /// Floats that broadcast to `[batch, heads, queries, keys]`, added to the scores.
    Bias(ValueId),
}

/// What attention is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionInputs {
    /// Queries come from here, `[batch, queries, width]`.
    pub x: ValueId,
    /// Keys and values come from here, `[batch, keys, context]`; from `x` if none.
    pub context: Option<ValueId>,
    /// What is hidden.
    pub mask: AttentionMask,
    /// How queries and keys are rotated.
    pub rotary: Option<RotaryTables>,
}

impl AttentionInputs {
    /// Self-attention without mask.
    pub const fn new(x: ValueId) -> Self {
        AttentionInputs { x, context: None, mask: AttentionMask::None, rotary: None }
    }

    /// With a mask.
    #[must_use]
    pub const fn mask(mut self, mask: AttentionMask) -> Self {
        self.mask = mask;
        self
    }

    /// With keys and values from elsewhere.
    #[must_use]
    pub const fn context(mut self, context: ValueId) -> Self {
        self.context = Some(context);
        self
    }

    /// With rotated queries and keys.
    #[must_use]
    pub const fn rotary(mut self, tables: RotaryTables) -> Self {
        self.rotary = Some(tables);
        self
    }
}

impl Attention {
    /// Attention over `width` features in `heads` heads of `width / heads` features each, with biases and without masks.
    pub fn new(width: usize, heads: usize) -> Self {
        Attention {
            width,
            context: width,
            heads,
            kv_heads: heads,
            head_dim: width / heads.max(1),
            bias: [true; 2],
            transposed: false,
            causal: false,
            window: None,
            scale: None,
            softcap: None,
            names: ["query", "key", "value", "output"].map(Into::into),
        }
    }

    /// Number of key and value heads, which divides that of the query heads.
    #[must_use]
    pub fn kv_heads(self, kv_heads: usize) -> Self {
        Attention { kv_heads, ..self }
    }

    /// Features of a head, if not `width / heads`.
    #[must_use]
    pub fn head_dim(self, head_dim: usize) -> Self {
        Attention { head_dim, ..self }
    }

    /// Features of what keys and values come from, if not `width`.
    #[must_use]
    pub fn context_width(self, context: usize) -> Self {
        Attention { context, ..self }
    }

    /// Biases of the layers of queries, keys and values, and of the output layer.
    #[must_use]
    pub fn bias(self, inputs: bool, output: bool) -> Self {
        Attention { bias: [inputs, output], ..self }
    }

    /// The weights are stored as `[from, to]`.
    #[must_use]
    pub fn transposed(self, transposed: bool) -> Self {
        Attention { transposed, ..self }
    }

    /// A query sees only keys up to its own position.
    #[must_use]
    pub fn causal(self, causal: bool) -> Self {
        Attention { causal, ..self }
    }

    /// A query sees only keys nearer than this to its position.
    #[must_use]
    pub fn window(self, window: usize) -> Self {
        Attention { window: i64::try_from(window).ok(), ..self }
    }

    /// Factor of the scores, if not `1 / √head_dim`.
    #[must_use]
    pub fn scale(self, scale: f64) -> Self {
        Attention { scale: Some(scale), ..self }
    }

    /// Scores are bent to stay below this: `cap · tanh(score / cap)`.
    #[must_use]
    pub fn softcap(self, cap: f64) -> Self {
        Attention { softcap: Some(cap), ..self }
    }

    /// What the layers of queries, keys, values and output are called.
    #[must_use]
    pub fn names(self, names: [&str; 4]) -> Self {
        Attention { names: names.map(Into::into), ..self }
    }

    fn layers(&self) -> [Linear; 4] {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let [inputs, output] = self.bias;
        [
            Linear::new(self.width, q).bias(inputs),
            Linear::new(self.context, kv).bias(inputs),
            Linear::new(self.context, kv).bias(inputs),
            Linear::new(q, self.width).bias(output),
        ]
        .map(|l| l.transposed(self.transposed))
    }

    /// `[batch, queries, width]` from the inputs.
    pub fn attend(&self, scope: &mut Scope<'_>, inputs: AttentionInputs) -> Result<ValueId, NnError> {
        if self.heads == 0 || self.kv_heads == 0 || self.head_dim == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            let why = format!(
                "{} query heads in groups of {} key heads, of {} features each",
                self.heads, self.kv_heads, self.head_dim
            );
            return Err(scope.refuse(self.kind(), why));
        }
        let context = inputs.context.unwrap_or(inputs.x);
        for x in [inputs.x, context] {
            let shape = scope.shape(x)?;
            if shape.rank() != 3 {
                return Err(scope.refuse(self.kind(), format!("takes [batch, sequence, features], got {shape}")));
            }
        }
        let [q, k, v, out] = self.layers();
        let sources = [(q, inputs.x, self.heads), (k, context, self.kv_heads), (v, context, self.kv_heads)];
        let mut parts = Vec::with_capacity(3);
        for (i, ((layer, x, heads), name)) in sources.into_iter().zip(&self.names).enumerate() {
            let y = layer.apply(&mut scope.at(name), x)?;
            let shape = scope.shape(x)?;
            let dims: Vec<Dim> = shape.iter().take(2).cloned().chain([heads.into(), self.head_dim.into()]).collect();
            let mut y = scope.build(self.kind(), &[y], |b| b.reshape(y, dims))?;
            if let (Some(tables), 0 | 1) = (&inputs.rotary, i) {
                y = tables.rotate(scope, y, self.head_dim)?;
            }
            parts.push(y);
        }
        let mask = match inputs.mask {
            AttentionMask::None => (MaskKind::None, None),
            AttentionMask::Padding(m) => {
                (MaskKind::Bool, Some(scope.build("padding mask", &[m], |b| b.expand_dims(m, &[1, 2]))?))
            }
            AttentionMask::Seen(m) => (MaskKind::Bool, Some(m)),
            AttentionMask::Bias(m) => (MaskKind::Additive, Some(m)),
        };
        let op = AttentionOp {
            causal: self.causal,
            window: self.window,
            softcap: self.softcap.map(Into::into),
            mask: mask.0,
            ..AttentionOp::new(AttnLayout::Bshd, self.scale.unwrap_or(1.0 / (self.head_dim as f64).sqrt()))
        };
        let operands: Vec<ValueId> = parts.into_iter().chain(mask.1).collect();
        let queries: Vec<Dim> = scope.shape(inputs.x)?.iter().take(2).cloned().collect();
        let y = scope.build(self.kind(), &operands, |b| {
            let y = b.op1(op, &operands)?;
            b.reshape(y, queries.into_iter().chain([Dim::from(self.heads * self.head_dim)]))
        })?;
        let [.., name] = &self.names;
        out.apply(&mut scope.at(name), y)
    }
}

impl Block for Attention {
    fn kind(&self) -> &'static str {
        "attention"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        self.names.iter().zip(self.layers()).flat_map(|(n, l)| ParamSpec::under(n, l.params(dtype))).collect()
    }
}

/// Self-attention without mask.
impl Layer for Attention {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        self.attend(scope, AttentionInputs::new(x))
    }
}
