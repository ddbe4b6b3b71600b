"""RLX beside ONNX Runtime and OpenVINO: rounds in turn, same inputs, same threads, medians with spread.

    python bench/compare.py [--threads 1] [--rounds 9] [--seconds 1.0] [--only NAME] [--save NAME]

Prepares its own virtual environment from bench/requirements.txt the first time. Each round runs every engine once for `seconds` after a
warm-up; an engine's figure is the median over rounds of its per-round medians; spread is the smallest and largest of them. A ratio
above 1 says that RLX is faster than the fastest peer of the same round; OpenVINO that was told the sizes before it compiled has a
column and a ratio of its own. Accuracy stands beside it: ‖out − ref‖ / ‖ref‖ of each engine, the reference being the f64 one of
reference.py, or where there is none ONNX Runtime without graph optimisation (marked *). RLX is timed inside its own process,
the peers through their Python packages, whose calls cost some 10 µs. PyTorch is compared where it is installed (`--engines
…,pytorch`, see torch_peer.py).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reference import f64_outputs
from torch_peer import Torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SHARED = ROOT.parent / "shared" / "models"


def enter_venv():
    """Re-runs this script inside the pinned environment."""
    venv = HERE / ".venv"
    python = venv / "bin" / "python"
    if Path(sys.prefix).resolve() == venv.resolve():
        return
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(HERE / "requirements.txt")], check=True)
    os.execv(str(python), [str(python), *sys.argv])


def model_files():
    """The models that are there: name -> path. Skeletons are filled into a cache."""
    files = {"silero_vad": ROOT / "models" / "silero_vad" / "model.onnx"}
    for name in ["magika", "ppocr_cls", "ppocr_det", "minilm_l6_v2"]:
        path = SHARED / name / "model.onnx"
        if path.exists():
            files[name] = path
    cache = HERE / ".cache"
    for name in ["mobilenet_v2", "resnet50", "bert_base"]:
        skeleton = SHARED / "skeletons" / f"{name}.onnx"
        full = cache / f"{name}.onnx"
        if not full.exists() and skeleton.exists():
            cache.mkdir(exist_ok=True)
            tool = SHARED.parent / "tools" / "strip_model.py"
            subprocess.run([sys.executable, str(tool), "fill", str(skeleton), str(full)], check=True)
        if full.exists():
            files[name] = full
    return files


def made(files):
    """Models that the bench makes the first time they are asked for: name -> how."""
    import models

    return {
        "minilm_dynamic": lambda: models.minilm_dynamic(files.get("minilm_l6_v2", HERE / "none")),
        "minilm_weights": models.minilm_weights_only,
        "gpt2": models.gpt2,
    }


def workloads(only=""):
    """(name, model, inputs as name -> array) of every workload whose name contains `only`."""
    import numpy as np

    rng = np.random.default_rng(0)
    files = model_files()
    makers = made(files)
    out = []

    def add(label, model, **inputs):
        if only not in label:
            return
        path = makers[model]() if model in makers else files.get(model)
        if path is not None and path.exists():
            out.append((label, path, inputs))

    def tokens(b, s, vocab):
        return dict(
            input_ids=rng.integers(0, vocab, (b, s), dtype=np.int64),
            attention_mask=np.ones((b, s), np.int64),
            token_type_ids=np.zeros((b, s), np.int64),
        )

    for b, s in [(1, 16), (1, 128), (8, 128)]:
        add(f"minilm {b}x{s}", "minilm_l6_v2", **tokens(b, s, 30522))
    for b, s in [(1, 128), (8, 128)]:
        add(f"bert_base {b}x{s}", "bert_base", **tokens(b, s, 30522))
    add("resnet50 b1", "resnet50", input=rng.standard_normal((1, 3, 224, 224), dtype=np.float32))
    add("mobilenet_v2 b1", "mobilenet_v2", input=rng.standard_normal((1, 3, 224, 224), dtype=np.float32))
    add("ppocr_det 160x224", "ppocr_det", x=rng.standard_normal((1, 3, 160, 224), dtype=np.float32))
    add("ppocr_cls b1", "ppocr_cls", x=rng.standard_normal((1, 3, 48, 192), dtype=np.float32))
    add("magika b1", "magika", bytes=rng.integers(0, 256, (1, 2048), dtype=np.int32))
    add(
        "silero_vad b1",
        "silero_vad",
        input=rng.standard_normal((1, 576), dtype=np.float32) * np.float32(0.1),
        state=np.zeros((2, 1, 128), np.float32),
        sr=np.array(16000, np.int64),
    )
    for kind in ["dynamic", "weights"]:
        for b, s in [(1, 16), (1, 128), (8, 128)]:
            add(f"minilm int8 {kind} {b}x{s}", f"minilm_{kind}", **tokens(b, s, 30522))
    cached = lambda: rng.standard_normal((1, 12, 128, 64), dtype=np.float32)
    add(
        "gpt2 decode at 128",
        "gpt2",
        input_ids=rng.integers(0, 50257, (1, 1), dtype=np.int64),
        position_ids=np.full((1, 1), 128, np.int64),
        **{f"past.{i}.{c}": cached() for i in range(12) for c in "kv"},
    )
    return out


class Ort:
    """ONNX Runtime, all optimisations on."""

    name = "onnxruntime"

    def __init__(self, path, inputs, threads, optimise=True):
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        levels = ort.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimise else levels.ORT_DISABLE_ALL
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.inputs = inputs

    def outputs(self):
        return self.session.run(None, self.inputs)

    def round(self, seconds):
        return timed(lambda: self.session.run(None, self.inputs), seconds)


class OpenVino:
    """OpenVINO in f32, tuned for latency."""

    name = "openvino"
    static = False

    def __init__(self, path, inputs, threads):
        import openvino as ov

        hints = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
        }
        core = ov.Core()
        model = core.read_model(str(path))
        if self.static:
            model.reshape({name: list(value.shape) for name, value in inputs.items()})
        self.compiled = core.compile_model(model, "CPU", hints)
        self.request = self.compiled.create_infer_request()
        for name, value in inputs.items():
            self.request.set_tensor(name, ov.Tensor(value, shared_memory=False))

    def outputs(self):
        self.request.infer()
        return [self.request.get_output_tensor(i).data.copy() for i in range(len(self.compiled.outputs))]

    def round(self, seconds):
        return timed(self.request.infer, seconds)


class StaticOpenVino(OpenVino):
    """The same, told the sizes before it compiles: it is faster then, and serves these sizes alone."""

    name = "openvino-static"
    static = True


def timed(run, seconds):
    """The median of the times of `run` over some seconds, after a warm-up of a tenth of them; in milliseconds."""
    warm = time.perf_counter()
    while time.perf_counter() - warm < seconds / 10:
        run()
    times, start = [], time.perf_counter()
    while time.perf_counter() - start < seconds or len(times) < 3:
        t = time.perf_counter()
        run()
        times.append((time.perf_counter() - t) * 1e3)
    return statistics.median(times)


class Rlx:
    """The `rlx` program, one process a round."""

    name = "rlx"

    def __init__(self, program, path, inputs, threads, folder):
        import numpy as np

        self.npz = folder / f"{abs(hash((str(path), threads)))}.npz"
        np.savez(self.npz, **inputs)
        self.args = [str(program), "%s", str(path), "--inputs", str(self.npz), "--threads", str(threads)]
        self.folder = folder

    def command(self, verb, *more):
        args = [a if a != "%s" else verb for a in self.args] + list(more)
        done = subprocess.run(args, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(args)}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def outputs(self, names):
        import numpy as np

        out = self.folder / "rlx_out.npz"
        self.command("run", "--output", str(out))
        with np.load(out) as z:
            return [z[n] for n in names]

    def round(self, seconds):
        return json.loads(self.command("bench", "--seconds", str(seconds), "--json"))["latency_ms"]["median"]


def norm_error(out, ref):
    import numpy as np

    num = sum(float(np.sum((a.astype(np.float64) - b.astype(np.float64)) ** 2)) for a, b in zip(out, ref))
    den = sum(float(np.sum(b.astype(np.float64) ** 2)) for b in ref)
    return (num / den) ** 0.5 if den else 0.0


def machine():
    """What the figures were taken on."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    fields = {k.strip(): v.strip() for k, v in fields.items()}
    flags = fields.get("flags", "").split()
    isa = next((f for f in ["amx_bf16", "avx512f", "avx2", "asimd"] if f in flags), "baseline")
    return f"{fields.get('model name', 'unknown processor')}, {os.cpu_count()} cores, {isa}"


def measure(label, path, inputs, args, folder):
    """One workload: every engine in turn, round after round."""
    ort = Ort(path, inputs, args.threads)
    names = [o.name for o in ort.session.get_outputs()]
    reference = f64_outputs(path, inputs, names) if args.f64 else None
    in_f64 = reference is not None
    if not in_f64:
        reference = Ort(path, inputs, args.threads, optimise=False).outputs()
    rlx = Rlx(args.rlx, path, inputs, args.threads, folder)
    engines = [rlx] + [e for e in [ort] if e.name in args.engines]
    makers = [
        (OpenVino.name, lambda: OpenVino(path, inputs, args.threads)),
        (StaticOpenVino.name, lambda: StaticOpenVino(path, inputs, args.threads)),
        (Torch.name, lambda: Torch(label, inputs, args.threads)),
    ]
    for name, make in makers:
        try:
            if name in args.engines:
                engines.append(make())
        except Exception as error:  # a peer that cannot load a model is no reason to stop
            print(f"{label}: {name}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
    errors = {e.name: norm_error(e.outputs(names) if e is rlx else e.outputs(), reference) for e in engines if e.name != Torch.name}
    times = {e.name: [] for e in engines}
    for i in range(args.rounds):
        # Who goes first changes every round, so that nobody always runs on a warmer machine.
        turn = i % len(engines)
        for e in engines[turn:] + engines[:turn]:
            times[e.name].append(timed(e.run, args.seconds) if e.name == Torch.name else e.round(args.seconds))
    peers = [e.name for e in engines[1:] if e.name != StaticOpenVino.name]
    ratio = [min(times[p][i] for p in peers) / t for i, t in enumerate(times["rlx"])] if peers else []
    static = [a / b for a, b in zip(times.get(StaticOpenVino.name, []), times["rlx"])]
    spread = lambda v: dict(median=statistics.median(v), min=min(v), max=max(v))
    return dict(
        workload=label,
        threads=args.threads,
        ms={name: spread(t) for name, t in times.items()},
        error=errors,
        f64=in_f64,
        ratio=spread(ratio) if ratio else None,
        static=spread(static) if static else None,
    )


def table(rows, engines):
    """The results as a table for people; `ratio` is the fastest peer's time over RLX's, round by round, `static` OpenVINO's with known sizes."""
    exact = [e for e in engines if e != Torch.name]
    lines = [
        "| workload | threads | " + " | ".join(f"{e} ms" for e in engines) + " | ratio (spread) | static (spread) | "
        + " | ".join(f"error {e}" for e in exact) + " |",
        "|" + "---|" * (4 + len(engines) + len(exact)),
    ]
    for r in rows:
        ms = [f"{r['ms'][e]['median']:.3f}" if e in r["ms"] else "–" for e in engines]
        star = "" if r["f64"] else "*"
        errors = [f"{r['error'][e]:.1e}{star}" if e in r["error"] else "–" for e in exact]
        ratios = [f"{q['median']:.2f} ({q['min']:.2f}–{q['max']:.2f})" if q else "–" for q in (r["ratio"], r["static"])]
        lines.append(f"| {r['workload']} | {r['threads']} | " + " | ".join([*ms, *ratios, *errors]) + " |")
    return lines


def plot(rows, path, title):
    """Ratios as bars with their spread."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [r for r in rows if r["ratio"]][::-1]
    fig, ax = plt.subplots(figsize=(7, 0.45 * len(rows) + 1.2))
    mid = [r["ratio"]["median"] for r in rows]
    low = [m - r["ratio"]["min"] for m, r in zip(mid, rows)]
    high = [r["ratio"]["max"] - m for m, r in zip(mid, rows)]
    colours = ["#3b7dd8" if m >= 1 else "#d8763b" for m in mid]
    ax.barh([r["workload"] for r in rows], mid, xerr=[low, high], color=colours, capsize=3)
    ax.axvline(1.0, color="black", linewidth=1)
    ax.set_xlabel("times as fast as the fastest peer")
    ax.set_title(title, fontsize=9)
    fig.tight_layout()
    fig.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each engine in each round")
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--engines", default="onnxruntime,openvino,openvino-static", help="the peers, separated by commas")
    parser.add_argument("--no-f64", dest="f64", action="store_false", help="compare with ONNX Runtime's unoptimised results instead")
    parser.add_argument("--rlx", default=str(ROOT / "target" / "release" / "rlx"))
    parser.add_argument("--save", default="", help="also write bench/results/NAME.{json,md,svg}")
    args = parser.parse_args()
    enter_venv()
    args.engines = args.engines.split(",")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for label, path, inputs in workloads(args.only):
            r = measure(label, path, inputs, args, Path(folder))
            rows.append(r)
            times = "  ".join(f"{e} {t['median']:9.3f} ms" for e, t in r["ms"].items())
            errors = "  ".join(f"{e} {x:.1e}" for e, x in r["error"].items())
            q = r["ratio"]
            ratio = f"ratio {q['median']:5.2f} ({q['min']:.2f}..{q['max']:.2f})  " if q else ""
            ratio += f"static {r['static']['median']:5.2f}  " if r["static"] else ""
            print(f"{label:18} {times}  {ratio}error {errors}", flush=True)
    if args.save:
        folder = HERE / "results"
        folder.mkdir(exist_ok=True)
        engines = ["rlx", *args.engines]
        head = f"{machine()}; {args.rounds} rounds of {args.seconds} s, {args.threads} thread(s), f32"
        (folder / f"{args.save}.json").write_text(json.dumps(dict(machine=head, rows=rows), indent=1) + "\n")
        (folder / f"{args.save}.md").write_text("\n".join([head, "", *table(rows, engines)]) + "\n")
        plot(rows, folder / f"{args.save}.svg", head)


if __name__ == "__main__":
    main()
