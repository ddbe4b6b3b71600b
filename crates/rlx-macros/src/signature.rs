//! Inputs and outputs of a model as Rust types.

use rlx_ir::{DType, Dim, TensorType};

/// Arrays of more elements than this would not fit a stack: they are views.
const MAX_ARRAY: usize = 1 << 16;

/// How a tensor looks in Rust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// No axes.
    Scalar,
    /// Sizes of all axes.
    Array(Vec<usize>),
    /// Sizes of all axes but the first.
    Slice(Vec<usize>),
    /// Number of axes.
    View(usize),
}

/// An input or output.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// Its name in Rust.
    pub ident: String,
    /// Rust's type of an element.
    pub element: &'static str,
    /// How it looks.
    pub form: Form,
    /// Its type in the model, for documentation.
    pub ty: String,
}

/// Rust's type of an element.
fn element(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::F16 => "::rlx::embed::f16",
        DType::BF16 => "::rlx::embed::bf16",
        DType::Bool => "bool",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "u8",
        DType::U16 => "u16",
        DType::U32 => "u32",
        DType::U64 => "u64",
        _ => return None,
    })
}

fn form(dims: &[Dim]) -> Form {
    let fixed: Vec<Option<usize>> = dims.iter().map(|d| d.as_const().and_then(|n| usize::try_from(n).ok())).collect();
    let arrays = |sizes: &[Option<usize>]| -> Option<Vec<usize>> {
        let sizes: Vec<usize> = sizes.iter().copied().collect::<Option<_>>()?;
        let n = sizes.iter().try_fold(1usize, |a, &d| a.checked_mul(d))?;
        (n > 0 && n <= MAX_ARRAY).then_some(sizes)
    };
    match fixed.split_first() {
        None => Form::Scalar,
        Some((_, rest)) => match (arrays(&fixed), arrays(rest)) {
            (Some(all), _) => Form::Array(all),
            (None, Some(rest)) if fixed.first() == Some(&None) => Form::Slice(rest),
            _ => Form::View(dims.len()),
        },
    }
}

/// A name that Rust takes.
fn identifier(name: &str, kind: &str, number: usize) -> String {
    const KEYWORDS: &str = "as async await box break const continue crate do dyn else enum extern false final fn for if impl in let loop macro \
                            match mod move mut pub ref return self static struct super trait true try type unsafe use where while yield";
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    if out.trim_matches('_').is_empty() {
        out = format!("{kind}{number}");
    }
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    if KEYWORDS.split(' ').any(|k| k == out) {
        out.push('_');
    }
    out
}

/// Ports with names that differ.
pub fn ports(kind: &str, list: impl Iterator<Item = (String, Option<TensorType>)>) -> Result<Vec<Port>, String> {
    let mut out: Vec<Port> = Vec::new();
    let mut wrong = Vec::new();
    for (i, (name, ty)) in list.enumerate() {
        let found = ty.as_ref().and_then(|t| Some((element(t.dtype)?, form(t.shape.dims()), t.to_string())));
        let Some((element, form, ty)) = found else {
            let ty = ty.map_or("no tensor".into(), |t| t.to_string());
            wrong.push(format!(
                "{kind} `{name}` is {ty}: Rust has no type for its elements; run such a model through a `Session`"
            ));
            continue;
        };
        let mut ident = identifier(&name, kind, i);
        while out.iter().any(|p| p.ident == ident) {
            ident.push('_');
        }
        out.push(Port { name, ident, element, form, ty });
    }
    if wrong.is_empty() { Ok(out) } else { Err(wrong.join("\n")) }
}

impl Port {
    /// `T` in arrays of these sizes, from outermost to innermost.
    fn nested(&self, sizes: &[usize]) -> String {
        sizes.iter().rev().fold(self.element.to_string(), |t, n| format!("[{t}; {n}]"))
    }

    /// The type of an input.
    pub fn input(&self) -> String {
        match &self.form {
            Form::Scalar => self.element.to_string(),
            Form::Array(sizes) => format!("&{}", self.nested(sizes)),
            Form::Slice(rest) => format!("&[{}]", self.nested(rest)),
            Form::View(rank) => format!("::rlx::embed::View<'_, {}, {rank}>", self.element),
        }
    }

    /// The type of an output.
    pub fn output(&self) -> String {
        match &self.form {
            Form::Scalar => self.element.to_string(),
            Form::Array(sizes) => format!("::std::boxed::Box<{}>", self.nested(sizes)),
            Form::Slice(rest) => format!("::std::vec::Vec<{}>", self.nested(rest)),
            Form::View(rank) => format!("::rlx::embed::Array<{}, {rank}>", self.element),
        }
    }

    /// An expression: the input as sizes and elements.
    pub fn view(&self) -> String {
        let x = &self.ident;
        let flat = |levels: usize| format!("{x}.as_slice(){}", ".as_flattened()".repeat(levels));
        match &self.form {
            Form::Scalar => format!("::rlx::embed::View::new([], ::core::slice::from_ref(&{x}))"),
            Form::Array(sizes) => format!("::rlx::embed::View::new({sizes:?}, {})", flat(sizes.len() - 1)),
            Form::Slice(rest) => {
                let sizes: Vec<String> =
                    std::iter::once(format!("{x}.len()")).chain(rest.iter().map(ToString::to_string)).collect();
                let flat = format!("{x}{}", ".as_flattened()".repeat(rest.len()));
                format!("::rlx::embed::View::new([{}], {flat})", sizes.join(", "))
            }
            Form::View(_) => x.clone(),
        }
    }

    /// An expression of result number `i` of `outputs` as its type.
    pub fn take(&self, i: usize) -> String {
        let array =
            |rank: usize| format!("::rlx::embed::take::<{}, {rank}>(&outputs, {i}, {:?})?", self.element, self.name);
        let chunks = |sizes: &[usize]| {
            let cuts: String = sizes.iter().rev().map(|n| format!(".as_chunks::<{n}>().0")).collect();
            format!("{}.data{cuts}.to_vec()", array(sizes.len() + 1))
        };
        match &self.form {
            Form::Scalar => format!("::rlx::embed::one({})?", array(0)),
            Form::Array(sizes) => {
                let rows = chunks(sizes.get(1..).unwrap_or(&[]));
                format!("::rlx::embed::boxed({rows}, {:?})?", self.name)
            }
            Form::Slice(rest) => chunks(rest),
            Form::View(rank) => array(*rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, dims: &[Dim]) -> Port {
        ports("input", [(name.to_string(), Some(TensorType::new(DType::F32, dims.to_vec())))].into_iter())
            .unwrap()
            .remove(0)
    }

    #[test]
    fn fixed_sizes_are_arrays_and_open_ones_slices_or_views() {
        let n = || Dim::symbol("n");
        let types = |dims: &[Dim]| (port("x", dims).input(), port("x", dims).output());
        assert_eq!(types(&[]), ("f32".into(), "f32".into()));
        assert_eq!(types(&[2.into(), 3.into()]), ("&[[f32; 3]; 2]".into(), "::std::boxed::Box<[[f32; 3]; 2]>".into()));
        assert_eq!(types(&[n(), 3.into()]), ("&[[f32; 3]]".into(), "::std::vec::Vec<[f32; 3]>".into()));
        assert_eq!(types(&[n()]).0, "&[f32]");
        for dims in [[3.into(), n()], [n(), n()], [0.into(), 4.into()], [1000.into(), 1000.into()]] {
            assert_eq!(types(&dims).0, "::rlx::embed::View<'_, f32, 2>");
        }
    }

    #[test]
    fn names_become_ones_that_rust_takes() {
        let of = |name: &str| port(name, &[]).ident;
        assert_eq!(
            (of("Input:0"), of("3d"), of("type"), of("…")),
            ("input_0".into(), "_3d".into(), "type_".into(), "input0".into())
        );
        let twice = ["a.b", "a:b"].map(|n| (n.to_string(), Some(TensorType::new(DType::I64, Vec::<Dim>::new()))));
        let idents: Vec<String> = ports("input", twice.into_iter()).unwrap().into_iter().map(|p| p.ident).collect();
        assert_eq!(idents, ["a_b", "a_b_"]);
        let strange = [("z".to_string(), Some(TensorType::new(DType::C64, vec![Dim::ONE])))];
        assert!(ports("output", strange.into_iter()).unwrap_err().contains("output `z` is c64[1]"));
    }
}
