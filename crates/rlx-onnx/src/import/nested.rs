//! Nested graphs: in the frame at hand, or as regions of a node.

use rlx_ir::{Builder, Dim, Graph, Shape, TensorType, Type, ValueId};

use super::scope::{DEEPEST, Frame, Importer, Turn};
use crate::model::GraphDef;
use crate::ops::Failure;

/// A nested graph that was built.
pub(crate) struct Region {
    pub graph: Graph,
    /// Values of the frame outside that its last inputs stand for.
    pub captures: Vec<ValueId>,
}

impl<'m> Importer<'m> {
    fn check_depth(&self) -> Result<(), Failure> {
        if self.scopes.len() > DEEPEST {
            return Err(Failure::refused(format!("more than {DEEPEST} functions and graphs are inside each other")));
        }
        Ok(())
    }

    /// Imports a graph into the frame at hand, values of which are its arguments; gives its outputs.
    pub fn inline_graph(&mut self, graph: &'m GraphDef, args: &[ValueId]) -> Result<Vec<ValueId>, Failure> {
        self.check_depth()?;
        if graph.inputs.len() != args.len() {
            let want = graph.inputs.len();
            return Err(Failure::refused(format!("a nested graph has {want} inputs, the node passes {}", args.len())));
        }
        let frame = self.frame_index();
        self.push_nested(frame);
        for (input, &v) in graph.inputs.iter().zip(args) {
            self.define_value(&input.name, v);
        }
        self.declare_initialisers(graph);
        self.nodes(graph);
        let outputs = self.graph_outputs(graph);
        self.scopes.pop();
        outputs
    }

    fn graph_outputs(&mut self, graph: &'m GraphDef) -> Result<Vec<ValueId>, Failure> {
        let mut out = Vec::new();
        for o in &graph.outputs {
            let entry = self.lookup(&o.name);
            out.push(self.value_of(&entry)?.ok_or(Failure::Operands)?);
        }
        Ok(out)
    }

    /// Imports a graph as a region. `args` are the types of its inputs; `captured` is what it shall capture first, so that two
    /// regions of one node capture alike. `fit` may adapt outputs.
    pub fn region(
        &mut self,
        name: &str,
        graph: &'m GraphDef,
        args: &[Type],
        captured: &[ValueId],
        turn: Turn,
        fit: impl FnOnce(&mut Builder, &mut Vec<ValueId>) -> Result<(), Failure>,
    ) -> Result<Region, Failure> {
        self.check_depth()?;
        if graph.inputs.len() != args.len() {
            return Err(Failure::refused(format!(
                "the {name} graph has {} inputs, the node passes {}",
                graph.inputs.len(),
                args.len()
            )));
        }
        let index = self.frames.len();
        let mut frame = Frame::new(Builder::new(name));
        frame.turn = turn;
        self.frames.push(frame);
        self.push_nested(index);
        let built = self.region_body(graph, args, captured, fit);
        self.scopes.pop();
        let frame = self.frames.pop();
        built?;
        let frame = frame.ok_or(Failure::Operands)?;
        let captures = frame.captures.iter().map(|(outside, _)| *outside).collect();
        Ok(Region { graph: frame.builder.finish(), captures })
    }

    fn region_body(
        &mut self,
        graph: &'m GraphDef,
        args: &[Type],
        captured: &[ValueId],
        fit: impl FnOnce(&mut Builder, &mut Vec<ValueId>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let index = self.frame_index();
        for (input, ty) in graph.inputs.iter().zip(args) {
            let v = self.b().graph_mut().add_input(&input.name, ty.clone())?;
            self.define_value(&input.name, v);
        }
        for &v in captured {
            self.capture(index, v)?;
        }
        self.declare_initialisers(graph);
        self.nodes(graph);
        let mut outputs = self.graph_outputs(graph)?;
        fit(self.b(), &mut outputs)?;
        for (i, v) in outputs.into_iter().enumerate() {
            self.b().output(&format!("result{i}"), v)?;
        }
        Ok(())
    }

    /// Adds inputs to a region so that it captures all of `all`, of which it captures the first ones already.
    pub fn extend_captures(&self, region: &mut Region, all: &[ValueId]) -> Result<(), Failure> {
        let index = self.frame_index();
        for (i, &v) in all.iter().enumerate().skip(region.captures.len()) {
            let outer = self.frames[index].builder.graph();
            let (ty, elems) = (outer.ty(v).clone(), outer.elems(v).map(<[_]>::to_vec));
            let input = region.graph.add_input(&format!("capture{i}"), ty)?;
            region.graph.set_input_elems(input, elems);
            region.captures.push(v);
        }
        Ok(())
    }

    /// Imports the body of a loop. It is imported again, with symbols in place of sizes, while the sizes of what it gives differ from
    /// those of what it takes.
    pub fn loop_body(&mut self, graph: &'m GraphDef, inits: &[Type]) -> Result<Region, Failure> {
        let head =
            [Type::tensor(rlx_ir::DType::I64, Shape::scalar()), Type::tensor(rlx_ir::DType::Bool, Shape::scalar())];
        let mut carried = inits.to_vec();
        let mut own: Vec<Vec<Option<Dim>>> = inits.iter().map(|t| vec![None; rank(t)]).collect();
        loop {
            let args = [&head[..], &carried].concat();
            let region = self.region("body", graph, &args, &[], Turn::Numbered, |b, outputs| {
                if let Some(cond) = outputs.first_mut() {
                    *cond = scalar(b, *cond)?;
                }
                Ok(())
            })?;
            let after: Vec<Type> = region
                .graph
                .outputs()
                .iter()
                .skip(1)
                .take(carried.len())
                .map(|o| region.graph.ty(o.value).clone())
                .collect();
            let mut changed = false;
            for ((before, after), own) in carried.iter_mut().zip(&after).zip(&mut own) {
                changed |= self.generalise(before, after, own);
            }
            if !changed {
                return Ok(region);
            }
        }
    }

    /// Puts a symbol in place of each size that the body changes; true if there was one that has none yet.
    fn generalise(&mut self, before: &mut Type, after: &Type, own: &mut [Option<Dim>]) -> bool {
        let (Type::Tensor(x), Type::Tensor(y)) = (&mut *before, after) else { return false };
        if x.shape.rank() != y.shape.rank() {
            return false;
        }
        let mut changed = false;
        let dims = x.shape.iter().zip(y.shape.iter()).zip(own);
        let dims: Vec<Dim> = dims
            .map(|((d, e), own)| {
                if d == e || own.is_some() {
                    return d.clone();
                }
                changed = true;
                let s = Dim::symbol(self.fresh_symbol("carried"));
                *own = Some(s.clone());
                s
            })
            .collect();
        *x = TensorType::new(x.dtype, dims);
        changed
    }
}

fn rank(t: &Type) -> usize {
    t.as_tensor().map_or(0, |t| t.shape.rank())
}

/// A one-element tensor as a scalar.
pub(crate) fn scalar(b: &mut Builder, v: ValueId) -> Result<ValueId, Failure> {
    if b.tensor_type(v)?.shape.rank() == 0 { Ok(v) } else { Ok(b.reshape(v, [0i64; 0])?) }
}
