//! All ways of running one model.

use std::collections::BTreeMap;

use rlx::ir::element::Elements;
use rlx::onnx::{ImportOptions, Model, import};
use rlx::{CompileOptions, Tensor};

use crate::onnx::{A, node};

#[path = "../ways/mod.rs"]
mod shared;

use shared::Run;

/// What every way gives, by name. `fixed` inputs are constants in all of them.
pub fn all(model: &Model, inputs: &[(String, Tensor)], fixed: &[&str]) -> Vec<(String, Run)> {
    let options = |fixed_inputs: BTreeMap<String, Tensor>| ImportOptions { fixed_inputs, ..ImportOptions::default() };
    let some = inputs.iter().filter(|(n, _)| fixed.contains(&n.as_str())).cloned().collect();
    let imported = import(model, &options(inputs.iter().cloned().collect())).map_err(|e| e.to_string());
    let constants = imported.and_then(|i| shared::compiled(&i.module, &[], CompileOptions::new()));
    let free: Vec<Tensor> =
        inputs.iter().filter(|(n, _)| !fixed.contains(&n.as_str())).map(|(_, t)| t.clone()).collect();
    let mut ways = match import(model, &options(some)) {
        Ok(i) => shared::all(&i.module, &free),
        Err(e) => vec![("import".into(), Err(e.to_string()))],
    };
    ways.push(("imported as constants".into(), constants));
    ways
}

/// One case: an operator on operands.
#[derive(Clone)]
pub struct Case<'a> {
    pub op: &'a str,
    pub version: i64,
    pub inputs: Vec<Option<Tensor>>,
    pub outputs: usize,
    pub attributes: Vec<(&'a str, A)>,
    /// Inputs that must be known when the model is compiled.
    pub fixed: Vec<&'a str>,
}

impl<'a> Case<'a> {
    pub fn new(op: &'a str, version: i64, inputs: &[&Tensor]) -> Self {
        let inputs = inputs.iter().map(|&t| Some(t.clone())).collect();
        Case { op, version, inputs, outputs: 1, attributes: Vec::new(), fixed: Vec::new() }
    }

    pub fn with(mut self, name: &'a str, value: A) -> Self {
        self.attributes.push((name, value));
        self
    }

    pub fn fixed(mut self, names: &[&'a str]) -> Self {
        self.fixed = names.to_vec();
        self
    }

    pub fn outputs(mut self, n: usize) -> Self {
        self.outputs = n;
        self
    }

    pub fn run(&self) -> Vec<(String, Run)> {
        let given: Vec<Option<&Tensor>> = self.inputs.iter().map(Option::as_ref).collect();
        let model = node(self.op, self.version, &given, self.outputs, &self.attributes);
        let named = self.inputs.iter().enumerate().filter_map(|(i, t)| Some((format!("x{i}"), t.clone()?)));
        all(&model, &named.collect::<Vec<_>>(), &self.fixed)
    }

    /// Every way gives these bits; NaNs of any payload.
    pub fn gives(&self, want: &[Tensor]) {
        for (way, got) in self.run() {
            let got = got.unwrap_or_else(|e| panic!("{} {way}: {e}", self.op));
            assert_eq!(got.len(), want.len(), "{} {way}", self.op);
            for (g, w) in got.iter().zip(want) {
                assert!(same(g, w), "{} {way}: {:?}, not {:?}", self.op, g.elements(), w.elements());
            }
        }
    }

    /// Every way gives f32 numbers within a relative error.
    pub fn near(&self, want: &Tensor, rtol: f64) {
        for (way, got) in self.run() {
            let got = got.unwrap_or_else(|e| panic!("{} {way}: {e}", self.op));
            assert_eq!((got[0].dtype(), got[0].dims()), (want.dtype(), want.dims()), "{} {way}", self.op);
            let (g, w) = (got[0].elements().to_f64().unwrap(), want.elements().to_f64().unwrap());
            for (g, w) in g.iter().zip(&w) {
                let fits = g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= rtol * w.abs();
                assert!(fits, "{} {way}: {g}, not {w}", self.op);
            }
        }
    }

    /// Every way is an error.
    pub fn refused(&self) {
        for (way, got) in self.run() {
            assert!(got.is_err(), "{} {way}: {:?}", self.op, got.unwrap()[0].elements());
        }
    }
}

/// Equal bits, but for NaNs.
fn same(a: &Tensor, b: &Tensor) -> bool {
    if a.dtype() != b.dtype() || a.dims() != b.dims() {
        return false;
    }
    match (a.elements(), b.elements()) {
        (Elements::Float(x), Elements::Float(y)) => {
            x.iter().zip(&y).all(|(x, y)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan())
        }
        (x, y) => x == y,
    }
}

pub fn f32s(v: &[f32]) -> Tensor {
    Tensor::from_slice(&[v.len()], v).unwrap()
}

pub fn of<T: rlx::ir::tensor::Element>(dims: &[usize], v: &[T]) -> Tensor {
    Tensor::from_slice(dims, v).unwrap()
}

/// Lengths around those of vectors, and long ones.
pub const LENGTHS: [usize; 12] = [1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 600];

/// `v` repeated to a length.
pub fn cycled<T: Copy>(v: &[T], n: usize) -> Vec<T> {
    v.iter().copied().cycle().take(n).collect()
}
