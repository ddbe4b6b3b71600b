//! Section 7: artefacts, and the folder of compiled programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rlx::artefact::reseal;
use rlx::ir::text::parse_module;
use rlx::{
    Artefact, ArtefactError, Builder, Cache, CacheUse, CompileError, CompileOptions, CompiledGraph, DType, Device, Dim,
    Error, Fusion, Graph, Input, LoadOptions, Module, RngOptions, SaveOptions, Session, Tensor, TensorMut, TensorRef,
    Verify,
};

use crate::backends::Lesser;
use crate::harness::{Folder, dense, f32s, numbers, oracle, same, session};

/// Saves a program and loads it again.
fn through(folder: &Folder, p: &mut CompiledGraph) -> CompiledGraph {
    let path = folder.0.join("p.rlxa");
    p.save(&path).unwrap();
    session().load(&path).unwrap()
}

fn file(folder: &Folder, p: &mut CompiledGraph) -> PathBuf {
    let path = folder.0.join("p.rlxa");
    p.save(&path).unwrap();
    path
}

fn owned(out: &rlx::Outputs<'_>) -> Vec<Tensor> {
    out.iter().map(|t| Tensor::from_bytes(t.dtype, t.dims, t.bytes).unwrap()).collect()
}

/// Small numbers, so that scores stay far from where softmax amplifies rounding.
fn small(seed: u64, dims: &[usize]) -> Tensor {
    let t = numbers(seed, dims);
    f32s(dims, &t.as_slice::<f32>().unwrap().iter().map(|v| 0.2 * v).collect::<Vec<f32>>())
}

/// Two layers with attention between them, large enough for weights to be packed.
fn transformer() -> Graph {
    let build = || -> Result<Graph, rlx::ir::IrError> {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n"), 32.into()])?;
        let mut h = x;
        for layer in 0..2 {
            let w = |b: &mut Builder, name: &str, i: u64, dims: [usize; 2]| {
                b.param_with(&format!("{layer}.{name}"), small(layer * 10 + i, &dims))
            };
            let (q, k, v) = (w(&mut b, "q", 1, [32, 32])?, w(&mut b, "k", 2, [32, 32])?, w(&mut b, "v", 3, [32, 32])?);
            let (q, k, v) = (b.matmul(h, q)?, b.matmul(h, k)?, b.matmul(h, v)?);
            let k = b.transpose(k, &[1, 0])?;
            let s = b.matmul(q, k)?;
            let s = b.softmax(s, 1)?;
            let a = b.matmul(s, v)?;
            let up = w(&mut b, "up", 4, [32, 64])?;
            let scale = w(&mut b, "scale", 5, [32, 64])?;
            let up = b.mul(up, scale)?;
            let down = w(&mut b, "down", 6, [64, 32])?;
            let m = b.matmul(a, up)?;
            let m = b.relu(m)?;
            let m = b.matmul(m, down)?;
            h = b.add(h, m)?;
        }
        b.output("y", h)?;
        Ok(b.finish())
    };
    build().unwrap()
}

#[test]
fn spec_7_an_artefact_runs_without_being_compiled_prepared_or_packed() {
    let folder = Folder::new("7-runs");
    let g = transformer();
    let mut p = session().compile(g.clone()).unwrap();
    // Saved before it has run: what a run would make is made then.
    let loaded = through(&folder, &mut p);
    assert!(loaded.report().passes.is_empty() && loaded.made_again().is_empty());
    assert_eq!(loaded.report().kernels, p.report().kernels);
    for n in [1, 5, 40] {
        let x = numbers(n as u64, &[n, 32]);
        let got = loaded.run_tensors(&[("x", &x)]).unwrap();
        assert_eq!(got, p.run_tensors(&[("x", &x)]).unwrap());
        same(&oracle(&g, &[x], &[]), &got, "loaded");
    }
    let (a, b) = (p.stats(), loaded.stats());
    assert_eq!((b.prepares, a.prepares), (0, 1));
    // 12 weights of 32 x 32 and more are packed, and all packed bytes lie in the file.
    assert!(b.stored_bytes >= 2 * (3 * 32 * 32 + 2 * 32 * 64) * 4, "{b:?}");
    assert_eq!((a.stored_bytes, a.prepared_bytes), (0, b.prepared_bytes));
    let prepared = 2 * 32 * 64 * 4;
    assert_eq!(b.prepared_bytes - b.stored_bytes, prepared, "{b:?}");
}

#[test]
fn spec_7_every_way_of_running_works_from_an_artefact() {
    let folder = Folder::new("7-ways");
    let mut p = session().compile(dense()).unwrap();
    let mut q = through(&folder, &mut p);
    let ports = |p: &CompiledGraph| format!("{:?} {:?} {:?} {:?}", p.inputs(), p.params(), p.outputs(), p.states());
    assert_eq!(ports(&p), ports(&q));
    let x = numbers(9, &[5, 4]);
    let flat = x.as_slice::<f32>().unwrap().to_vec();
    let want = p.run_tensors(&[("x", &x)]).unwrap();
    assert_eq!(q.run_tensors(&[("x", &x)]).unwrap(), want);
    assert_eq!(q.run_typed(&[("x", DType::F32, x.bytes())]).unwrap(), want);
    assert_eq!(q.run(&[("x", &flat)]).unwrap()[1], want[1].as_slice::<f32>().unwrap().to_vec());
    assert_eq!(q.run_read_outputs(&[("x", Input::from(&x))], Some(&[1])).unwrap(), want[1..]);
    assert_eq!(owned(&q.run_borrowed(&[("x", Input::from(&x))]).unwrap()), want);
    assert_eq!(owned(&q.run_raw(&[TensorRef::from(&x)]).unwrap()), want);
    let mut memory: Vec<Vec<u8>> = want.iter().map(|t| vec![0; t.bytes().len()]).collect();
    let mut outs: Vec<TensorMut<'_>> =
        want.iter().zip(&mut memory).map(|(t, bytes)| TensorMut { dtype: t.dtype(), dims: t.dims(), bytes }).collect();
    q.run_into(&[TensorRef::from(&x)], &mut outs).unwrap();
    assert!(want.iter().zip(&memory).all(|(t, m)| t.bytes() == m));
    let clones: Vec<CompiledGraph> = (0..3).map(|_| q.clone()).collect();
    std::thread::scope(|s| {
        for c in &clones {
            s.spawn(|| assert_eq!(c.run_tensors(&[("x", &x)]).unwrap(), want));
        }
    });
    assert!(q.run(&[("y", &flat)]).unwrap_err().to_string().contains("no input `y`"));
}

#[test]
fn spec_7_parameters_are_set_after_loading() {
    let folder = Folder::new("7-set");
    let g = dense();
    let mut p = session().compile(g.clone()).unwrap();
    // A value that was set goes into the file.
    let w = numbers(50, &[4, 3]);
    p.set_param_shaped("w", w.clone()).unwrap();
    let mut q = through(&folder, &mut p);
    let x = numbers(9, &[5, 4]);
    let check = |q: &CompiledGraph, params: &[(&str, Tensor)], what: &str| {
        same(&oracle(&g, std::slice::from_ref(&x), params), &q.run_tensors(&[("x", &x)]).unwrap(), what);
    };
    check(&q, &[("w", w.clone())], "as saved");
    // One that main reads, one that prepare reads, one that both read.
    let mut set = vec![("w", w)];
    for (i, name) in ["c", "w", "k"].into_iter().enumerate() {
        let dims = q.params().iter().find(|p| &*p.name == name).unwrap().ty.shape.as_static().unwrap();
        let value = numbers(60 + i as u64, &dims);
        q.set_param_shaped(name, value.clone()).unwrap();
        set.retain(|(n, _)| *n != name);
        set.push((name, value));
        check(&q, &set, name);
    }
    // Set before the first run, too: what was packed from the old value is not used.
    let mut q = session().load(folder.0.join("p.rlxa")).unwrap();
    q.set_param_shaped("k", set[2].1.clone()).unwrap();
    check(&q, &[("w", numbers(50, &[4, 3])), ("k", set[2].1.clone())], "before the first run");
    assert!(q.set_param("nothing", &[1.0]).is_err());
}

#[test]
fn spec_7_one_of_several_packed_weights_is_set_before_the_first_run() {
    let folder = Folder::new("7-packed");
    let g = transformer();
    let path = file(&folder, &mut session().compile(g.clone()).unwrap());
    let x = numbers(9, &[7, 32]);
    for name in ["0.k", "1.down", "1.scale"] {
        let mut q = session().load(&path).unwrap();
        let dims = q.params().iter().find(|p| &*p.name == name).unwrap().ty.shape.as_static().unwrap();
        let value = small(77, &dims);
        q.set_param_shaped(name, value.clone()).unwrap();
        let want = oracle(&g, std::slice::from_ref(&x), &[(name, value)]);
        same(&want, &q.run_tensors(&[("x", &x)]).unwrap(), name);
    }
}

#[test]
fn spec_7_parameters_without_a_value_stay_so() {
    let folder = Folder::new("7-unset");
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), 4.into()]).unwrap();
    let w = b.param("w", DType::F32, [4, 2]).unwrap();
    let y = b.matmul(x, w).unwrap();
    b.output("y", y).unwrap();
    let module = Module::from_graph(b.finish());
    let mut q = through(&folder, &mut session().compile_hir(&module).unwrap());
    let x = numbers(1, &[3, 4]);
    assert!(q.run_tensors(&[("x", &x)]).unwrap_err().to_string().contains("parameter `w`"));
    q.set_param_shaped("w", numbers(2, &[4, 2])).unwrap();
    let want = oracle(&module.main, std::slice::from_ref(&x), &[("w", numbers(2, &[4, 2]))]);
    same(&want, &q.run_tensors(&[("x", &x)]).unwrap(), "set");
}

#[test]
fn spec_7_states_and_generators_work_from_an_artefact() {
    let folder = Folder::new("7-states");
    let text = "func @main(%x: f32[n]; state %count: f32[] = f32[](10.0) -> %new) -> (new: f32[], u: f32[n]) {
  %sum = reduce(%x) {kind = sum, axes = [0], keep_dims = false}
  %new = add(%count, %sum)
  %u = neg(%x)
  return %new, %u
}";
    let mut p = session().compile_hir(&parse_module(text).unwrap()).unwrap();
    let x = f32s(&[2], &[1.0, 2.0]);
    let step = |p: &mut CompiledGraph| owned(&p.run_borrowed(&[("x", Input::from(&x))]).unwrap());
    assert_eq!(step(&mut p)[0], f32s(&[], &[13.0]));
    // Where it stands is not in the file: it begins as it was declared.
    let mut q = through(&folder, &mut p);
    assert_eq!((step(&mut q)[0].clone(), step(&mut q)[0].clone()), (f32s(&[], &[13.0]), f32s(&[], &[16.0])));
    q.reset_state("count").unwrap();
    assert_eq!(step(&mut q)[0], f32s(&[], &[13.0]));

    let mut b = Builder::new("main");
    let key = b.rng_key().unwrap();
    let u = b.random_uniform(key, DType::F32, [Dim::from(5)], (0.0, 1.0), 0).unwrap();
    b.output("u", u).unwrap();
    let options = CompileOptions::new().rng(Some(RngOptions { seed: 7, offset: 3 }));
    let mut p = session().compile_with(b.finish(), &options).unwrap();
    let mut q = through(&folder, &mut p);
    for _ in 0..3 {
        assert_eq!(owned(&q.run_borrowed(&[]).unwrap()), owned(&p.run_borrowed(&[]).unwrap()));
    }
    q.set_rng(RngOptions { seed: 1, offset: 0 }).unwrap();
    p.set_rng(RngOptions { seed: 1, offset: 0 }).unwrap();
    assert_eq!(owned(&q.run_borrowed(&[]).unwrap()), owned(&p.run_borrowed(&[]).unwrap()));
}

#[test]
fn spec_7_sizes_that_depend_on_data_work_from_an_artefact() {
    let folder = Folder::new("7-data");
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n")]).unwrap();
    let at = b.nonzero(x, "found").unwrap();
    let at = b.transpose(at, &[1, 0]).unwrap();
    let y = b.gather_nd(x, at, 0).unwrap();
    let z = b.softmax(y, 0).unwrap();
    b.output("z", z).unwrap();
    let g = b.finish();
    let q = through(&folder, &mut session().compile(g.clone()).unwrap());
    for v in [&[0.0, 1.0, 0.0, 2.0][..], &[0.0; 4], &[3.0; 4], &[]] {
        let x = f32s(&[v.len()], v);
        same(&oracle(&g, std::slice::from_ref(&x), &[]), &q.run_tensors(&[("x", &x)]).unwrap(), &format!("{v:?}"));
    }
}

#[test]
fn spec_7_options_of_kernels_hold_over_those_saved_and_those_of_graphs_must_agree() {
    let folder = Folder::new("7-options");
    let options = CompileOptions::new().bind_cache(3).memory_limit(Some(1 << 30)).fusion(Fusion::Off);
    let mut p = session().compile_with(dense(), &options).unwrap();
    let path = file(&folder, &mut p);
    let shown = Artefact::open(&path, &LoadOptions::new()).unwrap();
    assert_eq!((shown.options().bind_cache, shown.options().memory_limit), (3, Some(1 << 30)));
    assert_eq!(shown.compiled_with(), [("fusion".to_string(), "Off".to_string())]);
    let x = numbers(1, &[2, 4]);
    let small = Session::with_options(Device::Cpu, CompileOptions::new().memory_limit(Some(1))).unwrap();
    let e = small.load(&path).unwrap().run_tensors(&[("x", &x)]).unwrap_err().to_string();
    assert!(e.contains("memory_limit"), "{e}");
    let with = |o: CompileOptions| Session::with_options(Device::Cpu, o).unwrap().load(&path);
    assert!(with(CompileOptions::new().fusion(Fusion::Off)).is_ok());
    match with(CompileOptions::new().fusion(Fusion::On)) {
        Err(Error::Compile(CompileError::NoEffectAtStage("fusion"))) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn spec_7_header_and_program_are_always_checked() {
    let folder = Folder::new("7-program");
    let path = file(&folder, &mut session().compile(dense()).unwrap());
    let good = std::fs::read(&path).unwrap();
    let program = Artefact::open(&path, &LoadOptions::new()).unwrap().program_bytes();
    let load = |bytes: &[u8], verify: Verify| {
        session().load_bytes(Arc::new(bytes.to_vec()), &LoadOptions::new().verify(verify))
    };
    assert!(load(&good, Verify::All).is_ok());
    for at in 0..128 + program {
        for bit in [1, 0x80] {
            let mut bad = good.clone();
            bad[at] ^= bit;
            match load(&bad, Verify::Program) {
                Err(Error::Artefact(ArtefactError::Damaged(_) | ArtefactError::NotOne)) => {}
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }
    for end in (0..good.len()).step_by(97).chain([good.len() - 1]) {
        assert!(load(&good[..end], Verify::Program).is_err(), "cut at {end}");
    }
    assert!(load(&[good.as_slice(), &[0]].concat(), Verify::Program).is_err());
    for other in [&b""[..], b"\x08\x07", &[0; 4096]] {
        assert!(matches!(load(other, Verify::All), Err(Error::Artefact(ArtefactError::NotOne))));
    }
    assert!(session().load(folder.0.join("none.rlxa")).unwrap_err().to_string().contains("none.rlxa"));
}

#[test]
fn spec_7_weights_are_checked_unless_the_file_is_trusted() {
    let folder = Folder::new("7-weights");
    let path = file(&folder, &mut session().compile(transformer()).unwrap());
    let good = std::fs::read(&path).unwrap();
    let x = numbers(3, &[4, 32]);
    let want = session().load(&path).unwrap().run_tensors(&[("x", &x)]).unwrap();
    let (mut damaged, mut padding) = (0, 0);
    for at in (4096..good.len()).step_by(331) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        let bytes = Arc::new(bad);
        match session().load_bytes(bytes.clone(), &LoadOptions::new()) {
            Err(Error::Artefact(ArtefactError::Damaged(what))) => {
                assert!(what[0].starts_with("tensor "), "{what:?}");
                damaged += 1;
            }
            // Between sections lies nothing.
            Ok(p) => {
                assert_eq!(p.run_tensors(&[("x", &x)]).unwrap(), want, "byte {at}");
                padding += 1;
            }
            Err(e) => panic!("byte {at}: {e}"),
        }
        // A trusted file is taken as it is.
        let trusted = session().load_bytes(bytes, &LoadOptions::new().verify(Verify::Program)).unwrap();
        assert_eq!(trusted.run_tensors(&[("x", &x)]).unwrap()[0].dims(), [4, 32]);
    }
    assert!(damaged > 200 && padding < damaged, "{damaged} {padding}");
}

/// What became of a forged file: refused, failed when it was run, or run.
fn forged(session: &Session, bytes: Vec<u8>) -> usize {
    let how = LoadOptions::new().verify(Verify::Program);
    let Ok(mut p) = session.load_bytes(Arc::new(bytes), &how) else { return 0 };
    // A loop without end is a program, too.
    if p.report().placement.iter().any(|k| matches!(k.kind, "loop" | "scan")) {
        return 0;
    }
    let inputs = p.inputs().iter().filter_map(|i| {
        let dims: Vec<usize> = i.ty.shape.iter().map(|d| d.as_const().map_or(3, |n| n as usize)).collect();
        let small = dims.iter().try_fold(1usize, |a, &d| a.checked_mul(d)).is_some_and(|n| n < 1 << 20);
        Some((i.name.to_string(), Tensor::zeros(i.ty.dtype, &dims).ok().filter(|_| small)?))
    });
    let inputs: Vec<(String, Tensor)> = inputs.collect();
    let named: Vec<(&str, Input<'_>)> = inputs.iter().map(|(n, t)| (n.as_str(), Input::from(t))).collect();
    match p.run_borrowed(&named) {
        Ok(_) => 2,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            1
        }
    }
}

/// A forger's file: hashes fit, the program is anyone's. It may say anything, but neither panic nor leave its memory.
#[test]
fn spec_7_a_forged_program_is_an_error_or_runs_within_its_memory() {
    let folder = Folder::new("7-forged");
    let limits = CompileOptions::new().memory_limit(Some(64 << 20));
    let session = Session::with_options(Device::Cpu, limits).unwrap();
    let random = |seed: u64| {
        let options = rlx::ir::testing::GraphOptions::default();
        rlx::ir::testing::RandomGraph::generate(seed, 1 + seed as usize % 8, &options).module
    };
    // `FORGE=from..to` takes other graphs, and as many places of each as it has bytes.
    let asked = std::env::var("FORGE").ok();
    let range =
        asked.as_deref().and_then(|f| f.split_once("..")).and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    let modules =
        [dense(), transformer()].map(Module::from_graph).into_iter().chain(range.unwrap_or(0..60).map(random));
    let (mut became, mut count) = ([0; 3], 0usize);
    for module in modules {
        let path = file(&folder, &mut session.compile_hir(&module).unwrap());
        let good = std::fs::read(&path).unwrap();
        let program = Artefact::open(&path, &LoadOptions::new()).unwrap().program_bytes();
        let step = if asked.is_some() { 1 } else { 1 + program / 200 };
        for at in (128..128 + program).step_by(step) {
            for change in [1, 0x40, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= change;
                // Now and then a byte is lost or twice there.
                count += 1;
                match count % 16 {
                    0 => drop(bad.remove(at)),
                    1 => bad.insert(at, change),
                    _ => {}
                }
                reseal(&mut bad);
                became[forged(&session, bad)] += 1;
            }
        }
    }
    let [refused, failed, ran] = became;
    assert!(refused > 5000 && failed > 200 && ran > 1000, "{became:?}");
}

#[test]
fn spec_7_another_version_is_an_error() {
    let folder = Folder::new("7-version");
    let path = file(&folder, &mut session().compile(dense()).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    // The version stands first in the program: its length, then its text.
    assert_eq!(&bytes[129..134], b"0.1.0");
    bytes[129] = b'9';
    reseal(&mut bytes);
    match session().load_bytes(Arc::new(bytes.clone()), &LoadOptions::new()) {
        Err(Error::Artefact(ArtefactError::Version { found, ours })) => {
            assert!(found.starts_with("9.1.0") && ours == rlx::compile::version(), "{found} {ours}");
        }
        other => panic!("{other:?}"),
    }
    // A container of another format.
    bytes[8] = 9;
    match session().load_bytes(Arc::new(bytes), &LoadOptions::new()) {
        Err(Error::Artefact(ArtefactError::Damaged(_))) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn spec_7_what_was_made_for_another_machine_is_made_again() {
    let folder = Folder::new("7-machine");
    let g = transformer();
    let portable = CompileOptions::new().isa(Some(rlx::driver::Isa::Portable));
    let theirs = Session::with_options(Device::Cpu, portable).unwrap();
    let mut p = theirs.compile(g.clone()).unwrap();
    let path = file(&folder, &mut p);
    let x = numbers(5, &[6, 32]);
    let want = oracle(&g, std::slice::from_ref(&x), &[]);
    // The same kind of machine takes all.
    let same_kind = theirs.load(&path).unwrap();
    assert!(same_kind.made_again().is_empty());
    assert_eq!(same_kind.run_tensors(&[("x", &x)]).unwrap(), p.run_tensors(&[("x", &x)]).unwrap());
    let best = rlx::driver::Isa::best();
    if best == rlx::driver::Isa::Portable {
        println!("skipped: this machine has one instruction set only");
        return;
    }
    let here = Session::with_options(Device::Cpu, CompileOptions::new().isa(Some(best))).unwrap();
    let q = here.load(&path).unwrap();
    let packed = q.made_again().iter().filter(|k| k.starts_with("packed/")).count();
    assert_eq!(packed, 10, "{:?}", q.made_again());
    let got = q.run_tensors(&[("x", &x)]).unwrap();
    same(&want, &got, "made again");
    assert_eq!(got, here.compile(g).unwrap().run_tensors(&[("x", &x)]).unwrap());
    assert_eq!((q.stats().stored_bytes, q.stats().prepares), (0, 0));
}

#[test]
fn spec_7_another_target_is_an_error_and_graphs_load_on_any_device() {
    let folder = Folder::new("7-target");
    let path = file(&folder, &mut session().compile(dense()).unwrap());
    rlx::register_backend(Device::Hexagon, Arc::new(Lesser::new("other")));
    let other = Session::new(Device::Hexagon).unwrap();
    match other.load(&path) {
        Err(Error::Artefact(ArtefactError::Target { found, target, .. })) => {
            assert_eq!((found.as_str(), target.as_str()), ("cpu", "other"));
        }
        result => panic!("{result:?}"),
    }
    // A backend that makes nothing of what was stored makes it itself.
    let saved = folder.0.join("other.rlxa");
    other.compile(transformer()).unwrap().save(&saved).unwrap();
    let x = numbers(2, &[3, 32]);
    let again = other.load(&saved).unwrap();
    assert!(again.made_again().len() >= 10);
    same(&oracle(&transformer(), std::slice::from_ref(&x), &[]), &again.run_tensors(&[("x", &x)]).unwrap(), "other");

    // A backend of fixed sizes keeps its graph, which any device takes.
    rlx::register_backend(Device::WebGpu, Arc::new(Lesser { symbolic: false, ..Lesser::new("fixed") }));
    let graph = folder.0.join("graph.rlxa");
    Session::new(Device::WebGpu).unwrap().compile(dense()).unwrap().save(&graph).unwrap();
    assert!(Artefact::open(&graph, &LoadOptions::new()).unwrap().target().is_none());
    let x = numbers(2, &[3, 4]);
    let want = oracle(&dense(), std::slice::from_ref(&x), &[]);
    for device in [Device::WebGpu, Device::Cpu, Device::Hexagon] {
        let p = Session::new(device).unwrap().load(&graph).unwrap();
        same(&want, &p.run_tensors(&[("x", &x)]).unwrap(), "graph");
    }
}

#[test]
fn spec_7_sources_left_out_are_given_by_name() {
    let folder = Folder::new("7-sources");
    let path = folder.0.join("p.rlxa");
    let g = transformer();
    let mut p = session().compile(g.clone()).unwrap();
    let whole = p.save(&path).unwrap();
    let saved = p.save_with(&path, &SaveOptions::new().sources(false)).unwrap();
    assert!(saved.sources == 0 && saved.bytes < whole.bytes && saved.made == whole.made, "{saved:?} {whole:?}");
    match session().load(&path) {
        Err(Error::Artefact(ArtefactError::Sources(list))) => assert_eq!(list.len(), 12, "{list:?}"),
        other => panic!("{other:?}"),
    }
    let mut how = LoadOptions::new();
    for param in g.params() {
        how = how.source(&*param.name, param.default.clone().unwrap());
    }
    let x = numbers(2, &[3, 32]);
    let q = session().load_with(&path, &how).unwrap();
    assert_eq!(q.run_tensors(&[("x", &x)]).unwrap(), p.run_tensors(&[("x", &x)]).unwrap());
    assert!(q.stats().stored_bytes > 0);
    // Other contents, another shape.
    for wrong in [numbers(99, &[32, 32]), numbers(99, &[32, 31])] {
        match session().load_with(&path, &how.clone().source("0.q", wrong)) {
            Err(Error::Artefact(ArtefactError::Sources(list))) => assert!(list[0].contains("`0.q`"), "{list:?}"),
            other => panic!("{other:?}"),
        }
    }
}

fn cached(dir: &Path) -> CompileOptions {
    CompileOptions::new().cache_dir(Some(dir.to_path_buf()))
}

#[test]
fn spec_7_the_cache_gives_back_what_was_compiled_from_the_same_graph_and_options() {
    let folder = Folder::new("7-cache");
    let dir = folder.0.join("made/when/needed");
    let compile = |g: Graph, o: CompileOptions| session().compile_with(g, &o).unwrap();
    let first = compile(transformer(), cached(&dir));
    let second = compile(transformer(), cached(&dir).threads(1));
    assert_eq!((first.cache_use(), second.cache_use()), (CacheUse::Kept, CacheUse::Found));
    assert!(second.report().passes.is_empty() && !first.report().passes.is_empty());
    let x = numbers(2, &[3, 32]);
    assert_eq!(first.run_tensors(&[("x", &x)]).unwrap(), second.run_tensors(&[("x", &x)]).unwrap());
    assert_eq!(second.stats().prepares, 0);
    assert!(second.stats().stored_bytes > 0);
    // Nothing is kept unless it is asked for.
    assert_eq!(session().compile(transformer()).unwrap().cache_use(), CacheUse::Off);
    // Each of these is another program.
    let other_constant = Module::from_graph(dense());
    assert_eq!(compile(other_constant.main, cached(&dir)).cache_use(), CacheUse::Kept);
    for o in [
        cached(&dir).fusion(Fusion::Off),
        cached(&dir).isa(Some(rlx::driver::Isa::Portable)),
        cached(&dir).bind_dim("n", 3),
        cached(&dir).bind_param("0.q", numbers(1, &[32, 32])),
        cached(&dir).bind_param("0.q", numbers(2, &[32, 32])),
    ] {
        let name = format!("{:?}", o.explicit());
        let (a, b) = (compile(transformer(), o.clone()), compile(transformer(), o));
        let a = if name.contains("isa") && rlx::driver::Isa::best() == rlx::driver::Isa::Portable {
            CacheUse::Kept
        } else {
            a.cache_use()
        };
        assert_eq!((a, b.cache_use()), (CacheUse::Kept, CacheUse::Found), "{name}");
    }
    // One weight's last bit.
    let mut g = Module::from_graph(transformer());
    let json = g.main.params()[3].default.clone().unwrap();
    let mut bytes = json.bytes().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let changed = Tensor::from_bytes(DType::F32, json.dims(), &bytes).unwrap();
    let name = g.main.params()[3].name.to_string();
    g = with_default(&g, &name, changed);
    assert_eq!(session().compile_hir_with(&g, &cached(&dir)).unwrap().cache_use(), CacheUse::Kept);
}

/// The module with another default value of a parameter, through its text.
fn with_default(m: &Module, name: &str, value: Tensor) -> Module {
    let find = |e: &rlx::ir::text::External<'_>| match e.name == name {
        true => Some(value.clone()),
        false => m.main.params().iter().find(|p| &*p.name == e.name).and_then(|p| p.default.clone()),
    };
    rlx::ir::text::parse_module_with(&m.to_string(), &mut |e| find(e)).unwrap()
}

#[test]
fn spec_7_the_cache_is_bounded_in_bytes_and_the_least_used_goes_first() {
    let folder = Folder::new("7-bounded");
    let dir = &folder.0;
    let make = |k: usize, limit: u64| {
        let mut b = Builder::new("main");
        let x = b.input("x", DType::F32, [Dim::symbol("n"), 64.into()]).unwrap();
        let w = b.param_with("w", numbers(k as u64, &[64, 64])).unwrap();
        let y = b.matmul(x, w).unwrap();
        b.output("y", y).unwrap();
        session().compile_with(b.finish(), &cached(dir).cache_bytes(limit)).unwrap().cache_use()
    };
    let cache = Cache::new(dir, 0);
    std::fs::write(dir.join("not ours"), vec![0; 1 << 20]).unwrap();
    assert!(cache.is_empty());
    make(0, u64::MAX);
    let one = cache.size();
    let limit = 3 * one + one / 2;
    let pause = || std::thread::sleep(std::time::Duration::from_millis(20));
    for k in [1, 2] {
        pause();
        assert_eq!(make(k, limit), CacheUse::Kept);
    }
    pause();
    assert_eq!((make(0, limit), cache.len()), (CacheUse::Found, 3));
    pause();
    // The fourth does not fit: number 1 was not used for longest.
    assert_eq!((make(3, limit), cache.len()), (CacheUse::Kept, 3));
    assert!(cache.size() <= limit);
    for (k, found) in [(0, CacheUse::Found), (2, CacheUse::Found), (1, CacheUse::Kept)] {
        pause();
        assert_eq!(make(k, limit), found, "{k}");
    }
    assert!(dir.join("not ours").exists());
    // Not one fits: nothing stays, and everything runs.
    assert_eq!((make(9, 10), cache.len()), (CacheUse::Kept, 0));
}

#[test]
fn spec_7_damaged_entries_of_the_cache_are_made_again() {
    let folder = Folder::new("7-corrupt");
    let compile = || session().compile_with(transformer(), &cached(&folder.0)).unwrap();
    let x = numbers(2, &[3, 32]);
    let want = compile().run_tensors(&[("x", &x)]).unwrap();
    let entry = std::fs::read_dir(&folder.0).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&entry).unwrap();
    type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);
    let damage: [Damage<'_>; 5] =
        [&|b| b.truncate(100), &|b| b.clear(), &|b| b[140] ^= 1, &|b| *b.last_mut().unwrap() ^= 1, &|b| {
            let middle = b.len() / 2;
            b[middle] ^= 4;
        }];
    for (i, change) in damage.iter().enumerate() {
        let mut bytes = good.clone();
        change(&mut bytes);
        // Written anew: others may have the old file mapped.
        std::fs::remove_file(&entry).unwrap();
        std::fs::write(&entry, &bytes).unwrap();
        let p = compile();
        assert_eq!(p.run_tensors(&[("x", &x)]).unwrap(), want, "{i}");
        if i < 4 {
            assert_eq!(p.cache_use(), CacheUse::Kept, "{i}");
        }
        assert_eq!(compile().cache_use(), CacheUse::Found, "{i}");
    }
    // A folder that cannot be written is no reason to fail.
    let file = folder.0.join("file");
    std::fs::write(&file, b"x").unwrap();
    let p = session().compile_with(transformer(), &cached(&file.join("below"))).unwrap();
    assert_eq!(p.run_tensors(&[("x", &x)]).unwrap(), want);
}

/// Set for the processes that a test starts.
const CHILD: &str = "RLX_TEST_CACHE";

#[test]
fn spec_7_processes_share_a_cache() {
    let run = |dir: &Path| {
        let x = numbers(2, &[3, 32]);
        for _ in 0..20 {
            let p = session().compile_with(transformer(), &cached(dir).cache_bytes(1 << 20)).unwrap();
            same(
                &oracle(&transformer(), std::slice::from_ref(&x), &[]),
                &p.run_tensors(&[("x", &x)]).unwrap(),
                "shared",
            );
            if std::process::id().is_multiple_of(2) {
                // Another one that is as large as all may be.
                session().compile_with(dense(), &cached(dir).cache_bytes(1)).unwrap();
            }
        }
    };
    if let Ok(dir) = std::env::var(CHILD) {
        return run(Path::new(&dir));
    }
    let folder = Folder::new("7-shared");
    let child = || {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "spec7_artefacts::spec_7_processes_share_a_cache"])
            .env(CHILD, &folder.0)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| child()).collect();
    for mut c in children {
        assert!(c.wait().unwrap().success());
    }
    let left: Vec<_> = std::fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|n| n.to_string_lossy().ends_with(".rlxa")), "{left:?}");
}
