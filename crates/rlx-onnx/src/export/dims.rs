//! Sizes as integers that the file computes.

use rlx_ir::Dim;
use rlx_ir::dim::Atom;

use super::{Failure, Place, Writer, int};

impl Writer {
    /// A vector of sizes.
    pub(super) fn sizes(&mut self, dims: &[Dim]) -> Result<String, Failure> {
        if let Some(known) = dims.iter().map(Dim::as_const).collect::<Option<Vec<_>>>() {
            return self.list(&known);
        }
        let parts = dims.iter().map(|d| self.dim(d)).collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.emit("Concat", &parts, vec![int("axis", 0)]))
    }

    /// A size as a vector of one integer.
    pub(super) fn dim(&mut self, d: &Dim) -> Result<String, Failure> {
        if let Some(n) = d.as_const() {
            return self.list(&[n]);
        }
        if let Some(name) = self.dims.get(d) {
            return Ok(name.clone());
        }
        let mut sum: Option<String> = (d.constant_term() != 0).then(|| self.list(&[d.constant_term()])).transpose()?;
        for term in d.terms() {
            let mut product: Option<String> =
                (term.coefficient() != 1).then(|| self.list(&[term.coefficient()])).transpose()?;
            for (atom, power) in term.factors() {
                let a = self.atom(atom)?;
                for _ in 0..*power {
                    product = Some(match product {
                        Some(p) => self.emit("Mul", &[&p, &a], vec![]),
                        None => a.clone(),
                    });
                }
            }
            let product = product.ok_or("a size has an empty term")?;
            sum = Some(match sum {
                Some(s) => self.emit("Add", &[&s, &product], vec![]),
                None => product,
            });
        }
        let name = sum.ok_or_else(|| format!("size {d} has no terms"))?;
        self.dims.insert(d.clone(), name.clone());
        Ok(name)
    }

    fn atom(&mut self, atom: &Atom) -> Result<String, Failure> {
        match atom {
            Atom::Symbol(s) => match self.symbols.get(s).cloned() {
                Some(Place::Axis(tensor, axis)) => {
                    let at = axis as i64;
                    Ok(self.emit("Shape", &[&tensor], vec![int("start", at), int("end", at + 1)]))
                }
                Some(Place::Element(tensor, i)) => {
                    let (flat, at) = (self.list(&[-1])?, self.list(&[i as i64])?);
                    let v = self.emit("Reshape", &[&tensor, &flat], vec![]);
                    let v = self.emit("Gather", &[&v, &at], vec![]);
                    self.cast(&v, rlx_ir::DType::I64)
                }
                None => Err(format!("size `{}` is no input's", s.name())),
            },
            Atom::FloorDiv(a, b) => {
                let (a, b) = (self.dim(a)?, self.dim(b)?);
                Ok(self.floor_div(&a, &b))
            }
            Atom::CeilDiv(a, b) => {
                let (a, b) = (self.dim(a)?, self.dim(b)?);
                let a = self.emit("Neg", &[&a], vec![]);
                let q = self.floor_div(&a, &b);
                Ok(self.emit("Neg", &[&q], vec![]))
            }
            Atom::Mod(a, b) => {
                let (a, b) = (self.dim(a)?, self.dim(b)?);
                Ok(self.emit("Mod", &[&a, &b], vec![]))
            }
            Atom::Min(list) => self.many("Min", list),
            Atom::Max(list) => self.many("Max", list),
            Atom::Bcast(list) => {
                let parts = list.iter().map(|d| self.dim(d)).collect::<Result<Vec<_>, _>>()?;
                let one = self.list(&[1])?;
                let mut common = one.clone();
                for p in parts {
                    let single = self.emit("Equal", &[&p, &one], vec![]);
                    common = self.emit("Where", &[&single, &common, &p], vec![]);
                }
                Ok(common)
            }
        }
    }

    /// Towards negative infinity: the format's own division is towards zero.
    fn floor_div(&mut self, a: &str, b: &str) -> String {
        let rest = self.emit("Mod", &[a, b], vec![]);
        let whole = self.emit("Sub", &[a, &rest], vec![]);
        self.emit("Div", &[&whole, b], vec![])
    }

    fn many(&mut self, op: &str, list: &[Dim]) -> Result<String, Failure> {
        let parts = list.iter().map(|d| self.dim(d)).collect::<Result<Vec<_>, _>>()?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.emit(op, &parts, vec![]))
    }
}
