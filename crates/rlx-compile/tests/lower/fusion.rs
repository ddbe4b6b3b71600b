//! What becomes one kernel, what does not, and why.

use rlx_compile::lir::{Kernel, Lir, Storage};
use rlx_compile::{CompileOptions, Fusion, RemarkKind};
use rlx_ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx_ir::ops::reduction::{ReduceKind, ReduceWindow, WindowKind};
use rlx_ir::ops::shape::PadMode;
use rlx_ir::{Builder, DType, Dim, DimBinding, Module, ValueId};

use crate::harness::{lowered, verify};

const F: DType = DType::F32;

fn s(name: &str) -> Dim {
    Dim::symbol(name)
}

fn module(b: Builder) -> Module {
    Module::from_graph(b.finish())
}

/// Bindings of `n` and `m` (those that a graph does not have do no harm).
fn sizes() -> Vec<DimBinding> {
    let pair = |n: i64, m: i64| [("n", n), ("m", m)].into_iter().collect();
    vec![pair(2, 3), pair(1, 1), pair(3, 1), pair(1, 4), pair(0, 2), pair(5, 5), pair(4, 4), pair(2, 0)]
}

fn kinds(lir: &Lir) -> Vec<&'static str> {
    lir.kernels.iter().map(|k| k.kernel.kind()).collect()
}

fn built(build: impl FnOnce(&mut Builder) -> Vec<ValueId>) -> (Module, Lir) {
    let mut b = Builder::new("main");
    let outputs = build(&mut b);
    for (i, v) in outputs.into_iter().enumerate() {
        b.output(&format!("y{i}"), v).unwrap();
    }
    let m = module(b);
    let lir = verify(&m, &sizes());
    (m, lir)
}

#[test]
fn a_chain_of_elementwise_ops_is_one_map() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 7.into()]).unwrap();
        let y = b.input("y", F, [7]).unwrap();
        let a = b.add(x, y).unwrap();
        let c = b.tanh(a).unwrap();
        let two = b.scalar(F, 2.0).unwrap();
        let d = b.mul(c, two).unwrap();
        vec![b.sub(d, x).unwrap()]
    });
    assert_eq!(kinds(&lir), ["map"]);
}

#[test]
fn fusion_off_gives_one_kernel_a_node() {
    let mut b = Builder::new("main");
    let x = b.input("x", F, [s("n"), 7.into()]).unwrap();
    let y = b.tanh(x).unwrap();
    let y = b.relu(y).unwrap();
    let y = b.softmax(y, 1).unwrap();
    b.output("y", y).unwrap();
    let (lir, _) = lowered(&module(b), &CompileOptions::default().fusion(Fusion::Off));
    assert_eq!(kinds(&lir), ["map", "map", "row"]);
}

#[test]
fn bias_and_activation_run_in_the_contraction() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 5.into(), 6.into()]).unwrap();
        let w = b.param("w", F, [6, 4]).unwrap();
        let bias = b.param("b", F, [4]).unwrap();
        let r = b.input("r", F, [s("n"), 5.into(), 4.into()]).unwrap();
        let y = b.matmul(x, w).unwrap();
        let y = b.add(y, bias).unwrap();
        let y = b.gelu(y).unwrap();
        vec![b.add(y, r).unwrap()]
    });
    assert_eq!(kinds(&lir), ["contract"]);
}

#[test]
fn residual_and_layer_norm_are_one_row_kernel() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), s("m"), 8.into()]).unwrap();
        let r = b.input("r", F, [s("n"), s("m"), 8.into()]).unwrap();
        let g = b.param("g", F, [8]).unwrap();
        let c = b.param("c", F, [8]).unwrap();
        let h = b.add(x, r).unwrap();
        let y = b.layer_norm(h, Some(g), Some(c), &[2], 1e-5).unwrap();
        let y = b.relu(y).unwrap();
        vec![y, h]
    });
    assert_eq!(kinds(&lir), ["row"]);
}

#[test]
fn a_decomposed_softmax_is_one_row_kernel() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), s("m")]).unwrap();
        let max = b.reduce(x, ReduceKind::Max, &[1], true).unwrap();
        let d = b.sub(x, max).unwrap();
        let e = b.exp(d).unwrap();
        let sum = b.reduce(e, ReduceKind::Sum, &[1], true).unwrap();
        vec![b.div(e, sum).unwrap()]
    });
    assert_eq!(kinds(&lir), ["row"]);
}

#[test]
fn log_sum_exp_with_dropped_axes_is_one_row_kernel() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 6.into()]).unwrap();
        let max = b.reduce(x, ReduceKind::Max, &[1], false).unwrap();
        let column = b.reshape(max, [s("n"), 1.into()]).unwrap();
        let d = b.sub(x, column).unwrap();
        let e = b.exp(d).unwrap();
        let sum = b.reduce(e, ReduceKind::Sum, &[1], false).unwrap();
        let l = b.log(sum).unwrap();
        vec![b.add(l, max).unwrap()]
    });
    assert_eq!(kinds(&lir), ["row"]);
}

#[test]
fn softmax_over_a_middle_axis() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 5.into(), s("m")]).unwrap();
        let y = b.neg(x).unwrap();
        let y = b.softmax(y, 1).unwrap();
        vec![b.exp(y).unwrap()]
    });
    assert_eq!(kinds(&lir), ["row"]);
}

#[test]
fn a_contraction_writes_through_reshape_and_transpose() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), s("m"), 6.into()]).unwrap();
        let w = b.param("w", F, [6, 8]).unwrap();
        let h = b.matmul(x, w).unwrap();
        let h = b.reshape(h, [s("n"), s("m"), 2.into(), 4.into()]).unwrap();
        let q = b.transpose(h, &[0, 2, 1, 3]).unwrap();
        let quarter = b.scalar(F, 0.25).unwrap();
        let q = b.mul(q, quarter).unwrap();
        let k = b.transpose(q, &[0, 1, 3, 2]).unwrap();
        let scores = b.matmul(q, k).unwrap();
        let p = b.softmax(scores, 3).unwrap();
        let o = b.matmul(p, q).unwrap();
        let o = b.transpose(o, &[0, 2, 1, 3]).unwrap();
        vec![b.reshape(o, [s("n"), s("m"), 8.into()]).unwrap()]
    });
    assert_eq!(kinds(&lir), ["contract", "contract", "row", "contract"]);
}

#[test]
fn a_projection_is_written_as_transposed_heads() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), s("m"), 6.into()]).unwrap();
        let past = b.input("past", F, [s("n"), 2.into(), 3.into(), 4.into()]).unwrap();
        let w = b.param("w", F, [6, 8]).unwrap();
        let v = b.param("v", F, [6, 8]).unwrap();
        let bias = b.param("b", F, [8]).unwrap();
        let heads = |b: &mut Builder, h| {
            let h = b.add(h, bias).unwrap();
            let h = b.reshape(h, [s("n"), s("m"), 2.into(), 4.into()]).unwrap();
            b.transpose(h, &[0, 2, 1, 3]).unwrap()
        };
        let h = b.matmul(x, w).unwrap();
        let k = heads(b, h);
        let h = b.matmul(x, v).unwrap();
        let new = heads(b, h);
        vec![k, b.concat(&[past, new], 2).unwrap()]
    });
    // The copy is that of what came before.
    assert_eq!(kinds(&lir), ["contract", "contract", "map"]);
}

#[test]
fn sizes_not_known_to_be_equal_broadcast_at_bind() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 3.into()]).unwrap();
        let y = b.input("y", F, [s("m"), 3.into()]).unwrap();
        vec![b.add(x, y).unwrap()]
    });
    assert_eq!(kinds(&lir), ["map"]);
}

#[test]
fn a_shared_producer_is_not_fused_into_both_users() {
    let mut b = Builder::new("main");
    let x = b.input("x", F, [s("n"), 4.into()]).unwrap();
    let w = b.param("w", F, [4, 4]).unwrap();
    let h = b.tanh(x).unwrap();
    let y = b.matmul(h, w).unwrap();
    let z = b.relu(h).unwrap();
    b.output("y", y).unwrap();
    b.output("z", z).unwrap();
    let m = module(b);
    verify(&m, &sizes());
    let (lir, remarks) = lowered(&m, &CompileOptions::default());
    assert_eq!(kinds(&lir), ["map", "contract", "map"]);
    assert!(remarks.iter().any(|r| r.kind == RemarkKind::Missed && r.message.contains("two users")));
}

#[test]
fn producers_write_into_their_part_of_a_concatenation() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 3.into()]).unwrap();
        let w = b.param("w", F, [3, 2]).unwrap();
        let a = b.relu(x).unwrap();
        let c = b.matmul(x, w).unwrap();
        let y = b.concat(&[a, c, x], 1).unwrap();
        vec![b.neg(y).unwrap()]
    });
    assert_eq!(kinds(&lir), ["map", "contract", "map", "map"]);
}

#[test]
fn a_concatenation_of_one_value_twice() {
    built(|b| {
        let x = b.input("x", F, [s("n"), 3.into()]).unwrap();
        let a = b.relu(x).unwrap();
        vec![b.concat(&[a, a], 0).unwrap(), a]
    });
}

#[test]
fn nested_concatenations_and_padding_write_in_place() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 3.into()]).unwrap();
        let a = b.relu(x).unwrap();
        let c = b.tanh(x).unwrap();
        let inner = b.concat(&[a, c], 1).unwrap();
        let d = b.exp(x).unwrap();
        let y = b.concat(&[d, inner], 1).unwrap();
        let zero = b.scalar(F, 0.5).unwrap();
        let pads = || vec![Dim::from(1), Dim::from(2)];
        vec![b.pad(y, Some(zero), pads(), vec![0.into(), 1.into()], PadMode::Constant).unwrap()]
    });
    // Three producers, three borders.
    assert_eq!(kinds(&lir), ["map"; 6]);
}

#[test]
fn padding_may_crop() {
    built(|b| {
        let x = b.input("x", F, [s("n"), 5.into()]).unwrap();
        let v = b.scalar(F, 9.0).unwrap();
        let low = vec![2.into(), Dim::from(-2)];
        vec![b.pad(x, Some(v), low, vec![0.into(), 1.into()], PadMode::Constant).unwrap()]
    });
}

#[test]
fn outputs_may_be_inputs_constants_views_and_each_other() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 3.into()]).unwrap();
        let c = b.constant(rlx_ir::Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap()).unwrap();
        let one = b.scalar(F, 1.5).unwrap();
        let wide = b.broadcast_to(one, [s("n"), 2.into()]).unwrap();
        let y = b.relu(x).unwrap();
        let t = b.transpose(y, &[1, 0]).unwrap();
        let size = b.from_dim(s("n")).unwrap();
        let pair = b.from_dims(vec![s("n"), s("n") + 1]).unwrap();
        let i = b.iota(DType::I32, [s("n"), 4.into()], 0).unwrap();
        let view = b.transpose(x, &[1, 0]).unwrap();
        vec![x, x, c, one, wide, y, y, t, size, pair, i, view]
    });
    assert_eq!(lir.outputs[0].buffer, lir.outputs[1].buffer);
    assert!(matches!(lir.buffer(lir.outputs[0].buffer).storage, Storage::Input(0)));
    assert!(matches!(lir.buffer(lir.outputs[2].buffer).storage, Storage::Const(_)));
    assert_eq!(lir.outputs[5].buffer, lir.outputs[6].buffer);
}

#[test]
fn shape_arithmetic_and_iota_need_no_memory_in_maps() {
    let (_, lir) = built(|b| {
        let x = b.input("x", DType::I64, [s("n"), 4.into()]).unwrap();
        let n = b.from_dim(s("n")).unwrap();
        let y = b.add(x, n).unwrap();
        let i = b.iota(DType::I64, [s("n"), 4.into()], 0).unwrap();
        let r = b.reverse(i, &[0]).unwrap();
        vec![b.mul(y, r).unwrap()]
    });
    assert_eq!(kinds(&lir), ["map"]);
}

#[test]
fn reductions_of_what_does_not_vary_along_the_row() {
    built(|b| {
        let x = b.input("x", F, [s("n"), 1.into()]).unwrap();
        let wide = b.broadcast_to(x, [s("n"), 5.into()]).unwrap();
        let sum = b.reduce(wide, ReduceKind::Sum, &[1], false).unwrap();
        let c = b.scalar(F, 2.0).unwrap();
        let c = b.broadcast_to(c, [s("n"), 3.into()]).unwrap();
        let product = b.reduce(c, ReduceKind::Prod, &[1], true).unwrap();
        let i = b.iota(F, [s("n"), 3.into()], 0).unwrap();
        let most = b.reduce(i, ReduceKind::Max, &[0, 1], false).unwrap();
        let e = b.exp(x).unwrap();
        let e = b.add(e, x).unwrap();
        let last = b.reduce(e, ReduceKind::Sum, &[1], true).unwrap();
        vec![sum, product, most, last]
    });
}

#[test]
fn rows_of_half_floats_and_integers() {
    built(|b| {
        let x = b.input("x", DType::F16, [s("n"), 6.into()]).unwrap();
        let y = b.input("y", DType::I32, [s("n"), 6.into()]).unwrap();
        let z = b.input("z", DType::Bool, [s("n"), 6.into()]).unwrap();
        let g = b.param("g", DType::F16, [6]).unwrap();
        let norm = b.layer_norm(x, Some(g), None, &[1], 1e-3).unwrap();
        let rms = b.rms_norm(x, Some(g), &[1], 1e-3).unwrap();
        let l = b.log_softmax(x, 0).unwrap();
        let sum = b.reduce(y, ReduceKind::Sum, &[0], false).unwrap();
        let least = b.reduce(y, ReduceKind::Min, &[1], false).unwrap();
        let all = b.reduce(z, ReduceKind::All, &[1], false).unwrap();
        vec![norm, rms, l, sum, least, all]
    });
}

#[test]
fn convolution_takes_bias_residual_and_activation() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 6.into(), 5.into(), 5.into()]).unwrap();
        let w = b.param("w", F, [8, 6, 3, 3]).unwrap();
        let w2 = b.param("w2", F, [8, 4, 1, 3]).unwrap();
        let bias = b.param("b", F, [8]).unwrap();
        let one = [Dim::ONE, Dim::ONE];
        let zero = [Dim::ZERO, Dim::ONE];
        let y = b.conv(x, w, Some(bias), &[1, 1], &[1, 1], &one, &one, 1).unwrap();
        let y = b.relu(y).unwrap();
        let z = b.conv(y, w2, None, &[1, 1], &[1, 1], &zero, &zero, 2).unwrap();
        let z = b.add(z, y).unwrap();
        let z = b.relu(z).unwrap();
        let mut pool = ReduceWindow::new(WindowKind::Max, &[2, 2]);
        pool.strides = vec![2, 2];
        let p = b.reduce_window(z, pool).unwrap();
        let flat = b.reshape(p, [s("n"), 32.into()]).unwrap();
        vec![flat]
    });
    assert_eq!(kinds(&lir)[..3], ["conv", "conv", "window"]);
    // What lies between convolutions is channels-last.
    let Kernel::Conv(c) = &lir.kernels[0].kernel else { panic!("a convolution comes first") };
    assert_eq!(lir.buffer(c.epilogue.writes[0].buffer).order, [0, 2, 3, 1]);
}

#[test]
fn transposed_convolution() {
    built(|b| {
        let x = b.input("x", F, [s("n"), 4.into(), 3.into()]).unwrap();
        let w = b.param("w", F, [4, 3, 3]).unwrap();
        let y = b.conv_transpose(x, w, None, &[2], &[1], &[Dim::ONE], &[Dim::ZERO], &[0], 2).unwrap();
        vec![b.tanh(y).unwrap()]
    });
}

#[test]
fn attention_reads_and_writes_through_transposes() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), s("m"), 12.into()]).unwrap();
        let mask = b.input("mask", DType::Bool, [s("n"), 1.into(), 1.into(), s("m")]).unwrap();
        let head = |b: &mut Builder, i: i64| {
            let start = Dim::from(4 * i);
            let v = b
                .slice(x, vec![0.into(), 0.into(), start.clone()], vec![s("n"), s("m"), start + 4], vec![1, 1, 1])
                .unwrap();
            let v = b.reshape(v, [s("n"), s("m"), 2.into(), 2.into()]).unwrap();
            b.transpose(v, &[0, 2, 1, 3]).unwrap()
        };
        let (q, k, v) = (head(b, 0), head(b, 1), head(b, 2));
        let op = Attention { causal: true, mask: MaskKind::Bool, ..Attention::new(AttnLayout::Bhsd, 0.7) };
        let o = b.attention(op, q, k, v, Some(mask)).unwrap();
        let o = b.transpose(o, &[0, 2, 1, 3]).unwrap();
        vec![b.reshape(o, [s("n"), s("m"), 4.into()]).unwrap()]
    });
    assert_eq!(kinds(&lir), ["attention"]);
}

#[test]
fn maps_write_in_place_of_dead_operands() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 4.into()]).unwrap();
        let w = b.param("w", F, [4, 4]).unwrap();
        let r = b.reverse(x, &[0]).unwrap();
        let two = b.broadcast_to(r, [2.into(), s("n"), 4.into()]).unwrap();
        // A library op's result is read by nothing else.
        let (values, _) = b.sort(two, 2, false).unwrap();
        let y = b.tanh(values).unwrap();
        vec![b.matmul(y, w).unwrap()]
    });
    assert_eq!(kinds(&lir), ["sort", "map", "contract"]);
    let Kernel::Map(map) = &lir.kernels[1].kernel else { panic!("a map comes second") };
    assert_eq!(map.reads, map.writes);
}

#[test]
fn two_groups_of_one_space_merge() {
    let (_, lir) = built(|b| {
        let x = b.input("x", F, [s("n"), 4.into()]).unwrap();
        let w = b.param("w", F, [4, 4]).unwrap();
        let gate = b.sigmoid(x).unwrap();
        let h = b.matmul(x, w).unwrap();
        let h = b.relu(h).unwrap();
        vec![b.mul(h, gate).unwrap()]
    });
    assert_eq!(kinds(&lir), ["contract"]);
}

#[test]
fn names_turn_single_fusions_off() {
    let mut b = Builder::new("main");
    let x = b.input("x", F, [s("n"), 4.into()]).unwrap();
    let w = b.param("w", F, [4, 4]).unwrap();
    let y = b.matmul(x, w).unwrap();
    let y = b.relu(y).unwrap();
    let y = b.tanh(y).unwrap();
    b.output("y", y).unwrap();
    let m = module(b);
    let without = |name: &str| {
        let (lir, _) = lowered(&m, &CompileOptions::default().fusion(Fusion::Without(vec![name.into()])));
        kinds(&lir)
    };
    assert_eq!(without("epilogue"), ["contract", "map"]);
    assert_eq!(without("elementwise"), ["contract"]);
}
