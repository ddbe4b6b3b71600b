//! A scalar program compiled for the tile machine: checked, resolved to loops, slots assigned.

use super::resolve::{Run, resolve};
use super::{Round, Work};
use rlx_compile::lir::{DimId, Literal, ScalarOp, ScalarProgram};
use rlx_ir::DType;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::reduction::ReduceKind;
use smallvec::SmallVec;

/// A constant in its working type.
pub type Bits = [u64; 2];

/// What a step does.
#[derive(Clone, Copy)]
pub enum What {
    /// Reads a block of the kernel's read of this number.
    Read(u32),
    /// The index on an axis.
    Index(u32),
    /// A constant.
    Const(Bits),
    /// A size.
    Size(DimId),
    /// The accumulator of the kernel whose epilogue this is.
    Acc,
    /// A loop over earlier values.
    Run(Run),
    /// A reduction over the row.
    Reduce(ReduceKind),
}

/// An instruction.
pub struct Step {
    /// What it does.
    pub what: What,
    /// The function, of a loop.
    pub op: Option<Elementwise>,
    /// Earlier values that it reads.
    pub args: SmallVec<[u32; 3]>,
    /// Dtype of its value.
    pub dtype: DType,
    /// Working type of its value.
    pub work: Work,
    /// How its value is rounded.
    pub round: Round,
    /// Which operands may be one element for a whole block.
    pub splat: u8,
    /// False if nothing needs it.
    pub live: bool,
    /// True if something needs it as a whole block even where it is uniform.
    pub block_user: bool,
}

/// A compiled program.
pub struct Code {
    /// Instructions; an instruction's position is its value's number.
    pub steps: Vec<Step>,
    /// Values that the kernel's writes take.
    pub results: Vec<u32>,
    /// Slot of each value for a run over one block after another.
    pub slots: Vec<u32>,
    /// Number of slots.
    pub slot_count: usize,
    /// Bytes of the largest element.
    pub element: usize,
    /// Machine code made of the program, where that is wanted.
    pub jit: Option<std::sync::Arc<crate::jit::Cache>>,
}

/// What a program may name.
pub struct Scope<'a> {
    /// Dtypes of the kernel's reads.
    pub reads: &'a [DType],
    /// Dtypes of the kernel's writes.
    pub writes: &'a [DType],
    /// Dtype of the accumulator, in an epilogue.
    pub acc: Option<DType>,
    /// Axes of the space.
    pub rank: usize,
    /// Whether it may reduce.
    pub row: bool,
}

impl Code {
    /// Compiles a program, or says what is wrong with it.
    pub fn compile(program: &ScalarProgram, scope: &Scope<'_>) -> Result<Code, String> {
        let mut steps: Vec<Step> = Vec::with_capacity(program.insts.len());
        // Values that are others by another name.
        let mut alias: Vec<u32> = Vec::with_capacity(program.insts.len());
        for (i, inst) in program.insts.iter().enumerate() {
            let bad = |why: &str| format!("instruction {i} of a scalar program ({:?}) {why}", inst.op);
            let work = Work::of(inst.dtype).ok_or_else(|| bad("has a dtype that no kernel computes in"))?;
            let args = inst
                .args
                .iter()
                .map(|&a| alias.get(a as usize).copied().ok_or_else(|| bad("reads a later one")))
                .collect::<Result<SmallVec<[u32; 3]>, _>>()?;
            let dtypes: SmallVec<[DType; 3]> =
                args.iter().filter_map(|&a| steps.get(a as usize).map(|s| s.dtype)).collect();
            let mut splat = 0;
            let what = match inst.op {
                ScalarOp::Read(n) => {
                    if scope.reads.get(n as usize) != Some(&inst.dtype) {
                        return Err(bad("is not of the dtype of the kernel's read"));
                    }
                    What::Read(n)
                }
                ScalarOp::Index(axis) if (axis as usize) < scope.rank => What::Index(axis),
                ScalarOp::Index(_) => return Err(bad("names an axis that the space lacks")),
                ScalarOp::Const(literal) => What::Const(bits(literal, work)),
                ScalarOp::Size(dim) => What::Size(dim),
                ScalarOp::Acc if scope.acc == Some(inst.dtype) => What::Acc,
                ScalarOp::Acc => return Err(bad("is not the accumulator's dtype")),
                ScalarOp::Reduce(_) if !scope.row || dtypes.as_slice() != [inst.dtype] => {
                    return Err(bad("stands outside a row kernel or changes the dtype"));
                }
                ScalarOp::Reduce(kind) => What::Reduce(kind),
                ScalarOp::Apply(op) => {
                    let (run, mask) =
                        resolve(&op, &dtypes, inst.dtype).ok_or_else(|| bad(&format!("does not take {dtypes:?}")))?;
                    splat = mask;
                    if matches!((run, op), (Run::Copy, Elementwise::Convert { .. })) {
                        alias.push(args.first().copied().unwrap_or(0));
                        steps.push(dead(inst.dtype, work));
                        continue;
                    }
                    What::Run(run)
                }
            };
            alias.push(i as u32);
            // A conversion gives values that its dtype has; infinities that it made would not survive saturation.
            let converts = matches!(inst.op, ScalarOp::Apply(Elementwise::Convert { .. }));
            let round = if converts { Round::None } else { Round::of(inst.dtype) };
            let op = if let ScalarOp::Apply(op) = inst.op { Some(op) } else { None };
            steps.push(Step { what, op, args, dtype: inst.dtype, work, round, splat, live: false, block_user: false });
        }
        let results = program
            .results
            .iter()
            .map(|&r| alias.get(r as usize).copied().ok_or_else(|| format!("a result names instruction {r}")))
            .collect::<Result<Vec<u32>, _>>()?;
        let found: Vec<DType> = results.iter().filter_map(|&r| steps.get(r as usize).map(|s| s.dtype)).collect();
        if found != scope.writes {
            return Err(format!("a scalar program gives {found:?} to writes of {:?}", scope.writes));
        }
        mark(&mut steps, &results);
        let element = steps.iter().filter(|s| s.live).map(|s| s.work.size()).max().unwrap_or(1);
        let (slots, slot_count) = assign(&steps, &results);
        Ok(Code { steps, results, slots, slot_count, element, jit: None })
    }
}

fn dead(dtype: DType, work: Work) -> Step {
    let what = What::Const([0, 0]);
    let args = SmallVec::new();
    Step { what, op: None, args, dtype, work, round: Round::None, splat: 0, live: false, block_user: false }
}

/// Finds what is needed, and what is needed as a whole block.
fn mark(steps: &mut [Step], results: &[u32]) {
    for &r in results {
        if let Some(s) = steps.get_mut(r as usize) {
            s.live = true;
            s.block_user = true;
        }
    }
    for i in (0..steps.len()).rev() {
        let (before, rest) = steps.split_at_mut(i);
        let Some(step) = rest.first().filter(|s| s.live) else { continue };
        for (k, &a) in step.args.iter().enumerate() {
            if let Some(arg) = before.get_mut(a as usize) {
                arg.live = true;
                arg.block_user |= step.splat >> k & 1 == 0;
            }
        }
    }
}

/// Slots by first use and last use; a result's slot lies apart from those of its operands. Constants keep theirs.
fn assign(steps: &[Step], results: &[u32]) -> (Vec<u32>, usize) {
    let mut last: Vec<usize> = (0..steps.len()).collect();
    for (i, s) in steps.iter().enumerate().filter(|(_, s)| s.live) {
        for &a in &s.args {
            if let Some(l) = last.get_mut(a as usize) {
                *l = i;
            }
        }
    }
    for &r in results {
        if let Some(l) = last.get_mut(r as usize) {
            *l = usize::MAX;
        }
    }
    let (mut slots, mut free, mut count) = (vec![0u32; steps.len()], Vec::new(), 0u32);
    for (i, s) in steps.iter().enumerate().filter(|(_, s)| s.live) {
        let fixed = matches!(s.what, What::Const(_) | What::Size(_));
        let reused = if fixed { None } else { free.pop() };
        slots[i] = reused.unwrap_or_else(|| {
            count += 1;
            count - 1
        });
        let mut done: SmallVec<[u32; 3]> = s.args.clone();
        done.dedup();
        if last[i] == i && !fixed {
            done.push(i as u32);
        }
        for &a in &done {
            let a = a as usize;
            let constant = matches!(steps[a].what, What::Const(_) | What::Size(_));
            if last[a] == i && !constant && !free.contains(&slots[a]) {
                free.push(slots[a]);
            }
        }
    }
    (slots, count as usize)
}

/// A literal in a working type.
fn bits(literal: Literal, work: Work) -> Bits {
    let (real, imaginary, int) = match literal {
        Literal::Float(f) => (f.get(), 0.0, f.get() as i128),
        Literal::Int(i) => (i as f64, 0.0, i),
        Literal::Complex(re, im) => (re.get(), im.get(), re.get() as i128),
    };
    match work {
        Work::F32 => [u64::from((real as f32).to_bits()), 0],
        Work::F64 => [real.to_bits(), 0],
        Work::Complex => [real.to_bits(), imaginary.to_bits()],
        Work::Bool => [u64::from(int != 0), 0],
        _ => [int as u64, 0],
    }
}

/// An integer in a working type.
pub fn int_bits(value: i64, dtype: DType) -> Bits {
    match Work::of(dtype) {
        Some(work) => bits(Literal::Int(i128::from(value)), work),
        None => [0, 0],
    }
}
