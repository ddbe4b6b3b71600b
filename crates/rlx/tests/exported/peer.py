"""Runs files and what RLX wrote of them in ONNX Runtime, and compares.

    python peer.py FOLDER

FOLDER/<name>/ holds the original `model.onnx` with test_data_set_<k>/input_<i>.pb, or *.npz with arrays of the inputs' names, and
`written.onnx`. Prints a line for each model whose outputs differ, and how many agree; the exit status tells whether all do.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper


def feeds(folder, names):
    """Arrays by name, for each data set."""
    sets = sorted(folder.glob("test_data_set_*"))
    for s in sets:
        files = sorted(s.glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
        yield dict(zip(names, (numpy_helper.to_array(onnx.load_tensor(f)) for f in files)))
    for file in sorted(folder.glob("*.npz")):
        data = np.load(file)
        find = lambda n: next((data[k] for k in (n, f"in.{n}", f"input.{n}", f"in_{n}") if k in data.files), None)
        yield {n: v for n in names if (v := find(n)) is not None}


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def compare(folder):
    """What is wrong with a model, the peer's own failures apart: `None` if nothing is, and whether it ran."""
    try:
        whole = session(folder / "model.onnx")
    except Exception as e:
        return False, f"ONNX Runtime does not load the original: {str(e).splitlines()[0][:120]}"
    runs = []
    for feed in feeds(folder, [i.name for i in whole.get_inputs()]):
        try:
            runs.append((feed, whole.run(None, feed)))
        except Exception as e:
            return False, f"ONNX Runtime does not run the original: {str(e).splitlines()[0][:120]}"
    if not runs:
        return False, "there is no data"
    written = session(folder / "written.onnx")
    for k, (feed, want) in enumerate(runs):
        for o, w, g in zip(whole.get_outputs(), want, written.run(None, feed)):
            if w.dtype != g.dtype or w.shape != g.shape:
                raise ValueError(f"set {k}: `{o.name}` is {g.dtype}{g.shape}, should be {w.dtype}{w.shape}")
            if w.dtype.kind in "fc":
                wide = np.float64 if w.dtype.kind == "f" else np.complex128
                rtol = 1e-2 if w.dtype.itemsize == 2 else 1e-3
                if not np.allclose(g.astype(wide), w.astype(wide), rtol=rtol, atol=1e-4, equal_nan=True):
                    raise ValueError(f"set {k}: `{o.name}` differs by {np.nanmax(np.abs(g - w)):.2e}")
            elif not np.array_equal(g, w):
                raise ValueError(f"set {k}: `{o.name}` differs")
    return True, None


def main(root):
    good, wrong = 0, 0
    for folder in sorted(p.parent for p in root.glob("*/written.onnx")):
        try:
            ran, why = compare(folder)
        except Exception as e:
            ran, why = True, str(e).splitlines()[0][:300]
        if why is None:
            good += 1
        elif ran:
            wrong += 1
            print(f"WRONG {folder.name}: {why}")
        else:
            print(f"SKIPPED {folder.name}: {why}")
    print(f"{good} agree, {wrong} do not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
