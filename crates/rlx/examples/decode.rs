//! What a growing cache costs a token: `cargo run --release -p rlx --example decode -- [LAYERS] [WIDTH] [TOKENS]`. A decoder of random
//! weights, keys and values as states, one token a call; beside it the same decoder that is given its cache and gives it back, as exported
//! files do. Each length is a binding of its own: the time that it takes is printed too.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use rlx::ir::ops::neural::{Attention, AttnLayout};
use rlx::ir::{IrError, ValueId};
use rlx::prelude::*;

const HEAD: usize = 64;

/// The decoder with caches as inputs `past…` and outputs `present…`.
fn decoder(layers: usize, width: usize) -> Result<Module, IrError> {
    let mut b = Builder::new("decoder");
    let (new, heads) = (Dim::symbol("new"), width / HEAD);
    let mut x = b.input("x", DType::F32, [Dim::from(1), new.clone(), width.into()])?;
    let mut rng = 1u32;
    let mut weight = |b: &mut Builder, name: String, from: usize, to: usize| -> Result<ValueId, IrError> {
        let mut next = || {
            rng = rng.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f64::from(rng) / f64::from(u32::MAX) - 0.5) as f32 * 0.1
        };
        let values: Vec<f32> = (0..from * to).map(|_| next()).collect();
        let t = Tensor::from_slice(&[from, to], &values).map_err(|e| IrError::Eval(e.to_string()))?;
        b.param_with(&name, t)
    };
    for l in 0..layers {
        let h = b.rms_norm(x, None, &[2], 1e-6)?;
        let mut rows = Vec::new();
        for name in ["q", "k", "v"] {
            let w = weight(&mut b, format!("{l}.{name}"), width, width)?;
            let y = b.matmul(h, w)?;
            let y = b.reshape(y, [Dim::from(1), new.clone(), heads.into(), HEAD.into()])?;
            rows.push(b.transpose(y, &[0, 2, 1, 3])?);
        }
        for (name, rows) in ["k", "v"].into_iter().zip(rows.iter_mut().skip(1)) {
            let shape = [Dim::from(1), heads.into(), Dim::symbol("past"), HEAD.into()];
            let past = b.input(&format!("past.{l}.{name}"), DType::F32, shape)?;
            *rows = b.concat(&[past, *rows], 2)?;
            b.output(&format!("present.{l}.{name}"), *rows)?;
        }
        let op = Attention { causal: true, ..Attention::new(AttnLayout::Bhsd, (HEAD as f64).powf(-0.5)) };
        let y = b.attention(op, rows[0], rows[1], rows[2], None)?;
        let y = b.transpose(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, [Dim::from(1), new.clone(), width.into()])?;
        let w = weight(&mut b, format!("{l}.o"), width, width)?;
        let y = b.matmul(y, w)?;
        x = b.add(x, y)?;
        let h = b.rms_norm(x, None, &[2], 1e-6)?;
        let (up, down) = (
            weight(&mut b, format!("{l}.up"), width, 4 * width)?,
            weight(&mut b, format!("{l}.down"), 4 * width, width)?,
        );
        let h = b.matmul(h, up)?;
        let h = b.silu(h)?;
        let h = b.matmul(h, down)?;
        x = b.add(x, h)?;
    }
    b.output("y", x)?;
    Ok(Module::from_graph(b.finish()))
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(0.0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<usize>());
    let mut number = |otherwise| args.next().transpose().map(|n| n.unwrap_or(otherwise));
    let (layers, width, tokens) = (number(12)?, number(768)?, number(300)?);
    let module = decoder(layers, width)?;
    let pairs: Vec<(String, String)> =
        (0..layers).flat_map(|l| ["k", "v"].map(|n| (format!("past.{l}.{n}"), format!("present.{l}.{n}")))).collect();
    let session = Session::new(Device::Cpu)?;
    let x = Tensor::zeros(DType::F32, &[1, 1, width])?;

    let mut program = session.compile_hir(&module.carry(&pairs)?)?;
    let (mut times, mut binds) = (Vec::new(), Vec::new());
    for _ in 0..tokens {
        let start = Instant::now();
        program.run_borrowed(&[("x", Input::from(&x))])?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        binds.push(program.stats().last_bind.as_secs_f64() * 1e6);
    }
    let stats = program.stats();
    println!(
        "states     {:.3} ms a token (median), of which binding {:.0} µs; {:.1} MiB moved in {tokens} tokens",
        median(times),
        median(binds),
        stats.bytes_moved as f64 / f64::from(1 << 20)
    );

    let program = session.compile_hir(&module)?;
    let heads = width / HEAD;
    let mut cache = vec![Tensor::zeros(DType::F32, &[1, heads, 0, HEAD])?; 2 * layers];
    let mut times = Vec::new();
    for _ in 0..tokens {
        let start = Instant::now();
        let mut inputs = vec![("x", Input::from(&x))];
        inputs.extend(pairs.iter().zip(&cache).map(|((past, _), t)| (past.as_str(), Input::from(t))));
        let read: Vec<usize> = (0..=2 * layers).collect();
        let mut out = program.run_read_outputs(&inputs, Some(&read))?;
        out.truncate(2 * layers);
        cache = out;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    println!("by inputs  {:.3} ms a token (median)", median(times));
    Ok(())
}
