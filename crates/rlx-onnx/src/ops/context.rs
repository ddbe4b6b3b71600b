//! What the import of a node works with: operands, attributes, the builder.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use rlx_ir::element::Elements;
use rlx_ir::op::{Effect, EvalCx, Op};
use rlx_ir::ops::ShapeOp;
use rlx_ir::{Builder, DType, Dim, DimBinding, IrError, Shape, Symbol, Tensor, TensorType, Value, ValueId};

use crate::import::{Entry, Importer};
use crate::model::{Attr, GraphDef, NodeDef};

/// What an op's import gives.
pub(crate) type Out = Result<Vec<ValueId>, Failure>;

/// Why a node could not be imported.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An operand could not be imported; that is on the list already.
    Operands,
    /// The op, or this use of it, is not supported.
    Unsupported(String),
    /// Operands or attributes do not fit.
    Refused(String),
}

impl Failure {
    /// A use that is not supported; an empty reason means the op as a whole.
    pub fn unsupported(reason: impl Into<String>) -> Failure {
        Failure::Unsupported(reason.into())
    }

    /// Operands or attributes that do not fit.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::Refused(message.into())
    }
}

impl From<IrError> for Failure {
    fn from(e: IrError) -> Failure {
        match e {
            // The node is named by who lists the failure; here the IR's op tells more than the file's.
            IrError::Op { node, error } => Failure::Refused(format!("`{}`: {error}", node.op)),
            e => Failure::Refused(e.to_string()),
        }
    }
}

impl From<rlx_ir::tensor::TensorError> for Failure {
    fn from(e: rlx_ir::tensor::TensorError) -> Failure {
        Failure::Refused(e.to_string())
    }
}

/// A node being imported.
pub(crate) struct NodeCx<'a, 'm> {
    pub imp: &'a mut Importer<'m>,
    pub node: &'m NodeDef,
    /// Version of the operator set.
    pub version: i64,
    operands: Vec<Entry>,
    read: RefCell<BTreeSet<&'static str>>,
}

/// Elements of results of folding, in bytes.
const MOST_FOLDED: usize = 64 << 10;

/// Elements of a vector of sizes.
const MOST_SIZES: usize = 1024;

/// How far back folding follows operands.
const DEEPEST_FOLD: usize = 24;

impl<'a, 'm> NodeCx<'a, 'm> {
    pub fn new(imp: &'a mut Importer<'m>, node: &'m NodeDef, version: i64) -> Result<Self, Failure> {
        let entry = |n: &String| if n.is_empty() { Entry::Absent } else { imp.lookup(n) };
        let operands: Vec<Entry> = node.inputs.iter().map(entry).collect();
        // Nested graphs are still looked at when an operand is missing, so that all their faults are listed.
        if operands.iter().any(|e| matches!(e, Entry::Missing)) && node.graphs().next().is_none() {
            return Err(Failure::Operands);
        }
        Ok(NodeCx { imp, node, version, operands, read: RefCell::default() })
    }

    /// The builder.
    pub fn b(&mut self) -> &mut Builder {
        self.imp.b()
    }

    /// Operand `i`, which the op cannot do without.
    pub fn input(&mut self, i: usize) -> Result<ValueId, Failure> {
        self.opt(i)?.ok_or_else(|| Failure::refused(format!("operand {i} is missing")))
    }

    /// Whether operand `i` is given.
    pub fn has(&self, i: usize) -> bool {
        self.operands.get(i).is_some_and(|e| !e.is_absent())
    }

    /// Operand `i`, if it is given.
    pub fn opt(&mut self, i: usize) -> Result<Option<ValueId>, Failure> {
        match self.operands.get(i) {
            None | Some(Entry::Absent) => Ok(None),
            Some(Entry::Missing) => Err(Failure::Operands),
            Some(e) => Ok(self.imp.value_of(&e.clone())?),
        }
    }

    /// Operands from `i` on, none of which may be left out.
    pub fn inputs_from(&mut self, i: usize) -> Result<Vec<ValueId>, Failure> {
        (i..self.operands.len()).map(|i| self.input(i)).collect()
    }

    /// Whether somebody wants result `i`.
    pub fn wants(&self, i: usize) -> bool {
        self.node.outputs.get(i).is_some_and(|n| !n.is_empty())
    }

    pub fn ty(&mut self, v: ValueId) -> Result<TensorType, Failure> {
        Ok(self.b().tensor_type(v)?.clone())
    }

    pub fn shape(&mut self, v: ValueId) -> Result<Shape, Failure> {
        Ok(self.b().shape(v)?)
    }

    pub fn rank(&mut self, v: ValueId) -> Result<usize, Failure> {
        Ok(self.b().shape(v)?.rank())
    }

    pub fn dtype(&mut self, v: ValueId) -> Result<DType, Failure> {
        Ok(self.b().dtype(v)?)
    }

    /// An axis that may count from the end.
    pub fn axis(&mut self, v: ValueId, axis: i64) -> Result<usize, Failure> {
        let shape = self.shape(v)?;
        shape.axis(axis).ok_or_else(|| Failure::refused(format!("axis {axis} is out of range for {shape}")))
    }

    // ---- what is known of values

    /// The elements of an operand as dims, where they follow from shapes.
    pub fn elems(&mut self, v: ValueId) -> Option<Vec<Dim>> {
        self.b().graph().elems(v).map(<[_]>::to_vec)
    }

    /// The contents of a value that does not depend on inputs or parameters.
    pub fn known_tensor(&mut self, v: ValueId) -> Option<Tensor> {
        known_tensor(self.imp.b(), v, DEEPEST_FOLD, &mut HashMap::new())
    }

    /// The contents of operand `i`, where they depend on no input. What a parameter is at first counts: the op needs it to be compiled.
    pub fn content(&mut self, i: usize) -> Result<Option<Tensor>, Failure> {
        if let Some(Entry::Content(c)) = self.operands.get(i) {
            return Ok(Some(c.tensor.clone()));
        }
        let Some(v) = self.opt(i)? else { return Ok(None) };
        Ok(self.imp.default_of(v).or_else(|| self.known_tensor(v)))
    }

    /// Integers of operand `i`; `None` if only the run tells them.
    pub fn known_ints_at(&mut self, i: usize, what: &str) -> Result<Option<Vec<i64>>, Failure> {
        let Some(t) = self.content(i)? else {
            let v = self.input(i)?;
            // Of no elements all are known.
            let t = self.ty(v)?;
            return Ok((t.shape.numel() == Dim::ZERO && t.dtype.is_int()).then(Vec::new));
        };
        let elements = t.elements();
        let ints =
            elements.ints().ok_or_else(|| Failure::refused(format!("{what} must be integers, got {}", t.dtype())))?;
        let known = ints
            .iter()
            .map(|&i| i64::try_from(i).map_err(|_| Failure::refused(format!("{what}: {i} is out of range"))))
            .collect::<Result<_, _>>()?;
        Ok(Some(known))
    }

    /// Floats of operand `i`; `None` if only the run tells them.
    pub fn known_floats_at(&mut self, i: usize, what: &str) -> Result<Option<Vec<f64>>, Failure> {
        let Some(t) = self.content(i)? else {
            let v = self.input(i)?;
            return Ok((self.shape(v)?.numel() == Dim::ZERO).then(Vec::new));
        };
        let floats = t.elements().to_f64();
        floats.map(Some).ok_or_else(|| Failure::refused(format!("{what} must be numbers, got {}", t.dtype())))
    }

    /// Integers of a value that are known numbers.
    pub fn known_ints(&mut self, v: ValueId) -> Option<Vec<i64>> {
        let t = self.known_tensor(v)?;
        t.elements().ints()?.iter().map(|&i| i64::try_from(i).ok()).collect()
    }

    /// A boolean that is known.
    pub fn known_bool(&mut self, v: ValueId) -> Option<bool> {
        match self.known_tensor(v)?.elements().ints()? {
            [b] => Some(*b != 0),
            _ => None,
        }
    }

    /// The elements of an integer operand of rank ≤ 1 as sizes. Where they are not known, they get symbols that the program reads
    /// from the data when it runs.
    pub fn sizes(&mut self, v: ValueId, what: &str) -> Result<Vec<Dim>, Failure> {
        if let Some(known) = self.known_sizes(v) {
            return Ok(known);
        }
        let parts = self.parts(v);
        self.sizes_beside(v, &parts, what)
    }

    /// The length of a vector of integers that speak of axes or sizes. A file may declare any, so that there is a limit: each
    /// becomes a dim.
    pub fn length(&mut self, v: ValueId, what: &str) -> Result<usize, Failure> {
        let t = self.ty(v)?;
        let n = t.shape.static_numel().filter(|_| t.dtype.is_int() && t.shape.rank() <= 1);
        let n = n.and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= MOST_SIZES);
        n.ok_or_else(|| {
            let asked = format!("a vector of integers of known length, at most {MOST_SIZES}");
            Failure::refused(format!("{what} must be {asked}, got {t}"))
        })
    }

    /// [`sizes`](Self::sizes) of which some are known: only the others are read.
    pub fn sizes_beside(&mut self, v: ValueId, known: &[Option<Dim>], what: &str) -> Result<Vec<Dim>, Failure> {
        let n = self.length(v, what)?;
        let open: Vec<i64> = (0..n).filter(|&i| known.get(i).is_none_or(Option::is_none)).map(|i| i as i64).collect();
        let symbols: Vec<Symbol> = open.iter().map(|_| self.imp.fresh_symbol("data")).collect();
        let rest = if open.len() == n {
            v
        } else {
            let at = self.ints_constant(&open)?;
            self.b().gather(v, at, 0)?
        };
        let read = self.b().read_dims(rest, symbols)?;
        let mut read = self.elems(read).ok_or_else(|| unknown(what))?.into_iter();
        let mut all = Vec::with_capacity(n);
        for i in 0..n {
            let size = known.get(i).cloned().flatten().or_else(|| read.next());
            all.push(size.ok_or_else(|| unknown(what))?);
        }
        Ok(all)
    }

    /// What is known of the elements of a vector that is joined of others; nothing is said of more elements than it may have.
    pub fn parts(&mut self, v: ValueId) -> Vec<Option<Dim>> {
        if let Some(known) = self.known_sizes(v) {
            return known.into_iter().map(Some).collect();
        }
        let joined = self.b().graph().def_node(v).and_then(|(_, node)| match &node.op {
            Op::ShapeOp(ShapeOp::Concat(c)) if c.axis == 0 => Some(node.operands.clone()),
            _ => None,
        });
        let mut all = Vec::new();
        for part in joined.unwrap_or_default() {
            let n = self.b().shape(part).ok().and_then(|s| s.static_numel()).and_then(|n| usize::try_from(n).ok());
            let Some(n) = n.filter(|&n| n <= MOST_SIZES) else { return Vec::new() };
            match self.known_sizes(part) {
                Some(known) if known.len() == n => all.extend(known.into_iter().map(Some)),
                _ => all.extend(std::iter::repeat_n(None, n)),
            }
        }
        all
    }

    /// The elements of an integer value as sizes, where no data tell them.
    fn known_sizes(&mut self, v: ValueId) -> Option<Vec<Dim>> {
        self.elems(v).or_else(|| Some(self.known_ints(v)?.into_iter().map(Dim::from).collect()))
    }

    /// [`sizes`](Self::sizes) of operand `i`, if no data tell them.
    pub fn known_sizes_at(&mut self, i: usize, what: &str) -> Result<Option<Vec<Dim>>, Failure> {
        if let Some(t) = self.content(i)?
            && let Some(ints) = t.elements().ints()
        {
            let dim = |&i: &i128| {
                i64::try_from(i).map(Dim::from).map_err(|_| Failure::refused(format!("{what}: {i} is out of range")))
            };
            return ints.iter().map(dim).collect::<Result<_, _>>().map(Some);
        }
        let v = self.input(i)?;
        Ok(self.known_sizes(v))
    }

    /// [`sizes`](Self::sizes) of operand `i`.
    pub fn sizes_at(&mut self, i: usize, what: &str) -> Result<Vec<Dim>, Failure> {
        match self.known_sizes_at(i, what)? {
            Some(known) => Ok(known),
            None => {
                let v = self.input(i)?;
                self.sizes(v, what)
            }
        }
    }

    /// [`sizes_at`](Self::sizes_at) of an operand that has one element.
    pub fn size_at(&mut self, i: usize, what: &str) -> Result<Dim, Failure> {
        match &self.sizes_at(i, what)?[..] {
            [d] => Ok(d.clone()),
            e => Err(Failure::refused(format!("{what} must be one number, got {}", e.len()))),
        }
    }

    // ---- attributes

    /// An attribute. In the body of a function it may be one of the call.
    pub fn attr(&self, name: &'static str) -> Option<&'m Attr> {
        self.read.borrow_mut().insert(name);
        match self.node.attr(name)? {
            Attr::Reference(of) => self.imp.scopes.last()?.attributes.get(of).copied(),
            a => Some(a),
        }
    }

    /// Attributes that make no difference here.
    pub fn ignore(&self, names: &[&'static str]) {
        self.read.borrow_mut().extend(names);
    }

    fn wrong(&self, name: &str, want: &str, got: &Attr) -> Failure {
        Failure::refused(format!("attribute `{name}` must be {want}, got {}", got.kind()))
    }

    pub fn opt_int(&self, name: &'static str) -> Result<Option<i64>, Failure> {
        match self.attr(name) {
            None => Ok(None),
            Some(Attr::Int(i)) => Ok(Some(*i)),
            Some(a) => Err(self.wrong(name, "an integer", a)),
        }
    }

    pub fn int(&self, name: &'static str, default: i64) -> Result<i64, Failure> {
        Ok(self.opt_int(name)?.unwrap_or(default))
    }

    pub fn need_int_attr(&self, name: &'static str) -> Result<i64, Failure> {
        self.opt_int(name)?.ok_or_else(|| Failure::refused(format!("attribute `{name}` is missing")))
    }

    /// An integer that means yes or no.
    pub fn flag(&self, name: &'static str, default: bool) -> Result<bool, Failure> {
        Ok(self.int(name, i64::from(default))? != 0)
    }

    pub fn opt_float(&self, name: &'static str) -> Result<Option<f64>, Failure> {
        match self.attr(name) {
            None => Ok(None),
            Some(Attr::Float(x)) => Ok(Some(f64::from(*x))),
            Some(a) => Err(self.wrong(name, "a float", a)),
        }
    }

    pub fn float(&self, name: &'static str, default: f32) -> Result<f64, Failure> {
        Ok(self.opt_float(name)?.unwrap_or(f64::from(default)))
    }

    pub fn opt_ints(&self, name: &'static str) -> Result<Option<Vec<i64>>, Failure> {
        match self.attr(name) {
            None => Ok(None),
            Some(Attr::Ints(v)) => Ok(Some(v.clone())),
            // An empty list has no type of its own on the wire.
            Some(Attr::Floats(v)) if v.is_empty() => Ok(Some(Vec::new())),
            Some(a) => Err(self.wrong(name, "integers", a)),
        }
    }

    pub fn opt_floats(&self, name: &'static str) -> Result<Option<Vec<f64>>, Failure> {
        match self.attr(name) {
            None => Ok(None),
            Some(Attr::Floats(v)) => Ok(Some(v.iter().map(|&x| f64::from(x)).collect())),
            Some(Attr::Ints(v)) if v.is_empty() => Ok(Some(Vec::new())),
            Some(a) => Err(self.wrong(name, "floats", a)),
        }
    }

    pub fn opt_strings(&self, name: &'static str) -> Result<Option<Vec<String>>, Failure> {
        match self.attr(name) {
            None => Ok(None),
            Some(Attr::Strings(v)) => Ok(Some(v.clone())),
            Some(Attr::Ints(v)) if v.is_empty() => Ok(Some(Vec::new())),
            Some(a) => Err(self.wrong(name, "strings", a)),
        }
    }

    pub fn string(&self, name: &'static str, default: &str) -> Result<String, Failure> {
        match self.attr(name) {
            None => Ok(default.into()),
            Some(Attr::String(s)) => Ok(s.clone()),
            Some(a) => Err(self.wrong(name, "a string", a)),
        }
    }

    /// A word out of a list.
    pub fn word<T: Copy>(&self, name: &'static str, default: &str, words: &[(&str, T)]) -> Result<T, Failure> {
        let s = self.string(name, default)?;
        words.iter().find(|(w, _)| *w == s).map(|(_, t)| *t).ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
            Failure::refused(format!(
                "attribute `{name}` must be one of {}, got `{}`",
                known.join(", "),
                crate::text::shown(&s)
            ))
        })
    }

    /// A data type given by its code.
    pub fn opt_dtype(&self, name: &'static str) -> Result<Option<DType>, Failure> {
        self.opt_int(name)?.map(|c| crate::import::dtype_of_code(c).map_err(Failure::refused)).transpose()
    }

    /// [`opt_dtype`](Self::opt_dtype), where 0 also means "not said".
    pub fn opt_dtype_unless_zero(&self, name: &'static str) -> Result<Option<DType>, Failure> {
        if self.opt_int(name)? == Some(0) { Ok(None) } else { self.opt_dtype(name) }
    }

    /// A nested graph.
    pub fn graph(&self, name: &'static str) -> Result<&'m GraphDef, Failure> {
        match self.attr(name) {
            Some(Attr::Graph(g)) => Ok(g),
            Some(a) => Err(self.wrong(name, "a graph", a)),
            None => Err(Failure::refused(format!("attribute `{name}` is missing"))),
        }
    }

    /// Warns of attributes that nobody asked for.
    pub fn warn_unread(self) {
        let read = self.read.into_inner();
        for name in self.node.attributes.keys().filter(|n| !read.contains(n.as_str())) {
            let message = format!(
                "attribute `{}` of {} has no meaning in operator set {}",
                crate::text::shown(name),
                self.node.op_type,
                self.version
            );
            self.imp.warn(&*self.node.label, message);
        }
    }

    // ---- small helpers

    /// A scalar of a value's dtype.
    pub fn scalar_like(&mut self, like: ValueId, x: f64) -> Result<ValueId, Failure> {
        Ok(self.b().scalar_like(like, x)?)
    }

    /// A vector constant of integers.
    pub fn ints_constant(&mut self, v: &[i64]) -> Result<ValueId, Failure> {
        let t = Tensor::from_slice(&[v.len()], v)?;
        Ok(self.b().constant(t)?)
    }
}

/// What to say of an operand that must be known when the model is compiled.
fn unknown(what: &str) -> Failure {
    Failure::refused(format!(
        "{what} must be known when the model is compiled, but depends on inputs; if it is the same in every call, fix the input"
    ))
}

/// The contents of a value, by running what defines it, if that depends on no input or parameter and is small.
fn known_tensor(b: &Builder, v: ValueId, depth: usize, known: &mut HashMap<ValueId, Option<Tensor>>) -> Option<Tensor> {
    if let Some(t) = known.get(&v) {
        return t.clone();
    }
    let t = find_tensor(b, v, depth, known);
    known.insert(v, t.clone());
    t
}

fn find_tensor(b: &Builder, v: ValueId, depth: usize, known: &mut HashMap<ValueId, Option<Tensor>>) -> Option<Tensor> {
    let g = b.graph();
    if let Some(t) = g.as_constant(v) {
        return Some(t.clone());
    }
    let ty = g.tensor_type(v)?;
    let dims = ty.shape.as_static()?;
    if let Some(e) = g.elems(v) {
        let ints = e.iter().map(|d| d.as_const().map(i128::from)).collect::<Option<Vec<_>>>()?;
        return Tensor::from_elements(ty.dtype, &dims, &Elements::Int(ints)).ok();
    }
    let n = rlx_ir::tensor::checked_numel(&dims).ok()?;
    if depth == 0 || ty.dtype.bytes_for(n)? > MOST_FOLDED {
        return None;
    }
    let (_, node) = g.def_node(v)?;
    let def = node.op.def();
    if !node.regions.is_empty() || def.traits().effect != Effect::Pure || !def.defines().is_empty() {
        return None;
    }
    let arg = |&o: &ValueId| known_tensor(b, o, depth - 1, known).map(Value::from);
    let args = node.operands.iter().map(arg).collect::<Option<Vec<_>>>()?;
    let (binding, functions) = (DimBinding::new(), BTreeMap::new());
    let cx = EvalCx {
        binding: &binding,
        options: Default::default(),
        regions: &[],
        functions: &functions,
        depth: 1,
        held: 0,
    };
    let results = def.eval(&cx, &args).ok()?;
    let i = node.results.iter().position(|&r| r == v)?;
    results.get(i)?.as_tensor().cloned()
}
