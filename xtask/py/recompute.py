#!/usr/bin/env python3
"""Recomputes verdicts from raw runs, without any code of ioloom.

    ioloom claims --json --store STORE > claims.json
    python3 xtask/py/recompute.py claims.json STORE [DIR...]

Reads the session files below each directory and the claims in studies/*/claims.toml. Draws up to 50
contrasts of kind `ratio` or `share` that have runs, and recomputes from the stored values: the
effect, its exact interval, the signed-rank p-value, the p-value corrected for all contrasts of the
session (and for the looks of a session that is judged several times), and the answer. Answers that the program withheld for reasons outside this arithmetic
(disturbed or dependent blocks, the noise floor, disagreeing sessions) are counted but must still
have the same numbers. Exits with 1 if a number differs. Needs Python 3.11 and no other package.
"""

import json
import math
import pathlib
import random
import sys
import tomllib

SAMPLE = 50
SEED = 20_261_123
CONFIDENCE = 0.95
BLOCKS_MIN = 12
MARGIN = 0.05


def at_looks(runs, header):
    """Returns the runs of a sequential session before the last look that each comparison reached."""
    looks = (header.get("sequential") or {}).get("looks")
    if not looks:
        return runs
    blocks = {}
    for key, _, _ in runs:
        comparison = header["order"][key["position"]][0]
        blocks.setdefault(comparison, {}).setdefault(key["block"], set()).add(key["arm"])
    limits = {}
    for comparison, arms in blocks.items():
        newest = sorted(arms, reverse=True)
        whole = len(newest) < 2 or arms[newest[0]] == arms[newest[1]]
        complete = newest[0] + 1 if whole else newest[0]
        limits[comparison] = max([l for l in looks if l <= complete], default=None)
    limit = lambda key: limits[header["order"][key["position"]][0]]
    return [run for run in runs if limit(run[0]) is None or run[0]["block"] < limit(run[0])]


def runs_below(directories):
    """Returns runs by session, and the number of looks of each sequential session."""
    runs, seen, headers = {}, set(), {}
    for path in (p for d in directories for p in sorted(pathlib.Path(d).rglob("*.jsonl"))):
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith('{"session":'):
                header = json.loads(line)["session"]
                headers.setdefault(header["session"], header)
            if not line.startswith('{"run":'):
                continue
            run = json.loads(line)["run"]
            key = run["key"]
            place = (key["session"], key["medium"], key["experiment"], key["set"],
                     key["condition"], key["compute"], key["arm"], key["block"])
            if place in seen:
                continue
            seen.add(place)
            runs.setdefault(key["session"], []).append((key, run["outcome"], run["doubts"]))
    looks = {}
    for session, header in headers.items():
        if header.get("sequential"):
            looks[session] = len(header["sequential"]["looks"])
            runs[session] = at_looks(runs.get(session, []), header)
    for session, all_runs in runs.items():
        runs[session] = [(key, outcome["measured"]) for key, outcome, doubts in all_runs
                         if outcome.get("measured") is not None and "wrong-bytes" not in doubts]
    return runs, looks


def number(measured, name):
    parts = name.split(".")
    if name == "files" or name == "bytes" or name == "elapsed_ns":
        return float(measured[name])
    if parts[0] == "extra" and len(parts) == 2:
        return measured["extra"].get(parts[1])
    if parts[0] == "calls" and len(parts) == 3 and parts[1] in measured["calls"]:
        stats = measured["calls"][parts[1]]
        if parts[2] == "mean_ns":
            return stats["total_ns"] / stats["count"] if stats["count"] else None
        return stats.get(parts[2])
    value = measured.get(name, measured.get("extra", {}).get(name))
    return value if isinstance(value, (int, float)) else None


def evaluate(formula, measured):
    """Evaluates a formula; tokens are separated by spaces."""
    words = []
    for token in formula.split():
        if token in "+-*/()":
            words.append(token)
            continue
        try:
            words.append(repr(float(token)))
        except ValueError:
            value = number(measured, token)
            if value is None:
                return None
            words.append(repr(float(value)))
    try:
        value = eval(" ".join(words), {"__builtins__": {}})
    except ZeroDivisionError:
        return None
    return value if math.isfinite(value) else None


def interval(values):
    """Returns the median and the exact interval between order statistics."""
    s, n = sorted(values), len(values)
    tail = lambda k: sum(math.comb(n, i) for i in range(k)) / 2**n
    k = max([k for k in range(1, n // 2 + 1) if 1 - 2 * tail(k) >= CONFIDENCE], default=1)
    middle = s[n // 2] if n % 2 else s[n // 2 - 1] / 2 + s[n // 2] / 2
    return middle, s[k - 1], s[n - k]


def signed_rank(values, shift):
    """Returns the exact one-sided p-values below and above the shift; zeros count against both."""
    away = [v - shift for v in values]
    order = sorted(range(len(away)), key=lambda i: abs(away[i]))
    ranks, i = [0] * len(away), 0
    while i < len(order):
        j = i
        while j < len(order) and abs(away[order[j]]) == abs(away[order[i]]):
            j += 1
        for k in order[i:j]:
            ranks[k] = i + j + 1  # twice the mid-rank
        i = j
    ways = {0: 1}
    for rank in ranks:
        more = dict(ways)
        for total, count in ways.items():
            more[total + rank] = more.get(total + rank, 0) + count
        ways = more
    p = lambda least: sum(c for t, c in ways.items() if t >= least) / 2 ** len(away)
    return (p(sum(r for r, a in zip(ranks, away) if a < 0)),
            p(sum(r for r, a in zip(ranks, away) if a > 0)))


def two_sided(one_sided):
    return min(1.0, 2 * one_sided)


def rounding(bound):
    return 1e-9 * (1 + abs(bound))


def at_least(series, bound):
    _, lo, hi = interval(series)
    if lo >= bound:
        return True, two_sided(signed_rank(series, bound - rounding(bound))[1])
    if hi < bound:
        return False, two_sided(signed_rank(series, bound)[0])
    return None, 1.0


def at_most(series, bound):
    holds, p = at_least([-v for v in series], -bound)
    return holds, p


def ratio_answer(test, series):
    """Returns the answer and its p-value, without the noise floor."""
    times = test.get("times")
    if times is not None:
        if test["claim"] == "less":
            return at_most(series, -math.log(times))
        return at_least(series, math.log(times))
    middle, lo, hi = interval(series)
    margin = math.log(1 + test.get("margin", MARGIN))
    within = math.exp(lo) >= 1 / math.exp(margin) and math.exp(hi) <= math.exp(margin)
    inside = two_sided(max(signed_rank(series, -margin)[1], signed_rank(series, margin)[0]))
    if test["claim"] == "equal":
        if within:
            return True, inside
        if lo > margin:
            return False, two_sided(signed_rank(series, margin)[1])
        if hi < -margin:
            return False, two_sided(signed_rank(series, -margin)[0])
        return None, 1.0
    below, above = signed_rank(series, 0.0)
    shown = two_sided(min(below, above)) <= 1 - CONFIDENCE
    less = test["claim"] == "less"
    on_side = middle < 0 if less else middle > 0
    if shown and not on_side:
        return False, two_sided(above if less else below)
    if within:
        return False, inside
    if shown and abs(middle) >= margin - 1e-15:
        return True, two_sided(below if less else above)
    return None, 1.0


def adjusted(p, family):
    """Returns the adjusted p-value of Benjamini and Hochberg."""
    s = sorted(family)
    return min([q * len(s) / (i + 1) for i, q in enumerate(s) if q >= p] + [1.0])


def close(a, b):
    return a is not None and b is not None and abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))


def series_of(test, part, runs):
    """Returns the value of each block in which both arms finished."""
    arms = part["evidence"]["arms"]
    session = part["evidence"]["sessions"][0]
    metric = test.get("metric", "elapsed_ns")
    values = [{}, {}]
    places = [test["at"], test.get("at_b", test["at"])]
    names = [arms[0], arms[-1]]
    for side in (0, 1):
        at = places[side]
        wanted = metric if side == 0 else test.get("metric_b", metric)
        for key, measured in runs.get(session, []):
            name = at["set"]
            in_set = key["set"].startswith(name[:-1]) if name.endswith("*") else key["set"] == name
            if (key["arm"], key["experiment"], in_set) != (names[side], at["experiment"], True):
                continue
            if any(field in at and at[field] != key[field]
                   for field in ("condition", "compute", "medium")):
                continue
            if key["medium"] not in ("work", "image") and "medium" not in at:
                continue
            value = evaluate(wanted, measured)
            if value is not None:
                values[side][key["block"]] = value
    blocks = sorted(set(values[0]) & set(values[1]))
    pairs = [(values[0][b], values[1][b]) for b in blocks]
    if test["kind"] == "share":
        return [(a - b) * 100 for a, b in pairs]
    return [math.log(a) - math.log(b) for a, b in pairs if a > 0 and b > 0]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    verdicts = json.loads(pathlib.Path(sys.argv[1]).read_text())["claims"]
    runs, looks = runs_below(sys.argv[2:])
    root = pathlib.Path(__file__).resolve().parents[2]
    claims = {}
    for path in sorted(root.glob("studies/*/claims.toml")):
        for claim in tomllib.loads(path.read_text())["claim"]:
            claims[claim["id"]] = claim
    families, candidates, known = {}, [], []
    times = lambda evidence: max([looks.get(s, 1) for s in evidence["sessions"]], default=1)
    for verdict in verdicts:
        tests = claims[verdict.get("same_as", verdict["id"])].get("contrast", [])
        for test, part in zip(tests, verdict["parts"]):
            if part["p"] is None:
                continue
            bare = {k: v for k, v in test.items() if k not in ("size", "reason")}
            if bare in known:
                continue
            known.append(bare)
            evidence = part["evidence"]
            family = families.setdefault(tuple(evidence["sessions"]), [])
            family.append(min(1.0, part["p"] * times(evidence)))
            if test["kind"] in ("ratio", "share") and "share." not in test.get("metric", ""):
                candidates.append((verdict["id"], test, part))
    random.Random(SEED).shuffle(candidates)
    checked = differing = withheld = 0
    for name, test, part in candidates[:SAMPLE]:
        series = series_of(test, part, runs)
        evidence, wrong = part["evidence"], []
        if len(series) != evidence["blocks"]:
            wrong.append(f"{len(series)} blocks, not {evidence['blocks']}")
        elif test["kind"] == "share":
            found = interval(series)
            answer = (at_least if test["points"] > 0 else at_most)(series, test["points"])
        else:
            found = tuple(math.exp(v) for v in interval(series))
            answer = ratio_answer(test, series)
        if not wrong:
            for what, ours, theirs in zip(("effect", "lo", "hi"), found,
                                          (evidence["effect"], evidence["lo"], evidence["hi"])):
                if not close(ours, theirs):
                    wrong.append(f"{what} {ours}, not {theirs}")
            family = families[tuple(evidence["sessions"])]
            held_back = part["p"] == 1.0 and answer[0] is not None
            if held_back:
                withheld += 1
            elif not close(answer[1], part["p"]):
                wrong.append(f"p {answer[1]}, not {part['p']}")
            else:
                q = adjusted(min(1.0, answer[1] * times(evidence)), family)
                if not close(q, part["p_adjusted"]):
                    wrong.append(f"adjusted p {q}, not {part['p_adjusted']}")
                holds = answer[0] if q <= 0.05 else None
                if holds != part["holds"]:
                    wrong.append(f"answer {holds}, not {part['holds']}")
        checked += 1
        if wrong:
            differing += 1
            print(f"{name} {part['place']}: " + "; ".join(wrong))
    print(f"{checked} of {len(candidates)} contrasts recomputed: {checked - differing} equal, "
          f"{differing} different; {withheld} answers withheld by the program")
    sys.exit(1 if differing or not checked else 0)


main()
