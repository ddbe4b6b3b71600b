//! Section 4: parameters.

use rlx::{Builder, CompileOptions, CompiledGraph, DType, Dim, Error, InputProblem, RunError, Tensor};

use crate::harness::{Folder, compile, dense, f32s, numbers, oracle, safetensors, same};

fn problems(e: Error) -> Vec<InputProblem> {
    match e {
        Error::Run(RunError::Inputs(p)) => p,
        other => panic!("{other}"),
    }
}

fn x() -> Tensor {
    numbers(60, &[3, 4])
}

fn check(p: &CompiledGraph, w: &Tensor, what: &str) {
    same(&oracle(&dense(), &[x()], &[("w", w.clone())]), &p.run_tensors(&[("x", &x())]).unwrap(), what);
}

#[test]
fn spec_4_the_last_value_set_wins_in_whatever_form() {
    let dir = Folder::new("last");
    let path = dir.0.join("w.safetensors");
    let file = numbers(70, &[4, 3]);
    std::fs::write(&path, safetensors(&[("w", &file)])).unwrap();
    type Set<'a> = Box<dyn Fn(&mut CompiledGraph) -> Tensor + 'a>;
    let forms: Vec<Set<'_>> = vec![
        Box::new(|p| {
            let t = numbers(71, &[4, 3]);
            p.set_param("w", &t.as_slice::<f32>().unwrap()).unwrap();
            t
        }),
        Box::new(|p| {
            let t = numbers(72, &[4, 3]);
            p.set_param_typed("w", DType::F32, t.bytes()).unwrap();
            t
        }),
        Box::new(|p| {
            let t = numbers(73, &[4, 3]);
            p.set_param_shaped("w", t.clone()).unwrap();
            t
        }),
        Box::new(|p| {
            assert_eq!(p.load_safetensors(&path).unwrap().set, ["w"]);
            file.clone()
        }),
    ];
    // Every form after every other, with and without runs, shape changes and clones between.
    for a in &forms {
        for b in &forms {
            let mut p = compile(dense(), &CompileOptions::new());
            a(&mut p);
            let want = b(&mut p);
            check(&p, &want, "set twice");
            let first = a(&mut p);
            p.run_tensors(&[("x", &numbers(1, &[9, 4]))]).unwrap();
            let before = p.clone();
            let want = b(&mut p);
            p.finalize_params().unwrap();
            p.run_tensors(&[("x", &numbers(1, &[2, 4]))]).unwrap();
            check(&p, &want, "set between runs");
            check(&before, &first, "the clone made before");
        }
    }
}

#[test]
fn spec_4_wrong_names_lengths_dtypes_and_shapes_are_errors() {
    let mut p = compile(dense(), &CompileOptions::new());
    let e = problems(p.set_param("v", &[0.0; 12]).unwrap_err());
    assert!(
        matches!(&e[..], [InputProblem::Unknown { kind: "parameter", name, known }] if name == "v" && known.len() == 3)
    );
    let e = problems(p.set_param("w", &[0.0; 11]).unwrap_err());
    assert!(matches!(&e[..], [InputProblem::Length { expected: 48, got: 44, .. }]), "{e:?}");
    let e = problems(p.set_param_typed("w", DType::F64, &[0; 96]).unwrap_err());
    assert!(matches!(&e[..], [InputProblem::DType { expected: DType::F32, got: DType::F64, .. }]), "{e:?}");
    let e = problems(p.set_param_shaped("w", numbers(1, &[3, 4])).unwrap_err());
    assert!(matches!(&e[..], [InputProblem::Shape { got, .. }] if got == &[3, 4]), "{e:?}");
    let e = problems(p.set_param_typed("w", DType::F32, &[0; 47]).unwrap_err());
    assert!(matches!(&e[..], [InputProblem::Length { .. }]), "{e:?}");
    // None of that changed anything.
    same(&oracle(&dense(), &[x()], &[]), &p.run_tensors(&[("x", &x())]).unwrap(), "unchanged");
}

#[test]
fn spec_4_running_with_unset_parameters_names_all_of_them() {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [2]).unwrap();
    let (u, v) = (b.param("u", DType::F32, [2]).unwrap(), b.param("v", DType::F32, [2]).unwrap());
    let uv = b.mul(u, v).unwrap();
    let y = b.add(x, uv).unwrap();
    b.output("y", y).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new());
    let e = problems(p.run(&[("x", &[1.0, 2.0])]).unwrap_err());
    assert_eq!(e.len(), 2);
    assert!(e.iter().all(|e| matches!(e, InputProblem::Missing { kind: "parameter", .. })), "{e:?}");
    p.set_param("u", &[1.0, 1.0]).unwrap();
    assert_eq!(problems(p.finalize_params().unwrap_err()).len(), 1);
    p.set_param("v", &[3.0, 4.0]).unwrap();
    assert_eq!(p.run(&[("x", &[1.0, 2.0])]).unwrap(), [[4.0, 6.0]]);
}

#[test]
fn spec_4_clones_copy_on_write() {
    let p = compile(dense(), &CompileOptions::new());
    p.run_tensors(&[("x", &x())]).unwrap();
    let mut clones: Vec<CompiledGraph> = (0..4).map(|_| p.clone()).collect();
    for (i, c) in clones.iter_mut().enumerate() {
        c.set_param_shaped("w", numbers(80 + i as u64, &[4, 3])).unwrap();
    }
    for (i, c) in clones.iter().enumerate() {
        check(c, &numbers(80 + i as u64, &[4, 3]), "clone");
    }
    same(&oracle(&dense(), &[x()], &[]), &p.run_tensors(&[("x", &x())]).unwrap(), "original");
}

#[test]
fn spec_4_parameters_with_symbolic_shapes_bind_sizes_together_with_inputs() {
    let mut b = Builder::new("main");
    let n = Dim::symbol("n");
    let x = b.input("x", DType::F32, [n.clone()]).unwrap();
    let w = b.param("w", DType::F32, [n.clone(), Dim::symbol("m")]).unwrap();
    let x = b.reshape(x, [Dim::ONE, n]).unwrap();
    let y = b.matmul(x, w).unwrap();
    b.output("y", y).unwrap();
    let mut p = compile(b.finish(), &CompileOptions::new());
    p.set_param_shaped("w", f32s(&[2, 3], &[1., 2., 3., 4., 5., 6.])).unwrap();
    assert_eq!(p.run(&[("x", &[1.0, 10.0])]).unwrap(), [[41., 52., 63.]]);
    let e = p.run(&[("x", &[1.0, 10.0, 0.0])]).unwrap_err().to_string();
    assert!(e.contains("input `x`") && e.contains("parameter `w`"), "a conflict names both: {e}");
    p.set_param_shaped("w", f32s(&[3, 1], &[1., 2., 3.])).unwrap();
    assert_eq!(p.run(&[("x", &[1.0, 10.0, 0.0])]).unwrap(), [[21.]]);
}

#[test]
fn spec_4_safetensors_lists_what_does_not_fit_and_sets_nothing_then() {
    let dir = Folder::new("misfit");
    let path = dir.0.join("p.safetensors");
    let (w, k) = (numbers(1, &[3, 4]), numbers(2, &[2]));
    std::fs::write(&path, safetensors(&[("c", &numbers(9, &[3])), ("w", &w), ("k", &k), ("other", &k)])).unwrap();
    let mut p = compile(dense(), &CompileOptions::new());
    assert_eq!(problems(p.load_safetensors(&path).unwrap_err()).len(), 2);
    same(&oracle(&dense(), &[x()], &[]), &p.run_tensors(&[("x", &x())]).unwrap(), "nothing set");
    std::fs::write(&path, safetensors(&[("c", &numbers(9, &[3])), ("other", &k)])).unwrap();
    let loaded = p.load_safetensors(&path).unwrap();
    assert_eq!((loaded.set, loaded.unused, loaded.missing), (vec!["c".to_string()], vec!["other".to_string()], vec![]));
    same(&oracle(&dense(), &[x()], &[("c", numbers(9, &[3]))]), &p.run_tensors(&[("x", &x())]).unwrap(), "set");
}

#[test]
fn spec_4_malformed_safetensors_are_errors() {
    let good = safetensors(&[("w", &numbers(1, &[4, 3]))]);
    let dir = Folder::new("malformed");
    let path = dir.0.join("p.safetensors");
    let mut p = compile(dense(), &CompileOptions::new());
    let json = |j: &str| [&(j.len() as u64).to_le_bytes()[..], j.as_bytes(), &[0; 48]].concat();
    let mut files: Vec<Vec<u8>> = (0..good.len()).map(|n| good[..n].to_vec()).collect();
    files.push([&u64::MAX.to_le_bytes()[..], &[0; 64]].concat());
    files.push([&(1u64 << 60).to_le_bytes()[..], &[0; 64]].concat());
    files.push(json("[]"));
    files.push(json("{\"w\":1}"));
    for entry in [
        "\"shape\":[4,3],\"data_offsets\":[0,48]",
        "\"dtype\":\"F31\",\"shape\":[4,3],\"data_offsets\":[0,48]",
        "\"dtype\":\"F32\",\"shape\":[4,-3],\"data_offsets\":[0,48]",
        "\"dtype\":\"F32\",\"shape\":[1099511627776,1099511627776],\"data_offsets\":[0,48]",
        "\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[48,0]",
        "\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,18446744073709551615]",
        "\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[18446744073709551614,18446744073709551615]",
        "\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,47]",
        "\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0]",
        "\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,49]",
    ] {
        files.push(json(&format!("{{\"w\":{{{entry}}}}}")));
    }
    for (i, f) in files.iter().enumerate() {
        std::fs::write(&path, f).unwrap();
        let e = p.load_safetensors(&path);
        assert!(matches!(e, Err(Error::Params(_))), "file {i} of {} bytes: {e:?}", f.len());
    }
    assert!(matches!(p.load_safetensors(dir.0.join("none")), Err(Error::Params(_))));
    assert!(matches!(p.load_safetensors(&dir.0), Err(Error::Params(_))));
}
