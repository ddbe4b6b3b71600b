//! Recurrent layers: `lstm`, `gru`, `rnn`.
//!
//! The inputs' part of all gates is one product for many steps; each step adds the state's part and applies the
//! cell. f32, f16 and bf16 are computed in f32, other floats in f64; a state is rounded to its dtype only where it
//! leaves the layer. A sequence shorter than the others keeps its state in the steps that it does not have.

mod cell;
mod dense;
mod layer;
mod product;

use super::{Routine, misfit};
use crate::buffers::{BindError, BoundView};
use rlx_ir::DType;
use rlx_ir::attr::FloatBits;
use rlx_ir::ops::neural::{CellActivation, CellFunction, Gru, Lstm, Rnn, RnnDirection};

/// Which cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Lstm { input_forget: bool },
    Gru { linear_before_reset: bool },
    Rnn,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Lstm { .. } => 4,
            Cell::Gru { .. } => 3,
            Cell::Rnn => 1,
        }
    }

    /// Functions of one direction, unless given.
    fn functions(self) -> Vec<CellActivation> {
        let (sigmoid, tanh) = (CellActivation::new(CellFunction::Sigmoid), CellActivation::new(CellFunction::Tanh));
        match self {
            Cell::Lstm { .. } => vec![sigmoid, tanh, tanh],
            Cell::Gru { .. } => vec![sigmoid, tanh],
            Cell::Rnn => vec![tanh],
        }
    }
}

/// A layer at concrete sizes.
#[derive(Debug)]
struct Layer {
    cell: Cell,
    direction: RnnDirection,
    /// Sizes: steps, sequences, features, state; directions.
    t: usize,
    b: usize,
    i: usize,
    h: usize,
    d: usize,
    x: BoundView,
    w: BoundView,
    r: BoundView,
    bias: Option<BoundView>,
    lengths: Option<BoundView>,
    h0: Option<BoundView>,
    c0: Option<BoundView>,
    peephole: Option<BoundView>,
    /// Functions, for each direction.
    functions: Vec<CellActivation>,
    clip: Option<f64>,
    y: BoundView,
    last_h: BoundView,
    last_c: Option<BoundView>,
}

/// What is there of the optional operands: bias, lengths, initial h, initial c, peephole.
type Has = [bool; 5];

struct Attributes<'a> {
    cell: Cell,
    direction: RnnDirection,
    hidden: i64,
    has: Has,
    activations: &'a [CellActivation],
    clip: Option<FloatBits>,
}

/// Plans `lstm`.
pub fn plan_lstm(op: &Lstm, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    plan(
        Attributes {
            cell: Cell::Lstm { input_forget: op.input_forget },
            direction: op.direction,
            hidden: op.hidden,
            has: [op.has_bias, op.has_lengths, op.has_init_h, op.has_init_c, op.has_peephole],
            activations: &op.activations,
            clip: op.clip,
        },
        inputs,
        outputs,
    )
}

/// Plans `gru`.
pub fn plan_gru(op: &Gru, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    plan(
        Attributes {
            cell: Cell::Gru { linear_before_reset: op.linear_before_reset },
            direction: op.direction,
            hidden: op.hidden,
            has: [op.has_bias, op.has_lengths, op.has_init_h, false, false],
            activations: &op.activations,
            clip: op.clip,
        },
        inputs,
        outputs,
    )
}

/// Plans `rnn`.
pub fn plan_rnn(op: &Rnn, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    plan(
        Attributes {
            cell: Cell::Rnn,
            direction: op.direction,
            hidden: op.hidden,
            has: [op.has_bias, op.has_lengths, op.has_init_h, false, false],
            activations: &op.activations,
            clip: op.clip,
        },
        inputs,
        outputs,
    )
}

fn plan(a: Attributes<'_>, inputs: &[BoundView], outputs: &[BoundView]) -> Result<Box<dyn Routine>, BindError> {
    let name = match a.cell {
        Cell::Lstm { .. } => "lstm",
        Cell::Gru { .. } => "gru",
        Cell::Rnn => "rnn",
    };
    let wrong = || misfit(name, inputs, outputs);
    let [x, w, r, optional @ ..] = inputs else { return Err(wrong()) };
    let &[t, b, i] = x.sizes.as_slice() else { return Err(wrong()) };
    let h = usize::try_from(a.hidden).ok().filter(|&h| h > 0).ok_or_else(wrong)?;
    let (d, rows) = (a.direction.count(), a.cell.gates().checked_mul(h).ok_or_else(wrong)?);
    let mut rest = optional.iter();
    let [bias, lengths, h0, c0, peephole] = a.has.map(|has| if has { rest.next().cloned() } else { None });
    let expect = |v: Option<&BoundView>, sizes: &[usize]| v.is_none_or(|v| v.sizes.as_slice() == sizes);
    let float = |v: Option<&BoundView>| v.is_none_or(|v| v.access.dtype == x.access.dtype);
    let (y, last_h, last_c) = match (a.cell, outputs) {
        (Cell::Lstm { .. }, [y, h, c]) => (y, h, Some(c)),
        (Cell::Gru { .. } | Cell::Rnn, [y, h]) => (y, h, None),
        _ => return Err(wrong()),
    };
    let sizes = w.sizes.as_slice() == [d, rows, i]
        && r.sizes.as_slice() == [d, rows, h]
        && expect(bias.as_ref(), &[d, 2 * rows])
        && expect(lengths.as_ref(), &[b])
        && [h0.as_ref(), c0.as_ref(), Some(last_h), last_c].iter().all(|v| expect(*v, &[d, b, h]))
        && expect(peephole.as_ref(), &[d, 3 * h])
        && y.sizes.as_slice() == [t, d, b, h];
    let types =
        [Some(w), Some(r), bias.as_ref(), h0.as_ref(), c0.as_ref(), peephole.as_ref(), Some(y), Some(last_h), last_c];
    let present = a.has.iter().filter(|h| **h).count();
    if !sizes || optional.len() != present || !types.into_iter().all(float) || !x.access.dtype.is_float() {
        return Err(wrong());
    }
    let defaults = a.cell.functions();
    let functions = match a.activations.len() {
        0 => (0..d).flat_map(|_| defaults.iter().copied()).collect(),
        n if n == d * defaults.len() => a.activations.to_vec(),
        n => return Err(format!("`{name}` needs {} activations for each of {d} directions, not {n}", defaults.len())),
    };
    Ok(Box::new(Layer {
        cell: a.cell,
        direction: a.direction,
        t,
        b,
        i,
        h,
        d,
        bias,
        lengths,
        h0,
        c0,
        peephole,
        functions,
        clip: a.clip.map(FloatBits::get),
        x: x.clone(),
        w: w.clone(),
        r: r.clone(),
        y: y.clone(),
        last_h: last_h.clone(),
        last_c: last_c.cloned(),
    }))
}

/// Whether a dtype is computed in f32.
fn is_narrow(d: DType) -> bool {
    matches!(d, DType::F32 | DType::F16 | DType::BF16)
}
