//! Products with weights, in f32 or f64.

use super::super::memory;
use super::super::number::Number;
use super::dense::Owned;
use crate::buffers::{KernelError, RunCx};
use crate::gemm::{BOperand, Epilogue, GemmArgs, Strided, gemm_task, gemm_tasks, pack_b, packed_b_len, typed};
use crate::library::memory::Failure;
use crate::simd::{UnaryF32, unary_f32_in_place};
use rlx_ir::ops::neural::{CellActivation, CellFunction};

/// Weights: `rows` rows of `k`.
pub struct Weights<'a, T> {
    data: &'a [T],
    rows: usize,
    k: usize,
    packed: Option<Owned<T>>,
}

/// Rows of memory with a distance between them.
#[derive(Clone, Copy)]
pub struct Rows<P> {
    /// The first.
    pub data: P,
    /// Elements from one to the next.
    pub step: usize,
}

/// What a layer computes in.
pub trait Real: Number + bytemuck::Pod {
    /// Weights; with `often`, in the form that products read fastest.
    fn weights<'a>(run: &RunCx<'_>, data: &'a [Self], k: usize, often: bool) -> Result<Weights<'a, Self>, KernelError>;

    /// `c[m, rows] = a[m, k] · wᵀ` plus the bias of each column, or plus what c held.
    /// # Safety
    /// `a` has `m` rows of k, `c` `m` rows of the weights' rows; they do not overlap, and `bias` has one element per
    /// column.
    unsafe fn product(
        run: &RunCx<'_>,
        m: usize,
        a: Rows<*const Self>,
        w: &Weights<'_, Self>,
        c: Rows<*mut Self>,
        bias: Option<&[Self]>,
    ) -> Result<(), KernelError>;

    /// Applies a function to each element.
    fn activate(run: &RunCx<'_>, f: &CellActivation, x: &mut [Self]);
}

impl Real for f32 {
    fn weights<'a>(run: &RunCx<'_>, data: &'a [f32], k: usize, often: bool) -> Result<Weights<'a, f32>, KernelError> {
        let rows = data.len() / k.max(1);
        let mut packed = None;
        if often && k > 0 {
            let n = packed_b_len(run.isa, k, rows).ok_or("its weights are too large")?;
            let mut m = Owned::zeroed(n)?;
            let from = Strided { data: data.as_ptr(), row: 1, col: k as isize };
            // SAFETY: there are `rows` rows of k; the memory has the packed length.
            unsafe { pack_b(run.isa, from, k, rows, m.as_mut_ptr()) };
            packed = Some(m);
        }
        Ok(Weights { data, rows, k, packed })
    }

    unsafe fn product(
        run: &RunCx<'_>,
        m: usize,
        a: Rows<*const f32>,
        w: &Weights<'_, f32>,
        c: Rows<*mut f32>,
        bias: Option<&[f32]>,
    ) -> Result<(), KernelError> {
        let b = match &w.packed {
            Some(p) => BOperand::Packed(p.as_ptr()),
            None => BOperand::Strided(Strided { data: w.data.as_ptr(), row: 1, col: w.k as isize }),
        };
        let bias = bias.map(|b| Strided { data: b.as_ptr(), row: 0, col: 1 });
        let args = GemmArgs {
            m,
            n: w.rows,
            k: w.k,
            a: Strided { data: a.data, row: a.step as isize, col: 1 }.into(),
            b,
            c: c.data,
            c_row: c.step as isize,
            c_col: 1,
            accumulate: bias.is_none(),
            epilogue: Epilogue { bias, ..Epilogue::default() },
        };
        let grid = gemm_tasks(run.isa, m, w.rows, w.k, run.region.threads());
        let (len, failure) = (args.scratch_len(run.isa), Failure::default());
        run.region.parallel_for(grid.len(), &|task| {
            failure.note(memory::with::<f32, _>(len, |scratch| {
                // SAFETY: the caller's promise; the grid was made for this product.
                unsafe { gemm_task(run.isa, &args, &grid, task, scratch) };
            }));
        });
        failure.result()
    }

    fn activate(run: &RunCx<'_>, f: &CellActivation, x: &mut [f32]) {
        let function = match f.function {
            CellFunction::Sigmoid => UnaryF32::Sigmoid,
            CellFunction::Tanh => UnaryF32::Tanh,
            CellFunction::Relu => UnaryF32::Relu,
            CellFunction::Softplus => UnaryF32::Softplus,
            CellFunction::Softsign => UnaryF32::Softsign,
            _ => {
                x.iter_mut().for_each(|x| *x = f.apply(f64::from(*x)) as f32);
                return;
            }
        };
        unary_f32_in_place(function, run.isa, x);
    }
}

/// Rows of a product in a task.
const ROWS: usize = 8;

impl Real for f64 {
    fn weights<'a>(_: &RunCx<'_>, data: &'a [f64], k: usize, _: bool) -> Result<Weights<'a, f64>, KernelError> {
        Ok(Weights { data, rows: data.len() / k.max(1), k, packed: None })
    }

    unsafe fn product(
        run: &RunCx<'_>,
        m: usize,
        a: Rows<*const f64>,
        w: &Weights<'_, f64>,
        c: Rows<*mut f64>,
        bias: Option<&[f64]>,
    ) -> Result<(), KernelError> {
        let (from, to) = (crate::buffers::Ptr(a.data.cast_mut().cast()), crate::buffers::Ptr(c.data.cast()));
        let weights = crate::buffers::Ptr(w.data.as_ptr().cast_mut().cast());
        run.region.parallel_ranges(m, ROWS, &|rows| {
            let left = typed::Matrix { data: from.get().cast::<f64>().cast_const(), row: a.step as isize, col: 1 };
            let right = typed::Matrix { data: weights.get().cast::<f64>().cast_const(), row: 1, col: w.k as isize };
            let result = typed::Matrix { data: to.get().cast::<f64>(), row: c.step as isize, col: 1 };
            // SAFETY: the caller's promise; tasks have rows of their own.
            unsafe {
                typed::gemm_rows(rows.clone(), w.rows, w.k, left, right, result, bias.is_none());
                for r in rows {
                    let row = std::slice::from_raw_parts_mut(result.data.add(r * c.step), w.rows);
                    row.iter_mut().zip(bias.unwrap_or(&[])).for_each(|(c, b)| *c += b);
                }
            }
        });
        Ok(())
    }

    fn activate(_: &RunCx<'_>, f: &CellActivation, x: &mut [f64]) {
        x.iter_mut().for_each(|x| *x = f.apply(*x));
    }
}
