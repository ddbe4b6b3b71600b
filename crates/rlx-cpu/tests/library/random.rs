//! Random bits, what is made of them, and elements read as another dtype.

use crate::harness::*;
use rlx_ir::{DType, Tensor};

fn key() -> Tensor {
    Tensor::from_slice(&[2], &[0x299f_31d0_a409_3822u64, 0x0370_7344_1319_8a2e]).unwrap()
}

#[test]
fn bits_of_any_number_of_words_are_the_same_on_all_threads() {
    for dims in [&[0i64][..], &[1], &[3], &[4, 5], &[2, 3, 7], &[50_000]] {
        for dtype in [DType::U32, DType::U64] {
            check(&[key()], 0.0, &|b, v| {
                let x = b.random_bits(v[0], dtype, dims.iter().copied(), 77)?;
                let turned: Vec<usize> = (0..dims.len()).rev().collect();
                let y = b.random_bits(v[0], dtype, dims.iter().copied(), u32::MAX)?;
                let y = b.transpose(y, &turned)?;
                Ok(vec![x, y])
            });
        }
    }
}

#[test]
fn distributions_of_every_float() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        check(&[key()], 1e-5, &|b, v| {
            let u = b.random_uniform(v[0], dtype, [1003], (-1.0, 1.0), 1)?;
            let z = b.random_normal(v[0], dtype, [1003], (0.0, 2.0), 2)?;
            let (z, eighth) = (b.convert(z, DType::F32)?, b.scalar(DType::F32, 0.125)?);
            let z = b.mul(z, eighth)?;
            let p = b.scalar(dtype, 0.25)?;
            let p = b.broadcast_to(p, [77])?;
            let coin = b.random_bernoulli(v[0], p, 3)?;
            let logits = b.random_uniform(v[0], dtype, [2, 5], (-1.0, 1.0), 4)?;
            let m = b.random_multinomial(v[0], logits, 100, 5)?;
            Ok(vec![u, z, coin, m])
        });
    }
}

#[test]
fn bits_read_as_every_dtype_of_their_width() {
    for from in dtypes() {
        for to in dtypes().filter(|t| t.bits() == from.bits()) {
            let x = data(from, &[3, 5], 9);
            check_symbolic(&[x], 0.0, &|b, v| {
                let t = b.transpose(v[0], &[1, 0])?;
                Ok(vec![b.bitcast_convert(v[0], to)?, b.bitcast_convert(t, to)?])
            });
        }
    }
}
