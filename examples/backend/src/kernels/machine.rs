//! The kernels, each in plain loops: a space is walked point by point, and a scalar program runs at each.

use rlx::DType;
use rlx::Tensor;
use rlx::compile::RunError;
use rlx::compile::lir::{
    Access, BufId, ContractKernel, DimId, Kernel, LibraryKernel, Lir, Literal, MapKernel, RowKernel, ScalarOp,
    ScalarProgram, Scope,
};
use rlx::ir::Op;
use rlx::ir::element::round_float;
use rlx::ir::ops::elementwise::{Binary, Scalar};
use rlx::ir::ops::indexing::Indexing;

use crate::array::{fault, indices, int, tensor};
use crate::fold::fold;

/// What a fresh element is.
pub fn zero(dtype: DType) -> Scalar {
    if dtype.is_float() { Scalar::F(0.0) } else { Scalar::I(0) }
}

/// A program with its sizes and memory.
pub struct Machine<'a> {
    /// The program.
    pub lir: &'a Lir,
    /// Values of its table of dims.
    pub sizes: Vec<i64>,
    /// Elements of its buffers.
    pub memory: Vec<Vec<Scalar>>,
}

impl Machine<'_> {
    /// One kernel.
    pub fn run(&mut self, k: &Kernel) -> Result<(), RunError> {
        match k {
            Kernel::Map(k) => self.map(k),
            Kernel::Row(k) => self.row(k),
            Kernel::Contract(k) => self.contract(k),
            Kernel::Library(k) => self.gather(k),
            other => Err(fault(other.kind(), "the kernel is not run here")),
        }
    }

    /// A buffer's contents.
    pub fn tensor(&self, b: BufId) -> Result<Tensor, RunError> {
        let buffer = self.lir.buffer(b);
        let dims = self.list(&buffer.shape)?;
        // Memory order is row-major unless the layout pass, which works for convolutions, chose another.
        if !buffer.order.iter().copied().eq(0..dims.len()) {
            return Err(fault("output", "only row-major buffers are handed out"));
        }
        tensor(buffer.dtype, &dims, &self.memory[b.index()])
    }

    fn size(&self, d: DimId) -> i64 {
        self.sizes[d.index()]
    }

    fn list(&self, dims: &[DimId]) -> Result<Vec<usize>, RunError> {
        let one = |&d: &DimId| usize::try_from(self.size(d)).map_err(|_| fault("size", "a size is negative"));
        dims.iter().map(one).collect()
    }

    /// Where an access lies at a point.
    fn place(&self, a: &Access, index: &[usize]) -> Result<usize, RunError> {
        let steps = a.strides.iter().zip(index).map(|(&s, &i)| self.size(s) * i as i64);
        let at = self.size(a.offset) + steps.sum::<i64>();
        usize::try_from(at)
            .ok()
            .filter(|&at| at < self.memory[a.buffer.index()].len())
            .ok_or_else(|| fault("access", format!("element {at} is outside buffer {}", a.buffer.0)))
    }

    fn read(&self, a: &Access, index: &[usize]) -> Result<Scalar, RunError> {
        Ok(self.memory[a.buffer.index()][self.place(a, index)?])
    }

    fn write(&mut self, a: &Access, index: &[usize], x: Scalar) -> Result<(), RunError> {
        let at = self.place(a, index)?;
        self.memory[a.buffer.index()][at] = x;
        Ok(())
    }

    /// One instruction at a point; reductions are the row kernel's.
    fn instruction(
        &self,
        p: &ScalarProgram,
        at: usize,
        args: &[Scalar],
        reads: &[Access],
        index: &[usize],
        acc: Option<Scalar>,
    ) -> Result<Scalar, RunError> {
        let inst = &p.insts[at];
        match &inst.op {
            ScalarOp::Read(n) => self.read(&reads[*n as usize], index),
            ScalarOp::Const(Literal::Float(x)) => Ok(Scalar::F(x.get())),
            ScalarOp::Const(Literal::Int(x)) => Ok(Scalar::I(*x)),
            ScalarOp::Const(Literal::Complex(..)) => Err(fault("scalar", "complex numbers are not claimed")),
            ScalarOp::Index(axis) => Ok(Scalar::I(index[*axis as usize] as i128)),
            ScalarOp::Size(d) => Ok(Scalar::I(i128::from(self.size(*d)))),
            ScalarOp::Acc => acc.ok_or_else(|| fault("scalar", "there is no accumulator here")),
            ScalarOp::Apply(f) => {
                let dtypes: Vec<DType> = inst.args.iter().map(|&a| p.insts[a as usize].dtype).collect();
                f.apply(&dtypes, inst.dtype, args).ok_or_else(|| fault("scalar", format!("{f:?} of {dtypes:?}")))
            }
            ScalarOp::Reduce(_) => Err(fault("scalar", "a reduction outside a row")),
        }
    }

    /// A whole program at one point, its results written.
    fn point(
        &mut self,
        p: &ScalarProgram,
        (reads, writes): (&[Access], &[Access]),
        index: &[usize],
        acc: Option<Scalar>,
    ) -> Result<(), RunError> {
        let mut values: Vec<Scalar> = Vec::with_capacity(p.insts.len());
        for (at, inst) in p.insts.iter().enumerate() {
            let args: Vec<Scalar> = inst.args.iter().map(|&a| values[a as usize]).collect();
            values.push(self.instruction(p, at, &args, reads, index, acc)?);
        }
        for (w, &r) in writes.iter().zip(&p.results) {
            self.write(w, index, values[r as usize])?;
        }
        Ok(())
    }

    fn map(&mut self, k: &MapKernel) -> Result<(), RunError> {
        for index in indices(&self.list(&k.space)?) {
            self.point(&k.program, (&k.reads, &k.writes), &index, None)?;
        }
        Ok(())
    }

    /// For each outer point every instruction runs over the whole row, so that a reduction finds all its elements.
    fn row(&mut self, k: &RowKernel) -> Result<(), RunError> {
        let (outer, reduced) = (self.list(&k.outer)?, self.list(&k.reduced)?);
        let p = &k.program;
        let still = |r: &Access| r.strides[outer.len()..].iter().all(|&s| self.lir.dims.get(s).as_const() == Some(0));
        let still: Vec<bool> = k.reads.iter().map(still).collect();
        let scopes = p.scopes(&still, outer.len());
        for o in indices(&outer) {
            let row: Vec<Vec<usize>> = indices(&reduced).map(|i| [o.clone(), i].concat()).collect();
            let start = [o.clone(), vec![0; reduced.len()]].concat();
            let mut values: Vec<Vec<Scalar>> = Vec::with_capacity(p.insts.len());
            for (at, inst) in p.insts.iter().enumerate() {
                if let ScalarOp::Reduce(kind) = inst.op {
                    let x = inst.args[0] as usize;
                    let total = fold(kind, inst.dtype, values[x].iter().copied())?;
                    values.push(vec![match total {
                        Scalar::F(x) => Scalar::F(round_float(inst.dtype, x)),
                        other => other,
                    }]);
                    continue;
                }
                let once = std::slice::from_ref(&start);
                let points = if scopes[at] == Scope::Row { once } else { row.as_slice() };
                let mut out = Vec::with_capacity(points.len());
                for (i, index) in points.iter().enumerate() {
                    let arg = |&a: &u32| {
                        let v = &values[a as usize];
                        if scopes[a as usize] == Scope::Row { v[0] } else { v[i] }
                    };
                    let args: Vec<Scalar> = inst.args.iter().map(arg).collect();
                    out.push(self.instruction(p, at, &args, &k.reads, index, None)?);
                }
                values.push(out);
            }
            for (w, &r) in k.writes.iter().zip(&p.results) {
                let v = &values[r as usize];
                match scopes[r as usize] {
                    Scope::Row => self.write(w, &o, v[0])?,
                    Scope::Element => row.iter().zip(v).try_for_each(|(index, &x)| self.write(w, index, x))?,
                }
            }
        }
        Ok(())
    }

    fn contract(&mut self, k: &ContractKernel) -> Result<(), RunError> {
        let (batch, m, n, sum) = (self.list(&k.batch)?, self.list(&k.m)?, self.list(&k.n)?, self.list(&k.k)?);
        let e = &k.epilogue;
        for b in indices(&batch) {
            for i in indices(&m) {
                for j in indices(&n) {
                    let mut acc = zero(k.acc);
                    for s in indices(&sum) {
                        let x = self.read(&k.lhs, &[&b[..], &i, &s].concat())?;
                        let y = self.read(&k.rhs, &[&b[..], &j, &s].concat())?;
                        let product = Binary::Mul.value(k.acc, x, y);
                        acc = product
                            .and_then(|xy| Binary::Add.value(k.acc, acc, xy))
                            .ok_or_else(|| fault("contract", format!("products of {}", k.acc)))?;
                    }
                    if let Scalar::F(x) = acc {
                        acc = Scalar::F(round_float(k.acc, x));
                    }
                    self.point(&e.program, (&e.reads, &e.writes), &[&b[..], &i, &j].concat(), Some(acc))?;
                }
            }
        }
        Ok(())
    }

    fn gather(&mut self, k: &LibraryKernel) -> Result<(), RunError> {
        let (Op::Indexing(Indexing::Gather(g)), [x, at], [out]) = (&k.op, &k.inputs[..], &k.outputs[..]) else {
            return Err(fault(k.op.name(), "the kernel is not run here"));
        };
        let rank = at.sizes.len();
        let size = i128::from(self.size(x.sizes[g.axis]));
        for index in indices(&self.list(&out.sizes)?) {
            let (outer, rest) = index.split_at(g.axis);
            let (place, inner) = rest.split_at(rank);
            let wanted = int(self.read(&at.access, place)?);
            let from_start = if wanted < 0 { wanted + size } else { wanted };
            if !(0..size).contains(&from_start) {
                return Err(fault("gather", format!("index {wanted} is out of range for size {size}")));
            }
            let value = self.read(&x.access, &[outer, &[from_start as usize], inner].concat())?;
            self.write(&out.access, &index, value)?;
        }
        Ok(())
    }
}
