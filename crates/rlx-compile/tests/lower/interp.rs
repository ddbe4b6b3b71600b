//! A LIR interpreter in plain loops over wide scalars: what accesses and scalar programs mean, without any backend.
//! Elements that nothing wrote are `None`, so that a read of them fails.

use std::collections::BTreeMap;

use rlx_compile::lir::{
    Access, AttentionKernel, BufId, ContractKernel, ConvKernel, DimId, Epilogue, Kernel, Lir, Literal, MapKernel,
    RowKernel, ScalarOp, ScalarProgram, Scaling, Scope, Storage, View, WindowKernel,
};
use rlx_ir::dim::Equation;
use rlx_ir::element::{Elements, round_float, wrap_int};
use rlx_ir::op::{EvalCx, EvalOptions};
use rlx_ir::ops::elementwise::{Elementwise, Scalar};
use rlx_ir::ops::reduction::{ReduceKind, WindowKind};
use rlx_ir::{DType, DimBinding, Tensor, Value};

type Fail = String;

pub fn scalars(t: &Tensor) -> Vec<Scalar> {
    match t.elements() {
        Elements::Float(v) => v.into_iter().map(Scalar::F).collect(),
        Elements::Int(v) => v.into_iter().map(Scalar::I).collect(),
        Elements::Complex(v) => v.into_iter().map(Scalar::C).collect(),
        Elements::Str(_) => panic!("no strings here"),
    }
}

fn tensor(dtype: DType, dims: &[usize], v: &[Scalar]) -> Tensor {
    let e = match v.first() {
        Some(Scalar::C(_)) => {
            Elements::Complex(v.iter().map(|s| if let Scalar::C(c) = s { *c } else { [0.0; 2] }).collect())
        }
        Some(Scalar::I(_)) => Elements::Int(v.iter().map(|s| if let Scalar::I(c) = s { *c } else { 0 }).collect()),
        _ if v.is_empty() && !dtype.is_float() => Elements::Int(vec![]),
        _ => Elements::Float(v.iter().map(|s| if let Scalar::F(c) = s { *c } else { 0.0 }).collect()),
    };
    Tensor::from_elements(dtype, dims, &e).unwrap()
}

pub struct Interp<'a> {
    lir: &'a Lir,
    binding: DimBinding,
    memory: Vec<Option<Vec<Option<Scalar>>>>,
}

/// Runs a program on its inputs and parameters.
pub fn run(lir: &Lir, inputs: &[Tensor], params: &[Tensor], outer: &DimBinding) -> Result<Vec<Tensor>, Fail> {
    let mut equations = Vec::new();
    let ports = lir.inputs.iter().map(|p| p.buffer).zip(inputs).chain(lir.params.iter().map(|p| p.buffer).zip(params));
    for (b, t) in ports.clone() {
        for (d, &n) in lir.buffer(b).shape.iter().zip(t.dims()) {
            equations.push(Equation::new(lir.dims.get(*d), n as i64, "input"));
        }
    }
    let own: std::collections::BTreeSet<_> = equations.iter().flat_map(|e| e.dim.symbols()).collect();
    let outer: DimBinding = outer.iter().filter(|(s, _)| !own.contains(*s)).map(|(s, v)| (s.clone(), v)).collect();
    let binding = rlx_ir::dim::solve(&equations, &outer, &lir.bounds).map_err(|e| format!("{e:?}"))?;
    let mut it = Interp { lir, binding, memory: vec![None; lir.buffers.len()] };
    for (b, t) in ports {
        it.memory[b.index()] = Some(scalars(t).into_iter().map(Some).collect());
    }
    for (i, b) in lir.buffers.iter().enumerate() {
        if let Storage::Const(t) = &b.storage {
            it.memory[i] = Some(scalars(t).into_iter().map(Some).collect());
        }
    }
    for s in &lir.segments {
        for k in s.kernels.clone() {
            it.kernel(&lir.kernels[k as usize].kernel).map_err(|e| format!("kernel {k}: {e}"))?;
        }
        for d in &s.defines {
            if it.binding.get(d).is_none() {
                return Err(format!("{d:?} was not defined"));
            }
        }
    }
    lir.outputs.iter().map(|o| it.whole(o.buffer)).collect()
}

/// Every point of a space, row-major.
fn points(sizes: &[i64]) -> Vec<Vec<i64>> {
    let n: i64 = sizes.iter().product();
    (0..n)
        .map(|mut p| {
            let mut index = vec![0; sizes.len()];
            for (i, s) in index.iter_mut().zip(sizes).rev() {
                *i = p % s;
                p /= s;
            }
            index
        })
        .collect()
}

impl Interp<'_> {
    fn size(&self, d: DimId) -> Result<i64, Fail> {
        self.lir.dims.get(d).eval(&self.binding).map_err(|e| e.to_string())
    }

    fn sizes(&self, d: &[DimId]) -> Result<Vec<i64>, Fail> {
        d.iter().map(|&d| self.size(d)).collect()
    }

    fn whole(&mut self, b: BufId) -> Result<Tensor, Fail> {
        let buffer = self.lir.buffer(b);
        let dims: Vec<usize> = self.sizes(&buffer.shape)?.into_iter().map(|n| n as usize).collect();
        let data = self.mem(b)?.iter().copied().collect::<Option<Vec<_>>>().ok_or("an output is not written")?;
        Ok(tensor(buffer.dtype, &dims, &data))
    }

    fn mem(&mut self, b: BufId) -> Result<&mut Vec<Option<Scalar>>, Fail> {
        let n = self.size(self.lir.buffer(b).numel)?;
        Ok(self.memory[b.index()].get_or_insert_with(|| vec![None; n as usize]))
    }

    fn at(&self, a: &Access, index: &[i64]) -> Result<usize, Fail> {
        assert_eq!(a.strides.len(), index.len(), "strides of b{}", a.buffer.0);
        let mut at = self.size(a.offset)?;
        for (s, i) in a.strides.iter().zip(index) {
            at += self.size(*s)? * i;
        }
        usize::try_from(at).map_err(|_| format!("b{} at {at}", a.buffer.0))
    }

    fn read(&mut self, a: &Access, index: &[i64]) -> Result<Scalar, Fail> {
        let at = self.at(a, index)?;
        self.mem(a.buffer)?
            .get(at)
            .ok_or_else(|| format!("b{} at {at} is outside", a.buffer.0))?
            .ok_or_else(|| format!("b{} at {at} was not written", a.buffer.0))
    }

    fn write(&mut self, a: &Access, index: &[i64], x: Scalar) -> Result<(), Fail> {
        let at = self.at(a, index)?;
        let slot =
            self.mem(a.buffer)?.get_mut(at).ok_or_else(|| format!("write of b{} at {at} is outside", a.buffer.0))?;
        *slot = Some(x);
        Ok(())
    }

    fn view(&mut self, v: &View) -> Result<Tensor, Fail> {
        let sizes = self.sizes(&v.sizes)?;
        let data = points(&sizes).iter().map(|p| self.read(&v.access, p)).collect::<Result<Vec<_>, _>>()?;
        let dims: Vec<usize> = sizes.iter().map(|&n| n as usize).collect();
        Ok(tensor(self.lir.buffer(v.access.buffer).dtype, &dims, &data))
    }

    /// One slice of a view.
    fn view_at(&mut self, v: &View, axis: usize, at: i64) -> Result<Tensor, Fail> {
        let mut sizes = self.sizes(&v.sizes)?;
        sizes.remove(axis);
        let mut data = Vec::new();
        for mut p in points(&sizes) {
            p.insert(axis, at);
            data.push(self.read(&v.access, &p)?);
        }
        let dims: Vec<usize> = sizes.iter().map(|&n| n as usize).collect();
        Ok(tensor(self.lir.buffer(v.access.buffer).dtype, &dims, &data))
    }

    fn views(&mut self, v: &[View]) -> Result<Vec<Tensor>, Fail> {
        v.iter().map(|v| self.view(v)).collect()
    }

    fn put(&mut self, v: &View, t: &Tensor) -> Result<(), Fail> {
        let mut equations = Vec::new();
        for (d, &n) in v.sizes.iter().zip(t.dims()) {
            equations.push(Equation::new(self.lir.dims.get(*d), n as i64, "result"));
        }
        self.binding = rlx_ir::dim::solve(&equations, &self.binding, &self.lir.bounds).map_err(|e| format!("{e:?}"))?;
        let sizes = self.sizes(&v.sizes)?;
        for (p, x) in points(&sizes).iter().zip(scalars(t)) {
            self.write(&v.access, p, x)?;
        }
        Ok(())
    }

    /// One instruction on scalars.
    fn apply(&mut self, op: &Elementwise, dtypes: &[DType], out: DType, args: &[Scalar]) -> Scalar {
        op.apply(dtypes, out, args).expect("an op on its dtypes")
    }

    fn constant(l: &Literal) -> Scalar {
        match l {
            Literal::Float(x) => Scalar::F(x.get()),
            Literal::Int(x) => Scalar::I(*x),
            Literal::Complex(a, b) => Scalar::C([a.get(), b.get()]),
        }
    }

    /// A program at one point.
    fn program(
        &mut self,
        p: &ScalarProgram,
        reads: &[Access],
        index: &[i64],
        acc: Option<Scalar>,
    ) -> Result<Vec<Scalar>, Fail> {
        let mut v: Vec<Scalar> = Vec::new();
        for i in &p.insts {
            let args: Vec<Scalar> = i.args.iter().map(|&a| v[a as usize]).collect();
            let dtypes: Vec<DType> = i.args.iter().map(|&a| p.insts[a as usize].dtype).collect();
            v.push(match &i.op {
                ScalarOp::Read(n) => {
                    let a = &reads[*n as usize];
                    assert_eq!(self.lir.buffer(a.buffer).dtype, i.dtype);
                    self.read(a, index)?
                }
                ScalarOp::Const(l) => Self::constant(l),
                ScalarOp::Index(a) => Scalar::I(i128::from(index[*a as usize])),
                ScalarOp::Size(d) => Scalar::I(i128::from(self.size(*d)?)),
                ScalarOp::Acc => acc.expect("an accumulator"),
                ScalarOp::Apply(op) => self.apply(op, &dtypes, i.dtype, &args),
                ScalarOp::Reduce(_) => return Err("a reduction outside rows".into()),
            });
        }
        Ok(p.results.iter().map(|&r| v[r as usize]).collect())
    }

    fn map(&mut self, m: &MapKernel) -> Result<(), Fail> {
        for p in points(&self.sizes(&m.space)?) {
            let r = self.program(&m.program, &m.reads, &p, None)?;
            for (w, x) in m.writes.iter().zip(r) {
                self.write(w, &p, x)?;
            }
        }
        Ok(())
    }

    fn row(&mut self, k: &RowKernel) -> Result<(), Fail> {
        let (outer, reduced) = (self.sizes(&k.outer)?, self.sizes(&k.reduced)?);
        let inner = points(&reduced);
        let still: Vec<bool> = k
            .reads
            .iter()
            .map(|r| r.strides[k.outer.len()..].iter().all(|&d| self.lir.dims.get(d).as_const() == Some(0)))
            .collect();
        let scopes = k.program.scopes(&still, k.outer.len());
        for o in points(&outer) {
            let whole: Vec<Vec<i64>> = inner.iter().map(|i| [o.as_slice(), i].concat()).collect();
            // One value for a row, or one an element.
            let mut v: Vec<Vec<Scalar>> = Vec::new();
            for (inst, scope) in k.program.insts.iter().zip(&scopes) {
                let dtypes: Vec<DType> = inst.args.iter().map(|&a| k.program.insts[a as usize].dtype).collect();
                let arg = |v: &[Vec<Scalar>], a: u32, at: usize| {
                    let x = &v[a as usize];
                    if scopes[a as usize] == Scope::Row { x[0] } else { x[at] }
                };
                if let ScalarOp::Reduce(kind) = inst.op {
                    assert_eq!(scopes[inst.args[0] as usize], Scope::Element, "a reduction of what does not vary");
                    v.push(vec![fold(kind, inst.dtype, &v[inst.args[0] as usize])]);
                    continue;
                }
                let places: Vec<Vec<i64>> = match scope {
                    Scope::Row => vec![[o.clone(), vec![0; reduced.len()]].concat()],
                    Scope::Element => whole.clone(),
                };
                let mut out = Vec::new();
                for (at, p) in places.iter().enumerate() {
                    let args: Vec<Scalar> = inst.args.iter().map(|&a| arg(&v, a, at)).collect();
                    out.push(match &inst.op {
                        ScalarOp::Read(n) => self.read(&k.reads[*n as usize], p)?,
                        ScalarOp::Const(l) => Self::constant(l),
                        ScalarOp::Index(a) => Scalar::I(i128::from(p[*a as usize])),
                        ScalarOp::Size(d) => Scalar::I(i128::from(self.size(*d)?)),
                        ScalarOp::Apply(op) => self.apply(op, &dtypes, inst.dtype, &args),
                        other => return Err(format!("{other:?} in a row")),
                    });
                }
                v.push(out);
            }
            for (w, &r) in k.writes.iter().zip(&k.program.results) {
                match scopes[r as usize] {
                    Scope::Row => self.write(w, &o, v[r as usize][0])?,
                    Scope::Element => {
                        for (p, x) in whole.iter().zip(&v[r as usize]) {
                            self.write(w, p, *x)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, e: &Epilogue, index: &[i64], acc: Scalar, dtype: DType) -> Result<(), Fail> {
        let acc = match acc {
            Scalar::F(x) => Scalar::F(round_float(dtype, x)),
            Scalar::I(x) => Scalar::I(wrap_int(dtype, x)),
            c => c,
        };
        let r = self.program(&e.program, &e.reads, index, Some(acc))?;
        for (w, x) in e.writes.iter().zip(r) {
            self.write(w, index, x)?;
        }
        Ok(())
    }

    fn contract(&mut self, c: &ContractKernel) -> Result<(), Fail> {
        let (b, m, n, k) = (self.sizes(&c.batch)?, self.sizes(&c.m)?, self.sizes(&c.n)?, self.sizes(&c.k)?);
        let zero = zero(c.acc);
        for b in points(&b) {
            for m in points(&m) {
                for n in points(&n) {
                    let mut acc = zero;
                    for k in points(&k) {
                        let x = self.scaled(&c.lhs, &c.lhs_scaling, c.acc, &[&b[..], &m, &k].concat())?;
                        let y = self.scaled(&c.rhs, &c.rhs_scaling, c.acc, &[&b[..], &n, &k].concat())?;
                        acc = add(acc, mul(x, y));
                    }
                    self.finish(&c.epilogue, &[&b[..], &m, &n].concat(), acc, c.acc)?;
                }
            }
        }
        Ok(())
    }

    /// What an operand's element stands for.
    fn scaled(&mut self, a: &Access, s: &Scaling, acc: DType, index: &[i64]) -> Result<Scalar, Fail> {
        let as_acc = |x: Scalar| match x {
            Scalar::I(x) if acc.is_float() => Scalar::F(x as f64),
            x => x,
        };
        let mut x = as_acc(self.read(a, index)?);
        if let Some(z) = &s.zero {
            let z = as_acc(self.read(z, index)?);
            x = add(x, mul(z, if acc.is_float() { Scalar::F(-1.0) } else { Scalar::I(-1) }));
        }
        match &s.scale {
            Some(by) => Ok(mul(x, self.read(by, index)?)),
            None => Ok(x),
        }
    }

    fn conv(&mut self, c: &ConvKernel) -> Result<(), Fail> {
        let (batch, ins, outs) = (self.size(c.batch)?, self.size(c.in_channels)?, self.size(c.out_channels)?);
        let (input, output, window) = (self.sizes(&c.in_spatial)?, self.sizes(&c.out_spatial)?, self.sizes(&c.window)?);
        let low = self.sizes(&c.pad_low)?;
        let (ig, og) = (ins / c.groups, outs / c.groups);
        for head in points(&[batch, outs]) {
            let group = head[1] / og;
            for o in points(&output) {
                let mut acc = zero(c.acc);
                for ci in 0..ig {
                    for t in points(&window) {
                        let cell: Option<Vec<i64>> = (0..input.len())
                            .map(|a| {
                                let i = if c.transposed {
                                    let x = o[a] + low[a] - t[a] * c.dilations[a];
                                    if x.rem_euclid(c.strides[a]) != 0 {
                                        return None;
                                    }
                                    x.div_euclid(c.strides[a])
                                } else {
                                    o[a] * c.strides[a] + t[a] * c.dilations[a] - low[a]
                                };
                                (0..input[a]).contains(&i).then_some(i)
                            })
                            .collect();
                        let Some(cell) = cell else { continue };
                        let channel = group * ig + ci;
                        let x = self.read(&c.input, &[&[head[0], channel][..], &cell].concat())?;
                        let w = if c.transposed { [channel, head[1] % og] } else { [head[1], ci] };
                        let w = self.read(&c.weight, &[&w[..], &t].concat())?;
                        acc = add(acc, mul(x, w));
                    }
                }
                self.finish(&c.epilogue, &[&head[..], &o].concat(), acc, c.acc)?;
            }
        }
        Ok(())
    }

    fn window(&mut self, k: &WindowKernel) -> Result<(), Fail> {
        let (outer, input, output) = (self.sizes(&k.outer)?, self.sizes(&k.in_spatial)?, self.sizes(&k.out_spatial)?);
        let (low, high) = (self.sizes(&k.pad_low)?, self.sizes(&k.pad_high)?);
        for h in points(&outer) {
            for o in points(&output) {
                let (mut values, mut padded) = (Vec::new(), 0);
                for t in points(&k.window) {
                    let cell: Vec<i64> =
                        (0..o.len()).map(|a| o[a] * k.strides[a] + t[a] * k.dilations[a] - low[a]).collect();
                    if cell.iter().enumerate().all(|(a, &i)| i + low[a] < input[a] + low[a] + high[a]) {
                        padded += 1;
                    }
                    if cell.iter().zip(&input).all(|(i, n)| (0..*n).contains(i)) {
                        values.push(self.read(&k.input, &[&h[..], &cell].concat())?);
                    }
                }
                let dtype = self.lir.buffer(k.output.buffer).dtype;
                let x = match k.kind {
                    WindowKind::Max => fold(ReduceKind::Max, dtype, &values),
                    WindowKind::Sum => fold(ReduceKind::Sum, dtype, &values),
                    WindowKind::Mean => {
                        let n = if k.count_include_pad { padded } else { values.len() };
                        let sum: f64 = values.iter().map(|x| if let Scalar::F(x) = x { *x } else { f64::NAN }).sum();
                        Scalar::F(round_float(dtype, if n == 0 { 0.0 } else { sum / n as f64 }))
                    }
                };
                self.write(&k.output, &[&h[..], &o].concat(), x)?;
            }
        }
        Ok(())
    }

    fn attention(&mut self, k: &AttentionKernel) -> Result<(), Fail> {
        let [b, h, hk, s, t, d, dv] =
            [k.batch, k.heads, k.kv_heads, k.queries, k.keys, k.head_dim, k.value_dim].map(|x| self.size(x));
        let (b, h, hk, s, t, d, dv) = (b?, h?, hk?, s?, t?, d?, dv?);
        let float = |x: Scalar| if let Scalar::F(x) = x { x } else { f64::NAN };
        for p in points(&[b, h, s]) {
            let kv = p[1] / (h / hk.max(1)).max(1);
            let mut scores = Vec::new();
            for j in 0..t {
                let mut x = 0.0;
                for i in 0..d {
                    x += float(self.read(&k.q, &[p[0], p[1], p[2], i])?) * float(self.read(&k.k, &[p[0], kv, j, i])?);
                }
                x *= k.scale.get();
                if let Some(cap) = k.softcap {
                    x = cap.get() * (x / cap.get()).tanh();
                }
                let position = p[2] + t - s;
                let reach = (!k.causal || j <= position) && k.window.is_none_or(|w| (position - j).abs() < w);
                if let Some(m) = &k.mask {
                    match self.read(&m.access, &[p[0], p[1], p[2], j])? {
                        Scalar::I(seen) => x = if seen != 0 { x } else { f64::NEG_INFINITY },
                        m => x += float(m),
                    }
                }
                scores.push(if reach { x } else { f64::NEG_INFINITY });
            }
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> =
                scores.iter().map(|x| if max == f64::NEG_INFINITY { 0.0 } else { (x - max).exp() }).collect();
            let sum: f64 = weights.iter().sum();
            for i in 0..dv {
                let mut x = 0.0;
                for (j, w) in weights.iter().enumerate() {
                    x += w * float(self.read(&k.v, &[p[0], kv, j as i64, i])?);
                }
                let y = if sum == 0.0 { 0.0 } else { x / sum };
                self.write(&k.out, &[p[0], p[1], p[2], i], Scalar::F(y))?;
            }
        }
        Ok(())
    }

    fn sub(&mut self, program: &Lir, inputs: &[Tensor]) -> Result<Vec<Tensor>, Fail> {
        run(program, inputs, &[], &self.binding)
    }

    fn kernel(&mut self, k: &Kernel) -> Result<(), Fail> {
        match k {
            Kernel::Map(k) => self.map(k),
            Kernel::Row(k) => self.row(k),
            Kernel::Contract(k) => self.contract(k),
            Kernel::Conv(k) => self.conv(k),
            Kernel::Window(k) => self.window(k),
            Kernel::Attention(k) => self.attention(k),
            Kernel::Library(k) => {
                let inputs = self.views(&k.inputs)?;
                if let rlx_ir::Op::ShapeOp(rlx_ir::ops::ShapeOp::ReadDims(r)) = &k.op {
                    let t = &inputs[0];
                    for (s, x) in r.symbols.iter().zip(t.elements().ints().unwrap_or(&[])) {
                        self.binding.set(s.clone(), *x as i64);
                    }
                    return Ok(());
                }
                // Ops see the sizes that the kernel's table gives them.
                let mut values = Vec::new();
                for &d in &k.dims {
                    values.push(self.size(d).unwrap_or(-1));
                }
                let mut values = values.into_iter();
                let op = k.op.def().map_dims(&mut |_| values.next().unwrap_or(-1).into());
                let functions = BTreeMap::new();
                let cx = EvalCx {
                    binding: &self.binding,
                    options: EvalOptions::accurate(),
                    regions: &[],
                    functions: &functions,
                    depth: 1,
                    held: 0,
                };
                let args: Vec<Value> = inputs.into_iter().map(Value::from).collect();
                let results = op.def().eval(&cx, &args).map_err(|e| e.to_string())?;
                for (v, r) in k.outputs.iter().zip(&results) {
                    self.put(v, r.as_tensor().ok_or("no tensor")?)?;
                }
                Ok(())
            }
            Kernel::Branch(k) => {
                let cond = scalars(&self.view(&k.cond)?)[0] != Scalar::I(0);
                let captures = self.views(&k.captures)?;
                let side = if cond { &k.then_branch } else { &k.else_branch };
                let results = self.sub(&side.program, &captures)?;
                k.outputs.iter().zip(&results).try_for_each(|(v, t)| self.put(v, t))
            }
            Kernel::Loop(k) => {
                let limit = k.trip_count.as_ref().map(|v| self.view(v)).transpose()?;
                let limit = limit.map_or(i128::MAX, |t| t.elements().ints().unwrap()[0]);
                let cond = k.cond.as_ref().map(|v| self.view(v)).transpose()?;
                let mut cond = cond.is_none_or(|t| t.elements().ints().unwrap()[0] != 0);
                let mut carried = self.views(&k.carried)?;
                let captures = self.views(&k.captures)?;
                let scans = k.outputs.len() - carried.len();
                let mut stacks: Vec<Vec<Tensor>> = vec![Vec::new(); scans];
                let mut i = 0i128;
                while cond && i < limit {
                    let mut args = vec![Tensor::scalar(i as i64), Tensor::from_bools(&[], &[true]).unwrap()];
                    args.extend(carried.iter().cloned().chain(captures.iter().cloned()));
                    let mut r = self.sub(&k.body.program, &args)?.into_iter();
                    cond = scalars(&r.next().unwrap())[0] != Scalar::I(0);
                    carried = r.by_ref().take(carried.len()).collect();
                    stacks.iter_mut().zip(r).for_each(|(s, t)| s.push(t));
                    i += 1;
                }
                let stacked = stacks.iter().map(|s| {
                    let data: Vec<Scalar> = s.iter().flat_map(scalars).collect();
                    let inner = s.first().expect("tests run loops at least once");
                    tensor(inner.dtype(), &[&[s.len()], inner.dims()].concat(), &data)
                });
                let all: Vec<Tensor> = carried.into_iter().chain(stacked).collect();
                k.outputs.iter().zip(&all).try_for_each(|(v, t)| self.put(v, t))
            }
            Kernel::Call(k) => {
                let inputs = self.views(&k.inputs)?;
                let results = run(&k.body.program, &inputs, &[], &DimBinding::new())?;
                k.outputs.iter().zip(&results).try_for_each(|(v, t)| self.put(v, t))
            }
            Kernel::Scan(k) => {
                let steps = self.size(k.steps)?;
                let mut carried = self.views(&k.carried)?;
                let captures = self.views(&k.captures)?;
                let mut stacks: Vec<Vec<Tensor>> = vec![Vec::new(); k.stacked.len()];
                for step in 0..steps {
                    let mut args = carried.clone();
                    for (v, axis, reverse) in &k.scanned {
                        let at = if *reverse { steps - 1 - step } else { step };
                        args.push(self.view_at(v, *axis, at)?);
                    }
                    args.extend(captures.iter().cloned());
                    let mut r = self.sub(&k.body.program, &args)?.into_iter();
                    carried = r.by_ref().take(carried.len()).collect();
                    stacks.iter_mut().zip(r).for_each(|(s, t)| s.push(t));
                }
                for (v, t) in k.outputs.iter().zip(&carried) {
                    self.put(v, t)?;
                }
                for ((v, axis, reverse), slices) in k.stacked.iter().zip(&stacks) {
                    for (step, t) in slices.iter().enumerate() {
                        let at = if *reverse { steps - 1 - step as i64 } else { step as i64 };
                        let mut sizes = self.sizes(&v.sizes)?;
                        sizes.remove(*axis);
                        for (mut p, x) in points(&sizes).into_iter().zip(scalars(t)) {
                            p.insert(*axis, at);
                            self.write(&v.access, &p, x)?;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

fn zero(d: DType) -> Scalar {
    if d.is_float() {
        Scalar::F(0.0)
    } else if d.is_complex() {
        Scalar::C([0.0; 2])
    } else {
        Scalar::I(0)
    }
}

fn add(a: Scalar, b: Scalar) -> Scalar {
    match (a, b) {
        (Scalar::F(a), Scalar::F(b)) => Scalar::F(a + b),
        (Scalar::I(a), Scalar::I(b)) => Scalar::I(a.wrapping_add(b)),
        (Scalar::C(a), Scalar::C(b)) => Scalar::C([a[0] + b[0], a[1] + b[1]]),
        _ => panic!("classes differ"),
    }
}

fn mul(a: Scalar, b: Scalar) -> Scalar {
    match (a, b) {
        (Scalar::F(a), Scalar::F(b)) => Scalar::F(a * b),
        (Scalar::I(a), Scalar::I(b)) => Scalar::I(a.wrapping_mul(b)),
        (Scalar::C(a), Scalar::C(b)) => Scalar::C([a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]),
        _ => panic!("classes differ"),
    }
}

fn fold(kind: ReduceKind, d: DType, v: &[Scalar]) -> Scalar {
    if d.is_float() {
        let x = v.iter().map(|s| if let Scalar::F(x) = s { *x } else { f64::NAN });
        let nan = |a: f64, b: f64, c: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { c };
        let y = match kind {
            ReduceKind::Sum => x.sum(),
            ReduceKind::Prod => x.product(),
            ReduceKind::Min => x.fold(f64::INFINITY, |a, b| nan(a, b, a.min(b))),
            ReduceKind::Max => x.fold(f64::NEG_INFINITY, |a, b| nan(a, b, a.max(b))),
            _ => panic!("{kind:?} of floats"),
        };
        return Scalar::F(round_float(d, y));
    }
    let (lo, hi) = d.int_range().unwrap();
    let x = v.iter().map(|s| if let Scalar::I(x) = s { *x } else { 0 });
    Scalar::I(match kind {
        ReduceKind::Sum => x.fold(0, |a, b| wrap_int(d, a.wrapping_add(b))),
        ReduceKind::Prod => x.fold(1, |a, b| wrap_int(d, a.wrapping_mul(b))),
        ReduceKind::Min => x.min().unwrap_or(hi),
        ReduceKind::Max => x.max().unwrap_or(lo),
        ReduceKind::Any => i128::from(x.into_iter().any(|a| a != 0)),
        ReduceKind::All => i128::from(x.into_iter().all(|a| a != 0)),
    })
}
