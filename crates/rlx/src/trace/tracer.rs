//! The recorder, and the values that are recorded.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;

use rlx_ir::{Builder, DType, Dim, IrError, Loc, Module, Shape, Tensor, TensorType, ValueId};

use super::error::{TraceError, TraceProblem, told};
use crate::nn::{Layer, Net, NnError, ParamSpec, Scope, Weights};

/// How an input's type is written: `"f32[batch, 384]"`, or a [`TensorType`].
pub trait InputType {
    /// The type, or why there is none.
    fn tensor_type(&self) -> Result<TensorType, String>;
}

impl InputType for TensorType {
    fn tensor_type(&self) -> Result<TensorType, String> {
        Ok(self.clone())
    }
}

impl InputType for &str {
    fn tensor_type(&self) -> Result<TensorType, String> {
        let wrong = |why: &str| format!("`{self}` is no type such as \"f32[batch, 384]\": {why}");
        let (dtype, rest) = self.split_once('[').ok_or_else(|| wrong("`[` is missing"))?;
        let dims = rest.trim_end().strip_suffix(']').ok_or_else(|| wrong("`]` is missing"))?;
        let dtype: DType = dtype.trim().parse().map_err(|e| wrong(&format!("{e}")))?;
        let mut shape = Vec::new();
        let mut rest = dims.trim();
        while !rest.is_empty() {
            let (dim, used) = Dim::parse_prefix(rest).map_err(|e| wrong(&e.to_string()))?;
            shape.push(dim);
            rest = rest.get(used..).unwrap_or_default().trim_start();
            match rest.strip_prefix(',') {
                Some(more) => rest = more.trim_start(),
                None if rest.is_empty() => {}
                None => return Err(wrong(&format!("`,` is expected at `{rest}`"))),
            }
        }
        Ok(TensorType::new(dtype, Shape::from(shape)))
    }
}

/// How to trace: a name, the dtype of blocks' parameters, weights.
#[derive(Debug)]
pub struct Trace {
    net: Net,
}

impl Trace {
    /// A trace that makes a graph of this name.
    pub fn new(name: &str) -> Self {
        Trace { net: Net::new(name) }
    }

    /// Parameters of blocks are of this dtype (f32 unless told).
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Self {
        Trace { net: self.net.dtype(dtype) }
    }

    /// Parameters take these weights by name; one without a fitting weight is a problem.
    #[must_use]
    pub fn with_weights(self, weights: Weights) -> Self {
        Trace { net: self.net.with_weights(weights) }
    }

    /// Traces a closure to one output, `out0`.
    pub fn run<const N: usize, T, F>(self, inputs: [(&str, T); N], f: F) -> Result<Module, TraceError>
    where
        T: InputType,
        F: for<'t> FnOnce(&'t Tracer, [Traced<'t>; N]) -> Traced<'t>,
    {
        self.run_many(inputs, |t, x| vec![("out0", f(t, x))])
    }

    /// Traces a closure to named outputs.
    #[track_caller]
    pub fn run_many<const N: usize, T, F>(self, inputs: [(&str, T); N], f: F) -> Result<Module, TraceError>
    where
        T: InputType,
        F: for<'t> FnOnce(&'t Tracer, [Traced<'t>; N]) -> Vec<(&'static str, Traced<'t>)>,
    {
        let tracer = Tracer { net: RefCell::new(self.net), problems: RefCell::default() };
        let place = Location::caller();
        let values = inputs.map(|(name, ty)| {
            let declared = ty.tensor_type().map_err(told);
            let declared =
                declared.and_then(|ty| Ok(tracer.net.borrow_mut().builder().graph_mut().add_input(name, ty)?));
            tracer.settle(place, declared)
        });
        for (name, value) in f(&tracer, values) {
            let at = tracer.admit(place, &[value]);
            if let Some([v]) = at.as_deref() {
                let done = tracer.net.borrow_mut().output(name, *v);
                tracer.note(place, done);
            }
        }
        let mut problems = tracer.problems.into_inner();
        let module = tracer.net.into_inner().finish();
        match module {
            Ok(m) if problems.is_empty() => Ok(m),
            Ok(_) => Err(TraceError { problems }),
            Err(error) => {
                problems.push(TraceProblem { place, error });
                Err(TraceError { problems })
            }
        }
    }
}

/// The recorder of one trace: it declares parameters and constants.
#[derive(Debug)]
pub struct Tracer {
    net: RefCell<Net>,
    problems: RefCell<Vec<TraceProblem>>,
}

/// A value of a trace. Operators and methods on it record ops.
#[derive(Clone, Copy)]
pub struct Traced<'t> {
    pub(super) tracer: &'t Tracer,
    /// None if it could not be recorded.
    pub(super) value: Option<ValueId>,
}

impl fmt::Debug for Traced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty() {
            Some(ty) => write!(f, "{ty}"),
            None => f.write_str("?"),
        }
    }
}

impl Tracer {
    fn note(&self, place: &'static Location<'static>, done: Result<(), NnError>) {
        if let Err(error) = done {
            self.problems.borrow_mut().push(TraceProblem { place, error });
        }
    }

    fn settle<'t>(&'t self, place: &'static Location<'static>, made: Result<ValueId, NnError>) -> Traced<'t> {
        let value = match made {
            Ok(v) => Some(v),
            Err(error) => {
                self.note(place, Err(error));
                None
            }
        };
        Traced { tracer: self, value }
    }

    /// The ids of values of this trace; none if one failed before or is of another trace, which is noted.
    fn admit(&self, place: &'static Location<'static>, values: &[Traced<'_>]) -> Option<Vec<ValueId>> {
        if values.iter().any(|v| !std::ptr::eq(v.tracer, self)) {
            self.note(place, Err(told("a value of another trace is used; declare it as an input or parameter here")));
            return None;
        }
        values.iter().map(|v| v.value).collect()
    }

    /// Records what `ops` appends.
    pub(super) fn record<'t>(
        &'t self,
        place: &'static Location<'static>,
        operands: &[Traced<'_>],
        ops: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId, IrError>,
    ) -> Traced<'t> {
        let one = |b: &mut Builder, x: &[ValueId]| ops(b, x).map(|v| vec![v]);
        let made = self.record_many(place, operands, one);
        made.first().copied().unwrap_or(Traced { tracer: self, value: None })
    }

    /// Records what `ops` appends, of several results; none if it fails.
    pub(super) fn record_many<'t>(
        &'t self,
        place: &'static Location<'static>,
        operands: &[Traced<'_>],
        ops: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, IrError>,
    ) -> Vec<Traced<'t>> {
        let Some(ids) = self.admit(place, operands) else { return Vec::new() };
        let made = {
            let mut net = self.net.borrow_mut();
            let b = net.builder();
            b.set_loc(Loc::new(format!("{}:{}", place.file(), place.line())));
            let made = ops(b, &ids);
            b.set_loc(Loc::none());
            made
        };
        match made {
            Ok(v) => v.into_iter().map(|v| Traced { tracer: self, value: Some(v) }).collect(),
            Err(e) => {
                self.note(place, Err(e.into()));
                Vec::new()
            }
        }
    }

    /// Records what is done at a path of the net.
    pub(super) fn at_path<'t>(
        &'t self,
        place: &'static Location<'static>,
        path: &str,
        operands: &[Traced<'_>],
        f: impl FnOnce(&mut Scope<'_>, &[ValueId]) -> Result<ValueId, NnError>,
    ) -> Traced<'t> {
        let Some(ids) = self.admit(place, operands) else { return Traced { tracer: self, value: None } };
        let made = f(&mut self.net.borrow_mut().at(path), &ids);
        self.settle(place, made)
    }

    /// Declares a parameter: `t.param("w", "f32[384, 10]")`. The same name gives the same value.
    #[track_caller]
    pub fn param(&self, name: &str, ty: impl InputType) -> Traced<'_> {
        let place = Location::caller();
        let made = ty.tensor_type().map_err(told).and_then(|ty| {
            let spec = ParamSpec { name: name.into(), ty };
            self.net.borrow_mut().at("").param(&spec)
        });
        self.settle(place, made)
    }

    /// Declares a parameter that has this value until it is set.
    #[track_caller]
    pub fn param_with(&self, name: &str, value: Tensor) -> Traced<'_> {
        let place = Location::caller();
        let made = self.net.borrow_mut().builder().param_with(name, value);
        self.settle(place, made.map_err(Into::into))
    }

    /// A literal.
    #[track_caller]
    pub fn constant(&self, value: Tensor) -> Traced<'_> {
        self.record(Location::caller(), &[], |b, _| b.constant(value))
    }

    /// The integers 0, 1, … below `n`, `i64[n]`.
    #[track_caller]
    pub fn arange(&self, n: impl Into<Dim>) -> Traced<'_> {
        let n = n.into();
        self.record(Location::caller(), &[], |b, _| b.iota(DType::I64, [n], 0))
    }

    /// Values joined along an axis.
    #[track_caller]
    pub fn concat<'t>(&'t self, values: &[Traced<'t>], axis: i64) -> Traced<'t> {
        self.record(Location::caller(), values, |b, x| b.concat(x, axis))
    }

    /// Values of one shape along a new axis.
    #[track_caller]
    pub fn stack<'t>(&'t self, values: &[Traced<'t>], axis: i64) -> Traced<'t> {
        self.record(Location::caller(), values, |b, x| b.stack(x, axis))
    }

    /// Anything that the builder can append, on traced values.
    #[track_caller]
    pub fn custom<'t>(
        &'t self,
        operands: &[Traced<'t>],
        ops: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId, IrError>,
    ) -> Traced<'t> {
        self.record(Location::caller(), operands, ops)
    }

    /// A block at a path that takes more than one value: `f` applies it in the scope.
    #[track_caller]
    pub fn block<'t>(
        &'t self,
        path: &str,
        operands: &[Traced<'t>],
        f: impl FnOnce(&mut Scope<'_>, &[ValueId]) -> Result<ValueId, NnError>,
    ) -> Traced<'t> {
        self.at_path(Location::caller(), path, operands, f)
    }
}

impl<'t> Traced<'t> {
    /// The recorder.
    pub fn tracer(self) -> &'t Tracer {
        self.tracer
    }

    /// Its type; none if it could not be recorded.
    pub fn ty(self) -> Option<TensorType> {
        self.tracer.net.borrow().graph().tensor_type(self.value?).cloned()
    }

    /// Its shape; a scalar's if it could not be recorded.
    pub fn shape(self) -> Shape {
        self.ty().map(|t| t.shape).unwrap_or_default()
    }

    /// The size of an axis, which may count from the end. An axis that is not there is a problem.
    #[track_caller]
    pub fn dim(self, axis: i64) -> Dim {
        let place = Location::caller();
        let Some(ty) = self.ty() else { return Dim::ONE };
        match ty.shape.axis(axis) {
            Some(a) => ty.shape[a].clone(),
            None => {
                self.tracer.note(place, Err(told(format!("axis {axis} is out of range for {ty}"))));
                Dim::ONE
            }
        }
    }

    /// A block of [`nn`](crate::nn) whose parameters stand under a path.
    #[track_caller]
    pub fn through(self, path: &str, layer: &dyn Layer) -> Traced<'t> {
        let apply = |s: &mut Scope<'_>, x: &[ValueId]| match x {
            [x] => layer.apply(s, *x),
            _ => Err(told("one value is expected")),
        };
        self.tracer.at_path(Location::caller(), path, &[self], apply)
    }

    /// A block without parameters, or with parameters at the top.
    #[track_caller]
    pub fn apply(self, layer: &dyn Layer) -> Traced<'t> {
        self.through("", layer)
    }
}
