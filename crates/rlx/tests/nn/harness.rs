//! Running a module, and comparing what it gives.

use std::path::{Path, PathBuf};

use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::EvalOptions;
use rlx::ir::testing::{Rng, close};
use rlx::nn::Weights;
use rlx::{CompileOptions, CompiledGraph, Device, Module, Session, Tensor};

pub fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nn")
}

pub fn compile(module: &Module) -> CompiledGraph {
    let options = CompileOptions::new().threads(2).poison(true);
    Session::with_options(Device::Cpu, options).unwrap().compile_hir(module).unwrap()
}

pub fn run(program: &CompiledGraph, inputs: &[(&str, Tensor)]) -> Vec<Tensor> {
    let named: Vec<(&str, &Tensor)> = inputs.iter().map(|(n, t)| (*n, t)).collect();
    program.run_tensors(&named).unwrap()
}

/// What the evaluator gives, accumulating in f64.
pub fn oracle(module: &Module, inputs: &[(&str, Tensor)]) -> Vec<Tensor> {
    let g = &module.main;
    let find = |v: &rlx::ir::ValueId| {
        let name = g.value(*v).name.clone().unwrap();
        inputs.iter().find(|(n, _)| *n == &*name).unwrap().1.clone().into()
    };
    let given = EvalInputs { inputs: g.inputs().iter().map(find).collect(), ..Default::default() };
    let out = evaluate(module, &given, EvalOptions { f64_accumulate: true, ..EvalOptions::default() }).unwrap();
    out.outputs.into_iter().map(|v| v.as_tensor().unwrap().clone()).collect()
}

pub fn same(want: &[Tensor], got: &[Tensor], what: &str) {
    assert_eq!(want.len(), got.len(), "{what}");
    for (i, (w, g)) in want.iter().zip(got).enumerate() {
        close(&w.clone().into(), &g.clone().into(), 2e-5, 2e-5).unwrap_or_else(|e| panic!("{what}, output {i}: {e}"));
    }
}

/// Random numbers in −1..1.
pub fn random(seed: u64, dims: &[usize]) -> Tensor {
    let mut rng = Rng::new(seed);
    let v: Vec<f32> = (0..dims.iter().product()).map(|_| rng.unit() as f32).collect();
    Tensor::from_slice(dims, &v).unwrap()
}

/// Kinds of kernels with how many there are of each, of prepare and main.
pub fn kernels(program: &CompiledGraph) -> Vec<(String, usize)> {
    let mut k = program.report().kernels.clone();
    k.sort();
    k
}

/// A stored case: inputs, parameters and outputs by name. Outputs in f64 are given as f32, rounded once.
pub struct Case {
    pub inputs: Vec<(String, Tensor)>,
    pub params: Weights,
    pub outputs: Vec<(String, Tensor)>,
}

impl Case {
    pub fn load(path: &Path) -> Case {
        let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut archive = zip::ZipArchive::new(file).unwrap();
        let mut case = Case { inputs: Vec::new(), params: Weights::new(), outputs: Vec::new() };
        let names: Vec<String> = archive.file_names().map(str::to_string).collect();
        for file in names {
            let npy = npyz::NpyFile::new(archive.by_name(&file).unwrap()).unwrap();
            let dims: Vec<usize> = npy.shape().iter().map(|&d| d as usize).collect();
            let t = match npy.dtype().descr().as_str() {
                "'<f4'" => Tensor::from_slice(&dims, &npy.into_vec::<f32>().unwrap()),
                "'<f8'" => {
                    let v: Vec<f32> = npy.into_vec::<f64>().unwrap().iter().map(|&x| x as f32).collect();
                    Tensor::from_slice(&dims, &v)
                }
                "'<i8'" => Tensor::from_slice(&dims, &npy.into_vec::<i64>().unwrap()),
                other => panic!("{file}: arrays of {other} are not read here"),
            }
            .unwrap();
            match file.trim_end_matches(".npy").split_once('.').unwrap() {
                ("in", name) => case.inputs.push((name.into(), t)),
                ("param", path) => case.params.insert(path, t),
                ("out", name) => case.outputs.push((name.into(), t)),
                other => panic!("{other:?}"),
            }
        }
        case
    }

    pub fn fixture(name: &str) -> Case {
        Case::load(&here().join("fixtures").join(format!("{name}.npz")))
    }

    pub fn inputs(&self) -> Vec<(&str, Tensor)> {
        self.inputs.iter().map(|(n, t)| (n.as_str(), t.clone())).collect()
    }

    /// Compiles a module and compares its outputs with those stored.
    pub fn check(&self, module: &Module, what: &str) -> CompiledGraph {
        let program = compile(module);
        let got = run(&program, &self.inputs());
        let of = |name: &str| self.outputs.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone()).unwrap();
        let want: Vec<Tensor> = program.outputs().iter().map(|p| of(&p.name)).collect();
        assert!(!want.is_empty() && want.len() == self.outputs.len(), "{what}: outputs are left out");
        same(&want, &got, what);
        program
    }
}
