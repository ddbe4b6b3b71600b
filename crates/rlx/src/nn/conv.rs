//! Convolutions.

use rlx_ir::{DType, Dim, ValueId};

use super::activation::Activation;
use super::batch_norm::BatchNorm;
use super::block::{Block, Layer, ParamSpec};
use super::error::NnError;
use super::net::Scope;

/// Convolution of `[n, from, spatial…]`. Parameters: `weight` `[to, from / groups, kernel…]` and, unless switched off, `bias` `[to]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    from: usize,
    to: usize,
    kernel: Vec<usize>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    low: Vec<i64>,
    high: Vec<i64>,
    groups: usize,
    bias: bool,
}

impl Conv {
    /// A window of `kernel` taps on each spatial axis (one number for each), at steps of 1, without padding, with a bias.
    pub fn new(from: usize, to: usize, kernel: &[usize]) -> Self {
        let n = kernel.len();
        Conv {
            from,
            to,
            kernel: kernel.to_vec(),
            strides: vec![1; n],
            dilations: vec![1; n],
            low: vec![0; n],
            high: vec![0; n],
            groups: 1,
            bias: true,
        }
    }

    /// Step of the window on every axis.
    #[must_use]
    pub fn stride(mut self, stride: i64) -> Self {
        self.strides.fill(stride);
        self
    }

    /// Distance of taps on every axis.
    #[must_use]
    pub fn dilation(mut self, dilation: i64) -> Self {
        self.dilations.fill(dilation);
        self
    }

    /// Zeros before and after, on every axis.
    #[must_use]
    pub fn padding(mut self, padding: i64) -> Self {
        self.low.fill(padding);
        self.high.fill(padding);
        self
    }

    /// Zeros before and after each axis.
    #[must_use]
    pub fn padding_of(mut self, low: &[i64], high: &[i64]) -> Self {
        (self.low, self.high) = (low.to_vec(), high.to_vec());
        self
    }

    /// Padding that keeps sizes at steps of 1; of an even extent the extra zero stands behind. Set the dilation before.
    #[must_use]
    pub fn same(mut self) -> Self {
        let extra = |(&k, &d): (&usize, &i64)| (k as i64 - 1) * d;
        let total: Vec<i64> = self.kernel.iter().zip(&self.dilations).map(extra).collect();
        self.low = total.iter().map(|t| t / 2).collect();
        self.high = total.iter().map(|t| t - t / 2).collect();
        self
    }

    /// Channels are split into so many groups.
    #[must_use]
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// With or without a bias.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }
}

impl Block for Conv {
    fn kind(&self) -> &'static str {
        "convolution"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        let mut dims = vec![self.to, self.from / self.groups.max(1)];
        dims.extend(&self.kernel);
        let bias = self.bias.then(|| ParamSpec::new("bias", dtype, [self.to]));
        [ParamSpec::new("weight", dtype, dims)].into_iter().chain(bias).collect()
    }
}

impl Layer for Conv {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        let g = self.groups;
        if g == 0 || !self.from.is_multiple_of(g) || !self.to.is_multiple_of(g) {
            let why = format!("{} channels to {} do not split into {g} groups", self.from, self.to);
            return Err(scope.refuse(self.kind(), why));
        }
        let params = scope.declare(self)?;
        let dims = |v: &[i64]| v.iter().map(|&p| Dim::from(p)).collect::<Vec<_>>();
        scope.build(self.kind(), &[x], |b| {
            let op = rlx_ir::ops::contraction::Conv {
                strides: self.strides.clone(),
                dilations: self.dilations.clone(),
                pad_low: dims(&self.low),
                pad_high: dims(&self.high),
                lhs_dilation: vec![1; self.strides.len()],
                groups: g as i64,
                has_bias: self.bias,
            };
            b.op1(op, &[&[x], &params[..]].concat())
        })
    }
}

/// Convolution without bias, batch normalisation, activation. Parameters: those of its parts `conv` and `bn`. Compiling folds the
/// normalisation into the convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvBlock {
    conv: Conv,
    norm: BatchNorm,
    activation: Activation,
    names: [String; 2],
}

impl ConvBlock {
    /// Around a convolution, whose bias is dropped.
    pub fn new(conv: Conv, activation: Activation) -> Self {
        ConvBlock {
            norm: BatchNorm::new(conv.to),
            conv: conv.bias(false),
            activation,
            names: ["conv", "bn"].map(Into::into),
        }
    }

    /// The normalisation's epsilon.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Self {
        self.norm = self.norm.eps(eps);
        self
    }

    /// What the parts are called.
    #[must_use]
    pub fn names(self, names: [&str; 2]) -> Self {
        ConvBlock { names: names.map(Into::into), ..self }
    }
}

impl Block for ConvBlock {
    fn kind(&self) -> &'static str {
        "convolution block"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        let [conv, bn] = &self.names;
        ParamSpec::under(conv, self.conv.params(dtype)).chain(ParamSpec::under(bn, self.norm.params(dtype))).collect()
    }
}

impl Layer for ConvBlock {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        let [conv, bn] = &self.names;
        let y = self.conv.apply(&mut scope.at(conv), x)?;
        let y = self.norm.apply(&mut scope.at(bn), y)?;
        self.activation.apply(scope, y)
    }
}

/// A convolution of each channel by itself, then one of 1×1 over channels, each a [`ConvBlock`]. Parts: `depthwise`, `pointwise`.
#[derive(Clone, Debug, PartialEq)]
pub struct DepthwiseSeparable {
    depthwise: ConvBlock,
    pointwise: ConvBlock,
}

impl DepthwiseSeparable {
    /// From `from` to `to` channels by a window of `kernel` taps at a step, padded as [`Conv::same`].
    pub fn new(from: usize, to: usize, kernel: &[usize], stride: i64, activation: Activation) -> Self {
        let depth = Conv::new(from, from, kernel).groups(from).stride(stride).same();
        DepthwiseSeparable {
            depthwise: ConvBlock::new(depth, activation),
            pointwise: ConvBlock::new(Conv::new(from, to, &vec![1; kernel.len()]), activation),
        }
    }
}

impl Block for DepthwiseSeparable {
    fn kind(&self) -> &'static str {
        "depthwise separable convolution"
    }

    fn params(&self, dtype: DType) -> Vec<ParamSpec> {
        ParamSpec::under("depthwise", self.depthwise.params(dtype))
            .chain(ParamSpec::under("pointwise", self.pointwise.params(dtype)))
            .collect()
    }
}

impl Layer for DepthwiseSeparable {
    fn apply(&self, scope: &mut Scope<'_>, x: ValueId) -> Result<ValueId, NnError> {
        let y = self.depthwise.apply(&mut scope.at("depthwise"), x)?;
        self.pointwise.apply(&mut scope.at("pointwise"), y)
    }
}
