//! Values as walks over a root tensor: transposes, reshapes, broadcasts and slices are steps that only change how the root is walked.
//!
//! Steps are kept apart from strides, because where a root lies in memory (its order, a slice of a concatenation) is decided late. The
//! one rule that can fail is a reshape, whose merged axes must be contiguous in the root's memory; then the value is copied first.

use rlx_ir::Dim;

use super::roots::RootId;

/// One change of how a tensor is walked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Axis `i` of the result is axis `perm[i]`.
    Transpose(Vec<usize>),
    /// The same elements, row-major, under other sizes.
    Reshape { from: Vec<Dim>, to: Vec<Dim> },
    /// Right-aligned broadcast.
    Broadcast { to: Vec<Dim> },
    /// Index `i` of an axis becomes `start + i·step`.
    Slice { starts: Vec<Dim>, steps: Vec<i64>, to: Vec<Dim> },
}

/// A root seen through steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Val {
    pub root: RootId,
    pub steps: Vec<Step>,
    /// Sizes after the steps.
    pub dims: Vec<Dim>,
}

impl Val {
    /// A whole root.
    pub fn whole(root: RootId, dims: &[Dim]) -> Self {
        Val { root, steps: Vec::new(), dims: dims.to_vec() }
    }

    /// The value with its axes reordered.
    pub fn transpose(mut self, perm: &[usize]) -> Self {
        if perm.iter().copied().eq(0..perm.len()) {
            return self;
        }
        self.dims = perm.iter().filter_map(|&p| self.dims.get(p).cloned()).collect();
        if let Some(Step::Transpose(before)) = self.steps.last_mut() {
            let both: Vec<usize> = perm.iter().filter_map(|&p| before.get(p).copied()).collect();
            if both.iter().copied().eq(0..both.len()) {
                self.steps.pop();
            } else {
                *before = both;
            }
        } else {
            self.steps.push(Step::Transpose(perm.to_vec()));
        }
        self
    }

    /// The value under other sizes.
    pub fn reshape(mut self, to: &[Dim]) -> Self {
        if self.dims == to {
            return self;
        }
        let from = match self.steps.pop() {
            Some(Step::Reshape { from, .. }) => from,
            other => {
                self.steps.extend(other);
                self.dims
            }
        };
        if from != to {
            self.steps.push(Step::Reshape { from, to: to.to_vec() });
        }
        self.dims = to.to_vec();
        self
    }

    /// The value broadcast to other sizes.
    pub fn broadcast(mut self, to: &[Dim]) -> Self {
        if self.dims != to {
            self.steps.push(Step::Broadcast { to: to.to_vec() });
            self.dims = to.to_vec();
        }
        self
    }

    /// A slice of the value.
    pub fn slice(mut self, starts: Vec<Dim>, steps: Vec<i64>, to: Vec<Dim>) -> Self {
        let whole = starts.iter().all(|s| s.as_const() == Some(0)) && steps.iter().all(|&s| s == 1);
        if !(whole && to == self.dims) {
            self.dims = to.clone();
            self.steps.push(Step::Slice { starts, steps, to });
        }
        self
    }

    /// True if the steps only rename elements, each exactly once.
    pub fn is_bijective(&self) -> bool {
        self.steps.iter().all(|s| matches!(s, Step::Transpose(_) | Step::Reshape { .. }))
    }

    /// True if any step is a reshape.
    pub fn has_reshape(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, Step::Reshape { .. }))
    }

    /// This value, of the sizes that bijective `steps` lead to, as it is seen before those steps.
    pub fn pull_back(mut self, steps: &[Step]) -> Self {
        for s in steps.iter().rev() {
            self = match s {
                Step::Transpose(perm) => {
                    let mut inverse = vec![0; perm.len()];
                    for (i, &p) in perm.iter().enumerate() {
                        if let Some(slot) = inverse.get_mut(p) {
                            *slot = i;
                        }
                    }
                    self.transpose(&inverse)
                }
                Step::Reshape { from, .. } => self.reshape(from),
                Step::Broadcast { .. } | Step::Slice { .. } => self,
            };
        }
        self
    }
}

/// A walk with its sizes: element (i0, i1, …) lies at `offset + Σ strides[a]·i_a`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Walk {
    pub dims: Vec<Dim>,
    pub offset: Dim,
    pub strides: Vec<Dim>,
}

/// Strides of dense row-major memory.
pub(super) fn row_major(dims: &[Dim]) -> Vec<Dim> {
    let mut strides = vec![Dim::ONE; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = &strides[i] * &dims[i];
    }
    strides
}

/// Strides of dense memory whose axes lie in this order, outermost first.
pub(super) fn ordered(dims: &[Dim], order: &[usize]) -> Vec<Dim> {
    let mut strides = vec![Dim::ONE; dims.len()];
    let mut step = Dim::ONE;
    for &axis in order.iter().rev() {
        if let (Some(s), Some(d)) = (strides.get_mut(axis), dims.get(axis)) {
            *s = step.clone();
            step = &step * d;
        }
    }
    strides
}

fn is_one(d: &Dim) -> bool {
    d.as_const() == Some(1)
}

/// The step of an axis of size `from` walked over an axis of size `to`: 0 where `from` is 1 and `to` need not be.
fn broadcast_stride(stride: &Dim, from: &Dim, to: &Dim) -> Dim {
    if from == to {
        return stride.clone();
    }
    match from.as_const() {
        Some(1) => Dim::ZERO,
        Some(_) => stride.clone(),
        // For a size of 0 the space is empty, so that −1 is as good as anything.
        None => stride * (from - 1).min(Dim::ONE),
    }
}

impl Walk {
    /// Dense row-major memory from 0.
    pub fn dense(dims: &[Dim]) -> Self {
        Walk { dims: dims.to_vec(), offset: Dim::ZERO, strides: row_major(dims) }
    }

    /// The walk after a step; `None` if it is no walk over this memory.
    pub fn step(&self, step: &Step) -> Option<Walk> {
        Some(match step {
            Step::Transpose(perm) => Walk {
                dims: perm.iter().map(|&p| self.dims.get(p).cloned()).collect::<Option<_>>()?,
                offset: self.offset.clone(),
                strides: perm.iter().map(|&p| self.strides.get(p).cloned()).collect::<Option<_>>()?,
            },
            Step::Reshape { to, .. } => Walk {
                dims: to.clone(),
                offset: self.offset.clone(),
                strides: reshape_strides(&self.dims, &self.strides, to)?,
            },
            Step::Broadcast { to } => {
                let skip = to.len().checked_sub(self.dims.len())?;
                let mut strides = vec![Dim::ZERO; skip];
                for ((s, d), t) in self.strides.iter().zip(&self.dims).zip(&to[skip..]) {
                    strides.push(broadcast_stride(s, d, t));
                }
                Walk { dims: to.clone(), offset: self.offset.clone(), strides }
            }
            Step::Slice { starts, steps, to } => {
                let mut offset = self.offset.clone();
                for (s, start) in self.strides.iter().zip(starts) {
                    offset += s * start;
                }
                let strides = self.strides.iter().zip(steps).map(|(s, &k)| s * k).collect();
                Walk { dims: to.clone(), offset, strides }
            }
        })
    }

    /// The walk after several steps.
    pub fn steps(self, steps: &[Step]) -> Option<Walk> {
        steps.iter().try_fold(self, |w, s| w.step(s))
    }

    /// Strides with those of axes of size 1, which are never taken, as 0: equal walks compare equal.
    pub fn normal_strides(&self) -> Vec<Dim> {
        self.strides.iter().zip(&self.dims).map(|(s, d)| if is_one(d) { Dim::ZERO } else { s.clone() }).collect()
    }

    /// True if the walk goes through dense row-major memory.
    pub fn is_dense(&self) -> bool {
        let want = Walk { strides: row_major(&self.dims), ..self.clone() };
        self.normal_strides() == want.normal_strides()
    }
}

/// How a reshape splits axes: for each old axis, the new ones that it becomes. `None` if it does anything else.
pub(super) fn split_axes(from: &[Dim], to: &[Dim]) -> Option<Vec<Vec<Dim>>> {
    let mut rest = to.iter();
    let mut runs = Vec::with_capacity(from.len());
    for d in from {
        let mut run = vec![rest.next()?.clone()];
        let mut product = run[0].clone();
        while product != *d {
            let next = rest.next()?;
            product = &product * next;
            run.push(next.clone());
        }
        runs.push(run);
    }
    rest.next().is_none().then_some(runs)
}

impl Walk {
    /// The walk over some of its axes, in this order.
    pub fn picked(&self, axes: &[usize]) -> Walk {
        let pick = |v: &[Dim]| axes.iter().filter_map(|&a| v.get(a).cloned()).collect();
        Walk { dims: pick(&self.dims), offset: self.offset.clone(), strides: pick(&self.strides) }
    }

    /// The same walk with its axes split; always possible.
    pub fn split(&self, runs: &[Vec<Dim>]) -> Walk {
        let (mut dims, mut strides) = (Vec::new(), Vec::new());
        for (run, stride) in runs.iter().zip(&self.strides) {
            for (d, inner) in run.iter().zip(row_major(run)) {
                dims.push(d.clone());
                strides.push(stride * inner);
            }
        }
        Walk { dims, offset: self.offset.clone(), strides }
    }
}

/// Strides under which the same memory, walked row-major over `to`, gives the elements in the order in which it is walked over `from`.
/// `None` if there are none, or if they depend on what is not known of the sizes.
pub(super) fn reshape_strides(from: &[Dim], strides: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    if from.iter().chain(to).any(|d| d.as_const() == Some(0)) {
        return Some(row_major(to));
    }
    let old: Vec<(&Dim, &Dim)> = from.iter().zip(strides).filter(|(d, _)| !is_one(d)).collect();
    let mut out = vec![Dim::ONE; to.len()];
    let new: Vec<usize> = (0..to.len()).filter(|&i| !is_one(&to[i])).collect();
    // Blocks of axes with equal products, found from the innermost axis.
    let (mut i, mut j) = (old.len(), new.len());
    while i > 0 || j > 0 {
        let (old_end, new_end) = (i, j);
        let (mut a, mut b) = (Dim::ONE, Dim::ONE);
        if i > 0 {
            i -= 1;
            a = old[i].0.clone();
        }
        if j > 0 {
            j -= 1;
            b = to[new[j]].clone();
        }
        while a != b && (i > 0 || j > 0) {
            let grow_old = match (a.as_const(), b.as_const()) {
                (Some(x), Some(y)) => x < y,
                // The side that divides the other is the one to grow.
                _ => j == 0 || divides(&a, &b),
            };
            if grow_old && i > 0 || j == 0 {
                i -= 1;
                a = &a * old[i].0;
            } else {
                j -= 1;
                b = &b * &to[new[j]];
            }
        }
        // At the outer end the products are equal because the numbers of elements are.
        let block = &old[i..old_end];
        for pair in block.windows(2) {
            if *pair[0].1 != pair[1].1 * pair[1].0 {
                return None;
            }
        }
        let mut step = block.last().map_or(Dim::ONE, |b| b.1.clone());
        for &axis in new[j..new_end].iter().rev() {
            out[axis] = step.clone();
            step = &step * &to[axis];
        }
    }
    Some(out)
}

fn divides(a: &Dim, b: &Dim) -> bool {
    !a.is_const() && {
        let q = b.floor_div(a);
        &q * a == *b
    } || a.as_const().is_some_and(|c| c > 1 && b.rem_floor(c).as_const() == Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dims(text: &str) -> Vec<Dim> {
        text.split_whitespace().map(|t| Dim::parse(t).unwrap()).collect()
    }

    #[test]
    fn merging_and_splitting_contiguous_axes_is_a_view() {
        for (from, to, want) in [
            ("b s 384", "b s 12 32", "s*384 384 32 1"),
            ("b s 12 32", "b s 384", "s*384 384 1"),
            ("b s 384", "b*s 384", "384 1"),
            ("b*s 384", "b s 384", "s*384 384 1"),
            ("6", "2 1 3", "3 1 1"),
            ("n 1", "n", "1"),
            ("4 6", "8 3", "3 1"),
        ] {
            let (from, to) = (dims(from), dims(to));
            assert_eq!(reshape_strides(&from, &row_major(&from), &to), Some(dims(want)), "{from:?} {to:?}");
        }
    }

    #[test]
    fn a_transposed_tensor_keeps_only_views_inside_axes() {
        // [h, s, d] walked over memory [s, h, d].
        let (from, strides) = (dims("h s 32"), dims("32 h*32 1"));
        assert_eq!(reshape_strides(&from, &strides, &dims("h s 4 8")), Some(dims("32 h*32 8 1")));
        assert_eq!(reshape_strides(&from, &strides, &dims("h*s 32")), None);
    }

    #[test]
    fn broadcast_axes_split_and_merge() {
        assert_eq!(reshape_strides(&dims("b*s 4"), &dims("0 1"), &dims("b s 4")), Some(dims("0 0 1")));
        assert_eq!(reshape_strides(&dims("b s 4"), &dims("0 0 1"), &dims("b*s 4")), Some(dims("0 1")));
        assert_eq!(reshape_strides(&dims("b s"), &dims("0 1"), &dims("b*s")), None);
    }

    #[test]
    fn steps_cancel() {
        let v = Val::whole(RootId(0), &dims("a b c"));
        let t = v.clone().transpose(&[2, 0, 1]).transpose(&[1, 2, 0]);
        assert_eq!(t, v);
        let r = v.clone().reshape(&dims("a*b c")).reshape(&dims("a b c"));
        assert_eq!(r, v);
        let seen = v.clone().reshape(&dims("a*b c")).transpose(&[1, 0]);
        assert_eq!(seen.clone().pull_back(&seen.steps), v);
    }

    #[test]
    fn unequal_symbols_broadcast_by_their_size() {
        let w = Walk::dense(&dims("n 4")).step(&Step::Broadcast { to: dims("b bcast(n,m) 4") }).unwrap();
        let at = |n: i64| {
            let b: rlx_ir::DimBinding = [(rlx_ir::Symbol::new("n"), n)].into_iter().collect();
            w.strides[1].eval(&b).unwrap()
        };
        assert_eq!((at(1), at(2), at(7)), (0, 4, 4));
    }
}
