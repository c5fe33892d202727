"""Compares the program `reduce` with NumPy: python3 against_numpy.py path/to/reduce [BACKEND]

Every operator on every element type that NumPy has, in turn, over every subset of axes of arrays of rank 1
to 5, in C and Fortran order and both byte orders; plain values, and values sprinkled with ties, zeros,
infinities and NaN. Every third run is a scan instead of a reduction, of which some positions are compared
with the reduction of the elements up to there, and all of them with NumPy's own scan where that is exact. NumPy computes in float64, or exactly for integers. Prints a line per failure, what
the device lacks, and the number of comparisons last; needs NumPy, and is run by hand.
"""
import collections, itertools, os, subprocess, sys, tempfile, warnings
import numpy as np

PROGRAM, BACKEND = sys.argv[1], sys.argv[2:3]
SHAPES = [(1,), (7,), (1023,), (4097,), (300007,), (1, 7), (7, 1023), (4097, 3), (3, 40001), (5, 1, 7), (4, 33, 6), (3, 7, 2, 9), (2, 1, 31, 5), (2, 3, 4, 3, 2), (1, 7, 2, 5, 8)]
TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
# Relative errors that are granted to a result, by the type it is computed in and that of the result.
COMPUTED = {"f4": 2e-5, "f8": 1e-12}
ROUNDED = {"f2": 1e-3, "f4": 1e-7, "f8": 3e-16}
NAMES = {"f2": "f16", "f4": "f32", "f8": "f64", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64", "?": "bool"}
# The names of scans that are functions, and NumPy's own scans.
FUNCTIONS = {"sum": "cumsum", "prod": "cumprod", "max": "cummax", "min": "cummin", "max_with_index": "cummax_with_positions", "min_with_index": "cummin_with_positions", "logsumexp": "logcumsumexp", "mean": "cummean", "var": "cumvar", "mean_var": "cummean_var", "all": "cumall", "any": "cumany"}
ACCUMULATED = {"sum": np.cumsum, "prod": np.cumprod, "max": np.maximum.accumulate, "min": np.minimum.accumulate}
CORRECTED = {"var", "std", "mean_var", "nanvar", "nanstd"}
# What a device may lack; everything else that the program refuses is a failure.
LACKS = ["has no", "needs functions"]


class Exact:
    """A result that must be equal, type and all."""

    def __init__(self, want, dtype=None):
        self.want = np.asarray(want) if dtype is None else np.asarray(want).astype(dtype)

    def check(self, found, _):
        return found.dtype == self.want.dtype and np.array_equal(found, self.want, equal_nan=found.dtype.kind == "f")


class Near:
    """A floating point result; its error is relative to `scale`."""

    def __init__(self, want, scale=None):
        self.want, self.scale = want, np.abs(want) if scale is None else scale

    def check(self, found, types):
        computed, result = types
        if found.dtype != np.dtype(result):
            return False
        want = self.want.astype(result).astype(np.float64)  # beyond the type's range is infinite
        error = COMPUTED[computed] * self.scale + ROUNDED[result] * np.abs(want)
        found = found.astype(np.float64)
        near = np.abs(found - want) <= error + np.finfo(result).smallest_subnormal
        same = (found == want) | (np.isnan(found) & np.isnan(want))
        return np.all(np.where(np.isfinite(want), near, same))


def first(rows, best):
    """Where `best` stands first in each row; 0 if it is NaN, as `reduce` has it of nothing but NaN."""
    return np.argmax(rows == best[:, None], axis=1)


def norm(wide, p):
    most = np.abs(wide).max(axis=1)
    safe = np.where((most > 0) & np.isfinite(most), most, 1)
    return np.where(np.isfinite(most), safe * ((np.abs(wide) / safe[:, None]) ** p).sum(axis=1) ** (1 / p), most)


def integers(op, rows, result):
    """Sums and products of integers, which wrap."""
    rows = rows.astype(result)
    rows = {"sum_abs": np.abs(rows) if rows.dtype.kind == "i" else rows, "sum_squares": rows * rows}.get(op, rows)
    return Exact((np.prod if "prod" in op else np.sum)(rows, axis=1, dtype=result))


def expected(op, rows, ddof, p, result):
    """What each result must be; `rows` has a row for each output."""
    is_float, wide = rows.dtype.kind == "f", rows.astype(np.float64)
    size = np.abs(wide)
    if op in ("sum", "prod", "sum_abs", "sum_squares", "nansum", "nanprod") and np.dtype(result).kind != "f":
        return [integers(op, rows, result)]
    mean_scale = np.nan_to_num(size, nan=0.0, posinf=0.0).mean(axis=1)
    extreme = {"min": np.min, "max": np.max, "nanmin": np.nanmin, "nanmax": np.nanmax}
    positions = {"argmin": np.argmin, "argmax": np.argmax}
    match op:
        case "sum": return [Near(wide.sum(axis=1), mean_scale * rows.shape[1])]
        case "nansum": return [Near(np.nansum(wide, axis=1), mean_scale * rows.shape[1])]
        case "prod": return [Near(wide.prod(axis=1))]
        case "nanprod": return [Near(np.nanprod(wide, axis=1))]
        case "mean": return [Near(wide.mean(axis=1), mean_scale)]
        case "nanmean": return [Near(np.nanmean(wide, axis=1), size.shape[1] * mean_scale / np.maximum((~np.isnan(wide)).sum(axis=1), 1))]
        case "min" | "max" | "nanmin" | "nanmax": return [Exact(extreme[op](rows, axis=1))]
        case "min_max": return [Exact(rows.min(axis=1)), Exact(rows.max(axis=1))]
        case "argmin" | "argmax": return [Exact(positions[op](rows, axis=1), np.uint32)]
        case "nanargmin" | "nanargmax": return [Exact(first(rows, extreme["nan" + op[-3:]](rows, axis=1)), np.uint32)]
        case "min_with_index" | "max_with_index":
            return [Exact(extreme[op[:3]](rows, axis=1)), Exact(positions["arg" + op[:3]](rows, axis=1), np.uint32)]
        case "any": return [Exact(rows.any(axis=1))]
        case "all": return [Exact(rows.all(axis=1))]
        case "any_non_finite": return [Exact((~np.isfinite(rows)).any(axis=1))]
        case "count_nonzero": return [Exact(np.count_nonzero(rows, axis=1), np.uint32)]
        case "sum_abs" | "norm_l1": return [Near(size.sum(axis=1))]
        case "sum_squares": return [Near((wide * wide).sum(axis=1))]
        case "norm_l2": return [Near(np.sqrt((wide * wide).sum(axis=1)))]
        case "norm_inf": return [Near(size.max(axis=1))]
        case "norm_p": return [Near(norm(wide, p))]
        case "var": return [Near(wide.var(axis=1, ddof=ddof))]
        case "std": return [Near(wide.std(axis=1, ddof=ddof))]
        case "nanvar": return [Near(np.nanvar(wide, axis=1, ddof=ddof))]
        case "nanstd": return [Near(np.nanstd(wide, axis=1, ddof=ddof))]
        case "mean_var":
            # Means are followed as distances, which infinities do not have (docs/SEMANTICS.md).
            mean = np.where(np.isfinite(wide).all(axis=1), wide.mean(axis=1), np.nan)
            return [Near(mean, mean_scale), Near(wide.var(axis=1, ddof=ddof))]
        case "logsumexp":
            want = np.logaddexp.reduce(wide, axis=1)
            return [Near(want, np.abs(np.nan_to_num(want, posinf=0.0, neginf=0.0)) + 1)]
    raise ValueError(f"no comparison for {op}")


def at_positions(rng, op, rows, way, ddof, p, types):
    """The results of a scan at some positions: each position with what each result must be there."""
    (exclusive, reverse), length, found = way, rows.shape[1], []
    computed, result = types
    if op in CORRECTED and rows.dtype.kind in "iu":
        # The variance of a few neighbours shows that each was rounded.
        rows = rows.astype(computed)
    for place in sorted({0, length - 1, *rng.integers(length, size=3).tolist()}):
        first, end = (place + exclusive, length) if reverse else (0, place + 1 - exclusive)
        if first < end:
            results = expected(op, rows[:, first:end], ddof, p, result)
            for at in [0] if "arg" in op else [1] if "with_index" in op else []:
                results[at].want += np.uint32(first)
            found.append((place, results))
    own = ACCUMULATED.get(op)
    if own and (np.dtype(result).kind != "f" or op in ("max", "min")):
        ordered = rows[:, ::-1] if reverse else rows
        wide = own(ordered, axis=1, **({"dtype": result} if op in ("sum", "prod") else {}))
        wide = wide[:, : length - exclusive]
        wide = wide[:, ::-1] if reverse else wide
        found.append((slice(0 if reverse else int(exclusive), length - 1 if reverse and exclusive else length), [Exact(wide)]))
    return found


def values(rng, dtype, op, shape, sprinkled):
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(shape) < (0.5 if sprinkled else 0.9)
    if kind in "iu":
        info = np.iinfo(dtype)
        low, high = (max(info.min, -3), 4) if sprinkled else (info.min, info.max)
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    array = rng.uniform(0.9, 1.1, shape) if "prod" in op else rng.normal(1, 3, shape)
    if sprinkled:
        array = np.round(array * 4) / 4
        specials = [[0.0, -0.0], [np.nan], [np.inf], [-np.inf], [np.nan, np.inf], [np.inf, -np.inf, 0.0]]
        for special in specials[rng.integers(len(specials))]:
            array[rng.random(shape) < rng.choice([0.001, 0.05, 0.6])] = special
    return array


def types_of(op, dtype, wanted):
    """The types that floating point results are computed in and come in; that of integer sums."""
    if np.dtype(dtype).kind == "f":
        return ("f8" if "f8" in (dtype, wanted) else "f4"), wanted or dtype
    if wanted:
        return wanted, wanted
    if op in ("sum", "prod", "sum_abs", "sum_squares", "nansum", "nanprod"):
        kind, size = ("i" if np.dtype(dtype).kind == "i" else "u"), max(np.dtype(dtype).itemsize, 4)
        return f"{kind}{size}", f"{kind}{size}"
    return "f4", "f4"


def wider(op, dtype, count):
    """For every fifth case, a type to ask for."""
    sums = ("sum", "prod", "sum_abs", "sum_squares", "nansum", "nanprod")
    floats = ("mean", "nanmean", "var", "std", "nanvar", "nanstd", "mean_var", "norm_l1", "norm_l2", "norm_inf")
    if count % 5 or op not in sums + floats:
        return None
    if np.dtype(dtype).kind == "f" or op in floats:
        return "f8"
    return "i8" if np.dtype(dtype).kind == "i" else "u8"


def operators():
    run = subprocess.run([PROGRAM, "none", "--op", "none"], capture_output=True, text=True)
    return run.stderr.split("expected one of ")[1].strip().split(", ")


def main():
    np.seterr(all="ignore")
    warnings.simplefilter("ignore")  # of rows of NaN alone, of nothing left after a correction
    rng = np.random.default_rng(20261121)
    ops = operators()
    lacking, covered, failures, passed, count = collections.Counter(), set(), 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        source, targets = os.path.join(folder, "in.npy"), [os.path.join(folder, f"{nth}.npy") for nth in range(3)]
        for dtype in TYPES:
            turn = itertools.cycle(rng.permutation(ops))
            for shape in SHAPES:
                for axes in (axes for rank in range(1, len(shape) + 1) for axes in itertools.combinations(range(len(shape)), rank)):
                    op, count = str(next(turn)), count + 1
                    sprinkled, keep, order = rng.random() < 0.6, rng.random() < 0.3, "CF"[rng.integers(2)]
                    ddof, p, wanted = rng.integers(2), rng.choice([0.5, 1.0, 2.0, 3.0, 7.5]), wider(op, dtype, count)
                    array = np.asarray(values(rng, dtype, op, shape, sprinkled), dtype, order=order)
                    np.save(source, array.astype(array.dtype.newbyteorder("<>"[rng.integers(2)]), order="K"))
                    kept = [axis for axis in range(len(shape)) if axis not in axes]
                    rows = array.transpose(kept + list(axes)).reshape(int(np.prod([shape[axis] for axis in kept])), -1)
                    types, is_scan = types_of(op, dtype, wanted), count % 3 == 0
                    # Of NaN alone, a position is 0 from either end.
                    exclusive, reverse = rng.random() < 0.4 and rows.shape[1] > 1, rng.random() < 0.4 and "nanarg" not in op
                    if is_scan:
                        compared, keep = at_positions(rng, op, rows, (exclusive, reverse), ddof, p, types), False
                    else:
                        compared = [(0, expected(op, rows, ddof, p, types[1]))]
                    results = compared[0][1]
                    command = [PROGRAM, source, *(["--scan", FUNCTIONS.get(op, op)] if is_scan else ["--op", op]), "--axes", ",".join(map(str, axes))]
                    command += ["--exclusive"] * (is_scan and exclusive) + ["--reverse"] * (is_scan and reverse)
                    command += ["--output", ",".join(targets[: len(results)])] + ["--keepdims"] * keep
                    command += ["--ddof", str(ddof)] * (op in CORRECTED) + ["--p", str(p)] * (op == "norm_p")
                    command += (["--type", NAMES[wanted]] if wanted else []) + ["--backend", *BACKEND] * len(BACKEND)
                    run = subprocess.run(command, capture_output=True, text=True)
                    if run.returncode:
                        said = run.stderr.strip().splitlines()[-1]
                        if run.returncode == 2 and any(text in said for text in LACKS):
                            lacking[said] += 1
                        else:
                            failures += 1
                            print("FAILED", command, dtype, shape, said)
                        continue
                    want_shape = tuple((1 if axis in axes else shape[axis]) for axis in range(len(shape)) if keep or axis not in axes)
                    if is_scan:
                        want_shape = shape
                    for nth, target in enumerate(targets[: len(results)]):
                        found = np.load(target)
                        os.remove(target)
                        has_shape = found.shape == want_shape
                        if is_scan and has_shape:
                            found = found.transpose(kept + list(axes))
                        found = found.reshape(len(rows), -1)
                        for place, all_results in compared:
                            result, part = all_results[nth], found[:, place]
                            if has_shape and result.check(part, types):
                                passed += 1
                                covered.add((op, dtype))
                            else:
                                failures += 1
                                print("DIFFERS", op, dtype, shape, order, axes, "sprinkled" * sprinkled, command[2:], place, part.reshape(-1)[:8], found.dtype, result.want.reshape(-1)[:8], result.want.dtype)
    for said, times in lacking.items():
        print(f"the device lacks, {times} times: {said}")
    print(f"{passed} results agree, {failures} fail, {sum(lacking.values())} of {count} runs refused; {len(covered)} of {len(ops) * len(TYPES)} pairs of operator and type compared")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
