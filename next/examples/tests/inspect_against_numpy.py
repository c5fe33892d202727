"""Compares `inspect --json` with NumPy: python3 inspect_against_numpy.py path/to/inspect MODEL.safetensors [BACKEND]

NumPy reads the file on its own and computes in float64. Prints a line per difference and the number of
figures last; needs NumPy, and is run by hand.
"""
import json, subprocess, sys
import numpy as np

TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "?"}


def tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    for name, about in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        low, high = about["data_offsets"]
        raw = data[start + low : start + high]
        if about["dtype"] == "BF16":
            array = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif about["dtype"] in TYPES:
            array = np.frombuffer(raw, TYPES[about["dtype"]])
        else:
            continue
        yield name, about, array


def figures(array):
    if array.size == 0:
        none = dict.fromkeys(["mean", "std", "min", "max", "max_magnitude", "zeros_share"])
        return none | {"nans": 0, "infinities": 0}
    wide, is_float = array.astype(np.float64), array.dtype.kind == "f"
    low, high = array.min().item(), array.max().item()
    return {
        "mean": wide.mean(),
        "std": wide.std(),
        "min": low,
        "max": high,
        "max_magnitude": {"f": float(np.abs(wide).max()), "b": high}.get(array.dtype.kind, max(abs(low), abs(high))),
        "zeros_share": np.count_nonzero(array == 0) / array.size,
        "nans": int(np.isnan(array).sum()) if is_float else 0,
        "infinities": int(np.isinf(array).sum()) if is_float else 0,
    }


def agree(name, found, want, scale):
    if want is None or found is None:
        return found is want
    if isinstance(want, float):
        found = float(found)  # also of "NaN", "inf" and "-inf"
        if not np.isfinite(want):
            return np.array_equal(found, want, equal_nan=True)
        # Means and deviations may have been computed in f32.
        return abs(found - want) <= (1e-6 * scale if name in ("mean", "std") else 0)
    return found == want and isinstance(found, bool) == isinstance(want, bool)


def expected(array):
    """The figures, and what the errors of mean and deviation are relative to."""
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = figures(array)
        scale = float(np.abs(array.astype(np.float64)).mean() + abs(wanted["std"])) if array.size else 0
    return wanted, scale


def main():
    program, path, *backend = sys.argv[1:]
    run = subprocess.run([program, path, "--json", *(["--backend", *backend] if backend else [])], capture_output=True, text=True)
    if run.returncode == 2:
        sys.exit(run.stderr)
    report = json.loads(run.stdout)
    rows = {row["name"]: row for row in report["tensors"]}
    passed, failed, refused, worst = 0, 0, 0, 0.0

    def compare(name, about, good, row, wanted, scale):
        nonlocal passed, failed, worst
        for figure, want in wanted.items():
            found = row[figure]
            if good and agree(figure, found, want, scale):
                passed += 1
                if figure in ("mean", "std") and want is not None and np.isfinite(want) and scale:
                    worst = max(worst, abs(found - want) / scale)
            else:
                failed += 1
                print("DIFFERS", name, about, figure, found, want)

    inspected, types = [], set()
    for name, about, array in tensors(path):
        row = rows.pop(name)
        if "error" in row:
            refused += 1
            print("REFUSED", name, row["error"])
            continue
        good = row["shape"] == about["shape"] and row["dtype"] == about["dtype"].lower()
        compare(name, about, good, row, *expected(array))
        inspected.append(array)
        types.add(about["dtype"])
    total = report["total"]
    # Without tensors, there is a total of no elements.
    one_type = len(types) == 1
    whole = np.concatenate([array if one_type else array.astype(np.float64) for array in inspected] or [np.empty(0)])
    good = total["tensors"] == len(inspected) and total["elements"] == whole.size and (total["dtype"] is not None) == one_type
    compare("total", [len(inspected), whole.size, one_type], good, total, *expected(whole))
    for name, row in rows.items():
        print("NOT COMPARED", name, row["dtype"], row.get("error", ""))
    print(f"on {report['device']}: {passed} figures agree, {failed} differ, {refused} tensors refused; mean and std are off by {worst:.1e} at most, relative to mean |x| + std")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
