//! Section 3: the prepare/main split.

use rlx::{Builder, CompileOptions, CompiledGraph, DType, Input, Tensor, TensorMut, TensorRef};

use crate::harness::{compile, dense, numbers, oracle, same};

fn program() -> CompiledGraph {
    compile(dense(), &CompileOptions::new())
}

fn x() -> Tensor {
    numbers(40, &[5, 4])
}

/// Every way of running, as one result each.
type Way = (&'static str, fn(&mut CompiledGraph, &Tensor) -> Vec<Tensor>);

fn own(o: &rlx::runtime::BorrowedTensor<'_>) -> Tensor {
    Tensor::from_bytes(o.dtype, o.dims, o.bytes).unwrap()
}

pub const WAYS: &[Way] = &[
    ("run", |p, x| {
        let out = p.run(&[("x", &x.as_slice::<f32>().unwrap())]).unwrap();
        let n = x.dims()[0];
        out.iter().map(|v| Tensor::from_slice(&[n, v.len() / n], v).unwrap()).collect()
    }),
    ("run_tensors", |p, x| p.run_tensors(&[("x", x)]).unwrap()),
    ("run_typed", |p, x| p.run_typed(&[("x", DType::F32, x.bytes())]).unwrap()),
    ("run_read_outputs", |p, x| p.run_read_outputs(&[("x", Input::from(x))], None).unwrap()),
    ("run_borrowed", |p, x| p.run_borrowed(&[("x", Input::from(x))]).unwrap().iter().map(own).collect()),
    ("run_raw", |p, x| p.run_raw(&[TensorRef::from(x)]).unwrap().iter().map(own).collect()),
    ("run_into", |p, x| {
        let n = x.dims()[0];
        let (mut y, mut z) = (vec![7u8; n * 12], vec![7u8; n * 12]);
        let dims = [n, 3];
        p.run_into(
            &[TensorRef::from(x)],
            &mut [
                TensorMut { dtype: DType::F32, dims: &dims, bytes: &mut y },
                TensorMut { dtype: DType::F32, dims: &dims, bytes: &mut z },
            ],
        )
        .unwrap();
        [y, z].iter().map(|b| Tensor::from_bytes(DType::F32, &dims, b).unwrap()).collect()
    }),
];

#[test]
fn spec_3_prepare_runs_once_lazily_at_the_first_run() {
    let p = program();
    assert_eq!(p.stats().prepares, 0);
    for n in [1, 2, 3, 1] {
        p.run_tensors(&[("x", &numbers(1, &[n, 4]))]).unwrap();
        assert_eq!(p.stats().prepares, 1);
    }
}

#[test]
fn spec_3_prepare_runs_at_finalize_params_which_is_idempotent() {
    let mut p = program();
    for _ in 0..3 {
        p.finalize_params().unwrap();
        assert_eq!(p.stats().prepares, 1);
    }
    p.run_tensors(&[("x", &x())]).unwrap();
    assert_eq!(p.stats().prepares, 1);
}

#[test]
fn spec_3_prepare_main_split_reruns_only_what_changed() {
    for (way, run) in WAYS {
        let mut p = program();
        let mut params: Vec<(&str, Tensor)> = Vec::new();
        same(&oracle(&dense(), &[x()], &params), &run(&mut p, &x()), way);
        // `c` is main's alone: prepare does not run again, and the result changes.
        params.push(("c", numbers(50, &[3])));
        p.set_param_shaped("c", params[0].1.clone()).unwrap();
        same(&oracle(&dense(), &[x()], &params), &run(&mut p, &x()), way);
        assert_eq!(p.stats().prepares, 1, "{way}");
        // `k` is read by both stages, and reaches both.
        params.push(("k", numbers(51, &[4, 3])));
        p.set_param_shaped("k", params[1].1.clone()).unwrap();
        assert_eq!(p.stats().prepares, 1, "{way}: it runs before the next run, not at once");
        same(&oracle(&dense(), &[x()], &params), &run(&mut p, &x()), way);
        assert_eq!(p.stats().prepares, 2, "{way}");
        // The same for another shape.
        let other = numbers(41, &[2, 4]);
        same(&oracle(&dense(), std::slice::from_ref(&other), &params), &run(&mut p, &other), way);
        assert_eq!(p.stats().prepares, 2, "{way}");
    }
}

#[test]
fn spec_3_one_of_three_joined_weights_may_be_set_again() {
    let mut b = Builder::new("main");
    let input = b.input("x", DType::F32, [rlx::Dim::symbol("n"), 4.into()]).unwrap();
    let names = ["q", "k", "v"];
    let w: Vec<_> = names.iter().zip(1..).map(|(n, s)| b.param_with(n, numbers(s, &[4, 3])).unwrap()).collect();
    let joined = b.concat(&w, 1).unwrap();
    let y = b.matmul(input, joined).unwrap();
    for (name, part) in names.iter().zip(b.split_even(y, 1, 3).unwrap()) {
        b.output(&format!("{name}x"), part).unwrap();
    }
    let g = b.finish();
    let mut p = compile(g.clone(), &CompileOptions::new());
    same(&oracle(&g, &[x()], &[]), &p.run_tensors(&[("x", &x())]).unwrap(), "as built");
    let mut set: Vec<(&str, Tensor)> = Vec::new();
    for (i, name) in ["k", "v", "q", "k"].into_iter().enumerate() {
        let w = numbers(90 + i as u64, &[4, 3]);
        p.set_param_shaped(name, w.clone()).unwrap();
        set.retain(|(n, _)| *n != name);
        set.push((name, w));
        same(&oracle(&g, &[x()], &set), &p.run_tensors(&[("x", &x())]).unwrap(), name);
        assert_eq!(p.stats().prepares, 2 + i as u64, "joined once each time it changes");
    }
}

#[test]
fn spec_3_nothing_to_hoist_is_the_plain_program() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [3]).unwrap();
    let w = b.param_with("w", numbers(1, &[3])).unwrap();
    let y = b.add(x, w).unwrap();
    b.output("y", y).unwrap();
    let p = compile(b.finish(), &CompileOptions::new());
    p.run_tensors(&[("x", &numbers(2, &[3]))]).unwrap();
    assert_eq!((p.stats().prepares, p.report().count("split", "prepared value")), (0, 0));
}

#[test]
fn spec_3_a_parameter_used_by_both_stages_reaches_both() {
    // Counted above by values; here: it stands once in the list of parameters.
    let names: Vec<String> = program().params().iter().map(|p| p.name.to_string()).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(sorted, ["c", "k", "w"]);
}

#[test]
fn spec_3_a_clone_shares_what_was_prepared_until_it_sets_a_parameter() {
    let mut p = program();
    p.finalize_params().unwrap();
    let mut q = p.clone();
    q.run_tensors(&[("x", &x())]).unwrap();
    assert_eq!(q.stats().prepares, 0);
    q.set_param("w", &[0.5; 12]).unwrap();
    let got = q.run_tensors(&[("x", &x())]).unwrap();
    same(&oracle(&dense(), &[x()], &[("w", Tensor::full(DType::F32, &[4, 3], 0.5).unwrap())]), &got, "clone");
    same(&oracle(&dense(), &[x()], &[]), &p.run_tensors(&[("x", &x())]).unwrap(), "original");
    assert_eq!((p.stats().prepares, q.stats().prepares), (1, 1));
}
