//! Activation functions of recurrent cells.

use serde::{Deserialize, Serialize};

use crate::attr::{AttrValue, FloatBits, parse_float, split_list};
use crate::op::MapDims;
use crate::ops::elementwise::unary::{sigmoid, softplus};

crate::attr_enum! {
    /// A function that a cell may apply.
    pub enum CellFunction {
        /// `max(0, x)`.
        Relu = "relu",
        /// `tanh x`.
        Tanh = "tanh",
        /// `1 / (1 + exp(−x))`.
        Sigmoid = "sigmoid",
        /// `alpha·x + beta`.
        Affine = "affine",
        /// `x` where not negative, else `alpha·x`.
        LeakyRelu = "leaky_relu",
        /// `x` where at least alpha, else 0.
        ThresholdedRelu = "thresholded_relu",
        /// `alpha · tanh(beta·x)`.
        ScaledTanh = "scaled_tanh",
        /// `alpha·x + beta` limited to 0 … 1.
        HardSigmoid = "hard_sigmoid",
        /// `x` where not negative, else `alpha·(exp(x) − 1)`.
        Elu = "elu",
        /// `x / (1 + |x|)`.
        Softsign = "softsign",
        /// `log(1 + exp(x))`.
        Softplus = "softplus",
    }
}

impl CellFunction {
    /// The parameters that hold unless given.
    pub const fn defaults(self) -> (f64, f64) {
        match self {
            CellFunction::LeakyRelu => (0.01, 0.0),
            CellFunction::HardSigmoid => (0.2, 0.5),
            CellFunction::ScaledTanh => (1.0, 1.0),
            _ => (1.0, 0.0),
        }
    }
}

/// A function with its parameters, printed `hard_sigmoid(0.2, 0.5)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CellActivation {
    /// The function.
    pub function: CellFunction,
    /// Its first parameter, if it has any.
    pub alpha: FloatBits,
    /// Its second parameter, if it has two.
    pub beta: FloatBits,
}

impl CellActivation {
    /// A function with its default parameters.
    pub fn new(function: CellFunction) -> Self {
        let (alpha, beta) = function.defaults();
        CellActivation { function, alpha: alpha.into(), beta: beta.into() }
    }

    /// The function's value.
    pub fn apply(&self, x: f64) -> f64 {
        let (a, b) = (self.alpha.get(), self.beta.get());
        match self.function {
            CellFunction::Relu => {
                if x > 0.0 || x.is_nan() {
                    x
                } else {
                    0.0
                }
            }
            CellFunction::Tanh => x.tanh(),
            CellFunction::Sigmoid => sigmoid(x),
            CellFunction::Affine => a * x + b,
            CellFunction::LeakyRelu => {
                if x < 0.0 {
                    a * x
                } else {
                    x
                }
            }
            CellFunction::ThresholdedRelu => {
                if x >= a || x.is_nan() {
                    x
                } else {
                    0.0
                }
            }
            CellFunction::ScaledTanh => a * (b * x).tanh(),
            CellFunction::HardSigmoid => (a * x + b).clamp(0.0, 1.0),
            CellFunction::Elu => {
                if x < 0.0 {
                    a * x.exp_m1()
                } else {
                    x
                }
            }
            CellFunction::Softsign => {
                if x.is_infinite() {
                    x.signum()
                } else {
                    x / (1.0 + x.abs())
                }
            }
            CellFunction::Softplus => softplus(x),
        }
    }
}

impl MapDims for CellActivation {}

impl AttrValue for CellActivation {
    fn print(&self) -> String {
        if *self == CellActivation::new(self.function) {
            return self.function.name().into();
        }
        format!("{}({}, {})", self.function.name(), self.alpha, self.beta)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let Some((name, rest)) = text.split_once('(') else {
            return CellFunction::parse(text).map(CellActivation::new);
        };
        let list = rest.strip_suffix(')').ok_or_else(|| format!("`)` is missing in `{text}`"))?;
        let &[alpha, beta] = split_list(list)?.as_slice() else {
            return Err(format!("expected two parameters in `{text}`"));
        };
        Ok(CellActivation {
            function: CellFunction::parse(name.trim())?,
            alpha: parse_float(alpha)?.into(),
            beta: parse_float(beta)?.into(),
        })
    }
}
