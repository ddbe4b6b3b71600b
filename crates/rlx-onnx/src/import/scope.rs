//! What names mean while graphs are built.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use rlx_ir::op::Op;
use rlx_ir::ops::ShapeOp;
use rlx_ir::{Builder, IrError, Symbol, Tensor, Type, ValueId};

use super::error::{ImportFault, ImportWarning, UnsupportedOp};
use super::options::ImportOptions;
use crate::model::{Attr, Model, Opsets};

/// A graph under construction.
pub(crate) struct Frame {
    pub builder: Builder,
    /// What the graph takes from the frame outside: the value there and here.
    pub captures: Vec<(ValueId, ValueId)>,
    /// Values of outer frames that are here too.
    repeated: HashMap<(usize, ValueId), ValueId>,
    /// Constants made of content.
    constants: HashMap<Key, ValueId>,
    /// How often the graph runs where it stands.
    pub turn: Turn,
    /// The key of random numbers here, once one was asked for.
    pub rng: Option<ValueId>,
}

/// How often a nested graph runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// At most once.
    Once,
    /// Again and again; the first input is the number of the turn.
    Numbered,
    /// Again and again without a number.
    Unnumbered,
}

/// What tells contents apart: the address of the bytes, and the name in the file.
type Key = (usize, String);

impl Frame {
    pub fn new(builder: Builder) -> Frame {
        Frame {
            builder,
            captures: Vec::new(),
            repeated: HashMap::new(),
            constants: HashMap::new(),
            turn: Turn::Once,
            rng: None,
        }
    }
}

/// What a name stands for.
#[derive(Clone)]
pub(crate) enum Entry {
    /// A value of a frame.
    Value(usize, ValueId),
    /// Content of the file, and the parameter's name if it has one.
    Content(Rc<Content>),
    /// An operand that the call of a function leaves out.
    Absent,
    /// The value's definition could not be imported.
    Missing,
}

impl Entry {
    /// Whether an operand is left out on purpose.
    pub fn is_absent(&self) -> bool {
        matches!(self, Entry::Absent)
    }
}

/// Content of the file.
pub(crate) struct Content {
    /// Its name in the file.
    pub name: String,
    /// What stands before the name: the calls that led here.
    pub prefix: Rc<str>,
    pub tensor: Tensor,
    /// Callers may set it.
    pub overridable: bool,
}

impl Content {
    /// A graph may be built more than once; its contents stay the same.
    fn key(&self) -> Key {
        (self.tensor.bytes().as_ptr() as usize, self.name.clone())
    }
}

/// Names of one graph of the file.
pub(crate) struct Scope<'m> {
    pub names: HashMap<String, Entry>,
    /// The frame that its nodes are added to.
    pub frame: usize,
    /// Whether names of the scope around are visible: not in the body of a function.
    pub open: bool,
    pub opsets: &'m Opsets,
    /// Attributes of the call, in the body of a function.
    pub attributes: Rc<BTreeMap<String, &'m Attr>>,
    /// Stands before names of nodes and values: the calls that led here.
    pub prefix: Rc<str>,
}

/// The state of an import.
pub(crate) struct Importer<'m> {
    pub model: &'m Model,
    pub options: &'m ImportOptions,
    pub frames: Vec<Frame>,
    pub scopes: Vec<Scope<'m>>,
    pub warnings: Vec<ImportWarning>,
    pub faults: Vec<ImportFault>,
    pub unsupported: Vec<UnsupportedOp>,
    /// Parameters made so far.
    params: HashMap<Key, ValueId>,
    names: BTreeSet<String>,
    symbols: usize,
    /// Streams of random numbers in use.
    pub streams: u32,
    /// Nodes that may still be imported.
    pub budget: usize,
}

/// Nodes of an import, those of inlined functions and repeated graphs included, are at most this many and four times those of the
/// file: a small file of functions that call each other could ask for more than any machine holds.
const MOST_NODES: usize = 1 << 17;

fn budget(model: &Model) -> usize {
    let functions = model.functions.values().map(|f| f.body.count_nodes()).sum::<usize>();
    MOST_NODES.saturating_add(model.main.count_nodes().saturating_add(functions).saturating_mul(4))
}

/// Graphs and functions inside each other.
pub(crate) const DEEPEST: usize = 100;

impl<'m> Importer<'m> {
    pub fn new(model: &'m Model, options: &'m ImportOptions) -> Self {
        Importer {
            model,
            options,
            frames: vec![Frame::new(Builder::new("main"))],
            scopes: Vec::new(),
            warnings: Vec::new(),
            faults: Vec::new(),
            unsupported: Vec::new(),
            params: HashMap::new(),
            names: BTreeSet::new(),
            symbols: 0,
            streams: 0,
            budget: budget(model),
        }
    }

    /// Notes something odd, once.
    pub fn warn(&mut self, place: impl Into<String>, message: impl Into<String>) {
        let w = ImportWarning { place: place.into(), message: message.into() };
        if !self.warnings.contains(&w) {
            self.warnings.push(w);
        }
    }

    /// Notes something wrong, once.
    pub fn fault(&mut self, fault: ImportFault) {
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Notes a fault of a value.
    pub fn value_fault(&mut self, value: &str, message: impl Into<String>) {
        self.fault(ImportFault::Value { value: value.into(), message: message.into() });
    }

    /// A symbol that nothing uses yet.
    pub fn fresh_symbol(&mut self, base: &str) -> Symbol {
        loop {
            let name = format!("{base}_{}", self.symbols);
            self.symbols += 1;
            if self.names.insert(name.clone()) {
                return Symbol::new(name);
            }
        }
    }

    /// Takes a symbol's name; false if it is taken.
    pub fn claim_symbol(&mut self, name: &str) -> bool {
        self.names.insert(name.into())
    }

    /// Whether something has a symbol's name.
    pub fn is_symbol(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The scope that names are looked up in.
    pub fn scope(&mut self) -> &mut Scope<'m> {
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    /// The frame that nodes are added to.
    pub fn frame_index(&self) -> usize {
        self.scopes.last().map_or(0, |s| s.frame)
    }

    /// The frame that nodes are added to.
    pub fn frame(&mut self) -> &mut Frame {
        let i = self.frame_index();
        &mut self.frames[i]
    }

    /// The builder of the graph that nodes are added to.
    pub fn b(&mut self) -> &mut Builder {
        &mut self.frame().builder
    }

    /// What a name stands for here.
    pub fn lookup(&self, name: &str) -> Entry {
        for scope in self.scopes.iter().rev() {
            if let Some(e) = scope.names.get(name) {
                return e.clone();
            }
            if !scope.open {
                break;
            }
        }
        Entry::Missing
    }

    /// Gives a name a meaning.
    pub fn define(&mut self, name: &str, entry: Entry) {
        self.scope().names.insert(name.to_owned(), entry);
    }

    /// Gives a name to a value of the frame at hand.
    pub fn define_value(&mut self, name: &str, value: ValueId) {
        let frame = self.frame_index();
        self.define(name, Entry::Value(frame, value));
    }

    /// The value of an entry in the frame at hand; `None` if its definition could not be imported.
    pub fn value_of(&mut self, entry: &Entry) -> Result<Option<ValueId>, IrError> {
        let to = self.frame_index();
        match entry {
            Entry::Missing | Entry::Absent => Ok(None),
            Entry::Value(frame, v) => self.bring(*frame, *v, to).map(Some),
            Entry::Content(c) => self.content(c).map(Some),
        }
    }

    /// Content as a value of the frame at hand: a constant if it is small, else a parameter.
    fn content(&mut self, c: &Content) -> Result<ValueId, IrError> {
        let to = self.frame_index();
        let key = c.key();
        if is_constant(&c.tensor) {
            if let Some(&v) = self.frame().constants.get(&key) {
                return Ok(v);
            }
            if c.overridable {
                self.warn(
                    &*c.name,
                    "callers could give this input; it is a constant of the program, as sizes may follow from it",
                );
            }
            let v = self.b().constant(c.tensor.clone())?;
            self.b().graph_mut().set_value_name(v, format!("{}{}", c.prefix, c.name));
            self.frame().constants.insert(key, v);
            return Ok(v);
        }
        let v = match self.params.get(&key) {
            Some(&v) => v,
            None => {
                let v = self.new_param(c)?;
                self.params.insert(key, v);
                v
            }
        };
        self.bring(0, v, to)
    }

    fn new_param(&mut self, c: &Content) -> Result<ValueId, IrError> {
        let builder = &mut self.frames[0].builder;
        let plain = format!("{}{}", c.prefix, c.name);
        let mut name = plain.clone();
        let mut n = 1;
        while builder.graph().params().iter().any(|p| *p.name == *name) {
            n += 1;
            name = format!("{plain}#{n}");
        }
        builder.param_with(&name, c.tensor.clone())
    }

    /// A value of an outer frame in an inner one: repeated if it is a literal, else captured, frame by frame.
    fn bring(&mut self, from: usize, v: ValueId, to: usize) -> Result<ValueId, IrError> {
        if from >= to {
            return Ok(v);
        }
        if let Some(&here) = self.frames[to].repeated.get(&(from, v)) {
            return Ok(here);
        }
        let graph = self.frames[from].builder.graph();
        let literal = match graph.def_node(v).map(|(_, n)| &n.op) {
            Some(op @ Op::ShapeOp(ShapeOp::Constant(_))) => Some(op.clone()),
            _ => None,
        };
        let here = match literal {
            Some(op) => self.frames[to].builder.op1(op, &[])?,
            None => {
                let outside = self.bring(from, v, to - 1)?;
                self.capture(to, outside)?
            }
        };
        self.frames[to].repeated.insert((from, v), here);
        Ok(here)
    }

    /// What a value of the frame at hand is until set, if it is a parameter.
    pub fn default_of(&self, v: ValueId) -> Option<Tensor> {
        let (mut frame, mut v) = (self.frame_index(), v);
        while frame > 0 {
            let (outside, _) = self.frames[frame].captures.iter().find(|(_, here)| *here == v)?;
            (frame, v) = (frame - 1, *outside);
        }
        let graph = self.frames[0].builder.graph();
        graph.params().iter().find(|p| p.value == v)?.default.clone()
    }

    /// A value of the frame just outside as an input of a frame.
    pub fn capture(&mut self, to: usize, outside: ValueId) -> Result<ValueId, IrError> {
        if let Some((_, here)) = self.frames[to].captures.iter().find(|(o, _)| *o == outside) {
            return Ok(*here);
        }
        let outer = self.frames[to - 1].builder.graph();
        let ty: Type = outer.ty(outside).clone();
        let elems = outer.elems(outside).map(<[_]>::to_vec);
        let name = format!("capture{}", self.frames[to].captures.len());
        let graph = self.frames[to].builder.graph_mut();
        let here = graph.add_input(&name, ty)?;
        graph.set_input_elems(here, elems);
        self.frames[to].captures.push((outside, here));
        Ok(here)
    }
}

/// Integer tensors up to this many elements are constants, so that shapes can follow from them.
const MOST_ELEMENTS: usize = 1024;

/// Whether content becomes a constant of the program and not a parameter.
pub(crate) fn is_constant(t: &Tensor) -> bool {
    let d = t.dtype();
    let n = t.numel();
    n <= 1 || d == rlx_ir::DType::Str || ((d.is_int() || d == rlx_ir::DType::Bool) && n <= MOST_ELEMENTS)
}
