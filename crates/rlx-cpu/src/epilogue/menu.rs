//! Recognises epilogues that an f32 product can apply to its register tiles: scale, bias, residual, activation, factor
//! and summand, in this order, or the residual after all that.
//!
//! Each instruction of the program must be one step of that chain, since the menu rounds after each step as the tile
//! machine does: both give the same bits.

use crate::gemm::{Activation, Affine};
use rlx_compile::lir::{Epilogue, Literal, ScalarOp};
use rlx_ir::DType;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Unary};

/// An epilogue as steps of the menu.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Menu {
    /// Reads that multiply a product of integers, converted to f32, before anything else.
    pub factors: [Option<u32>; 2],
    /// Multiplies the product.
    pub scale: Option<f32>,
    /// The read that is added first.
    pub bias: Option<u32>,
    /// A number that is added instead.
    pub shift: Option<f32>,
    /// The read that is added second.
    pub residual: Option<u32>,
    /// It is added after the activation.
    pub residual_last: bool,
    /// The activation.
    pub activation: Activation,
    /// What follows it.
    pub affine: Affine,
}

impl Menu {
    /// The menu of an epilogue with one f32 result, if there is one.
    pub fn of(e: &Epilogue) -> Option<Menu> {
        Self::parse(e, false)
    }

    /// The same for a product summed in i32, which is converted first and may then have factors.
    pub fn of_integers(e: &Epilogue) -> Option<Menu> {
        Self::parse(e, true)
    }

    fn parse(e: &Epilogue, integers: bool) -> Option<Menu> {
        let p = &e.program;
        let [result] = p.results[..] else { return None };
        let fits = |i: &rlx_compile::lir::Inst| match i.op {
            ScalarOp::Acc if integers => i.dtype == DType::I32,
            _ => i.dtype == DType::F32,
        };
        if e.writes.len() != 1 || !p.insts.iter().all(fits) {
            return None;
        }
        let mut converted = !integers;
        let mut menu = Menu::default();
        let mut activated = false;
        // The instruction that holds the chain so far.
        let mut chain: Option<u32> = None;
        for (i, inst) in p.insts.iter().enumerate() {
            let i = i as u32;
            let op = match inst.op {
                ScalarOp::Acc if chain.is_none() => {
                    chain = Some(i);
                    continue;
                }
                ScalarOp::Read(_) | ScalarOp::Const(_) => continue,
                ScalarOp::Apply(op) => op,
                _ => return None,
            };
            let from = chain?;
            // The chain's values have no other users.
            if inst.args.iter().filter(|&&a| a == from).count() != 1 {
                return None;
            }
            let leaf = |n: usize| inst.args.get(n).and_then(|&a| p.insts.get(a as usize)).map(|x| x.op);
            let number = |n: usize| match leaf(n) {
                Some(ScalarOp::Const(Literal::Float(f))) => Some(f.get() as f32),
                _ => None,
            };
            let other = if inst.args.first() == Some(&from) { 1 } else { 0 };
            if !converted {
                converted = matches!(op, Elementwise::Convert { .. });
                chain = Some(i).filter(|_| converted);
                chain?;
                continue;
            }
            match op {
                Elementwise::Binary(Binary::Mul)
                    if integers && !activated && matches!(leaf(other), Some(ScalarOp::Read(_))) =>
                {
                    let Some(ScalarOp::Read(read)) = leaf(other) else { return None };
                    let (before, slot) = (Menu { factors: menu.factors, ..Menu::default() }, menu.factors[0].is_some());
                    if menu != before || menu.factors[1].is_some() {
                        return None;
                    }
                    menu.factors[usize::from(slot)] = Some(read);
                }
                Elementwise::Binary(Binary::Mul)
                    if menu == (Menu { factors: menu.factors, ..Menu::default() }) && !activated =>
                {
                    menu.scale = Some(number(other)?);
                }
                Elementwise::Binary(Binary::Mul) => {
                    let first = menu.affine == Affine::default() && !menu.residual_last;
                    menu.affine.mul = Some(number(other).filter(|_| first)?);
                    activated = true;
                }
                Elementwise::Binary(Binary::Add) if activated && number(other).is_some() => {
                    if menu.affine.add.is_some() || menu.residual_last {
                        return None;
                    }
                    menu.affine.add = number(other);
                }
                Elementwise::Binary(Binary::Add) if number(other).is_some() => {
                    if menu.bias.is_some() || menu.shift.is_some() || menu.residual.is_some() {
                        return None;
                    }
                    menu.shift = number(other);
                }
                Elementwise::Binary(Binary::Add) => {
                    let Some(ScalarOp::Read(read)) = leaf(other) else { return None };
                    if !activated && menu.bias.is_none() && menu.shift.is_none() {
                        menu.bias = Some(read);
                    } else if menu.residual.is_none() {
                        menu.residual = Some(read);
                        menu.residual_last = activated;
                    } else {
                        return None;
                    }
                }
                Elementwise::Unary(f) if !activated => {
                    menu.activation = activation(f)?;
                    activated = true;
                }
                Elementwise::Clamp if !activated && inst.args.first() == Some(&from) => {
                    menu.activation = Activation::Clip { lo: number(1)?, hi: number(2)? };
                    activated = true;
                }
                _ => return None,
            }
            chain = Some(i);
        }
        (chain == Some(result) && converted).then_some(menu)
    }

    /// The reads that it uses.
    pub fn reads(&self) -> impl Iterator<Item = u32> {
        self.bias.into_iter().chain(self.residual).chain(self.factors.into_iter().flatten())
    }
}

fn activation(f: Unary) -> Option<Activation> {
    Some(match f {
        Unary::Relu => Activation::Relu,
        Unary::Gelu => Activation::Gelu,
        Unary::GeluTanh => Activation::GeluTanh,
        Unary::Silu => Activation::Silu,
        Unary::Sigmoid => Activation::Sigmoid,
        Unary::Tanh => Activation::Tanh,
        Unary::HardSwish => Activation::HardSwish,
        _ => return None,
    })
}
