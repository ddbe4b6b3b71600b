//! What a cell does with one sequence's gates in one step.

use super::product::Real;
use crate::buffers::RunCx;
use rlx_ir::ops::neural::CellActivation;

/// One direction's functions and peephole weights.
#[derive(Clone, Copy)]
pub struct Functions<'a, T> {
    /// The functions.
    pub functions: &'a [CellActivation],
    /// Arguments are limited to this magnitude.
    pub clip: Option<T>,
    /// Peephole weights of input, output and forget gate; empty for none.
    pub peephole: &'a [T],
}

impl<T: Real> Functions<'_, T> {
    /// Function `k` of clipped elements.
    pub fn activate(&self, run: &RunCx<'_>, k: usize, x: &mut [T]) {
        if let Some(c) = self.clip {
            let low = T::from_float(-c.to_f64());
            for x in x.iter_mut() {
                if x.below(low) {
                    *x = low;
                } else if c.below(*x) {
                    *x = c;
                }
            }
        }
        self.unclipped(run, k, x);
    }

    fn unclipped(&self, run: &RunCx<'_>, k: usize, x: &mut [T]) {
        if let Some(f) = self.functions.get(k) {
            T::activate(run, f, x);
        }
    }

    fn peep(&self, gate: usize, c: &[T], x: &mut [T]) {
        let n = c.len();
        if let Some(p) = self.peephole.get(gate * n..(gate + 1) * n) {
            x.iter_mut().zip(p.iter().zip(c)).for_each(|(x, (&p, &c))| *x = x.add(p.mul(c)));
        }
    }

    /// Long short-term memory: gates i, o, f, c in; new h and c.
    pub fn lstm(&self, run: &RunCx<'_>, input_forget: bool, gates: &mut [T], h: &mut [T], c: &mut [T]) {
        let n = h.len();
        let (i, rest) = gates.split_at_mut(n);
        let (o, rest) = rest.split_at_mut(n);
        let (f, g) = rest.split_at_mut(n);
        self.peep(0, c, i);
        self.activate(run, 0, i);
        if input_forget {
            let one = T::from_float(1.0);
            f.iter_mut().zip(i.iter()).for_each(|(f, &i)| *f = one.add(negative(i)));
        } else {
            self.peep(2, c, f);
            self.activate(run, 0, f);
        }
        self.activate(run, 1, g);
        for ((c, g), (&f, &i)) in c.iter_mut().zip(g.iter_mut()).zip(f.iter().zip(i.iter())) {
            *c = f.mul(*c).add(i.mul(*g));
            *g = *c;
        }
        self.peep(1, c, o);
        self.activate(run, 0, o);
        self.unclipped(run, 2, g);
        h.iter_mut().zip(o.iter().zip(g.iter())).for_each(|(h, (&o, &g))| *h = o.mul(g));
    }

    /// Gated recurrent unit, its last part: update gate and candidate, both finished, in; new h.
    pub fn gru(&self, update: &[T], candidate: &[T], h: &mut [T]) {
        let one = T::from_float(1.0);
        for (h, (&z, &n)) in h.iter_mut().zip(update.iter().zip(candidate)) {
            *h = one.add(negative(z)).mul(n).add(z.mul(*h));
        }
    }
}

fn negative<T: Real>(x: T) -> T {
    x.mul(T::from_float(-1.0))
}
