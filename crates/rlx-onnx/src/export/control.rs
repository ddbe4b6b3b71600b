//! Branches, loops and calls: nested graphs see values of the graph around them by name.

use rlx_ir::ops::Control;
use rlx_ir::{Graph, Node};

use super::{AttributeType, Failure, GraphProto, Names, Writer, attribute, int, ints};
use crate::proto::AttributeProto;

impl Writer {
    pub(super) fn control(&mut self, op: &Control, node: &Node, x: &[&str]) -> Result<Option<Vec<String>>, Failure> {
        let n = node.results.len();
        match op {
            Control::If(_) => {
                let (Some(cond), [then, otherwise]) = (x.first(), &node.regions[..]) else {
                    return Err("takes a condition and two graphs".into());
                };
                let then = self.nested("then_branch", then, 0, &x[1..])?;
                let otherwise = self.nested("else_branch", otherwise, 0, &x[1..])?;
                Ok(Some(self.emit_n("If", &[cond], n, vec![then, otherwise])))
            }
            Control::Loop(op) => {
                let [body] = &node.regions[..] else { return Err("takes one graph".into()) };
                let mut rest = x.iter();
                let trips = if op.has_trip_count { rest.next().copied().unwrap_or_default() } else { "" };
                let cond = if op.has_cond { rest.next().copied().unwrap_or_default() } else { "" };
                let rest: Vec<&str> = rest.copied().collect();
                let (carried, captures) = rest.split_at(op.carried.min(rest.len()));
                let body = self.nested("body", body, 2 + op.carried, captures)?;
                let inputs: Vec<&str> = [trips, cond].into_iter().chain(carried.iter().copied()).collect();
                Ok(Some(self.emit_n("Loop", &inputs, n, vec![body])))
            }
            Control::Scan(op) => {
                let [body] = &node.regions[..] else { return Err("takes one graph".into()) };
                let args = op.carried + op.num_scan_inputs;
                let (given, captures) = x.split_at(args.min(x.len()));
                let axes = |v: &[usize]| v.iter().map(|&a| a as i64).collect::<Vec<_>>();
                let ends = |v: &[bool]| v.iter().map(|&r| i64::from(r)).collect::<Vec<_>>();
                let mut attributes = vec![
                    self.nested("body", body, args, captures)?,
                    int("num_scan_inputs", op.num_scan_inputs as i64),
                    ints("scan_input_axes", &axes(&op.input_axes)),
                    ints("scan_input_directions", &ends(&op.input_reverse)),
                ];
                if !op.output_axes.is_empty() {
                    attributes.push(ints("scan_output_axes", &axes(&op.output_axes)));
                    attributes.push(ints("scan_output_directions", &ends(&op.output_reverse)));
                }
                Ok(Some(self.emit_n("Scan", given, n, attributes)))
            }
            Control::Call(op) => {
                let inputs: Vec<String> = x.iter().map(|&n| n.to_owned()).collect();
                self.call(&op.callee, &inputs).map(Some)
            }
        }
    }

    /// A nested graph whose first inputs are arguments and whose others are values outside.
    fn nested(&mut self, name: &str, g: &Graph, args: usize, captures: &[&str]) -> Result<AttributeProto, Failure> {
        let outside = (std::mem::take(&mut self.nodes), self.symbols.clone(), self.dims.clone());
        let mut names = Names::new();
        let mut inputs = Vec::new();
        for (i, &v) in g.inputs().iter().enumerate() {
            let name = match i.checked_sub(args).and_then(|k| captures.get(k)) {
                Some(outer) => (*outer).to_owned(),
                None => {
                    let name = self.fresh("argument");
                    inputs.extend(self.declare(g, v, &name));
                    name
                }
            };
            names.insert(v, name);
        }
        let before = self.problems.len();
        self.nodes_of(g, &mut names);
        let results: Vec<String> = g.outputs().iter().map(|_| self.fresh("result")).collect();
        let values = g.outputs().iter().map(|o| o.value);
        let outputs = self.outputs_of(g, values, &names, |i| results.get(i).cloned().unwrap_or_default());
        let nodes = std::mem::replace(&mut self.nodes, outside.0);
        (self.symbols, self.dims) = (outside.1, outside.2);
        if self.problems.len() > before {
            let inner = self.problems.split_off(before);
            return Err(inner.join("; "));
        }
        let graph =
            GraphProto { name: Some(name.into()), node: nodes, input: inputs, output: outputs, ..Default::default() };
        Ok(AttributeProto { g: Some(Box::new(graph)), ..attribute(name, AttributeType::Graph) })
    }
}
