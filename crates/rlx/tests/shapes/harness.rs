//! Programs with what is counted of them.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rlx::compile::pass;
use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::EvalOptions;
use rlx::ir::testing::{Rng, close};
use rlx::{CompileOptions, CompiledGraph, DType, Device, DimBinding, Module, Session, Tensor, Value};

/// Passes are counted for the whole process, so that tests that compile take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A module, compiled once.
pub struct Once {
    pub module: Module,
    pub program: CompiledGraph,
    passes: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Once {
    pub fn new(module: Module) -> Once {
        let _turn = turn();
        let before = pass::runs();
        let options = CompileOptions::new().threads(2).poison(true);
        let mut program = Session::with_options(Device::Cpu, options).unwrap().compile_hir(&module).unwrap();
        program.finalize_params().unwrap();
        let passes = pass::runs();
        assert!(passes - before >= program.report().passes.len() as u64 - 1, "passes are not counted");
        Once { module, program, passes, _turn }
    }

    /// All outputs for inputs in the program's order.
    pub fn run(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        let names: Vec<String> = self.program.inputs().iter().map(|p| p.name.to_string()).collect();
        let named: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(inputs).collect();
        self.program.run_tensors(&named).unwrap()
    }

    /// What the evaluator gives, accumulating in f64, with these parameters over their defaults.
    pub fn oracle(&self, inputs: &[Tensor], params: &[(&str, Tensor)]) -> Vec<Tensor> {
        let inputs = EvalInputs {
            inputs: inputs.iter().cloned().map(Value::from).collect(),
            params: params.iter().map(|(n, t)| (n.to_string(), t.clone())).collect(),
            ..Default::default()
        };
        let out = evaluate(&self.module, &inputs, EvalOptions { f64_accumulate: true, ..EvalOptions::default() })
            .unwrap()
            .outputs;
        out.into_iter().map(|v| v.as_tensor().unwrap().clone()).collect()
    }

    /// Runs, and requires what the evaluator gives.
    pub fn check(&self, inputs: &[Tensor], what: &str) -> Vec<Tensor> {
        let got = self.run(inputs);
        same(&self.oracle(inputs, &[]), &got, what);
        got
    }

    /// Arena bytes of a binding.
    pub fn arena(&mut self, sizes: &[(&str, i64)]) -> u64 {
        let binding: DimBinding = sizes.iter().map(|&(s, n)| (s, n)).collect();
        self.program.prepare_for(&binding).unwrap();
        self.program.stats().arena_bytes
    }

    /// Runs two sets of inputs in turn: sizes are bound twice, whatever the number of runs.
    pub fn alternate(&self, a: &[Tensor], b: &[Tensor]) {
        let before = self.program.stats();
        for _ in 0..3 {
            self.run(a);
            self.run(b);
        }
        let after = self.program.stats();
        assert_eq!((after.binds - before.binds, after.bind_hits - before.bind_hits), (2, 4));
    }

    /// No pass has run since compilation.
    pub fn compiled_once(self) {
        assert_eq!(pass::runs(), self.passes, "a pass ran after compilation");
    }
}

/// f32 kernels against f64 sums: a few units in the last place of numbers around 1 for each of some hundred nodes.
pub fn same(want: &[Tensor], got: &[Tensor], what: &str) {
    assert_eq!(want.len(), got.len());
    for (i, (w, g)) in want.iter().zip(got).enumerate() {
        close(&w.clone().into(), &g.clone().into(), 1e-4, 5e-5).unwrap_or_else(|e| panic!("{what}, output {i}: {e}"));
    }
}

/// Part `[from, from + n)` of the first axis.
pub fn rows(t: &Tensor, from: usize, n: usize) -> Tensor {
    let mut dims = t.dims().to_vec();
    let row = t.bytes().len() / dims[0];
    dims[0] = n;
    Tensor::from_bytes(t.dtype(), &dims, &t.bytes()[from * row..(from + n) * row]).unwrap()
}

/// Random numbers in −1..1.
pub fn random(seed: u64, dims: &[usize]) -> Tensor {
    let mut rng = Rng::new(seed);
    let n = dims.iter().product();
    let v: Vec<f32> = (0..n).map(|_| rng.unit() as f32).collect();
    Tensor::from_slice(dims, &v).unwrap()
}

/// Random whole numbers below `most`.
pub fn ids(seed: u64, dims: &[usize], most: usize) -> Tensor {
    let mut rng = Rng::new(seed);
    let n = dims.iter().product();
    let v: Vec<i64> = (0..n).map(|_| rng.below(most) as i64).collect();
    Tensor::from_slice(dims, &v).unwrap()
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// A stored case: inputs `in.<name>` in the program's order, then outputs `out.<name>`.
pub fn case(path: &Path, program: &CompiledGraph) -> (Vec<Tensor>, Vec<Tensor>) {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut archive = zip::ZipArchive::new(file).unwrap();
    let mut read = |name: String| {
        let npy = npyz::NpyFile::new(archive.by_name(&format!("{name}.npy")).unwrap()).unwrap();
        let dims: Vec<usize> = npy.shape().iter().map(|&d| d as usize).collect();
        match npy.dtype().descr().as_str() {
            "'<f4'" => Tensor::from_slice(&dims, &npy.into_vec::<f32>().unwrap()).unwrap(),
            "'<i8'" => Tensor::from_slice(&dims, &npy.into_vec::<i64>().unwrap()).unwrap(),
            other => panic!("{name}: arrays of {other} are not read here"),
        }
    };
    let inputs = program.inputs().iter().map(|p| read(format!("in.{}", p.name))).collect();
    let outputs = program.outputs().iter().map(|p| read(format!("out.{}", p.name))).collect();
    (inputs, outputs)
}

/// A scalar of whole numbers.
pub fn scalar(n: i64) -> Tensor {
    Tensor::from_bytes(DType::I64, &[], &n.to_le_bytes()).unwrap()
}
