//! A model of the tile instructions, for tests on machines that have none: what [`super::tiles`] asks the processor for, by
//! the text of its manual.
//!
//! A product of bf16 pairs keeps one chain of fused multiply-adds for the even and one for the odd numbers of a row,
//! rounded to nearest even, adds them, and adds that to the sum. Subnormal operands count as zeros, subnormal results
//! become zeros.

use super::tiles::{BLOCK, Dot, Job, ROW_BYTES, SIDE};

/// A tile register.
type Tile = [[u8; ROW_BYTES]; SIDE];

/// # Safety
/// `row` bytes apart, sixteen rows of 64 bytes are readable.
unsafe fn load(at: *const u8, row: usize) -> Tile {
    // SAFETY: the caller's promise.
    std::array::from_fn(|r| unsafe { at.add(r * row).cast::<[u8; ROW_BYTES]>().read() })
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

/// The bf16 of a tile, row by row.
fn decode(tile: &Tile) -> [[f32; 2 * SIDE]; SIDE] {
    tile.map(|row| {
        std::array::from_fn(|i| {
            flush(f32::from_bits(u32::from(u16::from_le_bytes([row[2 * i], row[2 * i + 1]])) << 16))
        })
    })
}

fn i32_at(bytes: &[u8], i: usize) -> i32 {
    i32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
}

/// One row of sums of bf16.
#[inline(always)]
fn bf16_row(c: &mut [f32; SIDE], a: &[f32; 2 * SIDE], b: &[[f32; 2 * SIDE]; SIDE]) {
    let mut chains = [0.0f32; 2 * SIDE];
    for (k, b) in b.iter().enumerate() {
        for (n, sum) in chains.iter_mut().enumerate() {
            *sum = flush(a[2 * k + n % 2].mul_add(b[n], *sum));
        }
    }
    for (n, c) in c.iter_mut().enumerate() {
        *c = flush(flush(*c) + flush(chains[2 * n] + chains[2 * n + 1]));
    }
}

/// The same where the processor fuses multiply-adds: a call of the library for each takes tens of times as long.
#[target_feature(enable = "avx2,fma")]
fn bf16_row_fast(c: &mut [f32; SIDE], a: &[f32; 2 * SIDE], b: &[[f32; 2 * SIDE]; SIDE]) {
    bf16_row(c, a, b);
}

/// One instruction.
fn dot(kind: Dot, c: &mut Tile, a: &Tile, b: &Tile) {
    if kind == Dot::Bf16 {
        let (a, b) = (decode(a), decode(b));
        let fast = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        for (bytes, a) in c.iter_mut().zip(&a) {
            let mut row: [f32; SIDE] = std::array::from_fn(|n| f32::from_bits(i32_at(bytes, n) as u32));
            if fast {
                // SAFETY: the processor has the features.
                unsafe { bf16_row_fast(&mut row, a, &b) };
            } else {
                bf16_row(&mut row, a, &b);
            }
            for (to, x) in bytes.chunks_exact_mut(4).zip(row) {
                to.copy_from_slice(&x.to_le_bytes());
            }
        }
        return;
    }
    for (row, a) in c.iter_mut().zip(a) {
        for n in 0..SIDE {
            let mut sum = i32_at(row, n);
            for (k, b) in b.iter().enumerate() {
                for i in 0..4 {
                    let x = a[4 * k + i];
                    let x = if kind == Dot::I8I8 { i32::from(x as i8) } else { i32::from(x) };
                    sum = sum.wrapping_add(x * i32::from(b[4 * n + i] as i8));
                }
            }
            row[4 * n..4 * n + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// What [`super::tiles::Entered::multiply`] does.
///
/// # Safety
/// As there.
pub unsafe fn multiply(kind: Dot, two: bool, job: &Job<'_>) {
    let rows = if two { 2 } else { 1 };
    let mut c = [[[[0u8; ROW_BYTES]; SIDE]; 2]; 2];
    // SAFETY: the caller's promise.
    unsafe {
        for pass in job.passes() {
            for step in 0..job.steps {
                for (r, c) in c.iter_mut().enumerate().take(rows) {
                    let a = load(pass.a.add(step * job.a_step + r * job.a_below), job.a_row);
                    for (j, c) in c.iter_mut().enumerate() {
                        let b = load(pass.b.add(step * job.b_step + j * job.b_beside), job.b_row);
                        dot(kind, c, &a, &b);
                    }
                }
            }
        }
        for (r, row) in
            c.iter().flat_map(|c| (0..SIDE).map(move |i| [&c[0][i], &c[1][i]])).enumerate().take(rows * SIDE)
        {
            for (j, half) in row.into_iter().enumerate() {
                job.c.add(r * 4 * BLOCK + j * ROW_BYTES).cast::<[u8; ROW_BYTES]>().write(*half);
            }
        }
    }
}
