#!/usr/bin/env python3
"""Writes the pages of docs/findings from kept runs, or checks that they are current.

    python3 xtask/py/findings.py           # write docs/findings/*.md and *.svg
    python3 xtask/py/findings.py --check   # exit with 1 if a page differs or does not follow

Each docs/findings/source/NAME.toml holds a question, the kept runs that answer it, and the texts. Texts
have placeholders instead of numbers:

    {ARM}  {ARM@METRIC}            median over blocks with its interval
    {A/B}  {A@METRIC/B@METRIC}     median of the ratios within blocks, with its interval
    {n}                            number of blocks

A digit outside a placeholder or code is an error. `holds` lists what the answer asserts: "A > B",
"A@m < B@m * 2", "A = B" (within 5 %), "A ? B" (the interval of the ratio includes 1), or "A@m is 0" (every
run). A statement that the runs do not show is an error, and so are a ratio in the answer that `holds` does not
compare, and a cause: runs of two plans show a difference, not its cause. `theory` explains it, with the source.
`repeat` must have the mode of the runs. Needs Python 3.11 and no other package.
"""

import json
import math
import pathlib
import re
import sys
import tarfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FINDINGS = ROOT / "docs" / "findings"
CONFIDENCE = 0.95
INTERVAL_MIN = 6
CAUSAL = re.compile(r"\b(because|due to|thanks to|therefore|the reason|as each|so the|so their|so switching)\b", re.I)
PLACEHOLDER = re.compile(r"\{([^{}]+)\}")


def fail(name, why):
    raise SystemExit(f"finding {name}: {why}")


def session_lines(directory):
    """Returns the lines of the session files below a directory, also of those in archives."""
    for path in sorted(directory.rglob("*")):
        if path.suffix == ".jsonl":
            yield from path.read_text(errors="replace").splitlines()
        elif path.name.endswith(".tar.xz"):
            with tarfile.open(path) as archive:
                for member in archive.getmembers():
                    if member.name.endswith(".jsonl"):
                        text = archive.extractfile(member).read().decode(errors="replace")
                        yield from text.splitlines()


def parsed(directory, cache={}):
    if directory not in cache:
        headers, runs, seen = {}, [], set()
        for line in session_lines(directory):
            if line.startswith('{"session":'):
                header = json.loads(line)["session"]
                headers[header["session"]] = header
            elif line.startswith('{"run":'):
                run = json.loads(line)["run"]
                place = (run["key"]["session"], run["key"]["position"])
                if place not in seen:
                    seen.add(place)
                    runs.append(run)
        cache[directory] = (headers, runs)
    return cache[directory]


def metric(measured, name):
    parts = name.split(".")
    if parts[0] == "calls" and len(parts) == 3:
        stats = measured["calls"].get(parts[1])
        return stats and stats.get(parts[2])
    value = measured.get(name)
    if value is None:
        value = measured.get("extra", {}).get(name.removeprefix("extra."))
    return float(value) if isinstance(value, (int, float)) else None


class Runs:
    """The runs of one comparison: measurements by arm and block."""

    def __init__(self, name, source):
        headers, runs = parsed(ROOT / source["data"])
        wanted = {k: source[k] for k in ("experiment", "set", "condition", "medium", "compute", "session")
                  if k in source}
        self.arms, self.sessions, self.doubts, self.count = {}, set(), {}, 0
        for run in runs:
            key = run["key"]
            if any(key[k] != v for k, v in wanted.items()):
                continue
            measured = run["outcome"].get("measured")
            if measured is None or "wrong-bytes" in run["doubts"]:
                continue
            self.sessions.add(key["session"])
            self.arms.setdefault(key["arm"], {})[key["block"]] = measured
            if key["arm"] in source["arms"]:
                self.count += 1
                for doubt in run["doubts"]:
                    self.doubts[doubt] = self.doubts.get(doubt, 0) + 1
        if len(self.sessions) != 1:
            fail(name, f"{len(self.sessions)} sessions match {wanted}; exactly one is needed")
        self.name, self.metric = name, source.get("metric", "elapsed_ns")
        self.header = headers[next(iter(self.sessions))]

    def column(self, term):
        arm, _, of = term.strip().partition("@")
        if arm not in self.arms:
            fail(self.name, f"no runs of arm '{arm}'; there are: {', '.join(sorted(self.arms))}")
        values = {b: metric(m, of or self.metric) for b, m in self.arms[arm].items()}
        if any(v is None for v in values.values()):
            fail(self.name, f"a run of '{arm}' has no {of or self.metric}")
        return values

    def values(self, term):
        if "/" not in term:
            return list(self.column(term).values())
        above, below = (self.column(part) for part in term.split("/"))
        return [above[b] / below[b] for b in sorted(above) if below.get(b)]


def median(values):
    v = sorted(values)
    half = len(v) // 2
    return v[half] if len(v) % 2 else (v[half - 1] + v[half]) / 2


def interval(values):
    """Returns the median, its ends, and whether they are a 95 % interval between order statistics."""
    v, n = sorted(values), len(values)
    if n < INTERVAL_MIN:
        return median(v), v[0], v[-1], False
    k, tail = 0, 0.0
    while 1 - 2 * (tail + math.comb(n, k) / 2**n) >= CONFIDENCE:
        tail += math.comb(n, k) / 2**n
        k += 1
    return median(v), v[k - 1], v[n - k], True


def three(value):
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, digits)}f}" if digits > 0 else f"{round(value, digits):.0f}"


def formatter(of):
    if of.endswith("_ns") or of == "ns":
        def time(value):
            for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
                if abs(value) >= size:
                    return f"{three(value / size)} {unit}"
            return f"{three(value)} ns"
        return time
    if of.endswith("_bytes") or of == "bytes":
        def size(value):
            for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
                if abs(value) >= scale:
                    return f"{three(value / scale)} {unit}"
            return f"{three(value)} B"
        return size
    if of.endswith("_per_s"):
        return lambda value: f"{three(value)}/s"
    if of.endswith("_share"):
        return lambda value: f"{three(value * 100)} %"
    return lambda value: f"{value:.0f}" if value == int(value) else three(value)


def ends(form, low, high, sure):
    return f"[{form(low)}, {form(high)}]" if sure else f"({form(low)} to {form(high)})"


def spelled(runs, term):
    if term == "n":
        return str(max(len(blocks) for blocks in runs.arms.values()))
    mid, low, high, sure = interval(runs.values(term))
    if "/" in term:
        return f"{three(mid)}× {ends(three, low, high, sure)}"
    form = formatter(term.partition("@")[2] or runs.metric)
    if low == high:
        return form(mid)
    return f"{form(mid)} {ends(form, low, high, sure)}"


def filled(runs, text):
    bare = re.sub(r"`[^`]*`", "", PLACEHOLDER.sub("", text))
    digit = re.search(r"\S*\d\S*", bare)
    if digit:
        fail(runs.name, f"typed number '{digit.group()}'; use a placeholder or code")
    return PLACEHOLDER.sub(lambda m: spelled(runs, m.group(1)), text.strip())


def verify(runs, statement):
    """Checks a statement such as `A > B * 2`: the interval of the ratio must be on that side."""
    if " is " in statement:
        term, _, wanted = statement.partition(" is ")
        if any(value != float(wanted) for value in runs.values(term)):
            fail(runs.name, f"'{statement}' does not hold in every run: {runs.values(term)}")
        return
    left, sign, right = re.split(r"\s+([<>=?])\s+", statement)
    right, _, factor = right.partition(" * ")
    factor = float(factor or 1)
    _, low, high, sure = interval(runs.values(f"{left}/{right}"))
    fine = {"<": high < factor, ">": low > factor, "=": factor / 1.05 <= low and high <= factor * 1.05,
            "?": low <= factor <= high}
    if not sure or not fine[sign]:
        fail(runs.name, f"'{statement}' does not follow: the ratio is {low:.4g} to {high:.4g}")


def pair(terms):
    return frozenset(term.strip() for term in terms)


def unasserted(source):
    """Returns a ratio of the answer that no statement in `holds` compares, or None."""
    asserted = {pair(re.split(r"\s+[<>=?]\s+", s.partition(" * ")[0])) for s in source["holds"]}
    ratios = [term for term in PLACEHOLDER.findall(source["answer"]) if "/" in term]
    return next((ratio for ratio in ratios if pair(ratio.split("/")) not in asserted), None)


def repeats(runs, source):
    """Checks that the command runs what the session ran: its mode, and its study file if it was edited."""
    words, header = source["repeat"].split(), runs.header
    if ("--full" in words) != (header["mode"] == "full"):
        fail(runs.name, f"the runs are of {header['mode']} mode, but not the command to repeat them")
    if "scaled" in runs.doubts and "--full" in words:
        fail(runs.name, "the runs used smaller sets than the command to repeat them")
    edited = "--studies" in header["command"]
    if edited and not any(word == "--studies" or word.endswith(".toml") for word in words):
        fail(runs.name, "the runs are of an edited study, but not the command to repeat them")


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def picture(runs, source):
    """Draws a dot and its interval for each arm, on a linear axis from zero."""
    of = source.get("metric", "elapsed_ns")
    form = formatter(of)
    rows = [(source.get("labels", {}).get(arm, arm), *interval(runs.values(arm))) for arm in source["arms"]]
    left, wide, step = 10 + 7 * max(len(label) for label, *_ in rows), 330, 26
    most = max(high for *_, high, _ in rows) or 1
    height, width = 20 + step * len(rows), left + wide + 170
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escaped(source["question"])}" '
        'font-family="sans-serif" font-size="12">',
        '<style>text{fill:#1b1f24}.a{stroke:#8b949e}.m{fill:#0b62c4}.i{stroke:#0b62c4;stroke-width:2}'
        "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#6cb6ff}.i{stroke:#6cb6ff}}</style>",
        f'<line class="a" x1="{left}" y1="6" x2="{left}" y2="{height - 8}"/>',
    ]
    for i, (label, mid, low, high, sure) in enumerate(rows):
        y = 20 + step * i
        x = [round(left + wide * max(v, 0) / most, 1) for v in (low, mid, high)]
        text = form(mid) if low == high else f"{form(mid)} {ends(form, low, high, sure)}"
        out.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escaped(label)}</text>')
        out.append(f'<line class="i" x1="{x[0]}" y1="{y}" x2="{x[2]}" y2="{y}"/>')
        out.append(f'<circle class="m" cx="{x[1]}" cy="{y}" r="4"/>')
        out.append(f'<text x="{x[2] + 10}" y="{y + 4}">{escaped(text)}</text>')
    return "\n".join([*out, "</svg>", ""])


def certainty(runs, source):
    header, machine = runs.header, runs.header["machine"]
    what = [source.get(k, "") for k in ("set", "condition")]
    place = ", ".join(["experiment " + source["experiment"], *(w for w in what if w)])
    text = (f"{spelled(runs, 'n')} blocks of {header['study']} ({place}), {runs.count} runs, "
            f"{machine.get('cpu_model') or 'unknown processor'}, {machine['cpus_usable']} CPUs, "
            f"{machine.get('kernel') or 'unknown kernel'}. Brackets are 95 % intervals; parentheses are ranges.")
    often = sorted((d for d, n in runs.doubts.items() if 4 * n >= runs.count), key=runs.doubts.get)
    if often:
        text += f" Doubts of at least a quarter of the runs: {', '.join(often)}."
    else:
        text += " No doubt affects a quarter of the runs."
    return text


def page(name, source):
    runs = Runs(name, source)
    for statement in source["holds"]:
        verify(runs, statement)
    if ratio := unasserted(source):
        fail(name, f"the answer gives the ratio {ratio}, which no statement in holds compares")
    repeats(runs, source)
    if cause := CAUSAL.search(source["answer"]):
        fail(name, f"the answer gives a cause ({cause[0]}); put it in theory, with its source")
    parts = [
        f"<!-- Made by xtask/py/findings.py from source/{name}.toml; do not edit. -->",
        f"# {source['question']}",
        filled(runs, source["answer"]),
        f"![{source['picture']}]({name}.svg)",
        f"{source['picture']}.",
        "## How sure",
        certainty(runs, source) + " " + filled(runs, source.get("sure", "")),
        *([f"Theory, which these runs do not test ({theory['source']}): {theory['text']}"]
          if (theory := source.get("theory")) else []),
        "## When it would be wrong",
        filled(runs, source["wrong"]),
        "## How to repeat",
        "```sh\n" + source["repeat"].strip() + "\n```",
        f"Runs: [{source['data']}](../../{source['data']}/), session `{next(iter(runs.sessions))}`, made by "
        f"ioloom {runs.header['version']} with seed {runs.header['seed']}.",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n", picture(runs, source)


def index(sources):
    text = (FINDINGS / "source" / "README.md").read_text()
    rows = "".join(f"- [{s['question']}]({name}.md)\n" for name, s in sources)
    return text.replace("{findings}", rows.strip())


def main():
    check = sys.argv[1:] == ["--check"]
    paths = sorted((FINDINGS / "source").glob("*.toml"))
    sources = [(p.stem, tomllib.loads(p.read_text())) for p in paths]
    files = {FINDINGS / "README.md": index(sources)}
    for name, source in sources:
        files[FINDINGS / f"{name}.md"], files[FINDINGS / f"{name}.svg"] = page(name, source)
    stale = [p for p, text in files.items() if not p.is_file() or p.read_text() != text]
    known = {*files, *(FINDINGS / "source").iterdir(), FINDINGS / "source"}
    strays = [p for p in FINDINGS.iterdir() if p not in known]
    if not check:
        for path in stale:
            path.write_text(files[path])
    elif stale or strays:
        names = ", ".join(str(p.relative_to(ROOT)) for p in [*stale, *strays])
        raise SystemExit(f"not what xtask/py/findings.py writes: {names}")
    print(f"{len(sources)} findings follow from their runs; {0 if check else len(stale)} files written")


main()
