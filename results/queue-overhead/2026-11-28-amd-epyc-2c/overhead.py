#!/usr/bin/env python3
"""Compares workers that take shards from a queue with the same workers on static shards.

    python3 overhead.py PROGRAM NATS_SERVER DIR BLOCKS [WORKERS [CPU_SHARE]]

DIR/tree is a tree, and DIR/tree.shards its plan. In each block, WORKERS (default 2) processes run all shards once by
number (a shell loop over `each --shard`) and once from a queue (`each --queue`), in an order that changes from block
to block. The page cache is warm. The queue is submitted before the clock starts. With CPU_SHARE, each worker runs in a
control group with that share of a processor (0.25 is a quarter). Prints JSON: seconds and CPU seconds of the workers, those of the
server, and the ratio queue / static with a 95 % interval (t, logarithms of the ratios of blocks).
"""
import json, math, os, pathlib, random, shutil, statistics, subprocess, sys, time

program, server, directory, blocks = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4])
workers = int(sys.argv[5]) if len(sys.argv) > 5 else 2
share = float(sys.argv[6]) if len(sys.argv) > 6 else None
os.chdir(directory)
port = 4777
url = f"nats://127.0.0.1:{port}/overhead"
shards = json.loads((directory / "tree.shards" / "plan").read_bytes().split(b"\n")[1])["shards"]
T95 = {9: 2.262, 11: 2.201, 14: 2.145, 19: 2.093, 23: 2.069, 29: 2.045}


def group(index):
    if share is None:
        return None
    first = pathlib.Path("/sys/fs/cgroup/cpu")
    path = (first if first.is_dir() else first.parent) / f"overhead-{index}"
    path.mkdir(exist_ok=True)
    if first.is_dir():
        (path / "cpu.cfs_period_us").write_text("100000")
        (path / "cpu.cfs_quota_us").write_text(f"{int(share * 100_000)}")
    else:
        (path / "cpu.max").write_text(f"{int(share * 100_000)} 100000")
    return path


groups = [group(index) for index in range(workers)]


def cpu_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(kind, nats):
    shutil.rmtree("parts", ignore_errors=True)
    os.mkdir("parts")
    if kind == "queue":
        subprocess.run([program, "shard", "submit", "tree.shards", "--queue", url], check=True, stdout=subprocess.DEVNULL)
    os.sync()
    before = cpu_of(nats.pid)
    start = time.monotonic()
    running = []
    for index in range(workers):
        if kind == "queue":
            command = [program, "each", "--queue", url, "--manifest", "tree.shards", "--part", "parts", "--quiet"]
        else:
            loop = f'for i in $(seq {index + 1} {workers} {shards}); do "{program}" each --shard $i/{shards} --manifest tree.shards --part parts --quiet || exit 1; done'
            command = ["sh", "-c", loop]
        enter = (lambda g: lambda: (g / "cgroup.procs").write_text(str(os.getpid())))(groups[index]) if share else None
        running.append(subprocess.Popen(command, preexec_fn=enter))
    cpu = 0.0
    for child in running:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0, child.args
        cpu += usage.ru_utime + usage.ru_stime
    seconds = time.monotonic() - start
    after = cpu_of(nats.pid)
    assert len(list(pathlib.Path("parts").glob("part-*"))) == shards
    if kind == "queue":
        subprocess.run([program, "shard", "submit", "--remove", "--queue", url], check=True, stdout=subprocess.DEVNULL)
    return {"s": seconds, "cpu_s": cpu, "server_cpu_s": after - before}


def interval(ratios):
    logs = [math.log(ratio) for ratio in ratios]
    mean, half = statistics.mean(logs), 0.0
    if len(logs) > 1:
        half = T95.get(len(logs) - 1, 2.262) * statistics.stdev(logs) / math.sqrt(len(logs))
    return [math.exp(mean - half), math.exp(mean), math.exp(mean + half)]


shutil.rmtree("store", ignore_errors=True)
pathlib.Path("nats.conf").write_text(f'listen: 127.0.0.1:{port}\njetstream {{ store_dir: "{directory}/store", sync_interval: always }}\n')
nats = subprocess.Popen([server, "-c", "nats.conf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(1)
rng, found = random.Random(1), []
try:
    for kind in ("static", "queue"):
        run(kind, nats)
    for block in range(blocks):
        order = ["static", "queue"]
        rng.shuffle(order)
        found.append({kind: run(kind, nats) for kind in order})
        print(json.dumps(found[-1]), flush=True)
finally:
    nats.kill()
    for path in groups:
        if path:
            time.sleep(0.2)
            path.rmdir()
ratios = {name: interval([b["queue"][name] / b["static"][name] for b in found]) for name in ("s", "cpu_s")}
ratios["cpu_with_server_s"] = interval([(b["queue"]["cpu_s"] + b["queue"]["server_cpu_s"]) / b["static"]["cpu_s"] for b in found])
print(json.dumps({"workers": workers, "share": share, "shards": shards, "blocks": blocks, "median": {kind: {name: statistics.median(b[kind][name] for b in found) for name in ("s", "cpu_s", "server_cpu_s")} for kind in ("static", "queue")}, "ratio": ratios}, indent=1))
