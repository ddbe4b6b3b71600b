//! Where the cases come from.
//!
//! The `onnx` package of the Python registry, pinned and hash-checked by `requirements.txt`, holds the suites `simple`,
//! `pytorch-operator` and `pytorch-converted` as files and the node cases as programs that write them. Where the folder `../shared`
//! lies beside the repository, its archive of the node cases saves making them. Cases of ONNX Runtime's operators are in
//! `microsoft.zip`, which `make_microsoft.py` makes, more of ONNX's own in `reference.zip` of `make_reference.py`, some with
//! several values of their shapes, axes, scales and the like in `operands.zip` of `make_operands.py`, models as PyTorch's
//! exporters write them in `../exported/models`. All is kept under the build folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The package's version.
const VERSION: &str = "1.23.2";

/// Suites in the order in which they are shown, with the least number of cases that each has.
pub const SUITES: [(&str, usize); 8] = [
    ("node", 1884),
    ("simple", 23),
    ("pytorch-operator", 35),
    ("pytorch-converted", 82),
    ("com.microsoft", 119),
    ("reference", 125),
    ("operands", 100),
    ("pytorch-exported", 60),
];

/// One case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its suite.
    pub suite: &'static str,
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
}

impl Case {
    /// Suite and name.
    pub fn label(&self) -> String {
        format!("{}/{}", self.suite, self.name)
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn kept() -> PathBuf {
    let tmp = option_env!("CARGO_TARGET_TMPDIR").map_or_else(|| repository().join("target/tmp"), PathBuf::from);
    tmp.join(format!("onnx-{VERSION}"))
}

/// The cases whose label contains `filter`, and what had to be left out with its reason.
pub fn find(filter: &str) -> Result<(Vec<Case>, Vec<String>), String> {
    // Tests of one process run side by side; what one makes the others wait for.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let python = Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    let archive = repository().join(format!("../shared/conformance/onnx-node-{VERSION}.tgz"));
    let mut skipped = Vec::new();
    let mut folders = Vec::new();
    if python {
        let site = installed()?;
        folders.extend(SUITES[1..4].iter().map(|&(s, _)| (s, site.join("onnx/backend/test/data").join(s))));
        let node = if archive.exists() { unpacked(&archive)? } else { written(&site)? };
        folders.push(("node", node));
    } else if archive.exists() {
        folders.push(("node", unpacked(&archive)?));
        skipped.push("there is no python3 to fetch the suites simple, pytorch-operator and pytorch-converted".into());
    } else {
        skipped.push("there is no python3 to fetch any suite".into());
    }
    folders.push(("com.microsoft", extracted("microsoft", include_bytes!("../microsoft.zip"))?));
    folders.push(("reference", extracted("reference", include_bytes!("../reference.zip"))?));
    folders.push(("operands", extracted("operands", include_bytes!("../operands.zip"))?));
    folders.push(("pytorch-exported", models()?));
    let mut cases = Vec::new();
    for (suite, folder) in folders {
        let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let before = cases.len();
        for folder in entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.join("model.onnx").exists()) {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            cases.push(Case { suite, name, folder });
        }
        let least = SUITES.iter().find(|(s, _)| *s == suite).map_or(0, |(_, n)| *n);
        if cases.len() - before < least {
            return Err(format!("{}: {} cases, not {least}", folder.display(), cases.len() - before));
        }
    }
    cases.retain(|c| c.label().contains(filter));
    cases.sort_by_key(Case::label);
    Ok((cases, skipped))
}

/// Runs a command that makes `made`, unless it is there. It is made beside its place and moved there when complete.
fn make(made: &Path, commands: impl FnOnce(&Path) -> Vec<Command>) -> Result<(), String> {
    if made.exists() {
        return Ok(());
    }
    let part = made.with_extension(format!("part{}", std::process::id()));
    std::fs::create_dir_all(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    for mut c in commands(&part) {
        let out = c.output().map_err(|e| format!("{c:?}: {e}"))?;
        if !out.status.success() {
            return Err(format!("{c:?}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr)));
        }
    }
    match std::fs::rename(&part, made) {
        // Another test made it meanwhile.
        Err(_) if made.exists() => std::fs::remove_dir_all(&part).map_err(|e| e.to_string()),
        moved => moved.map_err(|e| format!("{}: {e}", made.display())),
    }
}

/// The folder that the package is installed in.
fn installed() -> Result<PathBuf, String> {
    let site = kept().join("site");
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/requirements.txt");
    make(&site, |part| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]);
        pip.args(["--only-binary=:all:", "--target"]).arg(part).arg("-r").arg(requirements);
        vec![pip]
    })?;
    Ok(site)
}

/// The node cases as the package writes them.
fn written(site: &Path) -> Result<PathBuf, String> {
    let node = kept().join("node");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/write_cases.py");
    make(&node, |part| {
        let mut python = Command::new("python3");
        python.arg(script).arg(part).env("PYTHONPATH", site).env("PYTHONDONTWRITEBYTECODE", "1");
        vec![python]
    })?;
    Ok(node)
}

/// The node cases of the archive.
fn unpacked(archive: &Path) -> Result<PathBuf, String> {
    let folder = kept().join("archive");
    make(&folder, |part| {
        let mut tar = Command::new("tar");
        tar.arg("xzf").arg(archive).arg("-C").arg(part);
        vec![tar]
    })?;
    Ok(folder.join("node"))
}

/// The folder of the models that PyTorch exported: an archive each.
pub fn models() -> Result<PathBuf, String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exported/models");
    let entries = std::fs::read_dir(&from).map_err(|e| format!("{}: {e}", from.display()))?;
    let mut archives = Vec::new();
    for path in entries.filter_map(|e| e.ok().map(|e| e.path())).filter(|p| p.extension().is_some_and(|e| e == "zip")) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        archives.push((name, std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?));
    }
    archives.sort();
    let all: Vec<u8> = archives.iter().flat_map(|(n, b)| [n.as_bytes(), b].concat()).collect();
    let folder = kept().join(format!("exported-{:016x}", sum(&all)));
    for (name, bytes) in &archives {
        unzipped(&folder.join(name), bytes)?;
    }
    Ok(folder)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0u64, |h, &b| h.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(b))
}

/// The folder of an archive of cases.
fn extracted(name: &str, bytes: &[u8]) -> Result<PathBuf, String> {
    // Another archive is another folder.
    let folder = kept().join(format!("{name}-{:016x}", sum(bytes)));
    unzipped(&folder, bytes)?;
    Ok(folder)
}

/// Unpacks an archive, unless its folder is there.
fn unzipped(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    if folder.exists() {
        return Ok(());
    }
    let part = folder.with_extension(format!("part{}", std::process::id()));
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(bytes)).map_err(|e| e.to_string())?;
    archive.extract(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    match std::fs::rename(&part, folder) {
        Err(_) if folder.exists() => std::fs::remove_dir_all(&part).map_err(|e| e.to_string()),
        moved => moved.map_err(|e| format!("{}: {e}", folder.display())),
    }
}
