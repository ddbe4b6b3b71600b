//! A transformer of two layers with symbolic batch and sequence, small enough for plain loops.

use rlx::ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx::ir::{IrError, ValueId};
use rlx::{Builder, DType, Dim, Module, Tensor};

pub const WIDTH: usize = 8;
pub const HEADS: usize = 2;
pub const WORDS: usize = 11;

/// Numbers in −1..1 that differ by place.
fn numbers(seed: usize, dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    let v: Vec<f32> = (0..n).map(|i| ((i * 7919 + seed * 104_729) % 199) as f32 / 99.5 - 1.0).collect();
    Tensor::from_slice(dims, &v).unwrap()
}

fn linear(b: &mut Builder, x: ValueId, name: &str, from: usize, to: usize) -> Result<ValueId, IrError> {
    let seed = name.bytes().map(usize::from).sum();
    let w = b.param_with(&format!("{name}.weight"), numbers(seed, &[from, to]))?;
    let bias = b.param_with(&format!("{name}.bias"), numbers(seed + 1, &[to]))?;
    let y = b.matmul(x, w)?;
    b.add(y, bias)
}

fn norm(b: &mut Builder, x: ValueId, name: &str) -> Result<ValueId, IrError> {
    let scale = b.param_with(&format!("{name}.weight"), numbers(3, &[WIDTH]))?;
    let bias = b.param_with(&format!("{name}.bias"), numbers(4, &[WIDTH]))?;
    b.layer_norm(x, Some(scale), Some(bias), &[2], 1e-5)
}

fn layer(b: &mut Builder, x: ValueId, mask: ValueId, n: usize) -> Result<ValueId, IrError> {
    let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
    let mut parts = Vec::new();
    for part in ["q", "k", "v"] {
        let y = linear(b, x, &format!("{n}.{part}"), WIDTH, WIDTH)?;
        parts.push(b.reshape(y, [batch.clone(), seq.clone(), HEADS.into(), (WIDTH / HEADS).into()])?);
    }
    let op = Attention { mask: MaskKind::Bool, ..Attention::new(AttnLayout::Bshd, 0.5) };
    let y = b.attention(op, parts[0], parts[1], parts[2], Some(mask))?;
    let y = b.reshape(y, [batch, seq, WIDTH.into()])?;
    let y = linear(b, y, &format!("{n}.out"), WIDTH, WIDTH)?;
    let x = b.add(x, y)?;
    let x = norm(b, x, &format!("{n}.norm1"))?;
    let y = linear(b, x, &format!("{n}.up"), WIDTH, 2 * WIDTH)?;
    let y = b.gelu(y)?;
    let y = linear(b, y, &format!("{n}.down"), 2 * WIDTH, WIDTH)?;
    let x = b.add(x, y)?;
    norm(b, x, &format!("{n}.norm2"))
}

fn build() -> Result<Module, IrError> {
    let mut b = Builder::new("main");
    let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
    let ids = b.input("ids", DType::I64, [batch.clone(), seq.clone()])?;
    let seen = b.input("mask", DType::Bool, [batch.clone(), seq.clone()])?;
    let table = b.param_with("table", numbers(1, &[WORDS, WIDTH]))?;
    // What depends on parameters alone: prepared once.
    let log_scale = b.param_with("log_scale", Tensor::from_slice(&[1], &[0.25f32]).unwrap())?;
    let scale = b.exp(log_scale)?;
    let table = b.mul(table, scale)?;
    let mut x = b.gather(table, ids, 0)?;
    let mask = b.reshape(seen, [batch, Dim::ONE, Dim::ONE, seq])?;
    for n in 0..2 {
        x = layer(&mut b, x, mask, n)?;
    }
    b.output("last", x)?;
    Ok(Module::from_graph(b.finish()))
}

/// The model: `ids: i64[batch, seq]`, `mask: bool[batch, seq]` to `last: f32[batch, seq, 8]`.
pub fn transformer() -> Module {
    build().unwrap()
}

/// Words, of which the last is padding in every second row.
pub fn sentences(batch: usize, seq: usize) -> Vec<Tensor> {
    let ids: Vec<i64> = (0..batch * seq).map(|i| ((i * 5 + 2) % WORDS) as i64).collect();
    let mask: Vec<bool> = (0..batch * seq).map(|i| (i / seq).is_multiple_of(2) || i % seq + 1 < seq).collect();
    vec![Tensor::from_slice(&[batch, seq], &ids).unwrap(), Tensor::from_bools(&[batch, seq], &mask).unwrap()]
}
