//! Ops that the library has not: named, with rules and kernels that the program registers.
//!
//! ```
//! use rlx::custom::{self, Attributes, CustomRules};
//! use rlx::ir::error::OpError;
//! use rlx::ir::op::{EvalCx, InferCx, Rule, arg};
//! use rlx::{Builder, DType, Device, Session, Tensor, Value, ir::ValueId};
//!
//! /// `x · x · k`.
//! struct ScaledSquare;
//!
//! impl CustomRules for ScaledSquare {
//!     fn infer(&self, _: &Attributes, cx: &mut InferCx<'_>) -> Result<(), OpError> {
//!         cx.expect_operands(1)?;
//!         let t = cx.tensor(0)?.clone();
//!         cx.result(t.dtype, t.shape);
//!         Ok(())
//!     }
//!
//!     fn eval(&self, attributes: &Attributes, _: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
//!         let (x, k) = (arg(args, 0)?, attributes.float("k").unwrap_or(1.0) as f32);
//!         let y: Vec<f32> = x.as_slice::<f32>()?.iter().map(|x| x * x * k).collect();
//!         Ok(vec![Tensor::from_slice(x.dims(), &y)?.into()])
//!     }
//!
//!     // With this it runs on every device; without, devices need kernels (`custom::register_kernel` for the CPU).
//!     fn decompose(&self, attributes: &Attributes, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
//!         let &[x] = args else { return None };
//!         let k = attributes.float("k").unwrap_or(1.0);
//!         Some((|| {
//!             let k = b.scalar_like(x, k)?;
//!             let y = b.mul(x, x)?;
//!             Ok(vec![b.mul(y, k)?])
//!         })())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! custom::register("com.acme.ScaledSquare", ScaledSquare);
//! let mut b = Builder::new("main");
//! let x = b.input("x", DType::F32, [3])?;
//! let y = b.custom("com.acme.ScaledSquare", Attributes::new().with("k", 0.5), &[x])?[0];
//! b.output("y", y)?;
//! let program = Session::new(Device::Cpu)?.compile(b.finish())?;
//! let x = Tensor::from_slice(&[3], &[1f32, 2., 3.])?;
//! assert_eq!(program.run_tensors(&[("x", &x)])?[0].as_slice::<f32>()?[..], [0.5, 2.0, 4.5]);
//! # Ok(()) }
//! ```
//!
//! A node of an ONNX file that no operator of the library is meant by becomes the custom op of its domain and name (`com.acme.ScaledSquare`), if
//! one is registered before the file is read. Artefacts keep names and attributes; who loads one registers the same rules first.

pub use rlx_ir::ops::custom::{Attribute, Attributes, CustomRules, is_registered, names, register};
#[cfg(feature = "cpu")]
pub use rlx_runtime::{CustomKernel, KernelInput, KernelOutput, register_kernel};
