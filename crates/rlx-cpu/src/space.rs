//! Iteration spaces: axes merged, ordered and cut into blocks when sizes are known.

use crate::buffers::{Sizes, Strides};
use smallvec::SmallVec;

/// Steps of several walks.
pub type Walks<'a> = SmallVec<[&'a [i64]; 8]>;

/// A space with the steps of several walks over it, outermost axis first. Never without an axis.
#[derive(Clone, Debug)]
pub struct Space {
    /// Sizes.
    pub sizes: Sizes,
    /// Steps of each walk.
    pub walks: SmallVec<[Strides; 4]>,
}

impl Space {
    /// The space with axes of size 1 dropped, the axis on which walk `lead` takes the smallest steps innermost, and
    /// axes merged where every walk allows it. What an axis order changes is only the order of the points.
    pub fn simplified(sizes: &[usize], walks: &[&[i64]], lead: usize) -> Space {
        let mut axes: Vec<usize> = (0..sizes.len()).filter(|&a| sizes[a] != 1).collect();
        let step = |w: usize, a: usize| walks.get(w).and_then(|w| w.get(a)).copied().unwrap_or(0);
        axes.sort_by_key(|&a| std::cmp::Reverse((step(lead, a).unsigned_abs(), 0)));
        Self::merged(sizes, walks, &axes)
    }

    /// As [`Space::simplified`], with the order of axes kept.
    pub fn in_order(sizes: &[usize], walks: &[&[i64]]) -> Space {
        let axes: Sizes = (0..sizes.len()).filter(|&a| sizes[a] != 1).collect();
        Self::merged(sizes, walks, &axes)
    }

    fn merged(sizes: &[usize], walks: &[&[i64]], axes: &[usize]) -> Space {
        let step = |w: &[i64], a: usize| w.get(a).copied().unwrap_or(0);
        let mut out = Space { sizes: Sizes::new(), walks: walks.iter().map(|_| Strides::new()).collect() };
        for &a in axes {
            let n = sizes[a];
            let joins = out.sizes.last().is_some()
                && out
                    .walks
                    .iter()
                    .zip(walks)
                    .all(|(done, w)| step(w, a).checked_mul(n as i64).is_some_and(|s| done.last() == Some(&s)));
            if joins {
                if let Some(last) = out.sizes.last_mut() {
                    *last *= n;
                }
                for (done, w) in out.walks.iter_mut().zip(walks) {
                    if let Some(last) = done.last_mut() {
                        *last = step(w, a);
                    }
                }
            } else {
                out.sizes.push(n);
                for (done, w) in out.walks.iter_mut().zip(walks) {
                    done.push(step(w, a));
                }
            }
        }
        if out.sizes.is_empty() {
            out.sizes.push(1);
            out.walks.iter_mut().for_each(|w| w.push(0));
        }
        out
    }

    /// Number of points.
    pub fn points(&self) -> usize {
        self.sizes.iter().product()
    }
}

/// How a space is cut: a block takes `step` indices of `axis` and all of the axes after it.
#[derive(Clone, Debug)]
pub struct Cut {
    /// The axis that is cut.
    pub axis: usize,
    /// Indices of it in a block; the last block may have fewer.
    pub step: usize,
    /// Points of the axes after it.
    pub inner: usize,
    /// Blocks along the axis.
    pub along: usize,
    /// Blocks of the whole space.
    pub count: usize,
}

impl Cut {
    /// Blocks of at most `block` points.
    pub fn new(sizes: &[usize], block: usize) -> Cut {
        let mut axis = sizes.len().saturating_sub(1);
        let mut inner = 1usize;
        while axis > 0 && inner.saturating_mul(sizes[axis]) <= block / 2 {
            inner *= sizes[axis];
            axis -= 1;
        }
        let n = sizes.get(axis).copied().unwrap_or(1);
        let most = (block / inner.max(1)).max(1);
        // Even blocks, in whole vectors where the axis is the innermost.
        let mut step = n.div_ceil(n.div_ceil(most).max(1)).max(1);
        if inner == 1 {
            step = step.next_multiple_of(32).min(most);
        }
        let step = step.min(n.max(1));
        let along = n.div_ceil(step);
        // A space without points has no blocks, even where only an axis within the blocks is empty.
        let outer = if inner == 0 { 0 } else { sizes.get(..axis).unwrap_or(&[]).iter().product() };
        let count = outer * along;
        Cut { axis, step, inner, along, count }
    }

    /// Blocks that are rows of the innermost axis, whole or in parts of at most `block` points.
    pub fn row(sizes: &[usize], block: usize) -> Cut {
        let axis = sizes.len().saturating_sub(1);
        let n = sizes.get(axis).copied().unwrap_or(1);
        let step = n.clamp(1, block);
        let along = n.div_ceil(step);
        let outer: usize = sizes.get(..axis).unwrap_or(&[]).iter().product();
        Cut { axis, step, inner: 1, along, count: outer * along }
    }

    /// Points of a full block.
    pub fn points(&self) -> usize {
        self.step * self.inner
    }

    /// Whether a walk takes the points of a block one after another in memory.
    pub fn is_dense(&self, sizes: &[usize], strides: &[i64]) -> bool {
        let mut next = 1i64;
        for a in (self.axis..sizes.len()).rev() {
            let n = if a == self.axis { self.step } else { sizes[a] };
            if n > 1 && strides.get(a) != Some(&next) {
                return false;
            }
            next = next.saturating_mul(n as i64);
        }
        true
    }

    /// Whether a walk stays at one element within a block.
    pub fn is_uniform(&self, sizes: &[usize], strides: &[i64]) -> bool {
        (self.axis..sizes.len()).all(|a| {
            let n = if a == self.axis { self.step } else { sizes[a] };
            n <= 1 || strides.get(a) == Some(&0)
        })
    }
}

/// The blocks of a cut in order, from a given one on: the index on each outer axis and where the block begins.
#[derive(Clone, Debug)]
pub struct Blocks {
    /// Index on each axis up to the cut one, whose entry is its block's first index.
    pub index: Sizes,
}

impl Blocks {
    /// Block number `block`.
    pub fn at(sizes: &[usize], cut: &Cut, block: usize) -> Blocks {
        let mut index: Sizes = smallvec::smallvec![0; cut.axis + 1];
        let mut rest = block;
        index[cut.axis] = rest % cut.along.max(1) * cut.step;
        rest /= cut.along.max(1);
        for a in (0..cut.axis).rev() {
            index[a] = rest % sizes[a].max(1);
            rest /= sizes[a].max(1);
        }
        Blocks { index }
    }

    /// Moves to the next block.
    pub fn advance(&mut self, sizes: &[usize], cut: &Cut) {
        let mut a = cut.axis;
        self.index[a] += cut.step;
        while self.index[a] >= sizes[a] && a > 0 {
            self.index[a] = 0;
            a -= 1;
            self.index[a] += 1;
        }
    }

    /// Indices of the cut axis in this block.
    pub fn count(&self, sizes: &[usize], cut: &Cut) -> usize {
        cut.step.min(sizes[cut.axis].saturating_sub(self.index[cut.axis]))
    }

    /// Where a walk stands at the block's first point.
    #[inline]
    pub fn position(&self, offset: i64, strides: &[i64]) -> i64 {
        self.index.iter().zip(strides).fold(offset, |at, (&i, &s)| at + i as i64 * s)
    }
}

/// The position of point number `point` (row-major) of a space in a walk.
#[inline]
pub fn position(mut point: usize, sizes: &[usize], offset: i64, strides: &[i64]) -> i64 {
    let mut at = offset;
    if point == 0 {
        return at;
    }
    for (&n, &s) in sizes.iter().zip(strides).rev() {
        let n = n.max(1);
        at += (point % n) as i64 * s;
        point /= n;
    }
    at
}

/// The index on each axis of point number `point`.
pub fn unravel(mut point: usize, sizes: &[usize], index: &mut [usize]) {
    for (i, &n) in index.iter_mut().zip(sizes).rev() {
        *i = point % n.max(1);
        point /= n.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_axes_merge_and_broadcast_axes_do_not() {
        let s = Space::in_order(&[2, 3, 1, 4], &[&[12, 4, 9, 1], &[0, 0, 0, 1]]);
        assert_eq!(
            (s.sizes.as_slice(), s.walks[0].as_slice(), s.walks[1].as_slice()),
            (&[6, 4][..], &[4, 1][..], &[0, 1][..])
        );
        let s = Space::in_order(&[], &[&[]]);
        assert_eq!((s.sizes.as_slice(), s.walks[0].as_slice()), (&[1][..], &[0][..]));
    }

    #[test]
    fn the_leading_walk_orders_axes() {
        let s = Space::simplified(&[4, 5], &[&[1, 4], &[5, 1]], 0);
        assert_eq!((s.sizes.as_slice(), s.walks[1].as_slice()), (&[5, 4][..], &[1, 5][..]));
    }

    #[test]
    fn blocks_cover_every_point_once() {
        for sizes in [
            &[7usize][..],
            &[1000],
            &[513, 3],
            &[5, 100, 9],
            &[2, 3, 700],
            &[40, 16],
            &[0, 4],
            &[3, 0],
            &[4, 0, 2],
            &[600, 0, 9],
        ] {
            let strides: Vec<i64> = (0..sizes.len()).map(|a| sizes[a + 1..].iter().product::<usize>() as i64).collect();
            let cut = Cut::new(sizes, 512);
            let mut seen = vec![0u8; sizes.iter().product()];
            let mut at = Blocks::at(sizes, &cut, 0);
            for b in 0..cut.count {
                assert_eq!(at.index, Blocks::at(sizes, &cut, b).index);
                let n = at.count(sizes, &cut) * cut.inner;
                assert!(0 < n && n <= 512);
                let start = at.position(0, &strides) as usize;
                seen[start..start + n].iter_mut().for_each(|s| *s += 1);
                at.advance(sizes, &cut);
            }
            assert!(seen.iter().all(|&s| s == 1), "{sizes:?}");
        }
    }
}
