//! Inputs from files, and filled ones.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rlx::ir::dim::{Bounds, Equation, solve};
use rlx::ir::element::Elements;
use rlx::ir::{TensorType, ValueId};
use rlx::{DType, DimBinding, Module, Tensor};

use crate::args::{Fill, InputArgs};
use crate::error::CliError;
use crate::npz;

/// Splits `NAME=VALUE` at the last `=` (names may hold one).
fn pair<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), CliError> {
    text.rsplit_once('=').ok_or_else(|| CliError::Usage(format!("--{option} wants NAME=VALUE, got `{text}`")))
}

/// Reads `1x3x224x224`; an empty text is a scalar.
fn shape(text: &str) -> Result<Vec<usize>, CliError> {
    let bad = || CliError::Usage(format!("`{text}` is not a shape like 1x3x224x224"));
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(['x', ',']).map(|d| d.trim().parse().map_err(|_| bad())).collect()
}

/// The module's inputs with their names and types.
pub fn ports(module: &Module) -> Vec<(String, Option<TensorType>, ValueId)> {
    let g = &module.main;
    g.inputs()
        .iter()
        .map(|&v| (g.value(v).name.as_deref().unwrap_or_default().to_string(), g.tensor_type(v).cloned(), v))
        .collect()
}

type Ports = [(String, Option<TensorType>, ValueId)];

/// Refuses the names that no input has, all at once.
fn check_names<'a>(ports: &Ports, names: impl IntoIterator<Item = &'a str>) -> Result<(), CliError> {
    let unknown: Vec<String> =
        names.into_iter().filter(|n| ports.iter().all(|p| p.0 != *n)).map(|n| format!("`{n}`")).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = ports.iter().map(|p| p.0.as_str()).collect();
    let word = if unknown.len() == 1 { "input" } else { "inputs" };
    let (unknown, names) = (unknown.join(", "), names.join(", "));
    Err(CliError::Inputs(format!("the model has no {word} {unknown}; its inputs are: {names}")))
}

/// Shapes given on the command line, by input.
pub fn shapes(module: &Module, texts: &[String]) -> Result<BTreeMap<String, Vec<usize>>, CliError> {
    let pairs = texts.iter().map(|t| pair("shape", t)).collect::<Result<Vec<_>, _>>()?;
    check_names(&ports(module), pairs.iter().map(|p| p.0))?;
    pairs.into_iter().map(|(name, dims)| Ok((name.into(), shape(dims)?))).collect()
}

/// One tensor for each input, in order: from files where given, else filled.
pub fn inputs(module: &Module, args: &InputArgs) -> Result<Vec<(String, Tensor)>, CliError> {
    let ports = ports(module);
    let files = args.inputs.iter().map(|t| pair("input", t)).collect::<Result<Vec<_>, _>>()?;
    let shaped = args.shapes.iter().map(|t| pair("shape", t)).collect::<Result<Vec<_>, _>>()?;
    check_names(&ports, files.iter().chain(&shaped).map(|p| p.0))?;
    let mut given: BTreeMap<String, Tensor> = BTreeMap::new();
    if let Some(path) = &args.archive {
        for (name, t) in npz::read_npz(path)? {
            if name.starts_with("out.") {
                continue;
            }
            let name = name.strip_prefix("in.").unwrap_or(&name).to_string();
            given.insert(name, t);
        }
        check_names(&ports, given.keys().map(String::as_str))?;
    }
    let mut numbers: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, value) in files {
        let path = PathBuf::from(value);
        match value.parse::<f64>() {
            Ok(x) if !path.exists() => {
                numbers.insert(name, x);
            }
            _ => {
                given.insert(name.into(), npz::read_npy(&path)?);
            }
        }
    }
    let shapes = shapes(module, &args.shapes)?;
    let binding = binding(module, &given, &shapes, &args.dims)?;
    let mut out = Vec::new();
    let (mut open, mut notes) = (Vec::new(), Vec::new());
    for (i, (name, ty, _)) in ports.iter().enumerate() {
        if let Some(t) = given.remove(name) {
            out.push((name.clone(), t));
            continue;
        }
        let Some(ty) = ty else {
            return Err(CliError::Inputs(format!("input `{name}` is not a tensor; it cannot be filled")));
        };
        let dims = match shapes.get(name) {
            Some(d) => Some(d.clone()),
            None => ty.shape.eval(&binding).ok().and_then(|v| v.into_iter().map(|d| usize::try_from(d).ok()).collect()),
        };
        match dims {
            Some(dims) => {
                let t = match numbers.get(name.as_str()) {
                    Some(&x) => constant(ty.dtype, &dims, x)?,
                    None => {
                        notes.push(format!("`{name}` {}{dims:?}", ty.dtype));
                        filled(ty.dtype, &dims, args.fill, args.seed.wrapping_add(i as u64))?
                    }
                };
                out.push((name.clone(), t));
            }
            None => open.push(format!(
                "--shape {name}={}   (it is {ty})",
                ty.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
            )),
        }
    }
    if !open.is_empty() {
        return Err(CliError::Inputs(format!(
            "the sizes of some inputs are open; give them, or a file:\n  {}",
            open.join("\n  ")
        )));
    }
    if !notes.is_empty() {
        let how = match args.fill {
            Fill::Random => format!("random numbers (seed {})", args.seed),
            Fill::Zeros => "zeros".into(),
            Fill::Ones => "ones".into(),
        };
        eprintln!("note: filled with {how}: {}", notes.join(", "));
    }
    Ok(out)
}

/// Sizes of symbols from what is given.
pub fn binding(
    module: &Module,
    given: &BTreeMap<String, Tensor>,
    shapes: &BTreeMap<String, Vec<usize>>,
    dims: &[String],
) -> Result<DimBinding, CliError> {
    let mut start = DimBinding::new();
    let symbols = module.main.input_symbols();
    for text in dims {
        let (name, size) = pair("dim", text)?;
        let size = size.parse::<i64>().map_err(|_| CliError::Usage(format!("--dim {text}: `{size}` is not a size")))?;
        if !symbols.iter().any(|s| s.name() == name) {
            let all: Vec<&str> = symbols.iter().map(|s| s.name()).collect();
            return Err(CliError::Inputs(format!(
                "the model has no symbol `{name}`; its symbols are: {}",
                all.join(", ")
            )));
        }
        start.set(name, size);
    }
    let mut equations = Vec::new();
    for (name, ty, _) in ports(module) {
        let Some(ty) = ty else { continue };
        let Some(sizes) = given.get(&name).map(|t| t.dims().to_vec()).or_else(|| shapes.get(&name).cloned()) else {
            continue;
        };
        if sizes.len() != ty.shape.rank() {
            return Err(CliError::Inputs(format!("input `{name}` must be {ty}, got shape {sizes:?}")));
        }
        for (axis, (d, &n)) in ty.shape.iter().zip(&sizes).enumerate() {
            equations.push(Equation::new(d.clone(), n as i64, format!("input `{name}` axis {axis}")));
        }
    }
    solve(&equations, &start, &Bounds::default()).map_err(|errors| {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        CliError::Inputs(all.join("\n"))
    })
}

/// A small generator (SplitMix64): the same seed gives the same inputs everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Most elements of a tensor that is filled.
const MOST: usize = 1 << 31;

/// A tensor of one number.
fn constant(dtype: DType, dims: &[usize], x: f64) -> Result<Tensor, CliError> {
    let fail = |e: rlx::ir::tensor::TensorError| CliError::Inputs(e.to_string());
    let n = rlx::ir::tensor::checked_numel(dims).map_err(fail)?;
    if n > MOST || dtype == DType::Str {
        return Err(CliError::Inputs(format!("{dtype}{dims:?} cannot be filled with a number")));
    }
    let whole = x.fract() == 0.0 && x.abs() < 2f64.powi(53);
    if !dtype.is_float() && !dtype.is_complex() && !whole {
        return Err(CliError::Inputs(format!("{x} is no {dtype}")));
    }
    let elements = match dtype.is_float() || dtype.is_complex() {
        true => Elements::Float(vec![x; n]),
        false => Elements::Int(vec![x as i128; n]),
    };
    Tensor::from_elements(dtype, dims, &elements).map_err(fail)
}

/// A filled tensor.
pub fn filled(dtype: DType, dims: &[usize], fill: Fill, seed: u64) -> Result<Tensor, CliError> {
    let fail = |e: rlx::ir::tensor::TensorError| CliError::Inputs(e.to_string());
    let n = rlx::ir::tensor::checked_numel(dims).map_err(fail)?;
    if n > MOST {
        return Err(CliError::Inputs(format!("{dtype}{dims:?} is too large to fill")));
    }
    let mut rng = SplitMix(seed);
    let elements = match (fill, dtype.is_float() || dtype.is_complex()) {
        (Fill::Zeros, _) => return Tensor::zeros(dtype, dims).map_err(fail),
        (Fill::Ones, true) => Elements::Float(vec![1.0; n]),
        (Fill::Ones, false) => Elements::Int(vec![1; n]),
        (Fill::Random, true) => Elements::Float((0..n).map(|_| rng.uniform() * 2.0 - 1.0).collect()),
        (Fill::Random, false) => Elements::Int((0..n).map(|_| i128::from(rng.next() & 1)).collect()),
    };
    if dtype == DType::Str {
        return Err(CliError::Inputs("inputs of strings cannot be filled; give a file".into()));
    }
    Tensor::from_elements(dtype, dims, &elements).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_listed_together() {
        let m = rlx::ir::text::parse_module("func @main(%x: f32[n]) -> (f32[n]) {\n  return %x\n}").unwrap();
        let text = |v: &[&str]| v.iter().map(ToString::to_string).collect::<Vec<_>>();
        let args = InputArgs { inputs: text(&["a=f"]), shapes: text(&["b=2", "x=3"]), ..InputArgs::default() };
        let e = inputs(&m, &args).unwrap_err().to_string();
        assert_eq!(e, "the model has no inputs `a`, `b`; its inputs are: x");
        let args = InputArgs { inputs: text(&["x=2.5"]), shapes: text(&["x=3"]), ..InputArgs::default() };
        assert_eq!(inputs(&m, &args).unwrap()[0].1, Tensor::from_slice(&[3], &[2.5f32; 3]).unwrap());
        let e = shapes(&m, &text(&["b=2", "c=1"])).unwrap_err().to_string();
        assert!(e.contains("`b`, `c`"), "{e}");
    }
}
