//! Runs `tests/filetests/<kind>/*.rlx` at the root of the repository.
//!
//! The first line of a file is `// run: STEPS [name=value …]`. The steps, separated by commas, are one of the kinds below or names of
//! passes, which run in order. Cases are separated by a line `// ----`. In a case the text above the line `// expect:` is the input;
//! the comments below it are what must come out. With `BLESS=1` in the environment the expectations are rewritten.
//!
//! - `parse`: the module as it prints, or the errors of the parser.
//! - `verify`: `ok`, or the errors of the verifier.
//! - `eval`: one line for each output and state after the run, or the error. Comments `input NAME: TENSOR`, `param NAME: TENSOR`,
//!   `state NAME: TENSOR` and `size SYMBOL: INTEGER` give what the run starts from. Option `f64=true` accumulates in f64.
//! - `lower`: the program of kernels, then the remarks, or the error; the plan is checked too. Option `fusion=off` fuses nothing,
//!   `without=a,b` leaves these fusions out.
//! - passes: the module that the last one gives, then their remarks, or the error. Option `claims=a,b` says what the target takes;
//!   `policy`, `matmul` and `quant` are what the variables of the environment take, `attention=on` quantises attention.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rlx_compile::target::InputStage;
use rlx_compile::{Claims, CompileOptions, Fusion, run_pass};
use rlx_ir::attr::AttrValue;
use rlx_ir::eval::{EvalInputs, evaluate};
use rlx_ir::op::EvalOptions;
use rlx_ir::text::parse_module;
use rlx_ir::{DType, Module, Tensor, Value, verify};

type Options = BTreeMap<String, String>;

/// What a case gives, as text; the error as the text of its expectation.
fn run(steps: &[&str], options: &Options, input: &str) -> Result<String, String> {
    let module = match (parse_module(input), steps) {
        (Ok(m), _) => m,
        (Err(e), ["parse"]) => return Ok(format!("error: {e}\n")),
        (Err(e), _) => return Err(format!("the input does not parse: {e}")),
    };
    Ok(match steps {
        ["parse"] => {
            let text = module.to_string();
            let again = parse_module(&text).map_err(|e| format!("printed text does not parse: {e}\n{text}"))?;
            if again.to_string() != text {
                return Err(format!("printing is not stable:\n{text}\n{again}"));
            }
            text
        }
        ["verify"] => verify(&module).map_or_else(|e| format!("error: {e}\n"), |()| "ok\n".into()),
        ["eval"] => {
            verify(&module).map_err(|e| e.to_string())?;
            eval(&module, options, input)?
        }
        ["lower"] => {
            verify(&module).map_err(|e| e.to_string())?;
            lower(&module, options)?
        }
        passes => {
            verify(&module).map_err(|e| e.to_string())?;
            run_steps(module, passes, options)?
        }
    })
}

fn run_steps(mut module: Module, passes: &[&str], options: &Options) -> Result<String, String> {
    let claims = options.get("claims").map(|list| Claims {
        ops: list.split(',').map(Into::into).collect(),
        dtypes: DType::ALL.iter().copied().collect(),
        symbolic_shapes: true,
        in_place: true,
        growing_states: true,
        scaled_operands: true,
        joined_products: true,
        ..Claims::new("test", InputStage::Lir)
    });
    let variable = |name: &str| match name {
        "RLX_POLICY" => options.get("policy").cloned(),
        "RLX_MATMUL_PRECISION" => options.get("matmul").cloned(),
        "RLX_SCALED_QUANT" => options.get("quant").cloned(),
        _ => None,
    };
    let compile = CompileOptions::from_variables(variable).map_err(|e| e.to_string())?.verify(true);
    let compile = compile.scaled_quant_attention(options.get("attention").is_some_and(|v| v == "on"));
    let mut remarks = String::new();
    for name in passes {
        match run_pass(name, &module, claims.as_ref(), &compile) {
            Ok((new, report)) => {
                module = new;
                report.remarks.iter().for_each(|r| remarks.push_str(&format!("remark: {r}\n")));
            }
            Err(e) => return Ok(format!("error: {e}\n")),
        }
    }
    Ok(format!("{module}{remarks}"))
}

fn lower(module: &Module, options: &Options) -> Result<String, String> {
    let claims = Claims {
        symbolic_shapes: true,
        in_place: true,
        growing_states: true,
        scaled_operands: true,
        joined_products: true,
        ..Claims::new("test", InputStage::Lir)
    };
    let fusion = match (options.get("fusion").map(String::as_str), options.get("without")) {
        (Some("off"), _) => Fusion::Off,
        (_, Some(names)) => Fusion::Without(names.split(',').map(Into::into).collect()),
        _ => Fusion::On,
    };
    let mut remarks = Vec::new();
    let lir = match rlx_compile::lower::lower(module, &claims, &CompileOptions::default().fusion(fusion), &mut remarks)
    {
        Ok(lir) => lir,
        Err(e) => return Ok(format!("error: {e}\n")),
    };
    rlx_compile::lower::check::check(&lir).map_err(|faults| format!("{}\n{lir}", faults.join("\n")))?;
    let remarks: String = remarks.iter().map(|r| format!("remark: {r}\n")).collect();
    Ok(format!("{lir}{remarks}"))
}

fn eval(module: &Module, options: &Options, input: &str) -> Result<String, String> {
    let mut start = EvalInputs::default();
    let mut given: BTreeMap<String, Tensor> = BTreeMap::new();
    for line in input.lines().filter_map(|l| l.strip_prefix("// ")) {
        let Some((kind, rest)) = line.split_once(' ') else { continue };
        let Some((name, value)) = rest.split_once(": ") else { continue };
        let tensor = || Tensor::parse(value).map_err(|e| format!("{kind} {name}: {e}"));
        match kind {
            "input" => drop(given.insert(name.into(), tensor()?)),
            "param" => drop(start.params.insert(name.into(), tensor()?)),
            "state" => drop(start.states.insert(name.into(), tensor()?)),
            "size" => drop(start.binding.set(name, value.parse().map_err(|e| format!("size {name}: {e}"))?)),
            _ => {}
        }
    }
    for &v in module.main.inputs() {
        let name = module.main.value(v).name.as_deref().unwrap_or("");
        let t = given.remove(name).ok_or_else(|| format!("no `// input {name}: …`"))?;
        start.inputs.push(t.into());
    }
    if let Some(name) = given.keys().next() {
        return Err(format!("the graph has no input `{name}`"));
    }
    let f64_accumulate = options.get("f64").is_some_and(|v| v == "true");
    let mut out = String::new();
    match evaluate(module, &start, EvalOptions { f64_accumulate, ..EvalOptions::default() }) {
        Err(e) => out = format!("error: {e}\n"),
        Ok(results) => {
            for (o, v) in module.main.outputs().iter().zip(&results.outputs) {
                writeln!(out, "{}: {}", o.name, value_text(v)).unwrap();
            }
            for (name, t) in &results.states {
                writeln!(out, "state {name}: {}", t.print()).unwrap();
            }
        }
    }
    Ok(out)
}

fn value_text(v: &Value) -> String {
    match v {
        Value::Tensor(t) => t.print(),
        Value::Sequence(items) => format!("[{}]", items.iter().map(value_text).collect::<Vec<_>>().join(", ")),
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(v)) => format!("some {}", value_text(v)),
    }
}

fn as_comments(text: &str) -> String {
    text.lines().map(|l| if l.is_empty() { "//\n".into() } else { format!("// {l}\n") }).collect()
}

/// What is wrong with a case.
#[derive(Debug, PartialEq)]
enum Problem {
    /// It gives something else than is expected, which blessing mends.
    Differs(String),
    /// It cannot be run as it stands.
    Bad(String),
}

/// Runs a file's cases; gives the file with fresh expectations, and what is wrong.
fn run_file(text: &str) -> (String, Vec<Problem>) {
    let (first, body) = text.split_once('\n').unwrap_or((text, ""));
    let Some(header) = first.strip_prefix("// run: ") else {
        return (text.into(), vec![Problem::Bad("the first line must be `// run: …`".into())]);
    };
    let (options, steps): (Vec<&str>, Vec<&str>) = header.split_whitespace().partition(|w| w.contains('='));
    let options: Options =
        options.iter().filter_map(|o| o.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
    let steps = steps.join("");
    let steps: Vec<&str> = steps.split(',').filter(|s| !s.is_empty()).collect();
    let (mut fresh, mut problems) = (format!("{first}\n"), Vec::new());
    for (i, case) in body.split("// ----\n").enumerate() {
        let (input, expected) = case.split_once("// expect:\n").unwrap_or((case, ""));
        if i > 0 {
            fresh.push_str("// ----\n");
        }
        match run(&steps, &options, input) {
            Ok(got) => {
                let got = as_comments(&got);
                if got != expected {
                    problems.push(Problem::Differs(format!("case {i}: expected\n{expected}got\n{got}")));
                }
                write!(fresh, "{}\n// expect:\n{got}", input.trim_end()).unwrap();
            }
            Err(e) => {
                problems.push(Problem::Bad(format!("case {i}: {e}")));
                fresh.push_str(case);
            }
        }
    }
    (fresh, problems)
}

fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/filetests");
    let list = |dir: &Path| -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        paths.sort();
        paths
    };
    let kinds = list(&root).into_iter().filter(|p| p.is_dir());
    kinds.flat_map(|k| list(&k)).filter(|p| p.extension().is_some_and(|e| e == "rlx")).collect()
}

#[test]
fn filetests() {
    let bless = std::env::var_os("BLESS").is_some_and(|v| v == "1");
    let (mut failed, mut count) = (Vec::new(), 0);
    for path in files() {
        count += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let (fresh, problems) = run_file(&text);
        if bless {
            std::fs::write(&path, fresh).unwrap();
        }
        let name = path.components().rev().take(2).map(|c| c.as_os_str().to_string_lossy()).collect::<Vec<_>>();
        for p in problems {
            match p {
                Problem::Differs(_) if bless => {}
                Problem::Differs(p) | Problem::Bad(p) => failed.push(format!("{}/{}: {p}", name[1], name[0])),
            }
        }
    }
    assert!(count > 0, "no filetests found");
    assert!(failed.is_empty(), "{}\nBLESS=1 rewrites expectations", failed.join("\n"));
}

#[test]
fn a_wrong_expectation_fails() {
    let case = "// run: parse\nfunc @f(%x: f32[n]) { return %x }\n// expect:\n// nothing\n";
    let (fresh, problems) = run_file(case);
    assert_eq!(problems.len(), 1);
    assert_eq!(run_file(&fresh), (fresh.clone(), Vec::new()));
    assert_eq!(run_file("func @f() { return }").1.len(), 1);
    assert!(!run_file("// run: no-such-pass\nfunc @f() { return }\n// expect:\n").1.is_empty());
}
