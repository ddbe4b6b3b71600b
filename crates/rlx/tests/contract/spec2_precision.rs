//! Section 2: precision sessions and policies.

use rlx::compile::run_pass;
use rlx::ir::ops::elementwise::Unary;
use rlx::ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx::ir::text::parse_module;
use rlx::ir::{IrError, Loc, ValueId};
use rlx::{
    Builder, CompileOptions, CompiledGraph, CustomPolicy, DType, Device, Dim, DimBinding, Graph, MatmulPrecision,
    Module, OpClass, Otherwise, Precision, PrecisionPolicy, Session, Tensor,
};

use crate::harness::{compile, dense, f32s, numbers, oracle, same, session};

const WIDTH: usize = 128;
const HEADS: usize = 4;

fn linear(b: &mut Builder, x: ValueId, name: &str, from: usize, to: usize) -> Result<ValueId, IrError> {
    b.set_loc(Loc::new(name));
    let seed = name.bytes().fold(7u64, |s, c| s.wrapping_mul(31) + u64::from(c));
    let by = (3.0 / from as f32).sqrt();
    let w: Vec<f32> = numbers(seed, &[from, to]).as_slice::<f32>().unwrap().iter().map(|x| x * by).collect();
    let w = b.param_with(&format!("{name}.weight"), f32s(&[from, to], &w))?;
    let bias = b.param_with(&format!("{name}.bias"), numbers(seed + 1, &[to]))?;
    let y = b.matmul(x, w)?;
    b.add(y, bias)
}

fn norm(b: &mut Builder, x: ValueId, name: &str) -> Result<ValueId, IrError> {
    b.set_loc(Loc::new(name));
    let scale = b.param_with(&format!("{name}.scale"), f32s(&[WIDTH], &[1.0; WIDTH]))?;
    let bias = b.param_with(&format!("{name}.bias"), numbers(name.len() as u64, &[WIDTH]))?;
    b.layer_norm(x, Some(scale), Some(bias), &[2], 1e-5)
}

/// Two layers as BERT has them, then the sum over the sequence.
fn transformer() -> Graph {
    let build = || -> Result<Graph, IrError> {
        let mut b = Builder::new("main");
        let (batch, seq) = (Dim::symbol("batch"), Dim::symbol("seq"));
        let words = b.input("ids", DType::I64, [batch.clone(), seq.clone()])?;
        let table = b.param_with("table", numbers(1, &[60, WIDTH]))?;
        let x = b.gather(table, words, 0)?;
        let mut x = norm(&mut b, x, "embedding/norm")?;
        for n in 0..2 {
            let mut parts = Vec::new();
            for part in ["q", "k", "v"] {
                let y = linear(&mut b, x, &format!("layer.{n}/{part}"), WIDTH, WIDTH)?;
                parts.push(b.reshape(y, [batch.clone(), seq.clone(), HEADS.into(), (WIDTH / HEADS).into()])?);
            }
            let attention = Attention {
                layout: AttnLayout::Bshd,
                scale: rlx::ir::attr::FloatBits::new(1.0 / ((WIDTH / HEADS) as f64).sqrt()),
                causal: false,
                window: None,
                softcap: None,
                mask: MaskKind::None,
            };
            let y = b.op1(attention, &parts)?;
            let y = b.reshape(y, [batch.clone(), seq.clone(), WIDTH.into()])?;
            let y = linear(&mut b, y, &format!("layer.{n}/out"), WIDTH, WIDTH)?;
            let y = b.add(x, y)?;
            x = norm(&mut b, y, &format!("layer.{n}/norm1"))?;
            let y = linear(&mut b, x, &format!("layer.{n}/up"), WIDTH, 4 * WIDTH)?;
            let y = b.op1(Unary::Gelu, &[y])?;
            let y = linear(&mut b, y, &format!("layer.{n}/down"), 4 * WIDTH, WIDTH)?;
            let y = b.add(x, y)?;
            x = norm(&mut b, y, &format!("layer.{n}/norm2"))?;
        }
        let y = b.reduce(x, rlx::ir::ops::reduction::ReduceKind::Sum, &[1], false)?;
        b.output("embedding", y)?;
        Ok(b.finish())
    };
    build().unwrap()
}

fn words(batch: usize, seq: usize) -> Tensor {
    let ids: Vec<i64> = (0..batch * seq).map(|i| (i * i * 7 + 3 * i) as i64 % 60).collect();
    Tensor::from_slice(&[batch, seq], &ids).unwrap()
}

fn cosine(a: &Tensor, b: &Tensor) -> f64 {
    let f = |t: &Tensor| t.as_slice::<f32>().unwrap().iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let (a, b) = (f(a), f(b));
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
}

fn policies() -> Vec<PrecisionPolicy> {
    let mut all = Vec::new();
    for p in [Precision::BF16, Precision::F16] {
        all.extend([PrecisionPolicy::AlwaysLow(p), PrecisionPolicy::Mixed(p), PrecisionPolicy::ConservativeMixed(p)]);
        all.push(CustomPolicy::new(p).keep_named("layer.1/*").lower_class(OpClass::Norm).into());
    }
    all
}

fn with(policy: &PrecisionPolicy) -> CompileOptions {
    CompileOptions::new().policy(policy.clone())
}

#[test]
fn spec_2_policies_give_what_their_graphs_say_and_are_close_to_f32() {
    let g = transformer();
    let x = words(2, 9);
    let plain = compile(g.clone(), &CompileOptions::new()).run_tensors(&[("ids", &x)]).unwrap();
    for policy in policies() {
        let p = compile(g.clone(), &with(&policy));
        assert!(p.report().fallbacks.is_empty(), "{policy}");
        let got = p.run_tensors(&[("ids", &x)]).unwrap();
        // The pass's own graph, by the evaluator in f64: kernels round where it says so.
        let low = run_pass("precision", &Module::from_graph(g.clone()), None, &with(&policy)).unwrap().0;
        let want = oracle(&low.main, std::slice::from_ref(&x), &[]);
        let half = if policy.low() == Some(Precision::BF16) { 2e-2 } else { 2e-3 };
        rlx::ir::testing::close(&want[0].clone().into(), &got[0].clone().into(), half, half)
            .unwrap_or_else(|e| panic!("{policy}: {e}"));
        let c = cosine(&plain[0], &got[0]);
        println!("{policy}: cosine {c:.7}");
        assert!(c >= 0.9999, "{policy}: cosine {c}");
        assert_ne!(got, plain, "{policy} rounds nothing");
    }
}

#[test]
fn spec_2_policies_compute_low_on_every_door() {
    let g = transformer();
    let x = words(1, 5);
    for policy in policies() {
        let s = Session::with_policy(Device::Cpu, policy.clone()).unwrap();
        let m = Module::from_graph(g.clone());
        let none = CompileOptions::new();
        let doors = [
            s.compile(g.clone()).unwrap(),
            s.compile_with(g.clone(), &none).unwrap(),
            s.compile_hir(&m).unwrap(),
            s.compile_module_with(&m, &none).unwrap(),
            compile(g.clone(), &with(&policy)),
        ];
        let want = doors[0].run_tensors(&[("ids", &x)]).unwrap();
        for p in &doors {
            assert_eq!(p.run_tensors(&[("ids", &x)]).unwrap(), want, "{policy}");
            assert_eq!(p.report().kernels, doors[0].report().kernels);
            assert_eq!(p.report().count("precision", "low"), doors[0].report().count("precision", "low"));
        }
    }
}

#[test]
fn spec_2_casts_run_inside_the_kernels_around_them() {
    let count = |o: &CompileOptions| compile(transformer(), o).report().placement.len();
    let plain = count(&CompileOptions::new());
    for policy in policies() {
        // Under a rule that keeps one layer, some values are cast on their own.
        let alone = match policy {
            PrecisionPolicy::Custom(_) => 3,
            // The results of both attentions are f32, and operands of products.
            PrecisionPolicy::ConservativeMixed(_) => 2,
            _ => 0,
        };
        let n = count(&with(&policy));
        assert!(n <= plain + alone, "{policy}: {n} kernels instead of {plain}");
    }
}

fn memory(p: &CompiledGraph) -> rlx::runtime::MemoryReport {
    let binding: DimBinding = [("batch", 4), ("seq", 64)].into_iter().collect();
    p.memory_for(&binding).unwrap()
}

#[test]
fn spec_2_activations_of_a_bf16_session_take_half_the_arena() {
    for precision in [Precision::BF16, Precision::F16] {
        let s = Session::new_with_precision(Device::Cpu, precision).unwrap();
        let (low, wide) =
            (memory(&s.compile(transformer()).unwrap()), memory(&session().compile(transformer()).unwrap()));
        let ratio = low.arena as f64 / wide.arena as f64;
        assert!(ratio <= 0.51, "{precision}: {} bytes instead of {}", low.arena, wide.arena);
    }
}

#[test]
fn spec_2_the_boundary_keeps_the_dtypes_that_the_model_declares() {
    let mut p = Session::new_with_precision(Device::Cpu, Precision::BF16).unwrap().compile(dense()).unwrap();
    for port in p.inputs().iter().chain(p.params()).chain(p.outputs()) {
        assert_eq!(port.ty.dtype, DType::F32, "{}", port.name);
    }
    // f32 entry points take f32, and parameters are set in f32.
    let x = numbers(5, &[2, 4]);
    let flat = x.as_slice::<f32>().unwrap().to_vec();
    let a = p.run(&[("x", &flat)]).unwrap();
    assert_eq!(a[0], p.run_tensors(&[("x", &x)]).unwrap()[0].as_slice::<f32>().unwrap().to_vec());
    p.set_param("c", &[1e3; 3]).unwrap();
    assert!(p.run(&[("x", &flat)]).unwrap()[0].iter().all(|&y| y > 900.0));
}

#[test]
fn spec_2_parameters_used_low_are_cast_once_in_prepare() {
    let mut p = compile(transformer(), &with(&PrecisionPolicy::Mixed(Precision::BF16)));
    for seq in [3, 8, 3] {
        p.run_tensors(&[("ids", &words(1, seq))]).unwrap();
    }
    assert_eq!(p.stats().prepares, 1);
    let report = p.report();
    let cast = 12;
    assert_eq!(report.count("split", "prepared value"), cast, "every weight of a product");
    p.set_param("layer.0/q.bias", &[0.5; WIDTH]).unwrap();
    p.run_tensors(&[("ids", &words(1, 3))]).unwrap();
    assert_eq!(p.stats().prepares, 1, "a bias is not cast");
    p.set_param("layer.0/q.weight", &numbers(99, &[WIDTH, WIDTH]).as_slice::<f32>().unwrap()).unwrap();
    let after = p.run_tensors(&[("ids", &words(1, 3))]).unwrap();
    assert_eq!(p.stats().prepares, 2);
    assert_ne!(after[0], p.clone().run_tensors(&[("ids", &words(1, 4))]).unwrap()[0]);
}

#[test]
fn spec_2_a_custom_policy_decides_by_class_op_and_name() {
    let m = Module::from_graph(transformer());
    let low = |c: CustomPolicy| {
        let (_, r) = run_pass("precision", &m, None, &with(&c.into())).unwrap();
        let names = |applied: bool| {
            let kind = if applied { rlx::compile::RemarkKind::Applied } else { rlx::compile::RemarkKind::Note };
            r.remarks
                .iter()
                .filter(|x| x.kind == kind)
                .filter_map(|x| x.loc.name().map(String::from))
                .collect::<Vec<_>>()
        };
        (names(true), names(false))
    };
    let base = CustomPolicy::new(Precision::BF16).otherwise(Otherwise::F32);
    let (lowered, kept) = low(base.clone().lower_class(OpClass::Contraction));
    assert_eq!((lowered.len(), kept.is_empty()), (12, false));
    let (lowered, _) = low(base.clone().keep_named("layer.1/*").lower_class(OpClass::Contraction));
    assert!(lowered.len() == 6 && lowered.iter().all(|n| n.starts_with("layer.0/")), "{lowered:?}");
    let (lowered, _) = low(base.clone().rule(rlx::Selector::Op("gelu".into()), true));
    assert_eq!(lowered, ["layer.0/up", "layer.1/up"]);
    // A predicate's answers become data; the first rule that is about a node decides.
    let by_name = base.by_predicate(&m, |name, class| (class == OpClass::Contraction).then(|| name.ends_with("/q")));
    assert_eq!(by_name, by_name.clone());
    let (lowered, _) = low(by_name.lower_class(OpClass::Norm));
    assert!(lowered.iter().all(|n| n.ends_with("/q") || n.contains("norm")), "{lowered:?}");
    assert!(lowered.iter().any(|n| n.ends_with("/q")) && lowered.iter().any(|n| n.contains("norm")));
}

#[test]
fn spec_2_policies_reach_into_nested_bodies_and_keep_what_loops_carry() {
    let text = "func @main(%x: f32[2, 8], %n: i64[]; param %w: f32[8, 8], state %s: f32[2, 8] -> %next) {
  %y, %all = loop(%n, %x, %w) {carried = 1, scans = 1, has_trip_count = true, has_cond = false, defines = [t]} (
    @body(%i: i64[], %go: bool[], %h: f32[2, 8], %m: f32[8, 8]) {
      %0 = dot_general(%h, %m) {lhs_batch = [], rhs_batch = [], lhs_contract = [1], rhs_contract = [0], accumulate = none}
      %1 = tanh(%0)
      return %go, %1, %1
    }
  )
  %next = add(%s, %y)
  return %y, %next
}";
    let m = match parse_module(text) {
        Ok(m) => m,
        Err(e) => panic!("{e}"),
    };
    let x = numbers(1, &[2, 8]);
    let w = numbers(2, &[8, 8]);
    let inputs = [("x", x), ("n", Tensor::scalar(5i64))];
    let run = |o: &CompileOptions| {
        let mut p = session().compile_hir_with(&m, o).unwrap();
        p.set_param("w", &w.as_slice::<f32>().unwrap()).unwrap();
        let named: Vec<(&str, rlx::Input<'_>)> = inputs.iter().map(|(n, t)| (*n, rlx::Input::from(t))).collect();
        let out = p.run_borrowed(&named).unwrap();
        let y: Vec<f32> =
            out.get(0).unwrap().bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        let state = p.state("s").unwrap();
        assert_eq!(state.dtype(), DType::F32);
        (y, p.report().count("precision", "low"), state)
    };
    let (want, none, _) = run(&CompileOptions::new());
    assert_eq!(none, 0);
    for policy in policies() {
        let (got, low, state) = run(&with(&policy));
        assert!(low >= 1, "{policy}: the body's product is low");
        assert_ne!(got, want, "{policy}");
        assert!(got.iter().zip(&want).all(|(g, w)| (g - w).abs() < 0.02), "{policy}: {got:?} {want:?}");
        assert_eq!(state.as_slice::<f32>().unwrap().to_vec(), got);
    }
}

/// ‖a − b‖ / ‖b‖.
fn error(a: &[f32], b: &[f64]) -> f64 {
    let d: f64 = a.iter().zip(b).map(|(&a, b)| (f64::from(a) - b).powi(2)).sum();
    (d / b.iter().map(|b| b * b).sum::<f64>()).sqrt()
}

fn product(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize), round: impl Fn(f32) -> f32) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|p| f64::from(round(a[i * k + p])) * f64::from(round(b[p * n + j]))).sum();
    (0..m * n).map(|i| at(i / n, i % n)).collect()
}

#[test]
fn spec_2_matmul_precision_has_the_error_that_it_names() {
    for k in [384, 3072] {
        let (m, n) = (7, 40);
        let build = || -> Result<Graph, IrError> {
            let mut b = Builder::new("main");
            let x = b.input("x", DType::F32, [m, k])?;
            let w = b.param_with("w", numbers(k as u64, &[k, n]))?;
            let y = b.matmul(x, w)?;
            b.output("y", y)?;
            Ok(b.finish())
        };
        let g = build().unwrap();
        let (x, w) = (numbers(3, &[m, k]), numbers(k as u64, &[k, n]));
        let (a, b) = (x.as_slice::<f32>().unwrap(), w.as_slice::<f32>().unwrap());
        let exact = product(&a, &b, (m, n, k), |v| v);
        // To nearest even, as bf16 machines do.
        let bf16 = |v: f32| {
            let bits = v.to_bits();
            f32::from_bits((bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff_0000)
        };
        let rounded = product(&a, &b, (m, n, k), bf16);
        let of = |p: MatmulPrecision| {
            let p = compile(g.clone(), &CompileOptions::new().matmul_precision(p));
            p.run_tensors(&[("x", &x)]).unwrap()[0].as_slice::<f32>().unwrap().to_vec()
        };
        let (highest, high, medium) =
            (of(MatmulPrecision::Highest), of(MatmulPrecision::High), of(MatmulPrecision::Medium));
        let e = [error(&highest, &exact), error(&high, &exact), error(&medium, &exact), error(&medium, &rounded)];
        println!(
            "K = {k}: highest {:.1e}, high {:.1e}, medium {:.1e}; medium of rounded operands {:.1e}",
            e[0], e[1], e[2], e[3]
        );
        // Three products, on machines with a matrix unit; f32 elsewhere.
        assert!(e[0] <= 1e-6 && e[1] <= 8e-6, "{e:?}");
        assert!((5e-4..3e-3).contains(&e[2]), "{e:?}: operands are rounded, and no more");
        assert!(e[3] <= 1e-6, "{e:?}: sums are f32");
    }
}

#[test]
fn spec_2_all_inputs_low_from_the_start_are_left_as_they_are() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F16, [3, 4]).unwrap();
    let y = b.matmul(x, x).unwrap_or_else(|_| b.relu(x).unwrap());
    b.output("y", y).unwrap();
    let g = b.finish();
    let p = compile(g.clone(), &with(&PrecisionPolicy::AlwaysLow(Precision::BF16)));
    assert_eq!((p.report().count("precision", "low"), p.report().count("precision", "cast")), (0, 0));
    assert_eq!(p.outputs()[0].ty.dtype, DType::F16);
    let x = Tensor::from_elements(DType::F16, &[3, 4], &numbers(3, &[3, 4]).elements()).unwrap();
    same(&oracle(&g, std::slice::from_ref(&x), &[]), &p.run_tensors(&[("x", &x)]).unwrap(), "f16");
}
