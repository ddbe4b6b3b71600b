//! Elements as movable cells: what rearranging ops copy about without reading them as numbers.
//!
//! A cell is the bits of one element, so that copies keep NaN payloads and signs of zeros whatever the dtype. Sub-byte elements are
//! unpacked to a byte each while they are handled here.

use std::borrow::Cow;

use crate::dtype::DType;
use crate::element::{pack_sub_byte, sub_byte};
use crate::error::OpError;
use crate::tensor::Tensor;

enum Cells<'a> {
    Bytes { size: usize, data: Cow<'a, [u8]> },
    Strings(Cow<'a, [String]>),
}

/// The cells of a tensor, or of one being made.
pub struct Raw<'a> {
    dtype: DType,
    cells: Cells<'a>,
}

fn outside(i: usize, n: usize) -> OpError {
    OpError::new(format!("element {i} of a tensor of {n} was asked for"))
}

impl<'a> Raw<'a> {
    /// The cells of a tensor.
    pub fn of(x: &'a Tensor) -> Raw<'a> {
        let dtype = x.dtype();
        let cells = match (x.strings(), dtype.size()) {
            (Some(s), _) => Cells::Strings(s.into()),
            (None, Some(size)) => Cells::Bytes { size, data: x.bytes().into() },
            (None, None) => {
                Cells::Bytes { size: 1, data: sub_byte(dtype, x.bytes(), x.numel()).collect::<Vec<u8>>().into() }
            }
        };
        Raw { dtype, cells }
    }

    /// No cells yet, with room for `n`.
    pub fn with_capacity(dtype: DType, n: usize) -> Raw<'static> {
        let cells = match dtype {
            DType::Str => Cells::Strings(Vec::new().into()),
            d => {
                let size = d.size().unwrap_or(1);
                Cells::Bytes { size, data: Vec::with_capacity(n.saturating_mul(size)).into() }
            }
        };
        Raw { dtype, cells }
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        match &self.cells {
            Cells::Bytes { size, data } => data.len() / size,
            Cells::Strings(s) => s.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends `n` cells of `from` (of the same dtype), starting at `at`.
    pub fn extend(&mut self, from: &Raw<'_>, at: usize, n: usize) -> Result<(), OpError> {
        let total = from.len();
        match (&mut self.cells, &from.cells) {
            (Cells::Bytes { size, data }, Cells::Bytes { size: other, data: src }) if size == other => {
                let cells = src.get(at * *size..(at + n) * *size).ok_or_else(|| outside(at + n, total))?;
                data.to_mut().extend_from_slice(cells);
            }
            (Cells::Strings(s), Cells::Strings(src)) => {
                s.to_mut().extend_from_slice(src.get(at..at + n).ok_or_else(|| outside(at + n, total))?);
            }
            _ => return Err(OpError::new(format!("cannot copy {} into {}", from.dtype, self.dtype))),
        }
        Ok(())
    }

    /// Appends the cells of `from` (of the same dtype) at positions.
    pub fn extend_at(&mut self, from: &Raw<'_>, positions: impl Iterator<Item = usize>) -> Result<(), OpError> {
        match (&mut self.cells, &from.cells) {
            (Cells::Bytes { size, data }, Cells::Bytes { size: other, data: src }) if size == other => {
                let out = data.to_mut();
                match size {
                    1 => pick::<1>(out, src, positions),
                    2 => pick::<2>(out, src, positions),
                    4 => pick::<4>(out, src, positions),
                    8 => pick::<8>(out, src, positions),
                    _ => pick::<16>(out, src, positions),
                }
            }
            (Cells::Strings(s), Cells::Strings(src)) => {
                let out = s.to_mut();
                for p in positions {
                    out.push(src.get(p).cloned().ok_or_else(|| outside(p, src.len()))?);
                }
                Ok(())
            }
            _ => Err(OpError::new(format!("cannot copy {} into {}", from.dtype, self.dtype))),
        }
    }

    /// Overwrites cell `i` with cell `j` of `from` (of the same dtype).
    pub fn set(&mut self, i: usize, from: &Raw<'_>, j: usize) -> Result<(), OpError> {
        let (n, m) = (self.len(), from.len());
        if i >= n || j >= m {
            return Err(if i >= n { outside(i, n) } else { outside(j, m) });
        }
        match (&mut self.cells, &from.cells) {
            (Cells::Bytes { size, data }, Cells::Bytes { size: other, data: src }) if size == other => {
                data.to_mut()[i * *size..(i + 1) * *size].copy_from_slice(&src[j * *size..(j + 1) * *size]);
            }
            (Cells::Strings(s), Cells::Strings(src)) => s.to_mut()[i] = src[j].clone(),
            _ => return Err(OpError::new(format!("cannot copy {} into {}", from.dtype, self.dtype))),
        }
        Ok(())
    }

    /// The tensor of these cells.
    pub fn finish(self, dims: &[usize]) -> Result<Tensor, OpError> {
        Ok(match self.cells {
            Cells::Strings(s) => Tensor::from_strings(dims, s.into_owned())?,
            Cells::Bytes { data, .. } if self.dtype.size().is_none() => {
                let mut packed = Vec::new();
                pack_sub_byte(self.dtype, data.iter().copied(), &mut packed);
                Tensor::from_bytes(self.dtype, dims, &packed)?
            }
            Cells::Bytes { data, .. } => Tensor::from_bytes(self.dtype, dims, &data)?,
        })
    }
}

/// Appends cells of `N` bytes at positions.
fn pick<const N: usize>(out: &mut Vec<u8>, from: &[u8], positions: impl Iterator<Item = usize>) -> Result<(), OpError> {
    let (cells, _) = from.as_chunks::<N>();
    for p in positions {
        out.extend_from_slice(cells.get(p).ok_or_else(|| outside(p, cells.len()))?);
    }
    Ok(())
}
