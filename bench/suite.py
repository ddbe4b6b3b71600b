"""The time of ONNX's node cases: RLX (five ways each, checked) and ONNX Runtime (one way, checked), in turn.

    python bench/suite.py [--rounds 3]

ONNX Runtime's time is that of reading, compiling and running each case it can, on one thread, within one process; RLX's is what its
conformance runner prints (`cargo run --release -p rlx --example conformance -- node/`), on all threads that it takes.
"""

import argparse
import re
import statistics
import subprocess
import time

from compare import ROOT, enter_venv


def onnxruntime_once():
    """Seconds for all cases, and how many gave the values expected, others, or could not be run."""
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import numpy_helper

    # Where RLX's runner has put the cases.
    kept = ROOT / "target" / "tmp"
    folder = next(p for g in ["onnx-*/archive/node", "onnx-*/node"] for p in kept.glob(g))
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    ort.set_default_logger_severity(4)

    def read(path):
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        return numpy_helper.to_array(tensor)

    counts = {"equal": 0, "other": 0, "cannot": 0}
    start = time.perf_counter()
    for case in sorted(folder.iterdir()):
        try:
            session = ort.InferenceSession(str(case / "model.onnx"), options, providers=["CPUExecutionProvider"])
            for data in sorted(case.glob("test_data_set_*")):
                names = [i.name for i in session.get_inputs()]
                values = [read(data / f"input_{k}.pb") for k in range(len(names))]
                found = session.run(None, dict(zip(names, values)))
                wanted = [read(data / f"output_{k}.pb") for k in range(len(found))]
                close = lambda a, b: a.shape == b.shape and np.allclose(
                    np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-3, atol=1e-5, equal_nan=True
                )
                counts["equal" if all(map(close, found, wanted)) else "other"] += 1
        except Exception:
            counts["cannot"] += 1
    return time.perf_counter() - start, counts


def rlx_once():
    """Seconds as the runner prints them, and its last lines."""
    command = ["cargo", "run", "--release", "-q", "-p", "rlx", "--example", "conformance", "--", "node/"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return float(re.findall(r"^([0-9.]+) s$", text, re.M)[-1]), text.strip().splitlines()[-8:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    rlx, ort = [], []
    for _ in range(rounds):
        seconds, tail = rlx_once()
        rlx.append(seconds)
        seconds, counts = onnxruntime_once()
        ort.append(seconds)
    print("\n".join(tail))
    print(f"ONNX Runtime: {counts}")
    for name, times in [("rlx, five ways", rlx), ("onnxruntime, one way", ort)]:
        print(f"{name:22} median {statistics.median(times):6.2f} s  ({min(times):.2f}..{max(times):.2f})")


if __name__ == "__main__":
    enter_venv()
    main()
