#!/usr/bin/env python3
"""Recomputes verdicts from raw runs, without any code of ioloom.

    ioloom claims --json --store STORE > claims.json
    python3 xtask/py/recompute.py claims.json STORE [DIR...]

Reads the session files below each directory and the claims in studies/*/claims.toml. Draws up to 50
contrasts of kind `ratio` or `share` that have runs, and recomputes from the stored values: the
effect, its exact interval, the signed-rank p-value, the noise floor, the p-value corrected for all
contrasts of the session (and for the looks of a session that is judged several times), which session
decides, and the answer. An answer that the program withheld needs a reason found here as well: blocks with doubts
without which the answer changes, neighbouring blocks that are alike, or a session that shows the
opposite. Then combines the contrasts of every claim to its verdict. Exits with 1 if a number, an
answer or a verdict differs. Needs Python 3.11 and no other package.
"""

import itertools
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
QUIET_MIN = 9
AGAIN = " (again)"
EXCLUDING = {"noisy-neighbour", "not-cold", "not-warm", "errors"}
ALIKE_P = 0.02
ORDERS = 20_000
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
    """Returns runs by session, the number of looks of each sequential session, when each session
    made its last run before its first judgement, on which machine, and the files of its sets."""
    runs, seen, headers, times, machines, files = {}, set(), {}, {}, {}, {}
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
            machines[key["session"]] = run["machine"]
            files.setdefault(key["session"], {})[key["set"]] = run["set"].get("hash")
            times.setdefault(key["session"], []).append((key["block"], run["started_unix_ms"]))
            runs.setdefault(key["session"], []).append((key, run["outcome"], run["doubts"]))
    looks = {}
    for session, header in headers.items():
        if header.get("sequential"):
            looks[session] = len(header["sequential"]["looks"])
            runs[session] = at_looks(runs.get(session, []), header)
    last = {}
    for session, of in times.items():
        several = (headers.get(session) or {}).get("sequential")
        last[session] = max((time for block, time in of
                             if not several or block < several["looks"][0]), default=0)
    for session, all_runs in runs.items():
        runs[session] = [(key, outcome["measured"], set(doubts)) for key, outcome, doubts in all_runs
                         if outcome.get("measured") is not None and "wrong-bytes" not in doubts]
    return runs, looks, last, machines, files


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


def shift_test(values, shift):
    """Returns one-sided p-values: of signed ranks, and of the sign test as far as the shape requires it."""
    ranks, n = signed_rank(values, shift), len(values)
    tail = lambda beyond: sum(math.comb(n, i) for i in range(n - beyond + 1)) / 2**n
    signs = tail(sum(v < shift for v in values)), tail(sum(v > shift for v in values))
    between = lambda rank, sign, weight: max(rank, rank ** (1 - weight) * max(rank, sign) ** weight)
    return tuple(map(between, ranks, signs, sign_weights(values)))


def sign_weights(values):
    """Returns the weights of the sign test: in the direction of a tail, and in both for two groups."""
    n = len(values)
    if not 6 <= n <= 120:
        return 1.0, 1.0
    groups = (explained(values) - 0.62 - 0.77 / math.sqrt(n)) / 0.03
    weight = lambda tail: min(1.0, max(0.0, groups, (tail - 0.5) / 2))
    tail = triples_test(values)
    return weight(-tail), weight(tail)


def explained(values):
    """Returns the share of the variance between the two groups of the best cut, each of a fifth or more."""
    s, n, mean = sorted(values), len(values), sum(values) / len(values)
    total = sum((v - mean) ** 2 for v in s)
    least = max(2, math.ceil(0.2 * n))
    between = lambda k: sum(v - mean for v in s[:k]) ** 2 * n / (k * (n - k))
    return max(map(between, range(least, n - least + 1))) / total if s[0] < s[-1] else 0.0


def triples_test(values):
    """Returns the standardised triples statistic (Randles and others, 1980), positive for an upper tail."""
    s, n = sorted(values), len(values)
    pairs, single = dict.fromkeys(itertools.combinations(range(n), 2), 0), [0] * n
    for i, j, k in itertools.combinations(range(n), 3):
        skew = (s[k] - s[j]) - (s[j] - s[i])
        side = (skew > 0) - (skew < 0)
        for one in (i, j, k):
            single[one] += side
        for pair in ((i, j), (i, k), (j, k)):
            pairs[pair] += side
    all_, mean = math.comb(n, 3), sum(single) / 9 / math.comb(n, 3)
    if mean == 0:
        return 0.0
    variance = lambda counts, of: sum((c / 3 / of - mean) ** 2 for c in counts) / len(counts)
    total = (1.5 * (n - 3) * (n - 4) * variance(single, math.comb(n - 1, 2))
             + 3 * (n - 3) * variance(pairs.values(), n - 2) + 1 / 9 - mean**2)
    return mean / math.sqrt(total / all_) if total > 1e-12 else math.copysign(math.inf, mean)


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
        return True, two_sided(shift_test(series, bound - rounding(bound))[1])
    if hi < bound:
        return False, two_sided(shift_test(series, bound)[0])
    return None, 1.0


def at_most(series, bound):
    holds, p = at_least([-v for v in series], -bound)
    return holds, p


def ratio_answer(test, series, floor):
    """Returns the answer and its p-value. `floor` is the difference of a plan from itself."""
    times = test.get("times")
    middle, lo, hi = interval(series)
    below_noise = floor is not None and 0 < floor >= math.exp(abs(middle)) - 1
    if times is not None:
        if test["claim"] == "less":
            answer = at_most(series, -math.log(times))
        else:
            answer = at_least(series, math.log(times))
        return (None, 1.0) if below_noise and answer[0] else answer
    margin = math.log(1 + test.get("margin", MARGIN))
    within = math.exp(lo) >= 1 / math.exp(margin) and math.exp(hi) <= math.exp(margin)
    at_most_claimed, not_above = test["claim"] == "at-most", math.exp(hi) <= math.exp(margin)
    if below_noise and not (not_above if at_most_claimed else within):
        return None, 1.0
    if at_most_claimed:
        if not_above:
            return True, two_sided(shift_test(series, margin)[0])
        return (False, two_sided(shift_test(series, margin)[1])) if lo > margin else (None, 1.0)
    inside = two_sided(max(shift_test(series, -margin)[1], shift_test(series, margin)[0]))
    if test["claim"] == "equal":
        if within:
            return True, inside
        if lo > margin:
            return False, two_sided(shift_test(series, margin)[1])
        if hi < -margin:
            return False, two_sided(shift_test(series, -margin)[0])
        return None, 1.0
    below, above = shift_test(series, 0.0)
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


def answer_of(test, series, floor):
    if test["kind"] == "share":
        answer = (at_least if test["points"] > 0 else at_most)(series, test["points"])
        quiet = floor is not None and 0 < floor >= abs(interval(series)[0])
        return (None, 1.0) if quiet and answer[0] else answer
    return ratio_answer(test, series, floor)


def floor_of(test, series):
    """Returns the noise floor from the differences of a plan from itself."""
    middle, lo, hi = interval(series)
    away = abs(middle) if lo <= 0 <= hi else max(abs(lo), abs(hi))
    return away if test["kind"] == "share" else math.exp(away) - 1


def alike(series):
    """Reports whether neighbouring values are alike; None if chance decides."""
    order = sorted(series)
    ranks = [(order.index(v) + len(order) - order[::-1].index(v) - 1) / 2 for v in series]
    centre = sum(ranks) / len(ranks)
    ranks = [r - centre for r in ranks]
    near = lambda r: sum(a * b for a, b in zip(r, r[1:]))
    seen, draw = near(ranks), random.Random(SEED)
    count = 1
    for _ in range(ORDERS):
        draw.shuffle(ranks)
        count += near(ranks) >= seen - 1e-9
    p = count / (ORDERS + 1)
    # The program draws 999 orders, so its p-value scatters by half a percent.
    return None if abs(p - ALIKE_P) < 0.015 else p < ALIKE_P


def adjusted(p, family):
    """Returns the adjusted p-value of Benjamini and Hochberg."""
    s = sorted(family)
    return min([q * len(s) / (i + 1) for i, q in enumerate(s) if q >= p] + [1.0])


def close(a, b):
    return a is not None and b is not None and abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))


def in_ns(compute):
    """Returns a compute as runs store it: a time in nanoseconds without a unit."""
    kind, _, rest = compute.partition(":")
    for unit, ns in (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)):
        number = rest.removesuffix(unit)
        if number != rest and number.isdigit():
            return f"{kind}:{int(number) * ns}"
    return compute


def at_place(at, key):
    name = at["set"]
    in_set = key["set"].startswith(name[:-1]) if name.endswith("*") else key["set"] == name
    if key["experiment"] != at["experiment"] or not in_set:
        return False
    if any(field in at and at[field] != key[field] for field in ("condition", "medium")):
        return False
    if "compute" in at and in_ns(at["compute"]) != key["compute"]:
        return False
    return key["medium"] in ("work", "image") or "medium" in at


def column(at, arm, metric, runs):
    """Returns the number of an arm in each block."""
    values = {}
    for key, measured, _ in runs:
        if key["arm"] == arm and at_place(at, key):
            value = evaluate(metric, measured)
            if value is not None:
                values[key["block"]] = value
    return values


def differences(test, a, b):
    """Returns the difference of two columns in each common block."""
    pairs = [(a[block], b[block]) for block in sorted(set(a) & set(b))]
    if test["kind"] == "share":
        return [(x - y) * 100 for x, y in pairs]
    return [math.log(x) - math.log(y) for x, y in pairs if x > 0 and y > 0]


def judged(test, part, runs, blocks_min):
    """Returns the series of a contrast, its answer and p-value, from the given runs."""
    arms = part["evidence"]["arms"]
    metric = test.get("metric", "elapsed_ns")
    sides = [(test["at"], arms[0], metric),
             (test.get("at_b", test["at"]), arms[-1], test.get("metric_b", metric))]
    a, b = (column(at, arm, m, runs) for at, arm, m in sides)
    series = differences(test, a, b)
    if len(series) < blocks_min:
        return series, None

    def floor(at, arm, m):
        twice = differences(test, column(at, arm, m, runs), column(at, arm + AGAIN, m, runs))
        return floor_of(test, twice) if len(twice) >= blocks_min else None

    floors = [f for f in (floor(*side) for side in sides) if f is not None]
    if not floors:
        names = lambda at: sorted({key["arm"] for key, _, _ in runs if at_place(at, key)})
        others = (floor(at, arm, m) for at, _, m in sides for arm in names(at))
        floors = [f for f in [next((f for f in others if f is not None), None)] if f is not None]
    return series, answer_of(test, series, max(floors, default=None))


def disturbed(test, part, runs):
    """Returns the runs without the blocks that carry an excluding doubt."""
    places = [test["at"], test.get("at_b", test["at"])]
    arms = [part["evidence"]["arms"][0], part["evidence"]["arms"][-1]]
    block = lambda key: tuple(key[f] for f in ("experiment", "medium", "condition", "compute", "block"))
    used = lambda key: any(key["arm"] == arm and at_place(at, key) for at, arm in zip(places, arms))
    bad = {block(key) for key, _, doubts in runs if used(key) and doubts & EXCLUDING}
    return [run for run in runs if block(run[0]) not in bad], bool(bad)


def expected(test, part, runs):
    """Returns the series, the answer and its p-value, and whether the program may withhold it."""
    series, answer = judged(test, part, runs, BLOCKS_MIN)
    if answer is None or answer[0] is None:
        return series, answer, False
    quiet, any_bad = disturbed(test, part, runs)
    if any_bad:
        _, without = judged(test, part, quiet, QUIET_MIN)
        if without is None or without[0] != answer[0]:
            return series, (None, 1.0), False
    near = 0.1 * test.get("margin", MARGIN) if test["kind"] == "ratio" else 0.0
    same = alike(series) if max(series) - min(series) > near else False
    if same:
        return series, (None, 1.0), False
    contrary = any(one["holds"] == (not answer[0]) for one in part["apart"])
    return series, answer, same is None or contrary


def verdict_of(claim, parts):
    """Combines the parts of a claim. Kept runs are on virtual disks, without the hardware of claims."""
    verdict = combined(claim, parts)
    return "scope" if claim.get("hardware") and verdict in ("confirmed", "refuted") else verdict


def combined(claim, parts):
    recomputed = [p for p in parts if p["kind"] == "published"]
    measured = [p for p in parts if p["kind"] != "published"]
    wrong = any(p["holds"] is False for p in recomputed)
    if not measured:
        return "recomputed, inconsistent" if wrong else "recomputed, consistent"
    held = [p for p in measured if p["holds"] is True]
    failed = [p for p in measured if p["holds"] is False]
    open_ = [p for p in measured if p["holds"] is None and p["verdict"] != "not testable here"]
    absent = [p for p in measured if p["holds"] is None and p["verdict"] == "not testable here"]
    scope = lambda of: any(p["verdict"] == "scope" for p in of)
    full = lambda of: any(p["verdict"] != "scope" for p in of)
    if claim.get("combine") == "all":
        if failed:
            return "refuted" if full(failed) else "scope"
        if wrong:
            return "recomputed, inconsistent"
        if open_:
            return "undecided"
        return "not testable here" if absent else "scope" if scope(held) else "confirmed"
    if claim.get("combine") == "any" and held:
        return "confirmed" if full(held) and not wrong else "scope"
    if not held and not failed and wrong:
        return "recomputed, inconsistent"
    if open_:
        return "undecided"
    if claim.get("combine") == "any" and absent:
        return "not testable here"
    if not held and not failed:
        return "not testable here"
    if not held:
        return "scope" if scope(failed) else "refuted"
    return "confirmed" if not (failed or wrong or absent or scope(held)) else "scope"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    verdicts = json.loads(pathlib.Path(sys.argv[1]).read_text())["claims"]
    runs, looks, last, machines, files = runs_below(sys.argv[2:])
    root = pathlib.Path(__file__).resolve().parents[2]
    claims = {}
    for path in sorted(root.glob("studies/*/claims.toml")):
        for claim in tomllib.loads(path.read_text())["claim"]:
            claims[claim["id"]] = claim
    families, candidates, known = {}, [], []

    def when(session):
        return last.get(session, 0), session

    def sessions_of(part):
        """Returns the answer, p-value and corrected p-value in each session of the deciding machine, by session
        from old to new. The p-value is already multiplied by the looks and by the factor of the session."""
        own = part["evidence"]["sessions"]
        if not own:
            return {}
        found = {one["session"]: (one["holds"], one["p"], one["p_adjusted"]) for one in part["apart"]
                 if one["machine"] == machines.get(own[0])}
        found[own[0]] = (part["holds"], part["p"], part["p_adjusted"])
        spent = {}
        for n, session in enumerate(sorted(found, key=when), 1):
            holds, p, q = found[session]
            factor = looks.get(session, 1) * (1.25 if n == 1 else 5 * n * (n - 1))
            spent[session] = holds, None if p is None else min(1.0, p * factor), q
        return spent

    def wrong_session(test, part, answer):
        """Returns why another session than the one with this answer should decide, if so.

        Opposite answers are not followed, and sessions of other files only if the contrast is open:
        those of published size come first."""
        found, (own, *_) = sessions_of(part), part["evidence"]["sessions"]
        answers = {holds for holds, _, _ in [*found.values(), (answer, 1.0, 1.0)] if holds is not None}
        if len(answers) > 1:
            return None
        places = [test["at"], test.get("at_b", test["at"])]
        used = lambda session: {files[session].get(key["set"]) for key, _, _ in runs.get(session, [])
                                if any(at_place(at, key) for at in places)}
        alike_files = {session for session in found if used(session) == used(own)}
        shown = [session for session, (holds, p, _) in found.items()
                 if holds is not None and p is not None and adjusted(p, families[session]) <= 0.05]
        if part["holds"] is None:
            newer = [session for session in alike_files if when(session) > when(own)]
            better = shown or newer
            return f"session {min(better, key=when)} decides, not {own}" if better else None
        earlier = [session for session in shown if session in alike_files and when(session) < when(own)]
        return f"session {min(earlier, key=when)} decides, not {own}" if earlier else None

    for verdict in verdicts:
        tests = claims[verdict.get("same_as", verdict["id"])].get("contrast", [])
        for test, part in zip(tests, verdict["parts"]):
            if part["p"] is None:
                continue
            bare = {k: v for k, v in test.items() if k not in ("size", "no_size", "reason")}
            sessions = sessions_of(part)
            # Two claims with the same contrast can be decided by two machines.
            if (bare, tuple(sessions)) in known:
                continue
            known.append((bare, tuple(sessions)))
            for session, (_, p, _) in sessions.items():
                if p is not None:
                    families.setdefault(session, []).append(p)
            if test["kind"] in ("ratio", "share") and "share." not in test.get("metric", ""):
                candidates.append((verdict["id"], test, part))
    random.Random(SEED).shuffle(candidates)
    checked = differing = withheld = 0
    for name, test, part in candidates[:SAMPLE]:
        evidence, wrong = part["evidence"], []
        series, answer, may_withhold = expected(test, part, runs.get(evidence["sessions"][0], []))
        if len(series) != evidence["blocks"] or answer is None:
            wrong.append(f"{len(series)} blocks, not {evidence['blocks']}")
        else:
            found = interval(series)
            if test["kind"] == "ratio":
                found = tuple(math.exp(v) for v in found)
            for what, ours, theirs in zip(("effect", "lo", "hi"), found,
                                          (evidence["effect"], evidence["lo"], evidence["hi"])):
                if not close(ours, theirs):
                    wrong.append(f"{what} {ours}, not {theirs}")
            sessions = sessions_of(part)
            for session, (_, p, q) in sessions.items():
                if p is not None and not close(adjusted(p, families[session]), q):
                    wrong.append(f"adjusted p {adjusted(p, families[session])} in {session}, not {q}")
            decider = wrong_session(test, part, answer[0])
            wrong += [decider] if decider else []
            if may_withhold and part["p"] == 1.0:
                withheld += 1
            elif not close(answer[1], part["p"]):
                wrong.append(f"p {answer[1]}, not {part['p']}")
            else:
                # Equal to a member of the family, which the recomputed value is up to rounding.
                own = evidence["sessions"][0]
                q = adjusted(sessions[own][1], families[own])
                holds = answer[0] if q <= 0.05 else None
                if holds != part["holds"]:
                    wrong.append(f"answer {holds}, not {part['holds']}")
        checked += 1
        if wrong:
            differing += 1
            print(f"{name} {part['place']}: " + "; ".join(wrong))
    agreed = 0
    for verdict in verdicts:
        claim = claims[verdict.get("same_as") or verdict["id"]]
        ours = verdict_of(claim, [part for part in verdict["parts"] if not part["note"]])
        if ours == verdict["verdict"]:
            agreed += 1
        else:
            differing += 1
            print(f"{verdict['id']}: {ours}, not {verdict['verdict']}")
    print(f"{checked} of {len(candidates)} contrasts and {agreed} of {len(verdicts)} verdicts "
          f"recomputed, {differing} different; {withheld} answers withheld by another session or chance")
    sys.exit(1 if differing or not checked else 0)


main()
