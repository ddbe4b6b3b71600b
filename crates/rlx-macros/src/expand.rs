//! From a model's file to the code that stands for it. Works on text, so that it can be tested outside a compiler.
//!
//! The code holds an artefact of the graph with small tensors, as a literal. Large ones that lie in the model's files as they are stay there:
//! the files are included, and the code says where each lies.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rlx_compile::{CompileOptions, Phase, run_passes};
use rlx_ir::{Module, Tensor};
use rlx_onnx::{ImportOptions, OnnxFile, ReadOptions, Sources};

use crate::signature::{Port, ports};

/// What stands before the path.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// Attributes, documentation among them.
    pub attributes: String,
    /// `pub`, or nothing.
    pub visibility: String,
    /// Name of the struct.
    pub name: String,
}

/// Reads a model; the sources are the files that its weights lie in.
fn read(path: &Path) -> Result<(Module, Sources), String> {
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    if path.extension().is_some_and(|e| e == "rlx") {
        let text = std::fs::read_to_string(path).map_err(|e| at(&e))?;
        let module = rlx_ir::text::parse_module(&text).map_err(|e| at(&e))?;
        return Ok((module, Sources::default()));
    }
    let file = OnnxFile::open(path, &ReadOptions::default()).map_err(|e| at(&e))?;
    let model = file.into_model().map_err(|e| at(&e))?;
    let imported = rlx_onnx::import(&model, &ImportOptions::default()).map_err(|e| at(&e))?;
    Ok((imported.module, model.sources))
}

/// A parameter's value within an included file.
struct Part {
    name: String,
    file: usize,
    offset: usize,
    value: Tensor,
}

/// Bytes as a literal.
fn literal(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(4 * bytes.len() + 3);
    out.push_str("b\"");
    for &b in bytes {
        match b {
            b'"' | b'\\' => out.extend(['\\', char::from(b)]),
            0x20..0x7f => out.push(char::from(b)),
            _ => {
                let _ = write!(out, "\\x{b:02x}");
            }
        }
    }
    out.push('"');
    out
}

/// The code of a model.
pub fn expand(head: &Head, path: &Path) -> Result<String, String> {
    let path = &std::path::absolute(path).map_err(|e| e.to_string())?;
    let (module, sources) = read(path)?;
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    // What is wrong with the graph is told now, by node, and not when the program runs.
    run_passes(module.clone(), None, &CompileOptions::new(), Phase::Recognise).map_err(|e| at(&e))?;
    let g = &module.main;
    let named = |v| g.value(v).name.as_deref().unwrap_or_default().to_string();
    let inputs =
        ports("input", g.inputs().iter().map(|&v| (named(v), g.tensor_type(v).cloned()))).map_err(|e| at(&e))?;
    let outputs = ports("output", g.outputs().iter().map(|o| (o.name.to_string(), g.tensor_type(o.value).cloned())));
    let outputs = outputs.map_err(|e| at(&e))?;

    let (mut files, mut parts): (Vec<PathBuf>, Vec<Part>) = (vec![path.clone()], Vec::new());
    for p in g.params() {
        let Some(t) = p.default.as_ref().filter(|t| t.strings().is_none()) else { continue };
        let Some(slice) = sources.locate(t.bytes()) else { continue };
        let of = std::path::absolute(slice.file().path()).map_err(|e| e.to_string())?;
        let file = files.iter().position(|f| *f == of).unwrap_or_else(|| {
            files.push(of);
            files.len() - 1
        });
        parts.push(Part { name: p.name.to_string(), file, offset: slice.offset(), value: t.clone() });
    }
    let given = |name: &str| parts.iter().any(|p| p.name == name);
    let program = rlx_runtime::artefact::graph_bytes(&module, &CompileOptions::new(), &given).map_err(|e| at(&e))?;
    Ok(code(head, &program, &files, &parts, &inputs, &outputs))
}

fn code(head: &Head, program: &[u8], files: &[PathBuf], parts: &[Part], inputs: &[Port], outputs: &[Port]) -> String {
    let Head { attributes, visibility, name } = head;
    let list = |items: Vec<String>| items.join(", ");
    let includes =
        list(files.iter().map(|f| format!("&*::core::include_bytes!({:?})", f.display().to_string())).collect());
    let places = list(
        parts
            .iter()
            .map(|p| {
                let (dtype, dims) = (format!("{:?}", p.value.dtype()), p.value.dims());
                format!("({:?}, ::rlx::DType::{dtype}, &{dims:?}, {}, {})", p.name, p.file, p.offset)
            })
            .collect(),
    );
    let fields: String = outputs
        .iter()
        .map(|p| format!("/// `{}`: {}\n{visibility} {}: {},\n", p.name, p.ty, p.ident, p.output()))
        .collect();
    let doc: String = inputs.iter().map(|p| format!("/// - `{}`: {}\n", p.ident, p.ty)).collect();
    let arguments = list(inputs.iter().map(|p| format!("{}: {}", p.ident, p.input())).collect());
    let views: String = inputs.iter().map(|p| format!("let {} = {};\n", p.ident, p.view())).collect();
    let refs = list(inputs.iter().map(|p| format!("{}.tensor()", p.ident)).collect());
    let taken: String = outputs.iter().enumerate().map(|(i, p)| format!("{}: {},\n", p.ident, p.take(i))).collect();
    let bytes = program.len();
    format!(
        "{attributes}{visibility} struct {name} {{ program: ::rlx::CompiledGraph }}
/// Outputs of [`{name}`].
#[derive(Clone, Debug, PartialEq)]
{visibility} struct {name}Outputs {{ {fields} }}
#[allow(clippy::too_many_arguments)]
impl {name} {{
    /// Compiles the model for a device.
    {visibility} fn new(device: ::rlx::Device) -> ::core::result::Result<Self, ::rlx::Error> {{
        Self::with_options(device, ::rlx::CompileOptions::new())
    }}
    /// Compiles the model for a device with these options.
    {visibility} fn with_options(device: ::rlx::Device, options: ::rlx::CompileOptions) -> ::core::result::Result<Self, ::rlx::Error> {{
        static PROGRAM: ::rlx::embed::Aligned<{bytes}> = ::rlx::embed::Aligned(*{literal});
        static FILES: &[&[u8]] = &[{includes}];
        static PARTS: &[::rlx::embed::Part] = &[{places}];
        ::core::result::Result::Ok(Self {{ program: ::rlx::embed::load(device, options, &PROGRAM.0, FILES, PARTS)? }})
    }}
    /// Runs the model on:
    ///
    {doc}    {visibility} fn run(&mut self, {arguments}) -> ::core::result::Result<{name}Outputs, ::rlx::Error> {{
        {views}
        let outputs = self.program.run_raw(&[{refs}])?;
        ::core::result::Result::Ok({name}Outputs {{ {taken} }})
    }}
    /// The program, to set parameters and states.
    {visibility} fn program(&mut self) -> &mut ::rlx::CompiledGraph {{
        &mut self.program
    }}
}}
",
        literal = literal(program),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rlx-macros-{}-{count}.rlx", std::process::id()));
        std::fs::write(&path, text).unwrap_or_default();
        let head = Head { name: "Model".into(), visibility: "pub".into(), ..Head::default() };
        let code = expand(&head, &path);
        let _ = std::fs::remove_file(&path);
        code
    }

    #[test]
    fn ports_become_arguments_and_fields() {
        let text =
            "func @main(%x: f32[n, 4], %k: i64[]) -> (y: f32[n, 4], k: i64[]) {\n  %y = exp(%x)\n  return %y, %k\n}\n";
        let code = of(text).unwrap_or_else(|e| e);
        for part in [
            "pub fn run(&mut self, x: &[[f32; 4]], k: i64)",
            "pub y: ::std::vec::Vec<[f32; 4]>",
            "pub k: i64",
            "/// - `x`: f32[n, 4]",
            "self.program.run_raw(&[x.tensor(), k.tensor()])",
        ] {
            assert!(code.contains(part), "{part}\n{code}");
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error_that_names_the_node() {
        let e =
            of("func @main(%x: f32[2, 3], %z: f32[4]) {\n  %sum = add(%x, %z) @\"encoder/add\"\n  return %sum\n}\n")
                .err()
                .unwrap_or_default();
        assert!(e.contains("add") && e.contains("f32[2, 3]") && e.contains("f32[4]"), "{e}");
        let e = of("func @main(%x: c64[2]) {\n  return %x\n}\n").err().unwrap_or_default();
        assert!(e.contains("input `x` is c64[2]"), "{e}");
        let e = expand(&Head::default(), Path::new("nowhere.onnx")).err().unwrap_or_default();
        assert!(e.contains("nowhere.onnx"), "{e}");
    }

    #[test]
    fn literals_hold_every_byte() {
        let all: Vec<u8> = (0..=255).collect();
        let text = literal(&all);
        assert!(
            text.starts_with("b\"\\x00\\x01")
                && text.contains("!\\\"#")
                && text.contains("[\\\\]")
                && text.ends_with("\\xff\""),
            "{text}"
        );
    }
}
