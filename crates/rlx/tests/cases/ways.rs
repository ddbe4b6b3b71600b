//! All ways of running one graph.

use rlx::{Graph, Module, Tensor};

#[path = "../ways/mod.rs"]
mod shared;

/// What every way of running a graph gives, by name.
pub fn all(g: &Graph, inputs: &[Tensor]) -> Vec<(String, Vec<Tensor>)> {
    let ways = shared::all(&Module::from_graph(g.clone()), inputs);
    ways.into_iter().map(|(way, run)| (way.clone(), run.unwrap_or_else(|e| panic!("{way}: {e}")))).collect()
}

/// Every way gives these bits: signs of zeros and places of NaNs too.
pub fn exact(g: &Graph, inputs: &[Tensor], want: &[Tensor]) {
    for (way, got) in all(g, inputs) {
        assert_eq!(got.len(), want.len(), "{way}");
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            assert_eq!((g.dtype(), g.dims()), (w.dtype(), w.dims()), "{way}, output {i}");
            assert_eq!(g, w, "{way}, output {i}: {:?} and {:?}", g.elements(), w.elements());
        }
    }
}

/// Every way gives f32 numbers that are these up to a relative and an absolute error; NaNs where NaNs are.
pub fn near(g: &Graph, inputs: &[Tensor], want: &[f64], rtol: f64, atol: f64) {
    for (way, got) in all(g, inputs) {
        let got = got[0].as_slice::<f32>().unwrap().to_vec();
        assert_eq!(got.len(), want.len(), "{way}");
        for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
            let g = f64::from(g);
            let fits = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= atol + rtol * w.abs();
            assert!(fits, "{way}, element {i}: {g} is not {w}");
        }
    }
}
