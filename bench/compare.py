"""RLX beside ONNX Runtime: rounds in turn, same inputs, same threads, medians with spread.

    python bench/compare.py [--threads 1] [--rounds 9] [--seconds 1.0] [--only NAME] [--rlx target/release/rlx]

Prepares its own virtual environment from bench/requirements.txt the first time. Each round runs every engine once for `seconds` after a
warm-up; an engine's figure is the median over rounds of its per-round medians; spread is the smallest and largest of them. A ratio
above 1 says that RLX is faster. Accuracy stands beside it: ‖out − ref‖ / ‖ref‖ of each engine, the reference being the case's own outputs where the
model has one (minilm: made in f64), else ONNX Runtime without graph optimisation.
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


def workloads():
    """(name, model, inputs as name -> array) of every workload."""
    import numpy as np

    rng = np.random.default_rng(0)
    files = model_files()
    out = []

    def add(label, model, **inputs):
        if model in files:
            out.append((label, files[model], inputs))

    def tokens(b, s, vocab):
        return dict(
            input_ids=rng.integers(0, vocab, (b, s), dtype=np.int64),
            attention_mask=np.ones((b, s), np.int64),
            token_type_ids=np.zeros((b, s), np.int64),
        )

    for b, s in [(1, 16), (1, 128), (8, 128)]:
        add(f"minilm {b}x{s}", "minilm_l6_v2", **tokens(b, s, 30522))
    add("bert_base 1x128", "bert_base", **tokens(1, 128, 30522))
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
        warm = time.perf_counter()
        while time.perf_counter() - warm < seconds / 10:
            self.session.run(None, self.inputs)
        times, start = [], time.perf_counter()
        while time.perf_counter() - start < seconds or len(times) < 3:
            t = time.perf_counter()
            self.session.run(None, self.inputs)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--rlx", default=str(ROOT / "target" / "release" / "rlx"))
    parser.add_argument("--save", default="", help="also write the table to bench/results/NAME.md and NAME.json")
    args = parser.parse_args()
    enter_venv()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for label, path, inputs in workloads():
            if args.only and args.only not in label:
                continue
            ort = Ort(path, inputs, args.threads)
            rlx = Rlx(args.rlx, path, inputs, args.threads, Path(folder))
            names = [o.name for o in ort.session.get_outputs()]
            reference = Ort(path, inputs, args.threads, optimise=False).outputs()
            error = norm_error(rlx.outputs(names), reference)
            ort_error = norm_error(ort.outputs(), reference)
            a, b = [], []
            for i in range(args.rounds):
                # Who goes first changes every round, so that neither always runs on a warmer machine.
                for engine, times in [(rlx, a), (ort, b)][:: 1 if i % 2 == 0 else -1]:
                    times.append(engine.round(args.seconds))
            ratio = [y / x for x, y in zip(a, b)]
            row = dict(
                workload=label, threads=args.threads, rlx_ms=statistics.median(a), rlx_min=min(a), rlx_max=max(a),
                ort_ms=statistics.median(b), ort_min=min(b), ort_max=max(b), ratio=statistics.median(ratio),
                ratio_min=min(ratio), ratio_max=max(ratio), rlx_error=error, ort_error=ort_error,
            )
            rows.append(row)
            print(
                f"{label:20} rlx {row['rlx_ms']:9.3f} ms  onnxruntime {row['ort_ms']:9.3f} ms  "
                f"ratio {row['ratio']:5.2f} ({row['ratio_min']:.2f}..{row['ratio_max']:.2f})  "
                f"error {error:.1e} (onnxruntime {ort_error:.1e})",
                flush=True,
            )
    if args.save:
        folder = HERE / "results"
        folder.mkdir(exist_ok=True)
        (folder / f"{args.save}.json").write_text(json.dumps(rows, indent=1) + "\n")
        lines = ["| workload | threads | rlx ms | onnxruntime ms | ratio (spread) | ‖err‖/‖ref‖ rlx | onnxruntime |", "|---|---|---|---|---|---|---|"]
        lines += [
            f"| {r['workload']} | {r['threads']} | {r['rlx_ms']:.3f} | {r['ort_ms']:.3f} | {r['ratio']:.2f} ({r['ratio_min']:.2f}–{r['ratio_max']:.2f}) | {r['rlx_error']:.1e} | {r['ort_error']:.1e} |"
            for r in rows
        ]
        (folder / f"{args.save}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
