//! Weights in blocks of few bits: products with them, rows of them.

use rlx_ir::ops::elementwise::Binary;
use rlx_ir::{DType, Dim, Tensor, ValueId};

use super::super::context::{Failure, NodeCx, Out};
use super::super::{OpEntry, ms, quantisation};

pub(super) const OPS: &[OpEntry] =
    &[ms("MatMulNBits", matmul_bits), ms("MatMulBnb4", matmul_table), ms("GatherBlockQuantized", gather_blocks)];

/// Numbers of a few bits packed into bytes, low ones first, along the last axis: `8 / bits` times as many.
fn unpacked(cx: &mut NodeCx<'_, '_>, x: ValueId, bits: i64) -> Result<ValueId, Failure> {
    if bits == 8 {
        return Ok(x);
    }
    let mut dims = cx.shape(x)?.into_dims();
    let mask = cx.scalar_like(x, ((1 << bits) - 1) as f64)?;
    let mut parts = Vec::new();
    for shift in (0..8).step_by(bits as usize) {
        let shift = cx.scalar_like(x, f64::from(shift))?;
        let v = cx.b().op1(Binary::ShiftRight, &[x, shift])?;
        parts.push(cx.b().op1(Binary::And, &[v, mask])?);
    }
    let wide = cx.b().stack(&parts, -1)?;
    if let Some(last) = dims.last_mut() {
        *last = &*last * (8 / bits);
    }
    let wide = cx.b().reshape(wide, dims)?;
    // As numbers of that many bits they are no larger than before, and stay so.
    Ok(if bits == 4 { cx.b().convert(wide, DType::U4)? } else { wide })
}

/// A product with a matrix of rows `[n, k]` in blocks along `k`, each with its scale and zero point.
fn matmul_bits(cx: &mut NodeCx<'_, '_>) -> Out {
    let (a, w, scales) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (k, n, block) = (cx.need_int_attr("K")?, cx.need_int_attr("N")?, cx.need_int_attr("block_size")?);
    let bits = cx.int("bits", 4)?;
    cx.ignore(&["accuracy_level"]);
    if cx.int("weight_prepacked", 0)? != 0 {
        return Err(Failure::unsupported("prepacked weights in MatMulNBits"));
    }
    if !matches!(bits, 2 | 4 | 8) {
        return Err(Failure::unsupported(format!("{bits} bits in MatMulNBits")));
    }
    let sizes = 1..=1 << 40;
    if !sizes.contains(&k) || !sizes.contains(&n) || !(1..=1 << 20).contains(&block) {
        return Err(Failure::refused(format!("K {k}, N {n} and block size {block} must be at least 1 and not absurd")));
    }
    let blocks = Dim::from((k - 1) / block + 1);
    let dtype = cx.dtype(a)?;
    let scales = cx.b().reshape(scales, [Dim::from(n), blocks.clone()])?;
    let w = unpacked(cx, w, bits)?;
    let zero = match cx.opt(3)? {
        None => None,
        Some(z) if cx.dtype(z)? == DType::U8 => {
            let per_row = Dim::from(((k - 1) / block + 1 + 8 / bits - 1) / (8 / bits));
            let z = cx.b().reshape(z, [Dim::from(n), per_row])?;
            let z = unpacked(cx, z, bits)?;
            let z = cx.range_of(z, 1, Dim::ZERO, blocks.clone(), 1)?;
            Some(cx.b().convert(z, dtype)?)
        }
        Some(z) => {
            let z = cx.b().convert(z, dtype)?;
            Some(cx.b().reshape(z, [Dim::from(n), blocks.clone()])?)
        }
    };
    let whole = Dim::from(((k - 1) / block + 1) * block);
    // Each row of the matrix belongs to a block: its own, or the one that an operand says.
    let (w, each) = match cx.opt(4)? {
        None => {
            let w = cx.b().reshape(w, [Dim::from(n), blocks, Dim::from(block)])?;
            (w, None)
        }
        Some(groups) => {
            let w = cx.b().reshape(w, [Dim::from(n), whole.clone()])?;
            (cx.range_of(w, 1, Dim::ZERO, Dim::from(k), 1)?, Some(cx.range_of(groups, 0, Dim::ZERO, Dim::from(k), 1)?))
        }
    };
    let w = cx.b().convert(w, dtype)?;
    let along = |cx: &mut NodeCx<'_, '_>, v: ValueId| -> Result<ValueId, Failure> {
        Ok(match each {
            Some(groups) => cx.b().gather(v, groups, 1)?,
            None => cx.b().expand_dims(v, &[2])?,
        })
    };
    let scales = along(cx, scales)?;
    let zero = match zero {
        Some(z) => along(cx, z)?,
        None => cx.b().scalar(dtype, f64::from(1 << (bits - 1)))?,
    };
    let w = cx.b().sub(w, zero)?;
    let w = cx.b().mul(w, scales)?;
    let w = if each.is_some() {
        w
    } else {
        let w = cx.b().reshape(w, [Dim::from(n), whole])?;
        // The last block may go beyond the rows.
        cx.range_of(w, 1, Dim::ZERO, Dim::from(k), 1)?
    };
    let w = cx.b().transpose(w, &[1, 0])?;
    let mut y = cx.b().matmul(a, w)?;
    if let Some(bias) = cx.opt(5)? {
        y = cx.b().add(y, bias)?;
    }
    Ok(vec![y])
}

/// Values of the 4-bit numbers of bitsandbytes: floats of one sign, two exponent and one mantissa bits with a sub-normal of its own, and
/// quantiles of a normal distribution.
const FP4: [f32; 16] = [
    0.0,
    0.005_208_333,
    0.666_666_7,
    1.0,
    0.333_333_34,
    0.5,
    0.166_666_67,
    0.25,
    -0.0,
    -0.005_208_333,
    -0.666_666_7,
    -1.0,
    -0.333_333_34,
    -0.5,
    -0.166_666_67,
    -0.25,
];
const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// A product with a matrix `[n, k]` of 4-bit places in a table, in blocks that run over the rows, each with its largest magnitude.
fn matmul_table(cx: &mut NodeCx<'_, '_>) -> Out {
    let (a, w, most) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (k, n, block) = (cx.need_int_attr("K")?, cx.need_int_attr("N")?, cx.need_int_attr("block_size")?);
    cx.ignore(&["training_mode"]);
    let turned = cx.flag("transB", true)?;
    let sizes = 1..=1 << 30;
    if !sizes.contains(&k) || !sizes.contains(&n) || !(1..=1 << 20).contains(&block) {
        return Err(Failure::refused(format!("K {k}, N {n} and block size {block} must be at least 1 and not absurd")));
    }
    let table = match cx.need_int_attr("quant_type")? {
        0 => FP4,
        1 => NF4,
        t => return Err(Failure::unsupported(format!("quantisation {t}"))),
    };
    let dtype = cx.dtype(a)?;
    let table = cx.b().constant(Tensor::from_slice(&[16], &table)?)?;
    let bytes = Dim::from((k * n + 1) / 2);
    let w = cx.b().reshape(w, [bytes.clone()])?;
    let (four, low) = (cx.scalar_like(w, 4.0)?, cx.scalar_like(w, 15.0)?);
    let high = cx.b().op1(Binary::ShiftRight, &[w, four])?;
    let low = cx.b().op1(Binary::And, &[w, low])?;
    // The high bits come first.
    let places = cx.b().stack(&[high, low], -1)?;
    let places = cx.b().reshape(places, [bytes * 2])?;
    let places = cx.range_of(places, 0, Dim::ZERO, Dim::from(k * n), 1)?;
    let places = cx.b().convert(places, DType::I32)?;
    let w = cx.b().gather(table, places, 0)?;
    let blocks = (k * n - 1) / block + 1;
    let most = cx.b().convert(most, DType::F32)?;
    let most = cx.b().reshape(most, [Dim::from(blocks), Dim::ONE])?;
    let most = cx.b().broadcast_to(most, [Dim::from(blocks), Dim::from(block)])?;
    let most = cx.b().reshape(most, [Dim::from(blocks * block)])?;
    let most = cx.range_of(most, 0, Dim::ZERO, Dim::from(k * n), 1)?;
    let w = cx.b().mul(w, most)?;
    let w = cx.b().reshape(w, [n, k])?;
    let w = cx.b().convert(w, dtype)?;
    let w = if turned { cx.b().transpose(w, &[1, 0])? } else { w };
    Ok(vec![cx.b().matmul(a, w)?])
}

/// Slices of a tensor in blocks along an axis, made real.
fn gather_blocks(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, at, scales, zeros) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.opt(3)?);
    let (from, along) = (cx.int("gather_axis", 0)?, cx.int("quantize_axis", 1)?);
    let (from, along) = (cx.axis(x, from)?, cx.axis(x, along)?);
    let (block, bits) = (cx.int("block_size", 128)?, cx.int("bits", 4)?);
    let packed = cx.dtype(x)? == DType::U8;
    if from == along {
        return Err(Failure::refused(format!("axis {from} has blocks and cannot be gathered along")));
    }
    if block < 1 {
        return Err(Failure::unsupported(format!("blocks of {block}")));
    }
    if packed && !matches!(bits, 2 | 4 | 8) {
        return Err(Failure::unsupported(format!("{bits} bits in GatherBlockQuantized")));
    }
    let axis = from as i64;
    let mut rows = cx.b().gather(x, at, axis)?;
    let scales = cx.b().gather(scales, at, axis)?;
    let mut zeros = zeros.map(|z| cx.b().gather(z, at, axis)).transpose()?;
    // The axes of the indices stand where one axis was.
    let more = cx.rank(at)?;
    let along = if along > from { along + more - 1 } else { along };
    let last = cx.rank(rows)?.saturating_sub(1);
    let to = cx.dtype(scales)?;
    if packed {
        rows = unpacked(cx, rows, bits)?;
        zeros = match zeros {
            // Of an odd number the last one has no neighbour.
            Some(z) => {
                let z = unpacked(cx, z, bits)?;
                let n = cx.shape(scales)?.get(last).cloned().unwrap_or(Dim::ONE);
                Some(cx.range_of(z, last, Dim::ZERO, n, 1)?)
            }
            None => {
                let dtype = cx.dtype(rows)?;
                Some(cx.b().scalar(dtype, f64::from(1 << (bits - 1)))?)
            }
        };
    }
    Ok(vec![quantisation::made_real(cx, rows, (scales, zeros), (along as i64, block), to)?])
}
