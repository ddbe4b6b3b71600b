//! Passes keep the meaning of graphs: random graphs, with every kind of number in them, give the same bits before and after each pass.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use rlx_compile::{CompileOptions, run_pass};
use rlx_ir::element::Elements;
use rlx_ir::eval::{EvalInputs, evaluate};
use rlx_ir::op::EvalOptions;
use rlx_ir::ops::elementwise::{Binary, Compare, Elementwise, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{Builder, DType, Dim, IrError, Module, Tensor, Value, ValueId};

/// A small generator of numbers (xorshift), so that a failure is found again by its seed.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

const FLOATS: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    0.5,
    -0.25,
    3.0,
    6.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e-40,
    65504.0,
    -1.75,
    0.1,
];
const INTS: [i128; 10] = [0, 1, -1, 2, 3, 7, -8, 127, i32::MIN as i128, i64::MAX as i128];

fn tensor(rng: &mut Rng, dtype: DType, dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    let elements = if dtype.is_float() {
        Elements::Float(
            (0..n)
                .map(|_| if rng.below(3) == 0 { rng.pick(&FLOATS) } else { rng.below(64) as f64 / 8.0 - 4.0 })
                .collect(),
        )
    } else if dtype == DType::Bool {
        Elements::Int((0..n).map(|_| rng.below(2) as i128).collect())
    } else {
        Elements::Int((0..n).map(|_| rng.pick(&INTS)).collect())
    };
    Tensor::from_elements(dtype, dims, &elements).unwrap()
}

/// Values of a graph under construction.
struct Maker<'r> {
    b: Builder,
    values: Vec<ValueId>,
    rng: &'r mut Rng,
}

impl Maker<'_> {
    fn any(&mut self) -> ValueId {
        // Mostly recent values, so that chains grow.
        let n = self.values.len();
        if self.rng.below(2) == 0 {
            self.values[n - 1 - self.rng.below(n.min(4))]
        } else {
            self.values[self.rng.below(n)]
        }
    }

    fn of(&mut self, dtype: DType) -> Option<ValueId> {
        let fitting: Vec<ValueId> =
            self.values.iter().copied().filter(|&v| self.b.dtype(v).unwrap() == dtype).collect();
        (!fitting.is_empty()).then(|| fitting[self.rng.below(fitting.len())])
    }

    fn constant_like(&mut self, v: ValueId) -> Result<ValueId, IrError> {
        let dtype = self.b.dtype(v)?;
        let dims: &[usize] = self.rng.pick(&[&[][..], &[1], &[3], &[1, 1]]);
        let t = if self.rng.below(2) == 0 {
            let one = tensor(self.rng, dtype, &[]).elements();
            let n: usize = dims.iter().product();
            let all = match one {
                Elements::Float(v) => Elements::Float(vec![v[0]; n]),
                e => Elements::Int(vec![e.ints().unwrap()[0]; n]),
            };
            Tensor::from_elements(dtype, dims, &all).unwrap()
        } else {
            tensor(self.rng, dtype, dims)
        };
        self.b.constant(t)
    }

    fn step(&mut self) -> Result<ValueId, IrError> {
        let x = self.any();
        let (shape, dtype) = (self.b.shape(x)?.to_vec(), self.b.dtype(x)?);
        let rank = shape.len();
        match self.rng.below(20) {
            0..=2 => {
                let u = Unary::ALL[self.rng.below(Unary::ALL.len())];
                self.b.op1(u, &[x])
            }
            3..=6 => {
                let y = if self.rng.below(2) == 0 { self.constant_like(x)? } else { self.of(dtype).unwrap_or(x) };
                let op = Binary::ALL[self.rng.below(Binary::ALL.len())];
                let operands = if self.rng.below(4) == 0 { [y, x] } else { [x, y] };
                self.b.op1(op, &operands)
            }
            7 => {
                let y = self.of(dtype).unwrap_or(x);
                let c = Compare::ALL[self.rng.below(Compare::ALL.len())];
                self.b.op1(c, &[x, y])
            }
            8 => {
                let cond = match self.of(DType::Bool) {
                    Some(c) => c,
                    None => self.b.constant(Tensor::from_bools(&[], &[true]).unwrap())?,
                };
                let y = self.of(dtype).unwrap_or(x);
                self.b.select(cond, x, y)
            }
            9 => {
                let (lo, hi) = (self.constant_like(x)?, self.constant_like(x)?);
                if self.rng.below(2) == 0 {
                    self.b.clamp(x, lo, hi)
                } else {
                    let m = self.b.maximum(x, lo)?;
                    self.b.minimum(m, hi)
                }
            }
            10..=11 => {
                let to = self.rng.pick(&[
                    DType::F32,
                    DType::F16,
                    DType::F64,
                    DType::I32,
                    DType::I64,
                    DType::I8,
                    DType::U8,
                    DType::Bool,
                ]);
                self.b.op1(Elementwise::Convert { to, saturate: true }, &[x])
            }
            12 => {
                let n = Dim::product(shape.iter().cloned());
                let mut dims = vec![n];
                if self.rng.below(2) == 0 {
                    dims.insert(self.rng.below(2), Dim::ONE);
                }
                self.b.reshape(x, dims)
            }
            13 => {
                let mut perm: Vec<usize> = (0..rank).collect();
                if rank > 1 {
                    perm.swap(0, self.rng.below(rank));
                }
                self.b.transpose(x, &perm)
            }
            14 => {
                let (mut starts, mut limits, mut strides) = (vec![], vec![], vec![]);
                for d in &shape {
                    let n = d.as_const().unwrap_or(1);
                    let from = (self.rng.below(n.max(1) as usize + 1) as i64).min(n);
                    let back = self.rng.below(3) == 0;
                    starts.push(if back { d - 1 } else { Dim::from(from) });
                    limits.push(if back { Dim::from(-1) } else { d.clone() });
                    strides.push(if back { -1 } else { 1 + self.rng.below(2) as i64 });
                }
                self.b.slice(x, starts, limits, strides)
            }
            15 => {
                let mut dims = shape.clone();
                dims.insert(0, Dim::from(2));
                self.b.broadcast_to(x, dims)
            }
            16 => {
                let y = self.of(dtype).unwrap_or(x);
                let axis = self.rng.below(rank.max(1)) as i64;
                let parts = if self.rng.below(3) == 0 { vec![x] } else { vec![x, y] };
                self.b.concat(&parts, axis)
            }
            17 => {
                let kind = self.rng.pick(&[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Any]);
                let axis = self.rng.below(rank.max(1)) as i64;
                let keep = self.rng.below(2) == 0;
                self.b.reduce(x, kind, &[axis], keep)
            }
            18 => {
                let s = self.b.shape_of(x)?;
                let two = self.b.constant(Tensor::scalar(2i64))?;
                self.b.add(s, two)
            }
            _ => {
                let t = Tensor::scalar(if self.rng.below(2) == 0 { -1i64 } else { 0 });
                let index = self.b.constant(t)?;
                let axis = self.rng.below(rank.max(1)) as i64;
                self.b.gather(x, index, axis)
            }
        }
    }
}

fn graph(rng: &mut Rng, steps: usize) -> (Module, Vec<Value>) {
    let n = rng.pick(&[1usize, 2, 3]);
    let mut maker = Maker { b: Builder::new("main"), values: Vec::new(), rng };
    let sizes: [(DType, Vec<Dim>, Vec<usize>); 6] = [
        (DType::F32, vec![Dim::symbol("n"), 3.into()], vec![n, 3]),
        (DType::F32, vec![1.into(), 3.into()], vec![1, 3]),
        (DType::F16, vec![3.into()], vec![3]),
        (DType::I32, vec![Dim::symbol("n"), 1.into()], vec![n, 1]),
        (DType::I64, vec![0.into(), 3.into()], vec![0, 3]),
        (DType::Bool, vec![3.into()], vec![3]),
    ];
    let mut inputs = Vec::new();
    for (i, (dtype, shape, dims)) in sizes.into_iter().enumerate() {
        maker.values.push(maker.b.input(&format!("x{i}"), dtype, shape).unwrap());
        inputs.push(Value::from(tensor(maker.rng, dtype, &dims)));
    }
    while maker.values.len() < steps {
        // What an op refuses is not added.
        if let Ok(v) = maker.step() {
            maker.values.push(v);
        } else if maker.rng.below(64) == 0 {
            break;
        }
    }
    let outputs: Vec<ValueId> = maker.values.iter().rev().step_by(3).take(6).copied().collect();
    for (i, v) in outputs.into_iter().enumerate() {
        maker.b.output(&format!("y{i}"), v).unwrap();
    }
    (Module::from_graph(maker.b.finish()), inputs)
}

/// Equal dtype, shape and bits, where one NaN is as good as another.
fn same(a: &Value, b: &Value) -> bool {
    let (Value::Tensor(a), Value::Tensor(b)) = (a, b) else { return false };
    a.dtype() == b.dtype()
        && a.dims() == b.dims()
        && match (a.elements(), b.elements()) {
            (Elements::Float(x), Elements::Float(y)) => {
                x.iter().zip(&y).all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()))
            }
            (x, y) => x == y,
        }
}

/// Runs passes over a random graph; how often rewrites were applied, or `None` if the graph itself cannot be evaluated.
fn check(seed: u64, passes: &[&str]) -> Option<u64> {
    let mut rng = Rng::new(seed);
    let (module, inputs) = graph(&mut rng, 28);
    let start = EvalInputs { inputs, ..Default::default() };
    // A graph that fails (a constraint does not hold for these sizes) says nothing about passes.
    let before = evaluate(&module, &start, EvalOptions::default()).ok()?;
    let (mut m, mut rewrites) = (module.clone(), 0);
    for pass in passes {
        let (new, report) = run_pass(pass, &m, None, &CompileOptions::default())
            .unwrap_or_else(|e| panic!("seed {seed}: {pass} fails: {e}\n{m}"));
        let after = evaluate(&new, &start, EvalOptions::default())
            .unwrap_or_else(|e| panic!("seed {seed}: after {pass}: {e}\n{m}\n{new}"));
        for (i, (a, b)) in before.outputs.iter().zip(&after.outputs).enumerate() {
            assert!(
                same(a, b),
                "seed {seed}: {pass} changes output {i}\n{:?}\n{:?}\n{m}\n{new}",
                a.as_tensor().unwrap().elements(),
                b.as_tensor().unwrap().elements()
            );
        }
        rewrites += report.rewrites.values().sum::<u64>();
        m = new;
    }
    Some(rewrites)
}

#[test]
fn random_graphs_keep_their_bits() {
    let (mut ran, mut rewrites) = (0, 0);
    for seed in 0..600 {
        let all = ["bind-dims", "dce", "canonicalise", "fold", "cse", "dce", "canonicalise", "legalise"];
        for n in [check(seed, &all), check(seed + 10_000, &["fold", "cse", "canonicalise"])].into_iter().flatten() {
            ran += 1;
            rewrites += n;
        }
    }
    assert!(ran > 600 && rewrites > 3000, "only {ran} graphs ran, with {rewrites} rewrites");
}

#[test]
fn graphs_of_literals_fold_to_the_same_bits() {
    let mut folds = 0;
    for seed in 0..300 {
        let mut rng = Rng::new(seed + 77);
        let (module, inputs) = graph(&mut rng, 20);
        let start = EvalInputs { inputs: inputs.clone(), ..Default::default() };
        let Ok(before) = evaluate(&module, &start, EvalOptions::default()) else { continue };
        // The same graph on literals in place of inputs.
        let g = &module.main;
        let mut b = Builder::new("main");
        let mut map = vec![None; g.num_values()];
        for (&v, x) in g.inputs().iter().zip(&inputs) {
            map[v.index()] = Some(b.constant(x.as_tensor().unwrap().clone()).unwrap());
        }
        let mut fails = false;
        for node in g.nodes() {
            let operands: Vec<ValueId> = node.operands.iter().map(|v| map[v.index()].unwrap()).collect();
            let n = inputs[0].as_tensor().unwrap().dims()[0] as i64;
            let op = node.op.def().map_dims(&mut |d| d.substitute(&[("n".into(), Dim::from(n))].into()));
            match b.op(op, &operands) {
                Ok(results) => node.results.iter().zip(results).for_each(|(r, v)| map[r.index()] = Some(v)),
                Err(_) => fails = true,
            }
            if fails {
                break;
            }
        }
        if fails {
            continue;
        }
        for o in g.outputs() {
            b.output(&o.name, map[o.value.index()].unwrap()).unwrap();
        }
        let literal = Module::from_graph(b.finish());
        let (folded, report) = run_pass("fold", &literal, None, &CompileOptions::default()).unwrap();
        let after = evaluate(&folded, &EvalInputs::default(), EvalOptions::default()).unwrap();
        for (a, b) in before.outputs.iter().zip(&after.outputs) {
            assert!(same(a, b), "seed {seed}:\n{literal}\n{folded}");
        }
        folds += report.rewrites.get("node").copied().unwrap_or(0);
    }
    assert!(folds > 1000, "only {folds} nodes were folded");
}

/// Numbers that composites are made for: of moderate size; parameters positive, as variances are; no row of a mask hides every key.
fn moderate(rng: &mut Rng, dtype: DType, dims: &[usize], positive: bool) -> Tensor {
    let n: usize = dims.iter().product();
    let elements = if dtype.is_float() {
        let shift = if positive { 0.1 } else { -2.0 };
        Elements::Float((0..n).map(|_| rng.below(1 << 20) as f64 / f64::from(1 << 18) + shift).collect())
    } else {
        let row = dims.last().copied().unwrap_or(1);
        Elements::Int((0..n).map(|i| i128::from(i % row.max(1) == 0 || rng.below(2) == 0)).collect())
    };
    Tensor::from_elements(dtype, dims, &elements).unwrap()
}

#[test]
fn recognised_composites_agree_with_what_they_replace() {
    cases_agree("recognise", &["recognise", "canonicalise", "cse", "dce"], 40);
}

#[test]
fn joined_products_agree_with_what_they_replace() {
    cases_agree("join", &["join", "canonicalise", "cse", "dce"], 4);
}

/// Evaluates the cases of a kind before and after passes.
fn cases_agree(kind: &str, passes: &[&str], at_least: usize) {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests").join(kind);
    let mut cases = 0;
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, case) in text.split("// ----").enumerate() {
            let input = case.split("// expect:").next().unwrap();
            let module = rlx_ir::text::parse_module(input).unwrap();
            let g = &module.main;
            let binding: rlx_ir::DimBinding = [("n", 3), ("b", 2), ("h", 3), ("s", 5), ("t", 7), ("w", 4), ("m", 8)]
                .map(|(s, v)| (rlx_ir::Symbol::new(s), v))
                .into_iter()
                .collect();
            let mut rng = Rng::new(number as u64 + 5);
            let sizes = |v: ValueId| -> Vec<usize> {
                let shape = &g.tensor_type(v).unwrap().shape;
                shape.eval(&binding).unwrap().into_iter().map(|d| d as usize).collect()
            };
            let mut start = EvalInputs::default();
            for &v in g.inputs() {
                let dtype = g.tensor_type(v).unwrap().dtype;
                start.inputs.push(moderate(&mut rng, dtype, &sizes(v), false).into());
            }
            for p in g.params() {
                let dtype = g.tensor_type(p.value).unwrap().dtype;
                start.params.insert(p.name.to_string(), moderate(&mut rng, dtype, &sizes(p.value), true));
            }
            let before = evaluate(&module, &start, EvalOptions::accurate()).unwrap();
            let mut m = module.clone();
            for &pass in passes {
                m = run_pass(pass, &m, None, &CompileOptions::default()).unwrap().0;
            }
            let after = evaluate(&m, &start, EvalOptions::accurate()).unwrap();
            for (a, b) in before.outputs.iter().zip(&after.outputs) {
                let (a, b) = (a.as_tensor().unwrap(), b.as_tensor().unwrap());
                assert_eq!((a.dtype(), a.dims()), (b.dtype(), b.dims()));
                let (x, y) = (a.elements().to_f64().unwrap(), b.elements().to_f64().unwrap());
                for (x, y) in x.iter().zip(&y) {
                    let close = (x - y).abs() <= 1e-5 + 1e-4 * x.abs();
                    assert!(close, "{}, case {}: {x} became {y}\n{module}\n{m}", path.display(), number + 1);
                }
            }
            cases += 1;
        }
    }
    assert!(cases >= at_least, "only {cases} cases");
}
