//! Section 4: states that grow, such as the keys and values of a decoder.

use std::collections::BTreeMap;

use rlx::ir::eval::{EvalInputs, evaluate};
use rlx::ir::op::EvalOptions;
use rlx::ir::ops::neural::{Attention, AttnLayout};
use rlx::ir::testing::close;
use rlx::ir::text::parse_module;
use rlx::ir::{IrError, ValueId};
use rlx::{
    Builder, CompileOptions, CompiledGraph, DType, Device, Dim, DimBinding, Fusion, Input, Module, PortInfo, Symbol,
    Tensor,
};

use crate::harness::{Folder, f32s, numbers, session};
use crate::spec5_dynamic::fixed_sizes_only;

const HEADS: i64 = 4;
const HEAD: i64 = 8;
const WIDTH: i64 = HEADS * HEAD;

/// One layer of causal attention over `[b, s, WIDTH]`, as a graph without a cache or with one.
fn decoder(cached: bool) -> Module {
    let build = || -> Result<Module, IrError> {
        let mut b = Builder::new("main");
        let (batch, new) = (Dim::symbol("b"), Dim::symbol("s"));
        let x = b.input("x", DType::F32, [batch.clone(), new.clone(), WIDTH.into()])?;
        let heads = |b: &mut Builder, name: &str, seed| -> Result<ValueId, IrError> {
            let w = b.param_with(name, numbers(seed, &[WIDTH as usize, WIDTH as usize]))?;
            let y = b.matmul(x, w)?;
            let y = b.reshape(y, [batch.clone(), new.clone(), HEADS.into(), HEAD.into()])?;
            b.transpose(y, &[0, 2, 1, 3])
        };
        let (q, mut k, mut v) = (heads(&mut b, "wq", 1)?, heads(&mut b, "wk", 2)?, heads(&mut b, "wv", 3)?);
        if cached {
            let shape = [batch.clone(), HEADS.into(), Dim::symbol("past"), HEAD.into()];
            for (name, rows) in [("keys", &mut k), ("values", &mut v)] {
                let old = b.growing_state(name, DType::F32, shape.clone(), 2)?;
                *rows = b.concat(&[old, *rows], 2)?;
                b.set_next(old, *rows)?;
            }
        }
        let op = Attention { causal: true, ..Attention::new(AttnLayout::Bhsd, 0.3) };
        let y = b.attention(op, q, k, v, None)?;
        let y = b.transpose(y, &[0, 2, 1, 3])?;
        let y = b.reshape(y, [batch.clone(), new.clone(), WIDTH.into()])?;
        b.output("y", y)?;
        Ok(Module::from_graph(b.finish()))
    };
    build().unwrap()
}

/// Rows `from..to` of the second axis of `[b, s, WIDTH]`.
fn rows(x: &Tensor, from: usize, to: usize) -> Tensor {
    let (s, w) = (x.dims()[1], WIDTH as usize);
    let all = x.as_slice::<f32>().unwrap();
    let part: Vec<f32> = (0..x.dims()[0]).flat_map(|b| all[(b * s + from) * w..(b * s + to) * w].to_vec()).collect();
    f32s(&[x.dims()[0], to - from, w], &part)
}

fn step(p: &mut CompiledGraph, inputs: &[(&str, &Tensor)]) -> Vec<Tensor> {
    let inputs: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, t)| (*n, Input::from(*t))).collect();
    let out = p.run_borrowed(&inputs).unwrap();
    (0..out.len()).map(|i| out.get(i).unwrap()).map(|t| Tensor::from_bytes(t.dtype, t.dims, t.bytes).unwrap()).collect()
}

/// What the evaluator gives for the whole sequence at once, without a cache.
fn whole(x: &Tensor) -> Tensor {
    let inputs = EvalInputs { inputs: vec![x.clone().into()], ..EvalInputs::default() };
    let exact = EvalOptions { f64_accumulate: true, ..EvalOptions::default() };
    evaluate(&decoder(false), &inputs, exact).unwrap().outputs[0].as_tensor().unwrap().clone()
}

fn near(want: &Tensor, got: &Tensor, what: &str) {
    close(&want.clone().into(), &got.clone().into(), 1e-4, 1e-5).unwrap_or_else(|e| panic!("{what}: {e}"));
}

#[test]
fn spec_4_a_cache_that_grows_by_itself_equals_a_pass_without_one() {
    const LENGTH: usize = 303;
    let x = numbers(7, &[2, LENGTH, WIDTH as usize]);
    let want = whole(&x);
    let mut p = session().compile_hir(&decoder(true)).unwrap();
    let mut q = session().compile_hir(&decoder(false)).unwrap();
    // A prompt of three tokens, then one by one.
    let (mut at, mut grown, mut moved) = (0, 0, 0);
    while at < LENGTH {
        let n = if at == 0 { 3 } else { 1 };
        let before = p.stats().bytes_moved;
        let y = step(&mut p, &[("x", &rows(&x, at, at + n))]).remove(0);
        near(&rows(&want, at, at + n), &y, &format!("token {at}"));
        // What is copied besides the new rows, which kernels write where they belong: nothing, unless there was no room.
        let copied = (p.stats().bytes_moved - before) as usize;
        let held = 2 * 4 * 2 * WIDTH as usize * at;
        assert!(copied == 0 || copied == held, "token {at}: {copied} bytes were copied of {held}");
        grown += usize::from(copied > 0);
        moved += copied;
        at += n;
    }
    assert!(grown <= 8, "it grew {grown} times");
    assert!(moved <= 2 * (2 * 4 * 2 * WIDTH as usize * LENGTH), "{moved} bytes were moved in all");
    near(&want, &step(&mut q, &[("x", &x)])[0], "without a cache");
    let keys = p.states().iter().find(|s| &*s.name == "keys").unwrap();
    assert_eq!((keys.ty.to_string().as_str(), keys.grows), ("f32[b, 4, past, 8]", Some(2)));
    assert_eq!(p.state("keys").unwrap().dims(), [2, 4, LENGTH, 8]);
    // Each length is a binding of its own; none is made twice.
    let s = p.stats();
    assert_eq!((s.binds, s.bind_hits), (301, 0));
    assert!(p.report().remarks().any(|r| r.message.contains("appended to state `keys` is written behind it")));
}

#[test]
fn spec_4_a_cache_is_read_written_reset_cloned_and_saved() {
    let x = numbers(8, &[1, 20, WIDTH as usize]);
    let want = whole(&x);
    let mut p = session().compile_hir(&decoder(true)).unwrap();
    let tokens = |p: &mut CompiledGraph, from: usize, to: usize| {
        let y = step(p, &[("x", &rows(&x, from, to))]).remove(0);
        near(&rows(&want, from, to), &y, &format!("tokens {from} to {to}"));
    };
    let length = |p: &CompiledGraph| p.state("keys").map(|t| t.dims()[2]).map_err(|e| e.to_string());
    assert!(length(&p).unwrap_err().contains("no size before the first run"));
    tokens(&mut p, 0, 5);
    tokens(&mut p, 5, 6);
    assert_eq!(length(&p), Ok(6));
    // A clone goes its own way.
    let mut q = p.clone();
    tokens(&mut q, 6, 13);
    tokens(&mut p, 6, 7);
    assert_eq!((length(&p), length(&q)), (Ok(7), Ok(13)));
    // Saved, and put into another program.
    let saved: Vec<(String, Tensor)> =
        ["keys", "values"].into_iter().map(|n| (n.to_string(), q.state(n).unwrap())).collect();
    let mut r = session().compile_hir(&decoder(true)).unwrap();
    for (name, t) in &saved {
        r.set_state(name, t.clone()).unwrap();
    }
    assert_eq!((length(&r), r.state("values").unwrap()), (Ok(13), saved[1].1.clone()));
    tokens(&mut r, 13, 20);
    // An artefact begins as it was declared, and takes what was saved.
    let folder = Folder::new("4-cache");
    let path = folder.0.join("cache.rlxa");
    r.save(&path).unwrap();
    let mut loaded = session().load(&path).unwrap();
    tokens(&mut loaded, 0, 2);
    tokens(&mut loaded, 2, 3);
    for (name, t) in &saved {
        loaded.set_state(name, t.clone()).unwrap();
    }
    tokens(&mut loaded, 13, 14);
    // States that do not agree are named, and nothing is changed.
    r.reset_state("keys").unwrap();
    let one = rows(&x, 0, 1);
    let e = r.run_borrowed(&[("x", Input::from(&one))]).unwrap_err().to_string();
    assert!(e.contains("keys") && e.contains("values") && e.contains("past"), "{e}");
    assert_eq!(r.state("values").unwrap().dims()[2], 20);
    r.reset_state("values").unwrap();
    // New sizes on other axes after a reset.
    let two = numbers(9, &[2, 3, WIDTH as usize]);
    near(&whole(&two), &step(&mut r, &[("x", &two)])[0], "another batch");
    let e = r.run_borrowed(&[("x", Input::from(&one))]).unwrap_err().to_string();
    assert!(e.contains("state `keys`") && e.contains("axis 0"), "{e}");
    for wrong in [Tensor::zeros(DType::F32, &[1, 4, 8]), Tensor::zeros(DType::F16, &[1, 4, 2, 8])] {
        assert!(r.set_state("keys", wrong.unwrap()).unwrap_err().to_string().contains("keys"));
    }
}

#[test]
fn spec_4_lengths_to_come_are_bound_ahead_and_met_again() {
    let x = numbers(8, &[1, 9, WIDTH as usize]);
    let mut p = session().compile_hir(&decoder(true)).unwrap();
    for past in 0..9 {
        let sizes = [("b", 1), ("s", 1), ("past", past)];
        p.prepare_for(&sizes.map(|(s, n)| (Symbol::new(s), n)).into_iter().collect::<DimBinding>()).unwrap();
    }
    let binds = p.stats().binds;
    for _ in 0..2 {
        for i in 0..9 {
            step(&mut p, &[("x", &rows(&x, i, i + 1))]);
        }
        // A second conversation has the lengths of the first.
        ["keys", "values"].into_iter().for_each(|n| p.reset_state(n).unwrap());
    }
    // A state without a value has no size on its other axes: that is the one key that no length stands in.
    assert_eq!(p.stats().binds - binds, 1);
    let m = p
        .memory_for(&[("b", 1), ("s", 1), ("past", 64)].map(|(s, n)| (Symbol::new(s), n)).into_iter().collect())
        .unwrap();
    assert!(m.states >= 2 * 65 * 4 * WIDTH as u64 && m.states <= 4 * 65 * 4 * WIDTH as u64, "{m}");
}

/// Runs a program call after call beside the evaluator, which carries the states from call to call.
fn beside_the_evaluator(text: &str, calls: &[Vec<Tensor>], mut programs: Vec<(&str, CompiledGraph)>) {
    let m = parse_module(text).unwrap();
    let names: Vec<String> =
        m.main.inputs().iter().map(|&v| m.main.value(v).name.clone().unwrap().to_string()).collect();
    let mut states: BTreeMap<String, Tensor> = BTreeMap::new();
    for (call, inputs) in calls.iter().enumerate() {
        let given = EvalInputs {
            inputs: inputs.iter().cloned().map(Into::into).collect(),
            states: states.clone(),
            ..EvalInputs::default()
        };
        let want = evaluate(&m, &given, EvalOptions::default()).unwrap();
        states = want.states;
        for (way, p) in &mut programs {
            let named: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(inputs).collect();
            let got = step(p, &named);
            for (w, g) in want.outputs.iter().zip(&got) {
                assert_eq!(w.as_tensor().unwrap(), g, "{way}, call {call}:\n{text}");
            }
            for (name, w) in &states {
                assert_eq!(p.state(name).unwrap(), *w, "{way}, state `{name}` after call {call}:\n{text}");
            }
        }
    }
}

fn ways(text: &str) -> Vec<(&'static str, CompiledGraph)> {
    let m = parse_module(text).unwrap();
    let with = |o: CompileOptions| session().compile_module_with(&m, &o.poison(true)).unwrap();
    let mut all = vec![
        ("as it is", with(CompileOptions::new())),
        ("without fusion", with(CompileOptions::new().fusion(Fusion::Off))),
    ];
    // Sizes that depend on data have no programs of fixed sizes.
    if !text.contains("nonzero") {
        all.push(("at fixed sizes", fixed_sizes_only(Device::Vulkan).0.compile_hir(&m).unwrap()));
    }
    all
}

/// Small integers in any dtype.
fn any(dtype: DType, dims: &[usize], seed: u64) -> Tensor {
    let mut rng = rlx::ir::testing::Rng::new(seed);
    let n = dims.iter().product();
    let ints: Vec<i128> = (0..n).map(|_| (rng.unit().abs() * 1.99) as i128).collect();
    let floats = || ints.iter().map(|&i| i as f64).collect::<Vec<f64>>();
    let e = match dtype {
        d if d.is_complex() => rlx::ir::element::Elements::Complex(floats().iter().map(|&x| [x, -x]).collect()),
        d if d.is_float() => rlx::ir::element::Elements::Float(floats()),
        _ => rlx::ir::element::Elements::Int(ints),
    };
    Tensor::from_elements(dtype, dims, &e).unwrap()
}

#[test]
fn spec_4_states_grow_on_any_axis_in_any_dtype() {
    let dtypes = [DType::F32, DType::F16, DType::I4, DType::U2, DType::Bool, DType::I64, DType::C64];
    for (i, dtype) in dtypes.into_iter().enumerate() {
        let axis = i % 3;
        let dims = |n: &str| {
            let mut d = ["2", "3", "5"].map(String::from);
            d[axis] = n.to_string();
            d.join(", ")
        };
        let text = format!(
            "func @main(%x: {dtype}[{}], %y: {dtype}[{}]; state %s: {dtype}[{}] grows {axis} -> %c) -> (v: {dtype}[{}]) {{
  %c = concat(%s, %x, %y, %x) {{axis = {axis}}}
  %v = reverse(%c) {{axes = [{axis}]}}
  return %v
}}",
            dims("m"),
            dims("1"),
            dims("n"),
            dims("2*m + n + 1")
        );
        let calls: Vec<Vec<Tensor>> = [1usize, 0, 2, 1, 5, 1]
            .into_iter()
            .enumerate()
            .map(|(call, m)| {
                let sized = |n: usize, seed| {
                    let mut d = [2, 3, 5];
                    d[axis] = n;
                    any(dtype, &d, seed)
                };
                vec![sized(m, call as u64), sized(1, 100 + call as u64)]
            })
            .collect();
        beside_the_evaluator(&text, &calls, ways(&text));
    }
}

#[test]
fn spec_4_states_change_their_length_in_any_way() {
    let sizes = [2usize, 0, 1, 3, 1, 1];
    let calls: Vec<Vec<Tensor>> = sizes.iter().enumerate().map(|(i, &m)| vec![numbers(i as u64, &[m, 3])]).collect();
    for text in [
        // In front; the last four rows; the whole twice.
        "func @main(%x: f32[m, 3]; state %s: f32[n, 3] grows 0 -> %c) -> (y: f32[m + n, 3]) {
  %c = concat(%x, %s) {axis = 0}
  return %c
}",
        "func @main(%x: f32[m, 3]; state %s: f32[n, 3] grows 0 -> %w) -> (y: f32[min(4, m + n), 3]) {
  %c = concat(%s, %x) {axis = 0}
  %w = slice(%c) {starts = [m + n - min(4, m + n), 0], limits = [m + n, 3], strides = [1, 1]}
  return %w
}",
        "func @main(%x: f32[m, 3]; state %s: f32[n, 3] grows 0 -> %c) -> (y: f32[m + 2*n, 3]) {
  %c = concat(%s, %x, %s) {axis = 0}
  return %c
}",
        // The new rows are made of the old ones, which are given out too, and of those of the state beside it.
        "func @main(%x: f32[m, 3]; state %s: f32[n, 3] = f32[1, 3](1, 2, 3) grows 0 -> %c, state %t: f32[k, 3] grows 0 -> %d)
  -> (old: f32[n, 3], new: f32[m + 2*n, 3], other: f32[k + m + 2*n, 3]) {
  %a = neg(%s)
  %c = concat(%s, %a, %x) {axis = 0}
  %d = concat(%t, %c) {axis = 0}
  return %s, %c, %d
}",
        // Two states with one successor, and one that becomes what another was.
        "func @main(%x: f32[m, 3]; state %s: f32[n, 3] grows 0 -> %c, state %t: f32[n, 3] grows 0 -> %c,
  state %u: f32[j, 3] grows 0 -> %s) -> (y: f32[j, 3]) {
  %c = concat(%s, %x) {axis = 0}
  %y = neg(%u)
  return %y
}",
        // As many rows as the data says.
        "func @main(%x: f32[m, 3]; state %s: i64[2, n] grows 1 -> %c) -> (y: i64[2, n + found]) {
  %i = nonzero(%x) {count = found}
  %c = concat(%s, %i) {axis = 1}
  return %c
}",
        // A state that does not grow, whose size the inputs say.
        "func @main(%x: f32[m, 3]; state %s: f32[3] -> %t, state %l: f32[n, 3] grows 0 -> %c) -> (y: f32[3]) {
  %r = reduce(%x) {kind = max, axes = [0], keep_dims = false}
  %t = maximum(%s, %r)
  %c = concat(%l, %x) {axis = 0}
  return %t
}",
    ] {
        beside_the_evaluator(text, &calls, ways(text));
    }
}

#[test]
fn spec_4_inputs_fed_from_outputs_become_states() {
    let text =
        "func @main(%x: f32[s, 3], %past: f32[n, 3], %h: f32[3]) -> (y: f32[3], present: f32[n + s, 3], next: f32[3]) {
  %c = concat(%past, %x) {axis = 0}
  %r = reduce(%c) {kind = sum, axes = [0], keep_dims = false}
  %g = add(%h, %r)
  %y = mul(%g, %r)
  return %y, %c, %g
}";
    let m = parse_module(text).unwrap();
    let kept = m.carry(&[("past", "present"), ("h", "next")]).unwrap();
    rlx::ir::verify(&kept).unwrap();
    assert_eq!(parse_module(&kept.to_string()).unwrap().to_string(), kept.to_string());
    let (plain, mut p) = (session().compile_hir(&m).unwrap(), session().compile_hir(&kept).unwrap());
    let names = |ports: &[PortInfo]| ports.iter().map(|p| p.name.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (names(p.inputs()), names(p.outputs()), names(p.states())),
        (vec!["x".into()], vec!["y".into()], vec!["past".to_string(), "h".into()])
    );
    let (mut past, mut h) = (f32s(&[0, 3], &[]), f32s(&[3], &[0.0; 3]));
    for call in 0..6 {
        let x = numbers(call, &[1 + call as usize % 2, 3]);
        let mut want = plain.run_tensors(&[("x", &x), ("past", &past), ("h", &h)]).unwrap();
        assert_eq!(step(&mut p, &[("x", &x)])[0], want[0], "call {call}");
        (h, past) = (want.pop().unwrap(), want.pop().unwrap());
        assert_eq!((p.state("past").unwrap(), p.state("h").unwrap()), (past.clone(), h.clone()), "call {call}");
    }
    // A state whose batch the file calls by another name than the input's.
    let text = "func @main(%x: f32[n, 3], %h: f32[k, 3]) -> (y: f32[bcast(k, n), 3], next: f32[n, 3]) {
  %g = neg(%x)
  %y = add(%h, %x)
  return %y, %g
}";
    let kept = parse_module(text).unwrap().carry(&[("h", "next")]).unwrap();
    rlx::ir::verify(&kept).unwrap();
    assert_eq!(kept.main.ty(kept.main.states()[0].value).to_string(), "f32[n, 3]");
    let mut p = session().compile_hir(&kept).unwrap();
    for (call, want) in [[5.0; 6], [0.0; 6]].iter().enumerate() {
        let out = step(&mut p, &[("x", &f32s(&[2, 3], &[5.0; 6]))]).remove(0);
        assert_eq!(out, f32s(&[2, 3], want), "call {call}");
    }
    for (pairs, says) in [
        (vec![("pst", "present")], vec!["no input `pst`", "`past`"]),
        (vec![("past", "presnt")], vec!["no output `presnt`", "`present`"]),
        (vec![("past", "y"), ("x", "nought")], vec!["f32[n, 3]", "f32[3]", "`nought`"]),
        (vec![("past", "present"), ("past", "present")], vec!["past"]),
    ] {
        let e = m.carry(&pairs).unwrap_err().to_string();
        assert!(says.iter().all(|s| e.contains(s)), "{pairs:?}: {e}");
    }
}
