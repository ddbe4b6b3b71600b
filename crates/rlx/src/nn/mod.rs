//! Blocks: layers of neural networks that declare their parameters by name and apply themselves to values.
//!
//! A [`Net`] is a graph under construction with the weights that its parameters may take. A block is plain data (sizes, flags); applied
//! at a path it declares its parameters there (`encoder.layer.0.attention.query.weight`) and appends ops. Where two applications name the
//! same path they share the parameter. Names and layouts are PyTorch's, so that the weights of a safetensors file bind by name. What a
//! block says is kept as a composite of the IR (attention, norms, rotary embedding, recurrent layers), never as its parts.
//!
//! ```
//! use rlx::nn::{Activation, Layer, Linear, Mlp, Net};
//! use rlx::prelude::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut net = Net::new("classifier");
//! let x = net.input("x", DType::F32, [Dim::symbol("batch"), Dim::from(8)])?;
//! let h = Mlp::new(8, 32, Activation::Gelu).apply(&mut net.at("mlp"), x)?;
//! let y = Linear::new(8, 3).apply(&mut net.at("head"), h)?;
//! net.output("logits", y)?;
//! let names: Vec<String> = net.params().map(|(name, ty)| format!("{name}: {ty}")).collect();
//! assert_eq!(names[4..], ["head.weight: f32[3, 8]", "head.bias: f32[3]"]);
//! let module = net.finish()?;
//! let mut program = Session::new(Device::Cpu)?.compile_hir(&module)?;
//! # let names: Vec<String> = program.params().iter().map(|p| p.name.to_string()).collect();
//! # for n in &names { let len = program.params().iter().find(|p| *p.name == **n).and_then(|p| p.ty.shape.as_static()).unwrap().iter().product();
//! # program.set_param(n, &vec![0.1; len])?; }
//! assert_eq!(program.run(&[("x", &[0.5; 16])])?[0].len(), 2 * 3);
//! # Ok(()) }
//! ```
//!
//! Weights from a file: `Net::new("bert").with_weights(Weights::open("model.safetensors")?)`. What is missing or of another shape is one
//! error of [`Net::finish`].

mod activation;
mod attention;
mod batch_norm;
mod block;
mod conv;
mod embedding;
mod error;
mod group_norm;
mod gru;
mod layer_norm;
mod linear;
mod lstm;
mod mlp;
mod net;
mod recurrent;
mod rms_norm;
mod rotary;
mod weights;

pub use activation::Activation;
pub use attention::{Attention, AttentionInputs, AttentionMask};
pub use batch_norm::BatchNorm;
pub use block::{Block, Layer, ParamSpec, Sequential};
pub use conv::{Conv, ConvBlock, DepthwiseSeparable};
pub use embedding::Embedding;
pub use error::{NnError, WeightProblem};
pub use group_norm::GroupNorm;
pub use gru::Gru;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use lstm::{Lstm, LstmOutput};
pub use mlp::{GatedMlp, Mlp};
pub use net::{Net, Scope};
pub use rms_norm::RmsNorm;
pub use rotary::{Rotary, RotaryTables};
pub use weights::Weights;
