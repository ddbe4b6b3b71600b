//! From a compiled scalar program to a nest of loops: passes over a row's elements with what is uniform between them.

use super::integers::{self, Lane};
use super::small_floats::{self, is_byte_float};
use super::tape::{One, Op, PARTS, Recorder, Small, Tape, Two, V, record};
use crate::simd::{Simd, unary_lanes};
use crate::tile::code::{Code, Step, What};
use crate::tile::{Round, f32 as lanes};
use rlx_ir::DType;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::{Binary, Compare, Unary};
use rlx_ir::ops::reduction::ReduceKind;

/// What memory a loop reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The value of a step: one element for each element, or one for all where the step is uniform.
    Source(u32),
    /// A result that varies along the row (in a map: any).
    Result(u32),
    /// A result of one element a row.
    RowResult(u32),
    /// Room for a row of f32, from one pass to a later one.
    Kept,
}

/// How elements lie in a port's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// As lanes do.
    Word,
    /// One byte, 0 or 1, for a mask.
    Mask,
    /// Integers of 8 or 16 bits.
    Small(Small),
}

/// A reduction of a pass.
#[derive(Debug)]
pub struct Reduce {
    pub neutral: u32,
    /// The next partial result, in whole turns and in the last ones.
    pub next: [V; 2],
}

/// A loop over the elements of a row.
#[derive(Debug, Default)]
pub struct Pass {
    /// Reductions, by number.
    pub reduces: Vec<u16>,
    /// What it writes where.
    pub writes: Vec<(u16, V)>,
    /// Values that an earlier pass has kept, with their ports.
    pub reads: Vec<(u16, V)>,
}

/// A program as loops.
#[derive(Debug)]
pub struct Nest {
    pub tape: Tape,
    pub uniform: Vec<bool>,
    pub stage: Vec<u8>,
    pub ports: Vec<Port>,
    /// How each port's elements lie; beyond the list they are words.
    pub widths: Vec<Width>,
    pub reduces: Vec<Reduce>,
    /// Pass number `s` comes after what is uniform of stage `s`.
    pub passes: Vec<Pass>,
    pub row_results: Vec<(u16, V)>,
}

/// Operations that it takes to make a value again, from which on it is kept in memory instead.
const KEEP: u32 = 4;

impl Nest {
    /// The nest of a program whose steps are uniform or not as said; `along[i]` says whether result `i` varies along the row.
    /// `None` where an instruction has no vector form here.
    pub fn new(code: &Code, uniform: &[bool], along: &[bool]) -> Option<Nest> {
        let (built, tape) = record(|s| build(s, code, uniform, along));
        let mut n = built.filter(|_| !tape.failed)?;
        n.tape = tape;
        n.classify();
        let (mut outs, rows): (Vec<_>, Vec<_>) =
            n.row_results.drain(..).partition(|&(p, _)| matches!(n.ports.get(p as usize), Some(Port::Result(_))));
        n.row_results = rows;
        if n.row_results.iter().any(|r| !n.uniform[r.1.0 as usize]) {
            return None;
        }
        let last = n.stage.iter().copied().max().unwrap_or(0);
        n.passes = (0..=last).map(|_| Pass::default()).collect();
        for (r, reduce) in n.reduces.iter().enumerate() {
            // A reduction's parts are of the stage after its pass.
            let stage = n.stage_of_reduce(reduce);
            n.passes.get_mut(stage as usize)?.reduces.push(r as u16);
        }
        for (port, v) in outs.drain(..) {
            let stage = n.stage[v.0 as usize];
            n.passes.get_mut(stage as usize)?.writes.push((port, v));
        }
        n.keep();
        n.ports.iter().try_fold(0u16, |a, _| a.checked_add(1))?;
        Some(n)
    }

    fn port(&mut self, port: Port, width: Width) -> u16 {
        self.ports.push(port);
        self.widths.push(width);
        self.ports.len() as u16 - 1
    }

    /// How a port's elements lie.
    pub fn width(&self, port: u16) -> Width {
        self.widths.get(port as usize).copied().unwrap_or(Width::Word)
    }

    fn stage_of_reduce(&self, r: &Reduce) -> u8 {
        self.stage.get(r.next[0].0 as usize).copied().unwrap_or(0)
    }

    /// What is uniform, and how many passes each value waits for.
    fn classify(&mut self) {
        for op in &self.tape.ops {
            let own = match *op {
                Op::Const(_) | Op::Uniform(_) => (true, 0),
                // All of a reduction's values come before its parts on the tape.
                Op::Part(r, _) => {
                    (true, 1 + self.reduces.get(r as usize).map_or(0, |r| self.stage[r.next[0].0 as usize]))
                }
                _ if op.is_source() => (false, 0),
                _ => op
                    .args()
                    .fold((true, 0), |(u, s), a| (u && self.uniform[a.0 as usize], s.max(self.stage[a.0 as usize]))),
            };
            self.uniform.push(own.0);
            self.stage.push(own.1);
        }
    }

    /// The element values that a pass computes, in order: what `roots` need, down to what is uniform, lies in memory or is kept.
    pub fn needed(&self, roots: &[V], kept: &[(u16, V)]) -> Vec<V> {
        let n = self.tape.ops.len();
        let mut need = vec![false; n];
        roots.iter().for_each(|v| need[v.0 as usize] = true);
        for i in (0..n).rev() {
            let v = V(i as u32);
            let op = self.tape.op(v);
            need[i] &= !self.uniform[i] && !op.is_source() && !kept.iter().any(|k| k.1 == v);
            if need[i] {
                op.args().for_each(|a| need[a.0 as usize] = true);
            }
        }
        (0..n).filter(|&i| need[i]).map(|i| V(i as u32)).collect()
    }

    /// Values that a loop over this pass must come to.
    pub fn roots(&self, pass: &Pass, tail: bool) -> Vec<V> {
        let reduces = pass.reduces.iter().filter_map(|&r| self.reduces.get(r as usize));
        reduces.map(|r| r.next[usize::from(tail)]).chain(pass.writes.iter().map(|w| w.1)).collect()
    }

    /// Keeps what one pass computes at some cost and a later one needs.
    fn keep(&mut self) {
        let mut first: Vec<Option<usize>> = vec![None; self.tape.ops.len()];
        for p in 0..self.passes.len() {
            let mut wanted = self.roots(&self.passes[p], false);
            // From the results down, so that the latest value of a chain is the one that is kept.
            let list = self.needed(&wanted, &[]);
            for &v in list.iter().rev() {
                let Some(before) = first[v.0 as usize].filter(|&b| b < p) else { continue };
                let still = self.needed(&wanted, &self.passes[p].reads);
                if !still.contains(&v) || self.cost(v) <= KEEP {
                    continue;
                }
                let port = match self.passes[before]
                    .writes
                    .iter()
                    .find(|w| w.1 == v && self.ports[w.0 as usize] == Port::Kept)
                {
                    Some(w) => w.0,
                    None => {
                        let port = self.port(Port::Kept, Width::Word);
                        self.passes[before].writes.push((port, v));
                        port
                    }
                };
                self.passes[p].reads.push((port, v));
            }
            wanted.extend(self.passes[p].writes.iter().map(|w| w.1));
            for v in self.needed(&wanted, &self.passes[p].reads) {
                first[v.0 as usize].get_or_insert(p);
            }
        }
    }

    fn cost(&self, v: V) -> u32 {
        let of = |v: &V| match self.tape.op(*v) {
            Op::Two(Two::Div, ..) | Op::One(One::Sqrt, _) => 4,
            _ => 1,
        };
        self.needed(&[v], &[]).iter().map(of).sum()
    }
}

fn build(s: Recorder, code: &Code, uniform: &[bool], along: &[bool]) -> Option<Nest> {
    let mut n = Nest {
        tape: Tape::default(),
        uniform: Vec::new(),
        stage: Vec::new(),
        ports: Vec::new(),
        widths: Vec::new(),
        reduces: Vec::new(),
        passes: Vec::new(),
        row_results: Vec::new(),
    };
    let mut values: Vec<V> = vec![V(0); code.steps.len()];
    // Values that are bytes of small floats already.
    let mut bytes = vec![false; code.steps.len()];
    for (i, step) in code.steps.iter().enumerate().filter(|(_, s)| s.live) {
        let lane = Lane::of(step.dtype)?;
        let half = matches!(step.dtype, DType::BF16 | DType::F16);
        // A conversion to fewer bits rounds by itself; no other function of small floats is one of f32s.
        let small = is_byte_float(step.dtype);
        if step.round != Round::None && !half && !small {
            return None;
        }
        let read = code.steps.iter().any(|s| s.live && s.args.contains(&(i as u32)));
        let arg = |k: usize| step.args.get(k).and_then(|&a| values.get(a as usize)).copied();
        let v = match step.what {
            What::Const(_) if small => return None,
            What::Const(bits) => s.splat_i(lane.bits(bits[0])),
            What::Index(_) | What::Size(_) | What::Acc if !matches!(step.dtype, DType::F32 | DType::I32) => {
                return None;
            }
            What::Read(_) | What::Index(_) | What::Size(_) | What::Acc => {
                let stored = Lane::stored(step.dtype)?;
                let port = n.port(Port::Source(i as u32), stored.width());
                let v = match (uniform[i], stored) {
                    (true, _) => s.push(Op::Uniform(port)),
                    (false, Lane::Mask) => s.push(Op::Mask(port)),
                    (false, Lane::Small(small)) => s.push(Op::Small(port, small)),
                    (false, Lane::Float | Lane::Int) => s.push(Op::Stream(port)),
                };
                if small { small_floats::decode(s, step.dtype, v)? } else { v }
            }
            What::Reduce(_) if lane != Lane::Float || half || small => return None,
            What::Reduce(kind) => reduce(s, &mut n, kind, arg(0)?)?,
            What::Run(_) if small && !read && is_f32(code, step) => {
                let Some(Elementwise::Convert { saturate, .. }) = step.op else { return None };
                bytes[i] = true;
                small_floats::encode_rounded(s, step.dtype, arg(0)?, saturate)?
            }
            What::Run(_) => {
                let v = apply(s, code, step, [arg(0), arg(1), arg(2)])?;
                match step.dtype {
                    _ if small => v,
                    // What is only stored is rounded then.
                    DType::BF16 | DType::F16 if !read => v,
                    DType::BF16 => round_bf16(s, v),
                    DType::F16 => return None,
                    _ => v,
                }
            }
        };
        values[i] = v;
    }
    for (i, &r) in code.results.iter().enumerate() {
        let step = code.steps.get(r as usize)?;
        let along = *along.get(i)?;
        // One number a row is written as it is.
        if !along && step.dtype != DType::F32 {
            return None;
        }
        let kind = if along { Port::Result(i as u32) } else { Port::RowResult(i as u32) };
        let port = n.port(kind, Lane::stored(step.dtype)?.width());
        let v = values[r as usize];
        let v =
            if is_byte_float(step.dtype) && !bytes[r as usize] { small_floats::encode(s, step.dtype, v)? } else { v };
        n.row_results.push((port, v));
    }
    Some(n)
}

/// Whether a step's operand is f32.
fn is_f32(code: &Code, step: &Step) -> bool {
    let operand = step.args.first().and_then(|&a| code.steps.get(a as usize));
    operand.is_some_and(|s| s.dtype == DType::F32)
}

/// To bfloat16, to nearest even; NaN stays NaN.
fn round_bf16(s: Recorder, x: V) -> V {
    let odd = s.and_i(s.sar_i::<16>(x), s.splat_i(1));
    let up = s.add_i(x, s.add_i(odd, s.splat_i(0x7fff)));
    let quiet = s.or_i(x, s.splat_i(0x40_0000));
    let v = s.select(s.is_nan(x), quiet, up);
    s.and_i(v, s.splat_i(0xffff_0000_u32 as i32))
}

/// A reduction in the tile machine's order: interleaved partial results, then a tree.
fn reduce(s: Recorder, n: &mut Nest, kind: ReduceKind, x: V) -> Option<V> {
    let number = n.reduces.len() as u16;
    let neutral = match kind {
        ReduceKind::Sum => 0.0f32,
        ReduceKind::Prod => 1.0,
        ReduceKind::Min => f32::INFINITY,
        ReduceKind::Max => f32::NEG_INFINITY,
        ReduceKind::Any | ReduceKind::All => return None,
    };
    let combine = |a: V, b: V| match kind {
        ReduceKind::Sum => s.add(a, b),
        ReduceKind::Prod => s.mul(a, b),
        ReduceKind::Min => s.min(a, b),
        _ => s.max(a, b),
    };
    let before = s.push(Op::Partial(number));
    let whole = combine(before, x);
    let tail = s.push(Op::Tail);
    let part = s.select(tail, x, s.splat(neutral));
    let next = [whole, combine(before, part)];
    n.reduces.push(Reduce { neutral: neutral.to_bits(), next });
    let parts: [V; PARTS as usize] = std::array::from_fn(|k| s.push(Op::Part(number, k as u8)));
    let mut v = combine(combine(parts[0], parts[2]), combine(parts[1], parts[3]));
    for exchange in [One::SwapHalves, One::Shuffle(0x4e), One::Shuffle(0xb1)] {
        v = combine(v, s.one(exchange, v));
    }
    Some(v)
}

fn apply(s: Recorder, code: &Code, step: &Step, args: [Option<V>; 3]) -> Option<V> {
    let of = |k: usize| step.args.get(k).and_then(|&a| code.steps.get(a as usize)).map(|s| s.dtype);
    let (a, operand) = (args[0]?, of(0)?);
    let bool = operand == DType::Bool;
    if let Elementwise::Convert { to, saturate } = step.op? {
        if is_byte_float(to) {
            let float = Lane::of(operand)? == Lane::Float && !is_byte_float(operand);
            return if float { small_floats::round(s, to, a, saturate) } else { None };
        }
        return convert(s, a, operand, to);
    }
    if is_byte_float(step.dtype) || is_byte_float(operand) {
        return None;
    }
    if step.op? != Elementwise::Select
        && let lane @ (Lane::Int | Lane::Small(_)) = Lane::of(operand)?
    {
        return integers::apply(s, step.op?, lane, operand, args);
    }
    Some(match step.op? {
        Elementwise::Unary(Unary::Not) if bool => s.not_m(a),
        Elementwise::Unary(f) if !bool => match f {
            Unary::IsNan => s.is_nan(a),
            Unary::IsInf => s.eq(s.abs(a), s.splat(f32::INFINITY)),
            Unary::IsFinite => s.lt(s.abs(a), s.splat(f32::INFINITY)),
            f => unary_lanes(lanes::unary(f)?, s, a),
        },
        Elementwise::Binary(f) if bool => match f {
            Binary::And => s.and_m(a, args[1]?),
            Binary::Or => s.or_m(a, args[1]?),
            Binary::Xor => s.xor_i(a, args[1]?),
            _ => return None,
        },
        Elementwise::Binary(f) => lanes::binary_lanes(f, s, a, args[1]?)?,
        Elementwise::Compare(f) if !bool => {
            let b = args[1]?;
            match f {
                Compare::Eq => s.eq(a, b),
                Compare::Ne => s.two(Two::Compare(4), a, b),
                Compare::Lt => s.lt(a, b),
                Compare::Le => s.le(a, b),
                Compare::Gt => s.lt(b, a),
                Compare::Ge => s.le(b, a),
            }
        }
        Elementwise::Clamp if !bool => lanes::clamp_lanes(s, a, args[1]?, args[2]?),
        Elementwise::Select => s.select(a, args[1]?, args[2]?),
        _ => return None,
    })
}

fn convert(s: Recorder, a: V, from: DType, to: DType) -> Option<V> {
    Some(match (Lane::of(from)?, Lane::of(to)?) {
        (Lane::Float, Lane::Float) => a,
        (Lane::Float, Lane::Mask) => s.two(Two::Compare(4), a, s.splat(0.0)),
        (Lane::Float, lane) => integers::from_float(s, a, lane),
        (Lane::Mask, Lane::Float) if to == DType::F32 => s.and_i(a, s.splat(1.0)),
        (Lane::Mask, Lane::Mask) => a,
        (Lane::Mask, Lane::Int | Lane::Small(_)) => s.and_i(a, s.splat_i(1)),
        (_, Lane::Mask) => s.not_m(s.eq_i(a, s.splat_i(0))),
        // To halves of more than 11 bits there are two roundings.
        (_, Lane::Float) if to == DType::F32 => s.to_float(a),
        (_, Lane::Float) => return None,
        (_, lane) => integers::wrap(s, a, lane),
    })
}
