//! Scalar programs: what a kernel computes at each point of its space. One small SSA language, the same for the tile machine, a machine
//! code emitter and a GPU printer.

use rlx_ir::DType;
use rlx_ir::attr::FloatBits;
use rlx_ir::ops::Elementwise;
use rlx_ir::ops::reduction::ReduceKind;
use serde::{Deserialize, Serialize};

use super::DimId;

/// A scalar literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Literal {
    /// A float, already rounded to its instruction's dtype.
    Float(FloatBits),
    /// An integer, already in the range of its instruction's dtype; booleans are 0 and 1.
    Int(i128),
    /// A complex number.
    Complex(FloatBits, FloatBits),
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScalarOp {
    /// The element that the kernel's read number n has at this point.
    Read(u32),
    /// A literal.
    Const(Literal),
    /// The point's index on axis n of the space.
    Index(u32),
    /// The value of a size.
    Size(DimId),
    /// In an epilogue: the accumulator at this point.
    Acc,
    /// An elementwise function of earlier instructions. Its value is rounded to the instruction's dtype.
    Apply(Elementwise),
    /// In a row kernel: the reduction of an earlier instruction over the reduced axes. Floats of up to 32 bits accumulate in f32.
    Reduce(ReduceKind),
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Inst {
    /// What it does.
    pub op: ScalarOp,
    /// Earlier instructions that it reads.
    pub args: Vec<u32>,
    /// Dtype of its value.
    pub dtype: DType,
}

/// How an instruction of a row kernel varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One value a row.
    Row,
    /// One value an element of the row.
    Element,
}

/// A straight-line program. Instructions read only earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct ScalarProgram {
    /// Instructions.
    pub insts: Vec<Inst>,
    /// Instructions whose values the kernel writes: `results[i]` goes to its write number i.
    pub results: Vec<u32>,
}

impl ScalarProgram {
    /// Appends an instruction, or finds the equal one that is there.
    pub fn push(&mut self, op: ScalarOp, args: Vec<u32>, dtype: DType) -> u32 {
        let inst = Inst { op, args, dtype };
        if let Some(i) = self.insts.iter().position(|x| *x == inst) {
            return i as u32;
        }
        self.insts.push(inst);
        (self.insts.len() - 1) as u32
    }

    /// How each instruction varies. `row_reads[n]` says that read number n is the same over the reduced axes.
    pub fn scopes(&self, row_reads: &[bool], outer_rank: usize) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = Vec::with_capacity(self.insts.len());
        for inst in &self.insts {
            let args = inst.args.iter().filter_map(|&a| scopes.get(a as usize).copied()).max().unwrap_or(Scope::Row);
            scopes.push(match inst.op {
                ScalarOp::Read(n) if row_reads.get(n as usize) == Some(&true) => Scope::Row,
                ScalarOp::Read(_) | ScalarOp::Acc => Scope::Element,
                ScalarOp::Index(axis) if (axis as usize) < outer_rank => Scope::Row,
                ScalarOp::Index(_) => Scope::Element,
                ScalarOp::Const(_) | ScalarOp::Size(_) | ScalarOp::Reduce(_) => Scope::Row,
                ScalarOp::Apply(_) => args,
            });
        }
        scopes
    }
}
