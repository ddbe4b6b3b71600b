//! What a process takes: parameters in mapped files are not copied, and neither new shapes nor new programs let memory grow. One test, so
//! that nothing else of this process allocates meanwhile. Linux tells resident memory; elsewhere nothing is measured, and that is printed.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::path::{Path, PathBuf};

use rlx::{Builder, CompileOptions, CompiledGraph, DType, Device, Dim, Module, Session, Tensor};

const MIB: u64 = 1 << 20;

/// A number of `/proc/self/status`, in bytes.
fn status(key: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

fn anonymous() -> u64 {
    status("RssAnon:").unwrap_or(0)
}

fn session() -> Session {
    Session::with_options(Device::Cpu, CompileOptions::new().threads(2).verify(false)).unwrap()
}

fn numbers(seed: u64, dims: &[usize]) -> Tensor {
    let mut rng = rlx::ir::testing::Rng::new(seed);
    let v: Vec<f32> = (0..dims.iter().product()).map(|_| rng.unit() as f32 * 0.1).collect();
    Tensor::from_slice(dims, &v).unwrap()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// A file of one f32 tensor, written row by row.
fn table_file(path: &Path, rows: usize, columns: usize) {
    use std::io::Write;
    let mut json = format!(
        "{{\"table\":{{\"dtype\":\"F32\",\"shape\":[{rows},{columns}],\"data_offsets\":[0,{}]}}}}",
        rows * columns * 4
    );
    while !json.len().is_multiple_of(8) {
        json.push(' ');
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    file.write_all(&(json.len() as u64).to_le_bytes()).unwrap();
    file.write_all(json.as_bytes()).unwrap();
    for r in 0..rows {
        for _ in 0..columns {
            file.write_all(&(r as f32).to_le_bytes()).unwrap();
        }
    }
}

/// Large parameters bind to a mapped file: memory of our own does not grow by them.
fn mapped_parameters() {
    const ROWS: usize = 200_000;
    let mut b = Builder::new("main");
    let ids = b.input("ids", DType::I64, [Dim::symbol("n")]).unwrap();
    let table = b.param("table", DType::F32, [ROWS, 64]).unwrap();
    let y = b.gather(table, ids, 0).unwrap();
    b.output("y", y).unwrap();
    let mut p = session().compile(b.finish()).unwrap();
    let path = std::env::temp_dir().join(format!("rlx-memory-{}.safetensors", std::process::id()));
    table_file(&path, ROWS, 64);
    let before = anonymous();
    p.load_safetensors(&path).unwrap();
    let ids = Tensor::from_slice(&[3], &[0i64, 77, ROWS as i64 - 1]).unwrap();
    let y = p.run_tensors(&[("ids", &ids)]).unwrap();
    let grown = anonymous().saturating_sub(before);
    assert_eq!(y[0].as_slice::<f32>().unwrap().chunks(64).map(|r| r[5]).collect::<Vec<_>>(), [0.0, 77.0, 199_999.0]);
    println!("a table of {} MiB: {} KiB of our own", (ROWS * 256) as u64 / MIB, grown >> 10);
    assert!(grown < 4 * MIB, "{grown} bytes");
    drop(p);
    std::fs::remove_file(&path).unwrap();
}

fn words(batch: usize, seq: usize) -> Vec<Tensor> {
    let of = |f: &dyn Fn(usize) -> i64| {
        Tensor::from_slice(&[batch, seq], &(0..batch * seq).map(f).collect::<Vec<_>>()).unwrap()
    };
    vec![of(&|i| 1000 + i as i64 % 20000), of(&|_| 1), of(&|_| 0)]
}

fn run(p: &CompiledGraph, inputs: &[Tensor]) {
    let names: Vec<String> = p.inputs().iter().map(|i| i.name.to_string()).collect();
    let named: Vec<(&str, &Tensor)> = names.iter().map(String::as_str).zip(inputs).collect();
    p.run_tensors(&named).unwrap();
}

/// After its first run minilm takes its packed weights, its arena and little more.
fn a_model_from_a_file() {
    let folders = root().ancestors().map(|a| a.join("shared/models/minilm_l6_v2/model.onnx")).collect::<Vec<_>>();
    let Some(path) = folders.into_iter().find(|p| p.is_file()) else {
        println!("skipped: there is no shared/models/minilm_l6_v2 beside the repository");
        return;
    };
    // Forgets the peak so far, where the system lets us.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = anonymous();
    let model = rlx::onnx::load(&path, &rlx::onnx::ImportOptions::default()).unwrap();
    let p = session().compile_hir(&model.module).unwrap();
    drop(model);
    run(&p, &words(1, 128));
    let (grown, s) = (anonymous().saturating_sub(before), p.stats());
    let peak = status("VmHWM:").unwrap_or(0);
    let planned = p.memory_for(&[("batch", 1), ("seq", 128)].into_iter().collect()).unwrap();
    println!(
        "minilm 1x128: {:.1} MiB of our own; packed and prepared {:.1}, arena {:.1}; peak of all resident {:.1}; planned: {planned}",
        grown as f64 / MIB as f64,
        s.prepared_bytes as f64 / MIB as f64,
        s.arena_bytes as f64 / MIB as f64,
        peak as f64 / MIB as f64
    );
    assert!(grown <= s.prepared_bytes + s.arena_bytes + 20 * MIB);
    assert!(s.prepared_bytes <= planned.prepared + planned.packed + planned.packed / 8, "more was packed than planned");
}

fn dense() -> CompiledGraph {
    let mut b = Builder::new("main");
    let x = b.input("x", DType::F32, [Dim::symbol("n"), 64.into()]).unwrap();
    let w = b.param_with("w", numbers(1, &[64, 256])).unwrap();
    let v = b.param_with("v", numbers(2, &[256, 64])).unwrap();
    let y = b.matmul(x, w).unwrap();
    let y = b.relu(y).unwrap();
    let y = b.matmul(y, v).unwrap();
    let y = b.softmax(y, 1).unwrap();
    b.output("y", y).unwrap();
    session().compile(b.finish()).unwrap()
}

/// 2,000 distinct lengths: what is kept is bounded by the largest and by the cache.
fn many_lengths() {
    let p = dense();
    let x = numbers(3, &[2048, 64]);
    let part = |n: usize| Tensor::from_bytes(DType::F32, &[n, 64], &x.bytes()[..n * 256]).unwrap();
    // The largest, and a cache full of bindings.
    for n in (1..=200).chain([2048]) {
        run(&p, &[part(n)]);
    }
    let before = anonymous();
    for n in 1..=2000 {
        run(&p, &[part(n)]);
    }
    let grown = anonymous().saturating_sub(before);
    println!(
        "2,000 lengths: {} KiB more; {} bindings of {} KiB",
        grown >> 10,
        p.stats().bind_entries,
        p.stats().bind_bytes >> 10
    );
    assert!(grown < 2 * MIB, "{grown} bytes");
    assert_eq!(p.stats().bind_entries, 64);
}

/// 200 times load, run, drop.
fn many_programs() {
    let path = root().join("models/silero_vad/model.onnx");
    let cycle = || {
        let model: Module = rlx::onnx::load(&path, &rlx::onnx::ImportOptions::default()).unwrap().module;
        let p = session().compile_hir(&model).unwrap();
        run(&p, &[numbers(1, &[1, 576]), numbers(2, &[2, 1, 128]), Tensor::scalar(16000i64)]);
        let q = p.clone();
        run(&q, &[numbers(1, &[1, 288]), numbers(2, &[2, 1, 128]), Tensor::scalar(8000i64)]);
        run(&dense(), &[numbers(3, &[5, 64])]);
    };
    (0..20).for_each(|_| cycle());
    let before = anonymous();
    (0..200).for_each(|_| cycle());
    let grown = anonymous().saturating_sub(before);
    println!("200 times load, run, drop: {} KiB more", grown >> 10);
    assert!(grown < 4 * MIB, "{grown} bytes");
}

#[test]
fn memory_stays_bounded() {
    if status("RssAnon:").is_none() {
        println!("skipped: this system does not tell resident memory");
        return;
    }
    a_model_from_a_file();
    mapped_parameters();
    many_lengths();
    many_programs();
}
