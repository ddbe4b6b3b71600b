//! Positions of the points of a space, one after another.

use crate::buffers::Sizes;
use crate::space::position;

/// Walks over the points of a space in row-major order.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    sizes: &'a [usize],
    strides: &'a [i64],
    index: Sizes,
    at: i64,
}

impl<'a> Cursor<'a> {
    /// A walk that stands at point number `point`.
    pub fn new(sizes: &'a [usize], strides: &'a [i64], offset: i64, point: usize) -> Self {
        let mut index: Sizes = smallvec::smallvec![0; sizes.len()];
        let mut rest = point;
        for (i, &n) in index.iter_mut().zip(sizes).rev() {
            *i = rest % n.max(1);
            rest /= n.max(1);
        }
        Cursor { sizes, strides, index, at: position(point, sizes, offset, strides) }
    }

    /// The position.
    #[inline(always)]
    pub fn at(&self) -> i64 {
        self.at
    }

    /// Index on each axis.
    pub fn index(&self) -> &[usize] {
        &self.index
    }

    /// Moves to the next point; from the last to the first.
    #[inline]
    pub fn advance(&mut self) {
        for ((i, &n), &s) in self.index.iter_mut().zip(self.sizes).zip(self.strides).rev() {
            *i += 1;
            self.at += s;
            if *i < n {
                return;
            }
            self.at -= s * *i as i64;
            *i = 0;
        }
    }
}

/// Everything but entry `axis`.
pub fn without<T: Copy, A: FromIterator<T>>(list: &[T], axis: usize) -> A {
    list.iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, &v)| v).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_stands_where_position_says() {
        for (sizes, strides) in
            [(&[3usize, 1, 2][..], &[7i64, 9, -2][..]), (&[5], &[0]), (&[], &[]), (&[2, 2, 2, 2], &[1, 2, 4, 8])]
        {
            let points: usize = sizes.iter().product();
            for start in 0..points {
                let mut c = Cursor::new(sizes, strides, 11, start);
                for p in start..points + 2 {
                    assert_eq!(c.at(), position(p % points, sizes, 11, strides));
                    c.advance();
                }
            }
        }
    }
}
