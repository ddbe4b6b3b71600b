"""Load to first result, and memory: RLX from ONNX and from an artefact, beside ONNX Runtime, each in processes of its own.

    python bench/start.py MODEL.onnx CASE.npz [--rounds 11] [--threads 1] [--rlx target/release/rlx]

Each round starts every engine once, in turn. `inside` is from opening the file to the first result, without starting the process; `process` is the
whole process; `peak` the most memory that the process had resident. Of ONNX Runtime the process without a model (Python, its modules) is shown
too, and `net` is without it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ORT = """
import sys, time, json, resource
import numpy as np, onnxruntime as ort
case = np.load(sys.argv[2])
feed = {k[3:]: case[k] for k in case.files if k.startswith("in.")}
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
inside = 0.0
if sys.argv[1]:
    o = ort.SessionOptions()
    if int(sys.argv[3]): o.intra_op_num_threads = int(sys.argv[3])
    start = time.perf_counter()
    s = ort.InferenceSession(sys.argv[1], o, providers=["CPUExecutionProvider"])
    s.run(None, {i.name: feed[i.name] for i in s.get_inputs()})
    inside = (time.perf_counter() - start) * 1e3
print(json.dumps({"inside": inside, "base": base}))
"""


def run(command, env=None):
    """Runs a process: its output, wall time in ms, peak resident memory in MiB."""
    start = time.perf_counter()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    wall = (time.perf_counter() - start) * 1e3
    p.returncode = 0
    if status != 0:
        sys.exit(f"failed: {command}")
    return out, wall, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("case")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rlx", default="target/release/rlx")
    parser.add_argument("--python", default=sys.executable)
    a = parser.parse_args()
    threads = ["--threads", str(a.threads)] if a.threads else []
    with tempfile.TemporaryDirectory() as folder:
        artefact = os.path.join(folder, "model.rlxa")
        subprocess.run([a.rlx, "compile", a.model, "-o", artefact], check=True, stdout=subprocess.DEVNULL)
        cache = os.path.join(folder, "cache")

        def rlx(file, *more, env=None):
            bench = [a.rlx, "bench", file, "--inputs", a.case, "--seconds", "0.001", "--json", *threads, *more]
            out, _, _ = run(bench, env)
            r = json.loads(out)
            inside = r["load_ms"] + r["compile_ms"] + r["first_run_ms"]
            _, wall, peak = run([a.rlx, "run", file, "--inputs", a.case, "--json", *threads, *more], env)
            return {"inside": inside, "process": wall, "peak": peak}

        def ort(model):
            out, wall, peak = run([a.python, "-c", ORT, model, a.case, str(a.threads)])
            r = json.loads(out)
            return {"inside": r["inside"], "process": wall, "peak": peak, "base": r["base"]}

        kept = {**os.environ, "RLX_CACHE_DIR": cache}
        engines = {
            "rlx artefact": lambda: rlx(artefact),
            "rlx artefact, trusted": lambda: rlx(artefact, "--trust"),
            "rlx onnx": lambda: rlx(a.model, "--no-cache"),
            "rlx onnx, cached": lambda: rlx(a.model, env=kept),
            "onnxruntime": lambda: ort(a.model),
            "python alone": lambda: ort(""),
        }
        rounds = {name: [] for name in engines}
        for name, engine in engines.items():
            engine()  # warms the file cache
        for _ in range(a.rounds):
            for name, engine in engines.items():
                rounds[name].append(engine())
        m = {n: {k: statistics.median(r[k] for r in list_) for k in list_[0]} for n, list_ in rounds.items()}
        o, base = m["onnxruntime"], m["python alone"]
        print(f"{'':24}{'inside ms':>10}{'of ort':>8}{'process ms':>12}{'net':>8}{'peak MiB':>10}{'net':>8}")
        for name, r in m.items():
            python = name in ("onnxruntime", "python alone")
            net = (r["process"] - base["process"], r["peak"] - base["peak"]) if python else (r["process"], r["peak"])
            print(f"{name:24}{r['inside']:10.1f}{r['inside'] / o['inside']:8.2f}{r['process']:12.1f}{net[0]:8.1f}{r['peak']:10.1f}{net[1]:8.1f}")


if __name__ == "__main__":
    main()
