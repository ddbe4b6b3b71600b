//! Recurrent layers. The file's layout 1 puts the batch first; the IR's ops have time first.

use rlx_ir::attr::FloatBits;
use rlx_ir::ops::neural::{CellActivation, CellFunction, Gru, Lstm, Rnn, RnnDirection};
use rlx_ir::{DType, Dim, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] = &[op("LSTM", 7, lstm), op("GRU", 7, gru), op("RNN", 7, rnn)];

const DIRECTIONS: &[(&str, RnnDirection)] = &[
    ("forward", RnnDirection::Forward),
    ("reverse", RnnDirection::Reverse),
    ("bidirectional", RnnDirection::Bidirectional),
];

const FUNCTIONS: &[(&str, CellFunction)] = &[
    ("relu", CellFunction::Relu),
    ("tanh", CellFunction::Tanh),
    ("sigmoid", CellFunction::Sigmoid),
    ("affine", CellFunction::Affine),
    ("leakyrelu", CellFunction::LeakyRelu),
    ("thresholdedrelu", CellFunction::ThresholdedRelu),
    ("scaledtanh", CellFunction::ScaledTanh),
    ("hardsigmoid", CellFunction::HardSigmoid),
    ("elu", CellFunction::Elu),
    ("softsign", CellFunction::Softsign),
    ("softplus", CellFunction::Softplus),
];

/// What the three kinds of layers have in common.
struct Layer {
    direction: RnnDirection,
    hidden: i64,
    activations: Vec<CellActivation>,
    clip: Option<FloatBits>,
    batch_first: bool,
    /// x, w, r, then what is there of bias, lengths, initial h and, for an LSTM, initial c and peepholes.
    operands: Vec<ValueId>,
    has: [bool; 5],
}

/// Reads a layer whose cell applies `functions` functions, `optional` operands of which may follow x, w and r.
fn layer(cx: &mut NodeCx<'_, '_>, functions: usize, optional: usize, weights: [ValueId; 2]) -> Result<Layer, Failure> {
    let direction = cx.word("direction", "forward", DIRECTIONS)?;
    let batch_first = cx.flag("layout", false)?;
    let mut x = cx.input(0)?;
    let [w, r] = weights;
    if batch_first {
        x = swapped(cx, x)?;
    }
    let hidden = match cx.opt_int("hidden_size")? {
        Some(h) => h,
        None => {
            let last = cx.shape(r)?.last().and_then(Dim::as_const);
            last.ok_or_else(|| Failure::refused("attribute `hidden_size` is missing"))?
        }
    };
    let mut operands = vec![x, w, r];
    let mut has = [false; 5];
    for (i, has) in has.iter_mut().enumerate().take(optional) {
        let Some(mut v) = cx.opt(3 + i)? else { continue };
        // Lengths, and initial states of layout 1.
        match i {
            1 => v = cx.b().convert(v, DType::I32)?,
            2 | 3 if batch_first => v = swapped(cx, v)?,
            _ => {}
        }
        *has = true;
        operands.push(v);
    }
    let directions = if direction == RnnDirection::Bidirectional { 2 } else { 1 };
    let activations = activations(cx, functions * directions)?;
    let clip = cx.opt_float("clip")?.map(FloatBits::from);
    Ok(Layer { direction, hidden, activations, clip, batch_first, operands, has })
}

fn swapped(cx: &mut NodeCx<'_, '_>, v: ValueId) -> Result<ValueId, Failure> {
    Ok(cx.b().swap_axes(v, 0, 1)?)
}

/// The functions that the node names, `n` of them; none if it names none. Parameters go to the functions that take any, in order.
fn activations(cx: &mut NodeCx<'_, '_>, n: usize) -> Result<Vec<CellActivation>, Failure> {
    let names = cx.opt_strings("activations")?.unwrap_or_default();
    let mut alphas = cx.opt_floats("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = cx.opt_floats("activation_beta")?.unwrap_or_default().into_iter();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    if names.len() != n {
        return Err(Failure::refused(format!(
            "attribute `activations` names {} functions, {n} are needed",
            names.len()
        )));
    }
    let mut out = Vec::with_capacity(n);
    for name in names {
        let plain = name.to_ascii_lowercase();
        let f = FUNCTIONS.iter().find(|(w, _)| *w == plain).map(|(_, f)| *f);
        let f = f.ok_or_else(|| Failure::unsupported(format!("activation {}", crate::text::shown(&name))))?;
        let mut a = CellActivation::new(f);
        let (takes_alpha, takes_beta) = match f {
            CellFunction::Affine | CellFunction::ScaledTanh | CellFunction::HardSigmoid => (true, true),
            CellFunction::LeakyRelu | CellFunction::ThresholdedRelu | CellFunction::Elu => (true, false),
            _ => (false, false),
        };
        if takes_alpha && let Some(x) = alphas.next() {
            a.alpha = x.into();
        }
        if takes_beta && let Some(x) = betas.next() {
            a.beta = x.into();
        }
        out.push(a);
    }
    Ok(out)
}

/// Results in the layout of the file: y `[t, d, b, h]` becomes `[b, t, d, h]`, states `[d, b, h]` become `[b, d, h]`.
fn results(cx: &mut NodeCx<'_, '_>, batch_first: bool, mut out: Vec<ValueId>) -> Out {
    if batch_first {
        for (i, v) in out.iter_mut().enumerate() {
            *v = if i == 0 { cx.b().transpose(*v, &[2, 0, 1, 3])? } else { swapped(cx, *v)? };
        }
    }
    Ok(out)
}

/// The weights that are operands 1 and 2.
fn weights(cx: &mut NodeCx<'_, '_>) -> Result<[ValueId; 2], Failure> {
    Ok([cx.input(1)?, cx.input(2)?])
}

fn lstm(cx: &mut NodeCx<'_, '_>) -> Out {
    let weights = weights(cx)?;
    lstm_of(cx, weights)
}

/// [`lstm`] with values in the place of its weights.
pub(super) fn lstm_of(cx: &mut NodeCx<'_, '_>, weights: [ValueId; 2]) -> Out {
    let l = layer(cx, 3, 5, weights)?;
    let op = Lstm {
        direction: l.direction,
        hidden: l.hidden,
        has_bias: l.has[0],
        has_lengths: l.has[1],
        has_init_h: l.has[2],
        has_init_c: l.has[3],
        has_peephole: l.has[4],
        activations: l.activations,
        clip: l.clip,
        input_forget: cx.flag("input_forget", false)?,
    };
    let out = cx.b().lstm(op, &l.operands)?;
    results(cx, l.batch_first, out)
}

fn gru(cx: &mut NodeCx<'_, '_>) -> Out {
    let weights = weights(cx)?;
    let l = layer(cx, 2, 3, weights)?;
    let op = Gru {
        direction: l.direction,
        hidden: l.hidden,
        has_bias: l.has[0],
        has_lengths: l.has[1],
        has_init_h: l.has[2],
        activations: l.activations,
        clip: l.clip,
        linear_before_reset: cx.flag("linear_before_reset", false)?,
    };
    let out = cx.b().gru(op, &l.operands)?;
    results(cx, l.batch_first, out)
}

fn rnn(cx: &mut NodeCx<'_, '_>) -> Out {
    let weights = weights(cx)?;
    let l = layer(cx, 1, 3, weights)?;
    let op = Rnn {
        direction: l.direction,
        hidden: l.hidden,
        has_bias: l.has[0],
        has_lengths: l.has[1],
        has_init_h: l.has[2],
        activations: l.activations,
        clip: l.clip,
    };
    let out = cx.b().rnn(op, &l.operands)?;
    results(cx, l.batch_first, out)
}
