//! What an op is: the rules that every op states once, in its own file under `ops/`.

use crate::attr::{AttrReader, AttrWriter};
use crate::builder::Builder;
use crate::dim::{Bounds, Constraint, ConstraintRecord, Dim, DimBinding, Symbol};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::graph::{Graph, ValueId};
use crate::tensor::{Tensor, Value};
use crate::types::{Shape, TensorType, Type};

pub use crate::ops::Op;

/// Integer tensors of up to this many elements carry their elements as dims.
pub const MAX_KNOWN_ELEMS: usize = 1024;

/// What an op does besides computing its results from its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: equal operands give equal results, so the op may be shared, folded, dropped.
    Pure,
    /// Draws random numbers: never shared or folded.
    Random,
}

/// Algebraic facts that passes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTraits {
    /// Side effects.
    pub effect: Effect,
    /// `op(a, b) = op(b, a)`, bit for bit up to NaN payloads.
    pub commutative: bool,
}

impl OpTraits {
    /// Pure, not commutative.
    pub const PURE: OpTraits = OpTraits { effect: Effect::Pure, commutative: false };
}

/// What a decomposition, derivative or batching rule gives: `None` when the op has none.
pub type Rule<T> = Option<Result<T, IrError>>;

/// The whole truth of one op. Everything else (verifier, printer, parser, builder, folder, evaluator, transforms, docs) follows from it.
pub trait OpDef {
    /// The mnemonic in text form.
    fn name(&self) -> &'static str;

    /// One line for the generated operator table.
    fn doc(&self) -> &'static str;

    /// Prints the attributes.
    fn attrs(&self, out: &mut AttrWriter);

    /// The type rule: checks operands and attributes, states the results' types, and what is known of their elements.
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError>;

    /// The reference semantics, in plain loops.
    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError>;

    /// Algebraic facts.
    fn traits(&self) -> OpTraits {
        OpTraits::PURE
    }

    /// For a composite: the same results from simpler ops. `None` for a primitive.
    fn decompose(&self, _b: &mut Builder, _args: &[ValueId]) -> Rule<Vec<ValueId>> {
        None
    }

    /// Reverse-mode derivative: cotangents of the operands from those of the results. `None`: that of the decomposition, or none.
    fn vjp(
        &self,
        _b: &mut Builder,
        _args: &[ValueId],
        _results: &[ValueId],
        _cotangents: &[Option<ValueId>],
    ) -> Rule<Vec<Option<ValueId>>> {
        None
    }

    /// Batching: the same op over operands with one more axis (`Some(axis)`), giving each result's batch axis.
    fn batch(
        &self,
        _b: &mut Builder,
        _args: &[ValueId],
        _axes: &[Option<usize>],
    ) -> Rule<Vec<(ValueId, Option<usize>)>> {
        None
    }

    /// Arithmetic operations of one application (a multiply-add is two), for reports.
    fn work(&self, operands: &[TensorType], results: &[TensorType]) -> Dim {
        let _ = operands;
        Dim::sum(results.iter().map(|t| t.shape.numel()))
    }

    /// Arithmetic operations of the nested graphs, given those of one run of each.
    fn nested_work(&self, operands: &[TensorType], results: &[TensorType], regions: &[Dim]) -> Dim {
        let _ = (operands, results);
        Dim::sum(regions.iter().cloned())
    }

    /// Dims inside attributes are rewritten with `f` (substitution of symbols); ops without dims return themselves.
    fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Op;

    /// Symbols whose values only running the op tells: sizes that depend on data. They are its attributes of type `Symbol`.
    fn defines(&self) -> Vec<Symbol> {
        Vec::new()
    }
}

/// Reads an op of a family from its mnemonic and attributes; `None` if the family has no such op.
pub trait OpFamily: Sized {
    /// Mnemonics of the family with what each op does.
    fn docs() -> Vec<(&'static str, &'static str)>;
    /// Parses.
    fn parse(name: &str, attrs: &mut AttrReader) -> Option<Result<Self, String>>;
}

/// One operand as its user's type rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct OperandInfo<'a> {
    /// Its type.
    pub ty: &'a Type,
    /// Its elements as dims, where known.
    pub elems: Option<&'a [Dim]>,
}

/// One result as a type rule states it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultInfo {
    /// Its type.
    pub ty: Type,
    /// Its elements as dims, where known; row-major.
    pub elems: Option<Vec<Dim>>,
}

/// What a type rule works with.
pub struct InferCx<'a> {
    operands: &'a [OperandInfo<'a>],
    regions: &'a [Graph],
    bounds: &'a Bounds,
    constraints: Vec<ConstraintRecord>,
    results: Vec<ResultInfo>,
    origin: &'a str,
}

impl<'a> InferCx<'a> {
    /// A context over operands; `origin` names the node in recorded constraints.
    pub fn new(operands: &'a [OperandInfo<'a>], regions: &'a [Graph], bounds: &'a Bounds, origin: &'a str) -> Self {
        InferCx { operands, regions, bounds, constraints: Vec::new(), results: Vec::new(), origin }
    }

    /// Results and recorded constraints.
    pub fn finish(self) -> (Vec<ResultInfo>, Vec<ConstraintRecord>) {
        (self.results, self.constraints)
    }

    /// All operands.
    pub fn operands(&self) -> &'a [OperandInfo<'a>] {
        self.operands
    }

    /// Nested graphs.
    pub fn regions(&self) -> &'a [Graph] {
        self.regions
    }

    /// Bounds of symbols.
    pub fn bounds(&self) -> &'a Bounds {
        self.bounds
    }

    /// Errors unless there are exactly `n` operands.
    pub fn expect_operands(&self, n: usize) -> Result<(), OpError> {
        self.expect_operands_in(n, n)
    }

    /// Errors unless the number of operands is in `lo..=hi`.
    pub fn expect_operands_in(&self, lo: usize, hi: usize) -> Result<(), OpError> {
        let n = self.operands.len();
        if (lo..=hi).contains(&n) {
            return Ok(());
        }
        let want = if lo == hi { format!("{lo}") } else { format!("{lo} to {hi}") };
        Err(OpError::new(format!("takes {want} operands, got {n}")))
    }

    /// Operand `i`.
    pub fn operand(&self, i: usize) -> Result<OperandInfo<'a>, OpError> {
        self.operands
            .get(i)
            .copied()
            .ok_or_else(|| OpError::new(format!("operand {i} is missing ({} given)", self.operands.len())))
    }

    /// Operand `i`, which must be a tensor.
    pub fn tensor(&self, i: usize) -> Result<&'a TensorType, OpError> {
        let o = self.operand(i)?;
        o.ty.as_tensor().ok_or_else(|| OpError::new(format!("operand {i} must be a tensor, got {}", o.ty)))
    }

    /// The shape of operand `i`.
    pub fn shape(&self, i: usize) -> Result<&'a Shape, OpError> {
        Ok(&self.tensor(i)?.shape)
    }

    /// The dtype of operand `i`.
    pub fn dtype(&self, i: usize) -> Result<DType, OpError> {
        Ok(self.tensor(i)?.dtype)
    }

    /// The known elements of operand `i`.
    pub fn elems(&self, i: usize) -> Option<&'a [Dim]> {
        self.operands.get(i).and_then(|o| o.elems)
    }

    /// The dtype that operands `range` share.
    pub fn same_dtype(&self, range: std::ops::Range<usize>) -> Result<DType, OpError> {
        let d = self.dtype(range.start)?;
        for i in range.clone() {
            let e = self.dtype(i)?;
            if e != d {
                return Err(OpError::new(format!(
                    "operands {} and {i} must share a dtype, got {d} and {e}",
                    range.start
                ))
                .hint("insert a `convert`"));
            }
        }
        Ok(d)
    }

    /// Requires two dims to be equal: an error if they are known to differ, a recorded constraint if unknown.
    pub fn require_eq(&mut self, a: &Dim, b: &Dim, why: &str) -> Result<(), OpError> {
        match a.known_eq(b) {
            Some(true) => Ok(()),
            Some(false) => Err(OpError::new(format!("{why}: {a} and {b} must be equal"))),
            None => {
                self.record(Constraint::Eq(a.clone(), b.clone()), why);
                Ok(())
            }
        }
    }

    /// Requires a fact about dims: an error if it is known not to hold, a recorded constraint if unknown.
    pub fn require(&mut self, constraint: Constraint, why: &str) -> Result<(), OpError> {
        match constraint.decide_with(self.bounds) {
            Some(true) => Ok(()),
            Some(false) => Err(OpError::new(format!("{why}: it does not hold that {constraint}"))),
            None => {
                self.record(constraint, why);
                Ok(())
            }
        }
    }

    /// Requires two shapes to be equal, dim by dim.
    pub fn require_same_shape(&mut self, a: &Shape, b: &Shape, why: &str) -> Result<(), OpError> {
        if a.rank() != b.rank() {
            return Err(OpError::new(format!("{why}: shapes {a} and {b} must be equal")));
        }
        a.iter().zip(b.iter()).try_for_each(|(x, y)| self.require_eq(x, y, why))
    }

    /// Records a constraint for bind time.
    pub fn record(&mut self, constraint: Constraint, why: &str) {
        let origin = format!("{}: {why}", self.origin);
        self.constraints.push(ConstraintRecord { constraint, origin: origin.into() });
    }

    /// The NumPy broadcast of two dims; unequal symbolic dims give `bcast(a, b)` with its constraint.
    pub fn broadcast_dim(&mut self, a: &Dim, b: &Dim) -> Result<Dim, OpError> {
        if a == b {
            return Ok(a.clone());
        }
        match (a.as_const(), b.as_const()) {
            (Some(1), _) => return Ok(b.clone()),
            (_, Some(1)) => return Ok(a.clone()),
            (Some(x), Some(y)) => {
                return Err(
                    OpError::new(format!("cannot broadcast {x} with {y}")).hint("sizes must be equal or one of them 1")
                );
            }
            _ => {}
        }
        self.record(Constraint::Broadcastable(a.clone(), b.clone()), "broadcast");
        Ok(a.bcast(b))
    }

    /// The NumPy broadcast of shapes, aligned at the last axis.
    pub fn broadcast(&mut self, shapes: &[&Shape]) -> Result<Shape, OpError> {
        let rank = shapes.iter().map(|s| s.rank()).max().unwrap_or(0);
        let mut out = Vec::with_capacity(rank);
        for axis in 0..rank {
            let mut d = Dim::from(1i64);
            for s in shapes {
                if let Some(e) = (axis + s.rank()).checked_sub(rank).and_then(|i| s.dims().get(i)) {
                    d = self.broadcast_dim(&d, e).map_err(|e| {
                        let all: Vec<String> = shapes.iter().map(|s| s.to_string()).collect();
                        OpError {
                            message: format!("shapes {} do not broadcast: {}", all.join(" and "), e.message),
                            hint: e.hint,
                        }
                    })?;
                }
            }
            out.push(d);
        }
        Ok(Shape::from(out))
    }

    /// States a tensor result.
    pub fn result(&mut self, dtype: DType, shape: impl Into<Shape>) {
        self.results.push(ResultInfo { ty: Type::tensor(dtype, shape), elems: None });
    }

    /// States a tensor result with what is known of its elements. Kept only for small integer and boolean tensors.
    pub fn result_elems(&mut self, dtype: DType, shape: impl Into<Shape>, elems: Option<Vec<Dim>>) {
        let shape = shape.into();
        let small = dtype.is_int() || dtype == DType::Bool;
        // Sums beyond 64 bits wrap as data but are no dims: what is not exact is not known.
        let exact = |e: &[Dim]| e.iter().all(|d| d.as_invalid().is_none());
        let fits = |e: &[Dim]| e.len() <= MAX_KNOWN_ELEMS && i64::try_from(e.len()).ok() == shape.static_numel();
        let elems = elems.filter(|e| small && fits(e) && exact(e));
        self.results.push(ResultInfo { ty: Type::tensor(dtype, shape), elems });
    }

    /// States a result of any type.
    pub fn result_type(&mut self, ty: Type) {
        self.results.push(ResultInfo { ty, elems: None });
    }
}

/// How the evaluator works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalOptions {
    /// Contractions and reductions accumulate in f64 instead of f32 (16-bit floats too).
    pub f64_accumulate: bool,
    /// Elements that the results of one node may have together. A node's scratch, and what all nodes hold at a time, may be
    /// [`EvalOptions::HELD`] times as many. The evaluator works on wide copies: a result needs up to 64 bytes an element while it is made.
    pub max_elements: usize,
}

impl Default for EvalOptions {
    fn default() -> Self {
        EvalOptions { f64_accumulate: false, max_elements: 1 << 26 }
    }
}

impl EvalOptions {
    /// How many times `max_elements` may be held at a time.
    pub const HELD: usize = 4;

    /// The oracle's options: all accumulation in f64.
    pub fn accurate() -> Self {
        EvalOptions { f64_accumulate: true, ..Self::default() }
    }

    /// Refuses more elements than a node's results may have.
    pub fn check_results(&self, n: usize) -> Result<(), OpError> {
        self.check("its results have", n, self.max_elements)
    }

    /// Refuses more elements than may be held at a time.
    pub fn check_held(&self, what: &str, n: usize) -> Result<(), OpError> {
        self.check(what, n, self.max_elements.saturating_mul(Self::HELD))
    }

    fn check(&self, what: &str, n: usize, limit: usize) -> Result<(), OpError> {
        if n <= limit {
            return Ok(());
        }
        Err(OpError::new(format!("{what} {n} elements, more than the evaluator's limit of {limit}"))
            .hint("evaluate smaller sizes, or raise `EvalOptions::max_elements`"))
    }
}

/// What an op's evaluation works with.
pub struct EvalCx<'a> {
    /// Sizes of the symbols.
    pub binding: &'a DimBinding,
    /// Options of this evaluation.
    pub options: EvalOptions,
    /// Nested graphs of the node.
    pub regions: &'a [Graph],
    /// Functions that `call` can name.
    pub functions: &'a std::collections::BTreeMap<String, Graph>,
    /// How deep `call` and nested graphs may still go.
    pub depth: usize,
    /// Elements that the results of surrounding nodes hold.
    pub held: usize,
}

impl EvalCx<'_> {
    /// A dim's value, which must be a size.
    pub fn size(&self, d: &Dim) -> Result<usize, OpError> {
        let v = d.eval(self.binding)?;
        usize::try_from(v).map_err(|_| OpError::new(format!("size {d} is {v}; sizes must be ≥ 0")))
    }

    /// A dim's value of any sign.
    pub fn int(&self, d: &Dim) -> Result<i64, OpError> {
        Ok(d.eval(self.binding)?)
    }

    /// Sizes of a list of dims.
    pub fn sizes(&self, dims: &[Dim]) -> Result<Vec<usize>, OpError> {
        dims.iter().map(|d| self.size(d)).collect()
    }

    /// The number of elements of scratch of these sizes, if it is within the limit.
    pub fn scratch(&self, sizes: &[usize]) -> Result<usize, OpError> {
        let n = crate::tensor::checked_numel(sizes)?;
        self.options.check_held("its scratch needs", n)?;
        Ok(n)
    }

    /// Runs nested graph `i` on its inputs (block arguments, then captures).
    pub fn region(&self, i: usize, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let g = self.regions.get(i).ok_or_else(|| OpError::new(format!("nested graph {i} is missing")))?;
        crate::eval::eval_nested(g, args, self)
    }
}

/// Argument `i`, which must be a tensor.
pub fn arg(args: &[Value], i: usize) -> Result<&Tensor, OpError> {
    args.get(i)
        .ok_or_else(|| OpError::new(format!("operand {i} is missing")))?
        .as_tensor()
        .ok_or_else(|| OpError::new(format!("operand {i} is not a tensor")))
}

/// Declares an op: a struct of plain data with its text form. The rules follow in an `impl OpRules for …`.
///
/// ```ignore
/// op! {
///     /// Reorders axes: axis `i` of the result is axis `perm[i]` of the operand.
///     pub struct Transpose = "transpose" {
///         /// A permutation of the operand's axes.
///         pub perm: Vec<usize>,
///     }
/// }
/// ```
#[macro_export]
macro_rules! op {
    ($(#[doc = $doc:literal])+ pub struct $name:ident = $text:literal { $($(#[$fdoc:meta])* pub $field:ident : $ty:ty),* $(,)? }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }

        impl $name {
            /// The mnemonic in text form.
            pub const NAME: &'static str = $text;
            /// What it does, for the operator table.
            pub const DOC: &'static str = concat!($($doc, "\n"),+);

            /// Reads the attributes.
            pub fn parse_attrs(_attrs: &mut $crate::attr::AttrReader) -> Result<Self, String> {
                Ok($name { $($field: _attrs.take(stringify!($field))?,)* })
            }
        }

        impl $crate::op::OpSyntax for $name {
            fn syntax_name(&self) -> &'static str { $text }
            fn syntax_doc(&self) -> &'static str { Self::DOC }
            fn syntax_attrs(&self, _out: &mut $crate::attr::AttrWriter) {
                $(_out.put(stringify!($field), &self.$field);)*
            }
            #[allow(clippy::needless_update)]
            fn with_dims(&self, _f: &mut dyn FnMut(&$crate::dim::Dim) -> $crate::dim::Dim) -> Self {
                #[allow(unused_imports)]
                use $crate::op::MapDims as _;
                $name { $($field: self.$field.map_dims(_f),)* }
            }
            fn defined_symbols(&self) -> Vec<$crate::dim::Symbol> {
                #[allow(unused_imports)]
                use $crate::op::MapDims as _;
                #[allow(unused_mut)]
                let mut out = Vec::new();
                $(self.$field.collect_defined(&mut out);)*
                out
            }
        }
    };
}

/// The text form of an op, written by [`op!`](crate::op!).
pub trait OpSyntax: Sized {
    /// The mnemonic.
    fn syntax_name(&self) -> &'static str;
    /// The doc comment.
    fn syntax_doc(&self) -> &'static str;
    /// Prints the attributes.
    fn syntax_attrs(&self, out: &mut AttrWriter);
    /// The same op with its dims rewritten.
    fn with_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Self;
    /// See [`OpDef::defines`].
    fn defined_symbols(&self) -> Vec<Symbol>;
}

/// Rewrites the dims inside an attribute; the identity for attributes without dims.
pub trait MapDims: Clone {
    /// Rewrites.
    fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Self {
        let _ = f;
        self.clone()
    }

    /// Adds the symbols that the attribute defines: itself, if it is a symbol.
    fn collect_defined(&self, out: &mut Vec<Symbol>) {
        let _ = out;
    }
}

impl MapDims for Symbol {
    fn collect_defined(&self, out: &mut Vec<Symbol>) {
        out.push(self.clone());
    }
}

impl MapDims for Dim {
    fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Self {
        f(self)
    }
}

impl<T: MapDims> MapDims for Vec<T> {
    fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Self {
        self.iter().map(|x| x.map_dims(f)).collect()
    }
    fn collect_defined(&self, out: &mut Vec<Symbol>) {
        self.iter().for_each(|x| x.collect_defined(out));
    }
}

impl<T: MapDims> MapDims for Option<T> {
    fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Self {
        self.as_ref().map(|x| x.map_dims(f))
    }
    fn collect_defined(&self, out: &mut Vec<Symbol>) {
        self.iter().for_each(|x| x.collect_defined(out));
    }
}

impl MapDims for Type {
    fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Self {
        match self {
            Type::Tensor(t) => Type::tensor(t.dtype, t.shape.iter().map(f).collect::<Shape>()),
            Type::Sequence(t) => Type::Sequence(Box::new(t.map_dims(f))),
            Type::Optional(t) => Type::Optional(Box::new(t.map_dims(f))),
        }
    }
}

macro_rules! no_dims {
    ($($t:ty),* $(,)?) => { $(impl MapDims for $t {})* };
}
no_dims!(bool, i64, usize, u32, u64, String, DType, Tensor, crate::attr::FloatBits);

/// The rules of an op declared with [`op!`](crate::op!). See [`OpDef`], which is made of these and the text form.
pub trait OpRules: OpSyntax {
    /// See [`OpDef::infer`].
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError>;
    /// See [`OpDef::eval`].
    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError>;
    /// See [`OpDef::traits`].
    fn traits(&self) -> OpTraits {
        OpTraits::PURE
    }
    /// See [`OpDef::decompose`].
    fn decompose(&self, _b: &mut Builder, _args: &[ValueId]) -> Rule<Vec<ValueId>> {
        None
    }
    /// See [`OpDef::vjp`].
    fn vjp(
        &self,
        _b: &mut Builder,
        _args: &[ValueId],
        _results: &[ValueId],
        _cotangents: &[Option<ValueId>],
    ) -> Rule<Vec<Option<ValueId>>> {
        None
    }
    /// See [`OpDef::work`].
    fn work(&self, _operands: &[TensorType], results: &[TensorType]) -> Dim {
        Dim::sum(results.iter().map(|t| t.shape.numel()))
    }
    /// See [`OpDef::nested_work`].
    fn nested_work(&self, _operands: &[TensorType], _results: &[TensorType], regions: &[Dim]) -> Dim {
        Dim::sum(regions.iter().cloned())
    }
    /// See [`OpDef::batch`].
    fn batch(
        &self,
        _b: &mut Builder,
        _args: &[ValueId],
        _axes: &[Option<usize>],
    ) -> Rule<Vec<(ValueId, Option<usize>)>> {
        None
    }
}

/// Declares a family: an enum over ops of the same names, with its text form and its way into [`Op`].
#[macro_export]
macro_rules! op_family {
    ($(#[$doc:meta])* pub enum $family:ident { $($op:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $family { $(#[doc = concat!("See [`", stringify!($op), "`].")] $op($op),)* }

        impl $crate::op::OpFamily for $family {
            fn docs() -> Vec<(&'static str, &'static str)> { vec![$(($op::NAME, $op::DOC)),*] }
            fn parse(name: &str, attrs: &mut $crate::attr::AttrReader) -> Option<Result<Self, String>> {
                $(if name == $op::NAME { return Some($op::parse_attrs(attrs).map($family::$op)); })*
                None
            }
        }

        impl $family {
            /// The op's rules.
            pub fn def(&self) -> &dyn $crate::op::OpDef {
                match self { $($family::$op(op) => op,)* }
            }
        }

        $(
            impl From<$op> for $crate::op::Op {
                fn from(op: $op) -> Self { $crate::op::Op::$family($family::$op(op)) }
            }
            impl $crate::op::OpDef for $op {
                fn name(&self) -> &'static str { $crate::op::OpSyntax::syntax_name(self) }
                fn doc(&self) -> &'static str { $crate::op::OpSyntax::syntax_doc(self) }
                fn attrs(&self, out: &mut $crate::attr::AttrWriter) { $crate::op::OpSyntax::syntax_attrs(self, out) }
                fn infer(&self, cx: &mut $crate::op::InferCx<'_>) -> Result<(), $crate::error::OpError> {
                    $crate::op::OpRules::infer(self, cx)
                }
                fn eval(&self, cx: &$crate::op::EvalCx<'_>, args: &[$crate::tensor::Value]) -> Result<Vec<$crate::tensor::Value>, $crate::error::OpError> {
                    $crate::op::OpRules::eval(self, cx, args)
                }
                fn traits(&self) -> $crate::op::OpTraits { $crate::op::OpRules::traits(self) }
                fn work(&self, operands: &[$crate::types::TensorType], results: &[$crate::types::TensorType]) -> $crate::dim::Dim {
                    $crate::op::OpRules::work(self, operands, results)
                }
                fn nested_work(&self, operands: &[$crate::types::TensorType], results: &[$crate::types::TensorType], regions: &[$crate::dim::Dim]) -> $crate::dim::Dim {
                    $crate::op::OpRules::nested_work(self, operands, results, regions)
                }
                fn decompose(&self, b: &mut $crate::builder::Builder, args: &[$crate::graph::ValueId]) -> $crate::op::Rule<Vec<$crate::graph::ValueId>> {
                    $crate::op::OpRules::decompose(self, b, args)
                }
                fn vjp(&self, b: &mut $crate::builder::Builder, args: &[$crate::graph::ValueId], results: &[$crate::graph::ValueId], cotangents: &[Option<$crate::graph::ValueId>]) -> $crate::op::Rule<Vec<Option<$crate::graph::ValueId>>> {
                    $crate::op::OpRules::vjp(self, b, args, results, cotangents)
                }
                fn batch(&self, b: &mut $crate::builder::Builder, args: &[$crate::graph::ValueId], axes: &[Option<usize>]) -> $crate::op::Rule<Vec<($crate::graph::ValueId, Option<usize>)>> {
                    $crate::op::OpRules::batch(self, b, args, axes)
                }
                fn map_dims(&self, f: &mut dyn FnMut(&$crate::dim::Dim) -> $crate::dim::Dim) -> $crate::op::Op {
                    $crate::op::OpSyntax::with_dims(self, f).into()
                }
                fn defines(&self) -> Vec<$crate::dim::Symbol> { $crate::op::OpSyntax::defined_symbols(self) }
            }
        )*
    };
}
