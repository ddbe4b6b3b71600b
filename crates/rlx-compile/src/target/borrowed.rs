//! Results that lie in their program's context.

use std::ops::Deref;

use rlx_ir::DType;

/// A result that lies in its program's context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BorrowedTensor<'a> {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub dims: &'a [usize],
    /// Contents, row-major, packed.
    pub bytes: &'a [u8],
}

/// So many results are listed without memory of their own.
const INLINE: usize = 4;

/// Results in a program's context, in order: a slice of them.
#[derive(Clone, Debug)]
pub struct BorrowedTensors<'a> {
    few: [BorrowedTensor<'a>; INLINE],
    len: usize,
    /// All, if there are more than a few.
    many: Vec<BorrowedTensor<'a>>,
}

impl<'a> BorrowedTensors<'a> {
    /// No results.
    pub fn new() -> Self {
        let none = BorrowedTensor { dtype: DType::U8, dims: &[], bytes: &[] };
        BorrowedTensors { few: [none; INLINE], len: 0, many: Vec::new() }
    }

    /// Appends a result.
    pub fn push(&mut self, t: BorrowedTensor<'a>) {
        match self.few.get_mut(self.len) {
            Some(slot) => *slot = t,
            None => {
                if self.many.is_empty() {
                    self.many.extend_from_slice(&self.few);
                }
                self.many.push(t);
            }
        }
        self.len += 1;
    }
}

impl Default for BorrowedTensors<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Deref for BorrowedTensors<'a> {
    type Target = [BorrowedTensor<'a>];

    fn deref(&self) -> &Self::Target {
        if self.len <= INLINE { self.few.get(..self.len).unwrap_or(&[]) } else { &self.many }
    }
}

impl<'a> FromIterator<BorrowedTensor<'a>> for BorrowedTensors<'a> {
    fn from_iter<I: IntoIterator<Item = BorrowedTensor<'a>>>(iter: I) -> Self {
        let mut out = Self::new();
        iter.into_iter().for_each(|t| out.push(t));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_keep_their_order() {
        let bytes: Vec<u8> = (0..10).collect();
        for n in 0..10 {
            let all = |n: usize| {
                bytes.iter().take(n).map(|b| BorrowedTensor {
                    dtype: DType::U8,
                    dims: &[],
                    bytes: std::slice::from_ref(b),
                })
            };
            let list: BorrowedTensors<'_> = all(n).collect();
            assert_eq!(list.len(), n);
            assert!(list.iter().copied().eq(all(n)), "{n}");
        }
    }
}
