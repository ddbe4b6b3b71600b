//! What a caller hands in: shaped tensors, or flat data whose shape follows from the program's.

use std::borrow::Cow;

use rlx_compile::error::{InputProblem, RunError};
use rlx_compile::target::{PortInfo, TensorRef};
use rlx_ir::dim::{Bounds, Equation, solve};
use rlx_ir::{DType, Dim, DimBinding, Tensor};
use smallvec::SmallVec;

/// One input of a call.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A tensor with its shape.
    Tensor(TensorRef<'a>),
    /// Row-major f32 data. The shape must follow uniquely from the length and the other inputs; 16-bit float inputs are converted.
    Flat(&'a [f32]),
    /// Row-major, packed bytes of a dtype. The shape must follow uniquely.
    Bytes(DType, &'a [u8]),
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(t: &'a Tensor) -> Self {
        Input::Tensor(t.into())
    }
}

impl<'a> From<TensorRef<'a>> for Input<'a> {
    fn from(t: TensorRef<'a>) -> Self {
        Input::Tensor(t)
    }
}

impl<'a> From<&'a [f32]> for Input<'a> {
    fn from(t: &'a [f32]) -> Self {
        Input::Flat(t)
    }
}

/// An input with its shape found and its data in the declared dtype.
pub(crate) struct Shaped<'a> {
    pub dtype: DType,
    pub dims: Cow<'a, [usize]>,
    pub bytes: Cow<'a, [u8]>,
}

/// A list of inputs; up to eight take no memory of their own.
pub(crate) type List<T> = SmallVec<[T; 8]>;

impl Shaped<'_> {
    pub fn as_ref(&self) -> TensorRef<'_> {
        TensorRef { dtype: self.dtype, dims: &self.dims, bytes: &self.bytes }
    }
}

/// Puts named inputs in the program's order, finds the shapes of flat ones and converts them. All problems at once.
pub(crate) fn arrange<'a>(ports: &[PortInfo], given: &[(&str, Input<'a>)]) -> Result<List<Shaped<'a>>, RunError> {
    let mut problems = Vec::new();
    for (i, (name, _)) in given.iter().enumerate() {
        if !ports.iter().any(|p| &*p.name == *name) {
            let known = ports.iter().map(|p| p.name.to_string()).collect();
            problems.push(InputProblem::Unknown { kind: "input", name: (*name).into(), known });
        } else if given.iter().take(i).any(|(n, _)| n == name) {
            problems.push(InputProblem::Duplicate { kind: "input", name: (*name).into() });
        }
    }
    let mut found: List<Input<'a>> = List::new();
    for p in ports {
        match given.iter().find(|(n, _)| *n == &*p.name) {
            Some((_, input)) => {
                if let Some(problem) = check_type(p, input) {
                    problems.push(problem);
                }
                found.push(*input);
            }
            None => problems.push(InputProblem::Missing {
                kind: "input",
                name: p.name.to_string(),
                expected: p.ty.to_string(),
            }),
        }
    }
    if !problems.is_empty() {
        return Err(RunError::Inputs(problems));
    }
    let binding = if found.iter().any(|i| !matches!(i, Input::Tensor(_))) {
        bind_flat(ports, &found)?
    } else {
        DimBinding::new()
    };
    let mut out = List::new();
    for (p, input) in ports.iter().zip(found) {
        match shape_one(p, input, &binding) {
            Ok(s) => out.push(s),
            Err(e) => problems.push(e),
        }
    }
    if problems.is_empty() { Ok(out) } else { Err(RunError::Inputs(problems)) }
}

fn check_type(p: &PortInfo, input: &Input<'_>) -> Option<InputProblem> {
    let name = || p.name.to_string();
    let (got, fits) = match input {
        Input::Tensor(t) => {
            if t.dtype == p.ty.dtype && t.dims.len() != p.ty.shape.rank() {
                return Some(InputProblem::Shape {
                    kind: "input",
                    name: name(),
                    expected: p.ty.to_string(),
                    got: t.dims.to_vec(),
                    why: format!("rank {} is wanted", p.ty.shape.rank()),
                });
            }
            (t.dtype, t.dtype == p.ty.dtype)
        }
        Input::Flat(_) => (DType::F32, matches!(p.ty.dtype, DType::F32 | DType::F16 | DType::BF16)),
        Input::Bytes(d, _) => (*d, *d == p.ty.dtype),
    };
    (!fits).then(|| InputProblem::DType { kind: "input", name: name(), expected: p.ty.dtype, got })
}

/// Elements in so many bytes; `None` if they are ragged.
fn elements(dtype: DType, bytes: usize) -> Option<usize> {
    match dtype.size() {
        Some(size) => bytes.is_multiple_of(size).then_some(bytes / size),
        None => (dtype.bits() > 0).then(|| bytes * 8 / dtype.bits()),
    }
}

/// Solves the symbols from the shapes of shaped inputs and the lengths of flat ones.
fn bind_flat(ports: &[PortInfo], found: &[Input<'_>]) -> Result<DimBinding, RunError> {
    let mut equations = Vec::new();
    let mut problems = Vec::new();
    for (p, input) in ports.iter().zip(found) {
        let count = match input {
            Input::Tensor(t) => {
                for (axis, (d, &n)) in p.ty.shape.iter().zip(t.dims).enumerate() {
                    equations.push(Equation::new(d.clone(), n as i64, format!("input `{}` axis {axis}", p.name)));
                }
                continue;
            }
            Input::Flat(x) => Some(x.len()),
            Input::Bytes(d, b) => elements(*d, b.len()),
        };
        match count {
            // Sub-byte data may end in padding, so that its count is no equation.
            Some(_) if p.ty.dtype.bits() < 8 => {}
            Some(n) => {
                equations.push(Equation::new(p.ty.shape.numel(), n as i64, format!("length of input `{}`", p.name)))
            }
            None => problems.push(InputProblem::Binding(format!(
                "input `{}`: the bytes do not make up whole {}s",
                p.name, p.ty.dtype
            ))),
        }
    }
    let solved = solve(&equations, &DimBinding::new(), &Bounds::default());
    let binding = match solved {
        Ok(b) => b,
        Err(errors) => {
            problems.extend(errors.iter().map(|e| InputProblem::Binding(e.to_string())));
            return Err(RunError::Inputs(problems));
        }
    };
    let dims: Vec<Dim> = ports
        .iter()
        .zip(found)
        .filter(|(_, i)| !matches!(i, Input::Tensor(_)))
        .flat_map(|(p, _)| p.ty.shape.iter().cloned())
        .collect();
    let open = rlx_ir::dim::unsolved(&dims, &binding);
    if !open.is_empty() {
        let names: Vec<String> = open.iter().map(ToString::to_string).collect();
        problems.push(InputProblem::Binding(format!(
            "the lengths of flat inputs leave {} open; pass tensors with shapes",
            names.join(", ")
        )));
    }
    if problems.is_empty() { Ok(binding) } else { Err(RunError::Inputs(problems)) }
}

fn shape_one<'a>(p: &PortInfo, input: Input<'a>, binding: &DimBinding) -> Result<Shaped<'a>, InputProblem> {
    let (bytes, count): (Cow<'a, [u8]>, usize) = match input {
        Input::Tensor(t) => return Ok(Shaped { dtype: t.dtype, dims: t.dims.into(), bytes: t.bytes.into() }),
        Input::Flat(x) => (crate::boundary::from_f32(p.ty.dtype, x), x.len()),
        Input::Bytes(_, b) => (b.into(), elements(p.ty.dtype, b.len()).unwrap_or(0)),
    };
    let dims =
        p.ty.shape
            .eval(binding)
            .map_err(|e| InputProblem::Binding(format!("input `{}`: {e}", p.name)))?
            .into_iter()
            .map(|d| {
                usize::try_from(d).map_err(|_| InputProblem::Binding(format!("input `{}` would have size {d}", p.name)))
            })
            .collect::<Result<Vec<_>, _>>()?;
    let want = rlx_ir::tensor::checked_numel(&dims).ok().and_then(|n| p.ty.dtype.bytes_for(n));
    if want != Some(bytes.len()) {
        let why = format!("{count} elements were given");
        return Err(InputProblem::Shape {
            kind: "input",
            name: p.name.to_string(),
            expected: p.ty.to_string(),
            got: dims,
            why,
        });
    }
    Ok(Shaped { dtype: p.ty.dtype, dims: dims.into(), bytes })
}
