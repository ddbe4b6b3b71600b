//! Compiling and running small graphs, and data for them.

use rlx_compile::pipeline::compile_module;
use rlx_compile::target::TensorRef;
use rlx_compile::{Backend, CompileOptions};
use rlx_cpu::CpuBackend;
use rlx_driver::Device;
use rlx_ir::element::Elements;
use rlx_ir::eval::{EvalInputs, evaluate};
use rlx_ir::op::EvalOptions;
use rlx_ir::{Builder, DType, Dim, IrError, Module, Tensor, Value, ValueId};

/// Every dtype that kernels take.
pub fn dtypes() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|&d| d != DType::Str)
}

/// Those that have an order.
pub fn ordered() -> impl Iterator<Item = DType> {
    dtypes().filter(|d| !d.is_complex())
}

/// Pseudo-random numbers.
pub struct Lcg(u64);

impl Lcg {
    pub fn new(seed: u64) -> Self {
        Lcg(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A tensor of any dtype with repeated values; floats with NaN, infinities and zeros of both signs.
pub fn data(dtype: DType, dims: &[usize], seed: u64) -> Tensor {
    let mut r = Lcg::new(seed);
    let n: usize = dims.iter().product();
    let mut float = || match r.below(24) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        4 => 0.0,
        _ => r.below(33) as f64 / 8.0 - 2.0,
    };
    let elements = if dtype.is_complex() {
        Elements::Complex((0..n).map(|_| [float(), float()]).collect())
    } else if dtype.is_float() {
        Elements::Float((0..n).map(|_| float()).collect())
    } else {
        let (low, high) = dtype.int_range().unwrap();
        let span = (high - low + 1).min(37) as u64;
        // Extremes of the type among small values.
        Elements::Int(
            (0..n)
                .map(|_| match r.below(12) {
                    0 => low,
                    1 => high,
                    _ => (r.below(span) as i128 - i128::from(span / 2) * i128::from(low < 0)).clamp(low, high),
                })
                .collect(),
        )
    };
    Tensor::from_elements(dtype, dims, &elements).unwrap()
}

/// A tensor of finite numbers from −1 to 1.
pub fn finite(dtype: DType, dims: &[usize], seed: u64) -> Tensor {
    let mut r = Lcg::new(seed);
    let n: usize = dims.iter().product();
    let v = (0..n).map(|_| r.below(2001) as f64 / 1000.0 - 1.0).collect();
    Tensor::from_elements(dtype, dims, &Elements::Float(v)).unwrap()
}

/// Indices from −n to n − 1.
pub fn indices(dtype: DType, dims: &[usize], n: usize, seed: u64) -> Tensor {
    let mut r = Lcg::new(seed);
    let count: usize = dims.iter().product();
    let low = if dtype.is_unsigned() { 0 } else { -(n as i128) };
    let span = (n as i128 - low) as u64;
    let v = (0..count).map(|_| i128::from(r.below(span)) + low).collect();
    Tensor::from_elements(dtype, dims, &Elements::Int(v)).unwrap()
}

pub type Build<'a> = &'a dyn Fn(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, IrError>;

fn module(inputs: &[Tensor], symbolic: bool, build: Build<'_>) -> Module {
    let mut b = Builder::new("main");
    let mut ids = Vec::new();
    for (i, x) in inputs.iter().enumerate() {
        let dim = |(a, &n): (usize, &usize)| if symbolic { Dim::symbol(format!("d{i}_{a}")) } else { Dim::from(n) };
        let dims: Vec<Dim> = x.dims().iter().enumerate().map(dim).collect();
        ids.push(b.input(&format!("x{i}"), x.dtype(), dims).unwrap());
    }
    for (i, v) in build(&mut b, &ids).unwrap().into_iter().enumerate() {
        b.output(&format!("y{i}"), v).unwrap();
    }
    Module::from_graph(b.finish())
}

fn run(module: &Module, inputs: &[Tensor], threads: usize) -> Result<Vec<Tensor>, String> {
    let options = CompileOptions::default().threads(threads).poison(true);
    let claims = CpuBackend.claims(Device::Cpu);
    let compiled = compile_module(module, &claims, &options).map_err(|e| e.to_string())?;
    let exe = CpuBackend.compile(compiled.target, Device::Cpu, &options).map_err(|e| e.to_string())?;
    let refs: Vec<TensorRef<'_>> = inputs.iter().map(TensorRef::from).collect();
    exe.run(&refs, None).map_err(|e| e.to_string())
}

fn same_number(a: f64, b: f64, tolerance: f64) -> bool {
    if tolerance == 0.0 {
        return a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    }
    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * (1.0 + b.abs())
}

fn compare(got: &Tensor, want: &Tensor, tolerance: f64, what: &str) {
    assert_eq!((got.dtype(), got.dims()), (want.dtype(), want.dims()), "{what}");
    let numbers = |a: &[f64], b: &[f64]| {
        for (i, (&a, &b)) in a.iter().zip(b).enumerate() {
            assert!(same_number(a, b, tolerance), "{what}: element {i} is {a}, not {b}\n got {got:?}\nwant {want:?}");
        }
    };
    match (got.elements(), want.elements()) {
        (Elements::Float(a), Elements::Float(b)) => numbers(&a, &b),
        (Elements::Complex(a), Elements::Complex(b)) => numbers(&a.concat(), &b.concat()),
        (a, b) => assert_eq!(a, b, "{what}"),
    }
}

/// Runs a graph with symbolic and with static sizes on 1, 2 and 3 threads; results are the evaluator's (within a
/// tolerance relative to 1 and to their size), and the same bits each time. Gives them.
pub fn check(inputs: &[Tensor], tolerance: f64, build: Build<'_>) -> Vec<Tensor> {
    let fixed = module(inputs, false, build);
    let values: Vec<Value> = inputs.iter().cloned().map(Value::from).collect();
    let want = evaluate(&fixed, &EvalInputs { inputs: values, ..Default::default() }, EvalOptions::default()).unwrap();
    let mut first: Option<Vec<Tensor>> = None;
    for threads in 1..=3 {
        let got = run(&fixed, inputs, threads).unwrap();
        assert_eq!(got.len(), want.outputs.len());
        for (o, (g, w)) in got.iter().zip(&want.outputs).enumerate() {
            compare(g, w.as_tensor().unwrap(), tolerance, &format!("result {o} on {threads} threads of {inputs:?}"));
        }
        let first = first.get_or_insert_with(|| got.clone());
        for (a, b) in first.iter().zip(&got) {
            assert_eq!(a.bytes(), b.bytes(), "on {threads} threads");
        }
    }
    first.unwrap()
}

/// As [`check`], also with sizes that are known only when it runs.
pub fn check_symbolic(inputs: &[Tensor], tolerance: f64, build: Build<'_>) {
    let want = check(inputs, tolerance, build);
    let got = run(&module(inputs, true, build), inputs, 2).unwrap();
    for (g, w) in got.iter().zip(&want) {
        assert_eq!((g.dims(), g.bytes()), (w.dims(), w.bytes()), "with symbolic sizes");
    }
}

/// The error of a graph that builds but must fail when it runs.
pub fn fails(inputs: &[Tensor], build: Build<'_>) -> String {
    let m = module(inputs, true, build);
    let values: Vec<Value> = inputs.iter().cloned().map(Value::from).collect();
    let oracle = evaluate(&m, &EvalInputs { inputs: values, ..Default::default() }, EvalOptions::default());
    assert!(oracle.is_err(), "the evaluator takes it");
    let errors: Vec<String> = (1..=3).map(|t| run(&m, inputs, t).unwrap_err()).collect();
    assert!(errors.iter().all(|e| *e == errors[0]), "{errors:?}");
    errors[0].clone()
}
