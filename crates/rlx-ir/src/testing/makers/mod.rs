//! The tables of makers: each thinks up one node of its kind, or none on the values at hand. A node that the type rule refuses is
//! dropped, so that a maker need not repeat the rule; but what the rule cannot see (indices, windows larger than their axes) must hold.

mod basic;
mod control;
mod indexing;
mod neural;
mod window;

use super::generate::{Built, Gen, Known, Plan};

type Maker = fn(&mut Gen<'_>) -> Option<Plan>;

/// Adds nodes itself.
type BuilderMaker = fn(&mut Gen<'_>) -> Option<Built>;

/// Ops that become maps, rows and products; those that stand twice are taken twice as often.
const BASIC: &[Maker] = &[
    basic::unary,
    basic::unary,
    basic::unary,
    basic::binary,
    basic::binary,
    basic::binary,
    basic::compare,
    basic::select,
    basic::clamp,
    basic::convert,
    basic::transpose,
    basic::reverse,
    basic::slice,
    basic::slice,
    basic::concat,
    basic::pad,
    basic::broadcast_to,
    basic::reshape,
    basic::reshape,
    basic::reduce,
    basic::reduce,
    basic::gather,
    basic::dot_general,
    basic::dot_general,
    basic::softmax,
    basic::layer_norm,
    basic::iota,
    basic::shape_of,
];

/// Ops with kernels of their own, and composites.
const LIBRARY: &[Maker] = &[
    indexing::gather_elements,
    indexing::gather_nd,
    indexing::scatter_elements,
    indexing::scatter_nd,
    indexing::sort,
    indexing::top_k,
    indexing::arg_reduce,
    indexing::dynamic_slice,
    indexing::dynamic_update_slice,
    window::cumulative,
    window::fft,
    window::reduce_window,
    window::max_pool_with_indices,
    window::conv,
    window::conv,
    window::conv_transpose,
    window::border,
    window::resize,
    neural::rms_norm,
    neural::group_norm,
    neural::batch_norm,
    neural::attention,
    neural::attention,
    neural::rotary_embedding,
    neural::lstm,
    neural::gru,
    neural::rnn,
    basic::bitcast_convert,
    basic::random_bits,
];

/// Ops with nested graphs, and those whose sizes depend on data.
const CONTROL: &[BuilderMaker] =
    &[control::branch, control::repeat, control::grow, control::scan, control::nonzero, control::read_dims];

/// Adds a random node of the options' kinds.
pub(super) fn add(g: &mut Gen<'_>) -> Option<()> {
    let (library, control) = if g.options.all_ops { (LIBRARY, CONTROL) } else { (&[][..], &[][..]) };
    let n = g.rng.below(BASIC.len() + library.len() + control.len());
    if let Some(make) = BASIC.iter().chain(library).nth(n) {
        let plan = make(g)?;
        return g.add(plan);
    }
    let built = control.get(n - BASIC.len() - library.len())?(g)?;
    g.keep(built)
}

fn union(operands: &[Known]) -> f64 {
    operands.iter().fold(0.0, |b: f64, k| b.max(k.bound))
}

/// Arithmetic on it can be compared: 8-bit floats overflow too soon.
fn computes(g: &Gen<'_>, k: &Known) -> bool {
    !g.options.tame || !k.dtype.is_float() || k.dtype.bits() >= 16
}

/// A value whose steps are the same everywhere.
fn steady(g: &Gen<'_>, k: &Known) -> bool {
    !g.options.tame || k.exact || !k.dtype.is_float()
}

fn shuffled(g: &mut Gen<'_>, n: usize) -> Vec<usize> {
    let mut list: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        list.swap(i, g.rng.below(i + 1));
    }
    list
}

fn axes(g: &mut Gen<'_>, rank: usize) -> Vec<usize> {
    (0..rank).filter(|_| g.rng.chance(50)).collect()
}
