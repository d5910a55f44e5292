#!/usr/bin/env python3
"""Judges synthetic ledgers with known truth through the program.

    python3 xtask/py/ledgers.py PROGRAM [LEDGERS [STORE SOURCE]]

Writes sessions of synthetic runs and claims about them to a temporary directory, asks `PROGRAM claims
--json` for the verdicts, and counts those that are false. Three kinds of ledgers, each drawn LEDGERS
times (default 20) from fixed seeds:

- null: 60 claims that one arm needs less time than another; all arms are equal;
- effects: 40 such claims, every second one true with a ratio of 0.88, in 12 blocks with a scatter of
  10 % per block and in 48 blocks with 20 %;
- equality: 40 claims that two arms are equal, every second one false with a ratio of 0.88.

With STORE, a directory of session files, all numbers of its runs are also replaced by noise with a scatter
of 15 % per run, LEDGERS times, and the built-in claims of SOURCE are judged: no arm differs, so a contrast
that confirms a difference between two arms is false. Contrasts with constants are not counted.

A scatter is the standard deviation of the logarithm of a block's ratio. Each arm has half of its
variance. One arm runs twice per block, as in real sessions, so the noise floor is part of the chain.
Exits with 1 if the false share of the decided claims (in null ledgers: the share of ledgers with a false
one) exceeds 5 % by more than chance explains, or if the power is below the promise of docs/internals/method.md.
Needs Python 3.11 and no other package.
"""

import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

RATE = 0.05
EFFECT = 0.88
# Name, claims, claimed relation, blocks, scatter, ratio of every second claim, least power.
KINDS = [
    ("null, 12 blocks, scatter 15 %", 60, "less", 12, 0.15, 1.0, None),
    ("null, 48 blocks, scatter 20 %", 60, "less", 48, 0.20, 1.0, None),
    ("effects, 12 blocks, scatter 10 %", 40, "less", 12, 0.10, EFFECT, 0.80),
    ("effects, 48 blocks, scatter 20 %", 40, "less", 48, 0.20, EFFECT, 0.90),
    ("equality, 12 blocks, scatter 5 %", 40, "equal", 12, 0.05, EFFECT, None),
]
ARMS = {"a": "read/threads:n=1", "b": "read/threads:n=2", "a (again)": "read/threads:n=1"}
SESSION = "synthetic-20260101T000000Z"
PROOF = {"asked": "as-is", "proved": None, "made_by": "none", "metadata": "unknown", "sampled_files": 0,
         "resident_before": None, "device_bytes": 0, "device_share": None, "diskstats_bytes": 0,
         "reason": "synthetic"}
SET = {"name": "E", "files": 1, "bytes_total": 4096, "bytes_mean": 4096.0, "compute_ns_mean": None,
       "hash": "0", "medium": {"name": "work", "device": "0:0", "block_device": "none", "file_system": "none",
                                "scheduler": None, "rotational": False, "read_ahead_kib": None}}


def claims(count, relation):
    text = []
    for i in range(count):
        text.append(f'[[claim]]\nid = "000-N{i}"\nseed = 0\nstatement = "synthetic"\nscope = "synthetic"\n'
                    f'confirms = "synthetic"\nrefutes = "synthetic"\n[[claim.contrast]]\nkind = "ratio"\n'
                    f'at = {{ study = "synthetic", experiment = "e{i}", set = "E" }}\na = "a"\nb = "b"\n'
                    f'claim = "{relation}"\n')
    return "".join(text)


def comparison(i, blocks):
    made = {"made": {"count": 1, "size": "4096", "layout": "flat", "seed": 3}}
    arm = lambda name, plan: {"name": name, "plan": plan, "factors": {}, "files_max": None, "set": "E",
                              "source": made, "scaled": False}
    arms = [arm(name, plan) for name, plan in ARMS.items()]
    return {"experiment": f"e{i}", "set": "E", "condition": "as-is", "compute": "none", "medium": "work",
            "blocks": blocks, "arms": arms}


def measured(elapsed):
    zero = ["cpu_user_ns", "cpu_kernel_ns", "faults_minor", "faults_major", "switches_voluntary",
            "switches_involuntary", "memory_peak_bytes", "memory_anon_bytes", "memory_file_bytes",
            "budget_peak_bytes", "in_flight_max", "spans_lost", "errors"]
    fields = dict.fromkeys(zero, 0) | dict.fromkeys(
        ["calls_end_ns", "first_compute_ns", "last_compute_ns", "device_busy", "bottleneck"])
    return fields | {"elapsed_ns": round(elapsed), "files": 1, "bytes": 4096, "digest": "",
                     "error_samples": [], "calls": {}, "threads": [], "in_flight": [],
                     "in_flight_mean": 0.0, "others_cpu": 0.0, "extra": {}}


def session(rng, ratios, blocks, scatter, machine):
    """Yields the lines of a session file."""
    header = {"schema": 1, "session": SESSION, "study": "synthetic", "subject": "pipeline", "mode": "full",
              "seed": 1, "spec_hash": "0", "machine": machine, "version": "0", "command": [],
              "started_unix_ms": 1_767_225_600_000, "order": [],
              "comparisons": [comparison(i, blocks) for i in range(len(ratios))]}
    runs = []
    for i, ratio in enumerate(ratios):
        for block in range(blocks):
            header["order"] += [[i, block, arm] for arm in range(3)]
            for name, plan in ARMS.items():
                value = 1e9 * (ratio if name != "b" else 1.0)
                value *= math.exp(scatter / math.sqrt(2) * rng.gauss(0, 1))
                key = {"study": "synthetic", "session": SESSION, "experiment": f"e{i}", "arm": name,
                       "set": "E", "medium": "work", "condition": "as-is", "compute": "none",
                       "block": block, "position": len(runs), "factors": {}}
                runs.append({"run": {
                    "schema": 1, "key": key, "plan": plan, "set": SET, "proof": PROOF, "doubts": [],
                    "outcome": {"kind": "done", "measured": measured(value)}, "machine": "synthetic",
                    "version": "0", "started_unix_ms": 1_767_225_600_000 + len(runs), "seed": 1}})
    yield json.dumps({"session": header})
    yield from map(json.dumps, runs)


def run(program, *args, cwd=None):
    done = subprocess.run([program, *args, "--json"], cwd=cwd, text=True, stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{program} {args[0]}: exit code {done.returncode}")
    return json.loads(done.stdout)


def judged(program, machine, kind, seed):
    """Returns the truth and the verdict of each claim of one ledger, and the printed expectation."""
    _, count, relation, blocks, scatter, effect, _ = kind
    ratios = [effect if i % 2 == 0 else 1.0 for i in range(count)]
    rng = random.Random(f"{kind[0]} {seed}")
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        for name in ["claims", "store"]:
            (root / name).mkdir()
        (root / "claims" / "synthetic.toml").write_text(claims(count, relation))
        lines = session(rng, ratios, blocks, scatter, machine)
        (root / "store" / f"{SESSION}.jsonl").write_text("\n".join(lines) + "\n")
        found = run(program, "claims", "--claims", root / "claims", "--store", root / "store", cwd=root)
    verdicts = [c["verdict"] for c in sorted(found["claims"], key=lambda c: int(c["id"][5:]))]
    # Under "less", a refutation says that the ratio is within 5 % of 1 or above it.
    truth = [(ratio < 1.0) == (relation == "less") for ratio in ratios]
    return list(zip(truth, verdicts)), found["score"]["false_expected"]


def noise(store, scratch, seed):
    """Writes the session files of a store with every number replaced by noise."""
    rng = random.Random(seed)
    for path in sorted(pathlib.Path(store).glob("*.jsonl")):
        with open(scratch / path.name, "w") as out:
            for line in open(path):
                if line.startswith('{"run":'):
                    run = json.loads(line)
                    found = run["run"]["outcome"].get("measured") or {"extra": {}}
                    run["run"]["doubts"] = []
                    found["elapsed_ns"] = round(1e9 * math.exp(0.15 * rng.gauss(0, 1)))
                    for name, value in found["extra"].items():
                        if isinstance(value, (int, float)):
                            found["extra"][name] = 1e6 * math.exp(0.15 * rng.gauss(0, 1))
                    line = json.dumps(run) + "\n"
                out.write(line)


def built_in(program, ledgers, store, source):
    """Judges built-in claims by runs without any difference, and prints what they confirm."""
    contrasts = decided = false = families = 0
    for seed in range(ledgers):
        with tempfile.TemporaryDirectory() as scratch:
            noise(store, pathlib.Path(scratch), seed)
            found = run(program, "claims", "--source", source, "--store", scratch, cwd=scratch)
        parts = [p for c in found["claims"] for p in c["parts"] if p["p"] is not None and not p["note"]]
        here = sum(p["holds"] is True and p["kind"] in ("ratio", "ratio-of-best")
                   and "claimed side" in p["sentence"] and " relative to 1 " not in p["sentence"]
                   for p in parts)
        contrasts, false, families = contrasts + len(parts), false + here, families + (here > 0)
        decided += sum(p["p_adjusted"] is not None and p["p_adjusted"] <= RATE for p in parts)
    print(f"\n{ledgers} stores without any difference, built-in claims of source {source}: {decided} of "
          f"{contrasts} contrasts are decided, and {false} of these, in {families} stores, confirm a difference")
    # Claims of a large effect ("at least 2") are refuted rightly. The false discovery rate limits the share
    # of false answers among all that are decided, not the share of stores with a false answer.
    return false <= most_by_chance(decided)


def most_by_chance(decided):
    """Returns the most false verdicts that a rate of 5 % gives in 99 of 100 ledgers of this size."""
    below, most = 0.0, -1
    while below < 0.99 and most < decided:
        most += 1
        below += math.comb(decided, most) * RATE**most * (1 - RATE) ** (decided - most)
    return most


def main():
    program = str(pathlib.Path(sys.argv[1]).absolute())
    ledgers = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    machine = run(program, "machine")
    print("| ledgers | claims | decided | false | expected false, as printed | true claims confirmed |")
    print("|---|---:|---:|---:|---:|---:|")
    failed = []
    for kind in KINDS:
        name, count, relation, _, _, effect, power_min = kind
        cells, expected, wrong = [], 0.0, 0
        for seed in range(ledgers):
            found, printed = judged(program, machine, kind, seed)
            cells += found
            expected += printed
            wrong += any(v in ("confirmed", "refuted") and (v == "confirmed") != true for true, v in found)
        decided = [(true, v) for true, v in cells if v in ("confirmed", "refuted")]
        false = sum((v == "confirmed") != true for true, v in decided)
        of = [v for true, v in cells if true]
        power = of.count("confirmed") / len(of) if of else math.nan
        share = f"{of.count('confirmed')} of {len(of)} ({power:.1%})" if of else "none is true"
        print(f"| {name} | {ledgers * count} | {len(decided)} | {false} | {expected:.1f} | {share} |")
        if relation == "less" and effect == 1.0:
            # Every difference is false, so the false discovery rate is the share of ledgers that show one.
            if wrong > most_by_chance(ledgers):
                failed.append(f"{name}: {wrong} of {ledgers} ledgers have a false verdict")
        elif false > most_by_chance(len(decided)):
            failed.append(f"{name}: {false} of {len(decided)} verdicts are false")
        if power_min and power < power_min:
            failed.append(f"{name}: {power:.1%} of the true claims are confirmed, not {power_min:.0%}")
    if len(sys.argv) > 4 and not built_in(program, ledgers, sys.argv[3], sys.argv[4]):
        failed.append("too many contrasts without any difference confirm one")
    for line in failed:
        print(f"FAILED: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
