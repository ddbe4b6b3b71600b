//! Random bits.

use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::{Shape, TensorType};

use super::philox4x32_10;

op! {
    /// Uniform random bits from a key `u64[2]` of seed and position. Words are numbered in row-major order: word `n` is word `n mod 4`
    /// of Philox4x32-10 under the seed (low word first) at the counter `[n / 4, stream, position low, position high]`; a `u64` is two
    /// words, the low one first. At most 2^34 words.
    pub struct RandomBits = "random_bits" {
        /// `u32` or `u64`.
        pub dtype: DType,
        /// Sizes of the result.
        pub dims: Vec<Dim>,
        /// Tells apart what one key is used for.
        pub stream: u32,
    }
}

impl RandomBits {
    /// Words that a result of `n` elements takes, if the counter holds them.
    pub fn words(&self, n: usize) -> Result<usize, OpError> {
        let words = n.checked_mul(self.dtype.bits() / 32).filter(|&w| w.div_ceil(4) as u64 <= 1 << 32);
        words.ok_or_else(|| OpError::new(format!("{n} elements are more than one stream has")))
    }
}

impl OpRules for RandomBits {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let key = cx.tensor(0)?;
        if key.dtype != DType::U64 || key.shape.dims() != [Dim::from(2)] {
            return Err(OpError::new(format!("the key must be u64[2], got {key}")));
        }
        if !matches!(self.dtype, DType::U32 | DType::U64) {
            return Err(OpError::new(format!("gives u32 or u64, not {}", self.dtype)));
        }
        if let Some(d) = self.dims.iter().find(|d| d.as_const().is_some_and(|c| c < 0)) {
            return Err(OpError::new(format!("size {d} is negative")));
        }
        cx.result(self.dtype, Shape::from(self.dims.clone()));
        Ok(())
    }

    fn work(&self, _operands: &[TensorType], results: &[TensorType]) -> Dim {
        // Ten rounds of two products and four exclusive ors for four words.
        Dim::sum(results.iter().map(|t| &t.shape.numel() * (15 * t.dtype.bits() as i64 / 32)))
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let key = arg(args, 0)?.as_slice::<u64>().map_err(|e| OpError::new(e.to_string()))?;
        let [seed, position] = *key else { return Err(OpError::new("the key must have two elements")) };
        let dims = cx.sizes(&self.dims)?;
        let n = checked_numel(&dims)?;
        cx.options.check_results(n)?;
        let count = self.words(n)?;
        let halves = |x: u64| [x as u32, (x >> 32) as u32];
        let [low, high] = halves(position);
        let blocks =
            (0..count.div_ceil(4)).flat_map(|i| philox4x32_10([i as u32, self.stream, low, high], halves(seed)));
        let words: Vec<i128> = blocks.take(count).map(i128::from).collect();
        let elements = match self.dtype {
            DType::U32 => words,
            _ => words.chunks_exact(2).map(|w| w[0] | w[1] << 32).collect(),
        };
        Ok(vec![Tensor::from_elements(self.dtype, &dims, &Elements::Int(elements))?.into()])
    }
}

impl Builder {
    /// Uniform random bits of a stream of the key `u64[2]`.
    pub fn random_bits(
        &mut self,
        key: ValueId,
        dtype: DType,
        dims: impl IntoIterator<Item = impl Into<Dim>>,
        stream: u32,
    ) -> Result<ValueId, IrError> {
        let dims = dims.into_iter().map(Into::into).collect();
        self.op1(RandomBits { dtype, dims, stream }, &[key])
    }
}
