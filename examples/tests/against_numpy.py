"""Compares the program `reduce` with NumPy: python3 against_numpy.py path/to/reduce

Types, ranks 1 to 5, C and Fortran order, awkward lengths, every subset of axes; operators in turn.
Prints a line per failure and the number of comparisons last; needs NumPy, and is run by hand.
"""
import itertools, os, subprocess, sys, tempfile
import numpy as np

PROGRAM = sys.argv[1]
SHAPES = [(1,), (7,), (1023,), (4097,), (1, 7), (7, 1023), (4097, 3), (5, 1, 7), (4, 33, 6), (3, 7, 2, 9), (2, 1, 31, 5), (2, 3, 4, 3, 2), (1, 7, 2, 5, 8)]
TYPES = [np.float32, np.float16, np.float64, np.int32]
OPS = ["sum", "mean", "max", "min", "prod"]
TOLERANCE = {np.float32: 2e-5, np.float16: 2e-3, np.float64: 1e-12, np.int32: 0}


def expected(op, array, axes):
    wide = np.float64 if array.dtype.kind == "f" else np.int64
    if op in ("max", "min"):
        return getattr(np, op)(array, axis=axes)
    result = getattr(np, op)(array, axis=axes, dtype=np.float64 if op == "mean" else wide)
    if array.dtype == np.int32:
        return result.astype(np.float32) if op == "mean" else result.astype(np.int32)
    return result


def main():
    rng = np.random.default_rng(20261121)
    turn, failures, count = itertools.cycle(OPS), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in.npy"), os.path.join(folder, "out.npy")
        for dtype, shape, order in itertools.product(TYPES, SHAPES, "CF"):
            for rank in range(1, len(shape) + 1):
                for axes in itertools.combinations(range(len(shape)), rank):
                    op, keep = next(turn), count % 2 == 0
                    values = rng.uniform(0.9, 1.1, shape) if op == "prod" else rng.normal(0, 3, shape)
                    array = np.asarray(np.round(values * 4) if dtype == np.int32 else values, dtype, order=order)
                    np.save(source, array)
                    command = [PROGRAM, source, "--op", op, "--axes", ",".join(map(str, axes)), "--output", target]
                    run = subprocess.run(command + ["--keepdims"] * keep, capture_output=True, text=True)
                    count += 1
                    want = expected(op, array, axes)
                    if keep:
                        want = np.expand_dims(want, axes)
                    if run.returncode:
                        failures += 1
                        print("FAILED", command, run.stderr)
                        continue
                    found = np.load(target)
                    scale = np.abs(array.astype(np.float64)).sum(axis=axes, keepdims=keep) if op == "sum" else np.abs(want)
                    if op == "mean":
                        scale = np.abs(array.astype(np.float64)).mean(axis=axes, keepdims=keep)
                    tolerance = TOLERANCE[dtype] if not (dtype == np.int32 and op == "mean") else 1e-6
                    good = found.shape == want.shape and np.all(np.abs(found.astype(np.float64) - want) <= tolerance * np.maximum(scale, np.abs(want)))
                    if not good:
                        failures += 1
                        print("DIFFERS", dtype.__name__, shape, order, op, axes, found, want)
                    os.remove(target)
    print(f"{count - failures} passed, {failures} failed")
    return failures > 0


sys.exit(main())
