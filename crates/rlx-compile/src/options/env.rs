//! Options from environment variables. The `rlx` program reads them; no library does unless a program calls [`CompileOptions::from_env`].

use super::{CompileOptions, Fusion, MatmulPrecision, Precision, PrecisionPolicy, ScaledQuant};

/// Every variable that [`CompileOptions::from_env`] reads: its name, what it takes, and what it sets.
pub const VARIABLES: &[(&str, &str, &str)] = &[
    ("RLX_ISA", "portable|avx2|avx512|amx|neon", "`isa`: kernels of at most this instruction set"),
    ("RLX_THREADS", "a number", "`threads`: threads of a run; 0 is all that the process may use"),
    ("RLX_PRECISION", "f32|f16|bf16", "`precision`: numbers that activations and weights are kept in"),
    (
        "RLX_POLICY",
        "f32|low:P|mixed:P|conservative:P with P f16 or bf16",
        "`policy`: which ops compute in low precision",
    ),
    ("RLX_MATMUL_PRECISION", "highest|high|medium", "`matmul_precision`: exactness of f32 contractions"),
    (
        "RLX_SCALED_QUANT",
        "int8|fp8-e4m3|fp8-e5m2|mxfp8-e4m3|mxfp8-e5m2|mxfp6-e2m3|mxfp6-e3m2|mxfp4",
        "`scaled_quant`: the format of contractions",
    ),
    ("RLX_FUSION", "on|off|names, comma-separated", "`fusion`: all, none, or all but those named"),
    ("RLX_VERIFY", "0|1", "`verify`: verify after every pass"),
    ("RLX_DUMP_IR", "a folder", "`dump`: where to write the module after every pass"),
    ("RLX_JIT", "0|1", "`jit`: compile scalar programs to machine code"),
    ("RLX_BIND_CACHE", "a number", "`bind_cache`: how many bound shapes are kept"),
    ("RLX_MEMORY_LIMIT", "a number of bytes", "`memory_limit`: what the program may allocate"),
    ("RLX_CACHE_DIR", "a folder", "`cache_dir`: where compiled programs are kept"),
    ("RLX_CACHE_BYTES", "a number of bytes", "`cache_bytes`: what that folder may hold"),
    ("RLX_POISON", "0|1", "`poison`: fill arenas with a pattern before each run"),
];

/// A variable whose text means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("[options-env] {}", .0.iter().map(|(name, text, takes)| format!("{name}={text:?}: it takes {takes}")).collect::<Vec<_>>().join("; "))]
pub struct EnvError(pub Vec<(&'static str, String, &'static str)>);

impl CompileOptions {
    /// The defaults with what the environment sets: see [`VARIABLES`]. All variables that mean nothing are listed in one error; a variable
    /// that is not set, or empty, changes nothing.
    pub fn from_env() -> Result<Self, EnvError> {
        Self::from_variables(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// [`from_env`](Self::from_env) with another source of variables.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, EnvError> {
        let mut options = CompileOptions::new();
        let mut wrong = Vec::new();
        for &(name, takes, _) in VARIABLES {
            let Some(text) = get(name).filter(|t| !t.is_empty()) else { continue };
            match apply(options.clone(), name, &text) {
                Some(o) => options = o,
                None => wrong.push((name, text, takes)),
            }
        }
        if wrong.is_empty() { Ok(options) } else { Err(EnvError(wrong)) }
    }
}

fn precision(text: &str) -> Option<Precision> {
    [Precision::F32, Precision::F16, Precision::BF16].into_iter().find(|p| p.to_string() == text)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "true" | "on" => Some(true),
        "0" | "false" | "off" => Some(false),
        _ => None,
    }
}

/// The options with a variable's text; `None` if it means nothing.
fn apply(o: CompileOptions, name: &str, text: &str) -> Option<CompileOptions> {
    Some(match name {
        "RLX_ISA" => o.isa(Some(text.parse().ok()?)),
        "RLX_THREADS" => o.threads(text.parse().ok()?),
        "RLX_PRECISION" => o.precision(precision(text)?),
        "RLX_POLICY" => o.policy(match text.split_once(':') {
            None if text == "f32" => PrecisionPolicy::AlwaysF32,
            Some(("low", p)) => PrecisionPolicy::AlwaysLow(precision(p)?),
            Some(("mixed", p)) => PrecisionPolicy::Mixed(precision(p)?),
            Some(("conservative", p)) => PrecisionPolicy::ConservativeMixed(precision(p)?),
            _ => return None,
        }),
        "RLX_MATMUL_PRECISION" => o.matmul_precision(match text {
            "highest" => MatmulPrecision::Highest,
            "high" => MatmulPrecision::High,
            "medium" => MatmulPrecision::Medium,
            _ => return None,
        }),
        "RLX_SCALED_QUANT" => o.scaled_quant(Some(ScaledQuant::ALL.into_iter().find(|q| q.to_string() == text)?)),
        "RLX_FUSION" => o.fusion(match (text, switch(text)) {
            (_, Some(true)) => Fusion::On,
            (_, Some(false)) => Fusion::Off,
            (names, None) => Fusion::Without(names.split(',').map(|n| n.trim().to_string()).collect()),
        }),
        "RLX_VERIFY" => o.verify(switch(text)?),
        "RLX_DUMP_IR" => o.dump(Some(text.into())),
        "RLX_JIT" => o.jit(switch(text)?),
        "RLX_BIND_CACHE" => o.bind_cache(text.parse().ok()?),
        "RLX_MEMORY_LIMIT" => o.memory_limit(Some(text.parse().ok()?)),
        "RLX_CACHE_DIR" => o.cache_dir(Some(text.into())),
        "RLX_CACHE_BYTES" => o.cache_bytes(text.parse().ok()?),
        "RLX_POISON" => o.poison(switch(text)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(list: &[(&str, &str)]) -> Result<CompileOptions, EnvError> {
        CompileOptions::from_variables(|n| list.iter().find(|(m, _)| *m == n).map(|(_, v)| v.to_string()))
    }

    #[test]
    fn every_variable_sets_its_option() {
        let values = [
            ("RLX_ISA", "portable"),
            ("RLX_THREADS", "3"),
            ("RLX_PRECISION", "bf16"),
            ("RLX_POLICY", "mixed:bf16"),
            ("RLX_MATMUL_PRECISION", "high"),
            ("RLX_SCALED_QUANT", "mxfp4"),
            ("RLX_FUSION", "row,concat"),
            ("RLX_VERIFY", "1"),
            ("RLX_DUMP_IR", "dir"),
            ("RLX_JIT", "1"),
            ("RLX_BIND_CACHE", "5"),
            ("RLX_MEMORY_LIMIT", "1000"),
            ("RLX_POISON", "1"),
            ("RLX_CACHE_DIR", "dir"),
            ("RLX_CACHE_BYTES", "1000"),
        ];
        assert_eq!(values.len(), VARIABLES.len());
        for v in values {
            let (name, _, sets) = VARIABLES.iter().find(|(n, _, _)| *n == v.0).unwrap();
            let explicit = from(&[v]).unwrap().explicit();
            assert_eq!(explicit.len(), 1, "{name}");
            assert!(sets.starts_with(&format!("`{}`", explicit[0])), "{name} sets {explicit:?}");
        }
        assert_eq!(
            from(&[("RLX_FUSION", "row,concat")]).unwrap().fusion,
            Fusion::Without(vec!["row".into(), "concat".into()])
        );
    }

    #[test]
    fn what_means_nothing_is_one_error() {
        let e = from(&[("RLX_ISA", "avx9"), ("RLX_THREADS", "many"), ("RLX_VERIFY", "1")]).unwrap_err().to_string();
        assert!(e.contains("RLX_ISA=\"avx9\"") && e.contains("avx512") && e.contains("RLX_THREADS"), "{e}");
        assert_eq!(from(&[("RLX_THREADS", "")]).unwrap(), CompileOptions::new());
    }
}
