//! Small programs that many tests share.

use rlx::ir::IrError;
use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::EvalOptions;
use rlx::ir::testing::close;
use rlx::{Builder, CompileOptions, CompiledGraph, DType, Device, Dim, Graph, Module, Session, Tensor};

pub fn f32s(dims: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_slice(dims, v).unwrap()
}

/// Numbers of a fixed sequence in −1..1.
pub fn numbers(seed: u64, dims: &[usize]) -> Tensor {
    let mut rng = rlx::ir::testing::Rng::new(seed);
    let v: Vec<f32> = (0..dims.iter().product()).map(|_| rng.unit() as f32).collect();
    f32s(dims, &v)
}

pub fn session() -> Session {
    Session::new(Device::Cpu).unwrap()
}

pub fn compile(g: Graph, options: &CompileOptions) -> CompiledGraph {
    session().compile_with(g, options).unwrap()
}

/// `y = relu(x · (w ∘ k) + b)`: the product of `w` and `k` is parameter-only work. `c` is read by main alone, `k` by prepare and main.
pub fn dense() -> Graph {
    let build = || -> Result<Graph, IrError> {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n"), 4.into()])?;
        let w = b.param_with("w", numbers(1, &[4, 3]))?;
        let k = b.param_with("k", numbers(2, &[4, 3]))?;
        let c = b.param_with("c", numbers(3, &[3]))?;
        let scaled = b.mul(w, k)?;
        let y = b.matmul(x, scaled)?;
        let y = b.add(y, c)?;
        let y = b.relu(y)?;
        // Read in both stages.
        let first = b.slice_axis(k, 0, Dim::ZERO, Dim::ONE, 1)?;
        let z = b.mul(y, first)?;
        b.output("y", y)?;
        b.output("z", z)?;
        Ok(b.finish())
    };
    build().unwrap()
}

/// One elementwise step over `[n]` with two outputs that share no kernel when fusion is off.
pub fn two_outputs() -> Graph {
    let build = || -> Result<Graph, IrError> {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n")])?;
        let a = b.exp(x)?;
        let c = b.softmax(x, 0)?;
        b.output("exp", a)?;
        b.output("softmax", c)?;
        b.output("x", x)?;
        Ok(b.finish())
    };
    build().unwrap()
}

/// What the evaluator gives for inputs in order, with these parameters over their defaults.
pub fn oracle(g: &Graph, inputs: &[Tensor], params: &[(&str, Tensor)]) -> Vec<Tensor> {
    let inputs = EvalInputs {
        inputs: inputs.iter().cloned().map(Into::into).collect(),
        params: params.iter().map(|(n, t)| (n.to_string(), t.clone())).collect(),
        ..Default::default()
    };
    let exact = EvalOptions { f64_accumulate: true, ..EvalOptions::default() };
    let out = evaluate(&Module::from_graph(g.clone()), &inputs, exact).unwrap().outputs;
    out.into_iter().map(|v| v.as_tensor().unwrap().clone()).collect()
}

/// A few units in the last place of numbers around one.
pub fn same(want: &[Tensor], got: &[Tensor], what: &str) {
    assert_eq!(want.len(), got.len(), "{what}");
    for (i, (w, g)) in want.iter().zip(got).enumerate() {
        close(&w.clone().into(), &g.clone().into(), 1e-5, 1e-5).unwrap_or_else(|e| panic!("{what}, output {i}: {e}"));
    }
}

/// A folder of this process that is gone when dropped.
pub struct Folder(pub std::path::PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let dir = std::env::temp_dir().join(format!("rlx-contract-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Folder(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A safetensors file of f32 tensors.
pub fn safetensors(tensors: &[(&str, &Tensor)]) -> Vec<u8> {
    let (mut header, mut data) = (Vec::new(), Vec::new());
    for (name, t) in tensors {
        let from = data.len();
        data.extend_from_slice(t.bytes());
        header.push(format!(
            "\"{name}\":{{\"dtype\":\"F32\",\"shape\":{:?},\"data_offsets\":[{from},{}]}}",
            t.dims(),
            data.len()
        ));
    }
    let mut json = format!("{{{}}}", header.join(","));
    while json.len() % 8 != 0 {
        json.push(' ');
    }
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(json.as_bytes());
    file.extend_from_slice(&data);
    file
}
