#!/usr/bin/env python3
"""Compares shards of ioloom with GNU parallel and Dask on one machine: time, and what a killed worker costs.

    python3 many_hosts.py PROGRAM NATS_SERVER DIR BLOCKS [SEED]

DIR/tree is a tree, DIR/tree.shards its plan. Two workers compute SHA-256 of every file. Arms of each block, in an order
drawn from the seed for each block; the page cache is warm:
  static    a shell loop per worker over `each --shard`
  queue     `each --queue`; the server runs before the clock starts, and the submission is inside
  parallel  `parallel -j2 xargs -0 sha256sum`, a job per shard, with a job log
  dask      LocalCluster(n_workers=2, threads_per_worker=1) that runs before the clock starts; a task per shard with hashlib
Then each arm runs three times while one of its workers is killed with SIGKILL at a third of its usual time. `complete` is whether every file
has a hash at the end without a second command. BLOCKS is at least 2. Prints JSON. Dask needs PYTHONPATH.
"""
import hashlib, json, math, os, pathlib, random, shutil, signal, statistics, subprocess, sys, threading, time

program, server, directory, blocks = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).resolve(), int(sys.argv[4])
os.chdir(directory)
url = "nats://127.0.0.1:4778/hosts"
WORKERS = 2
seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
draw = random.Random(seed)


def within(t, freedom):
    """Returns the probability that Student's t is between -t and t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    if freedom == 1:
        total = 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine ** 2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def t95(freedom):
    """Returns the t of a 95 % interval."""
    low, high = 0.0, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < 0.95 else (low, middle)
    return high


def manifests():
    """Writes a NUL-separated list of paths for each shard, for the others."""
    shutil.rmtree("lists", ignore_errors=True)
    os.mkdir("lists")
    paths = sorted(str(p) for p in pathlib.Path("tree").rglob("*") if p.is_file())
    size = math.ceil(len(paths) / shards)
    for at in range(0, len(paths), size):
        chunk = paths[at:at + size]
        pathlib.Path(f"lists/{at // size + 1:06}").write_bytes(b"\0".join(p.encode() for p in chunk) + b"\0")
    return len(paths)


# Dask's workers import this file, too: only main() may touch the directory.
shards = files = 0


def fresh(name):
    shutil.rmtree(name, ignore_errors=True)
    os.mkdir(name)


def kill_one(find, after):
    """Kills one process of those that `find` returns, after some seconds."""
    def later():
        time.sleep(after)
        pids = find()
        if pids:
            os.kill(draw.choice(pids), signal.SIGKILL)
    thread = threading.Thread(target=later)
    thread.start()
    return thread


def started_by(roots, program):
    """Returns the processes below those in `roots` that run `program`."""
    parents, names = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name in parentheses may contain anything; the state and the parent follow it.
                parents[int(entry.name)] = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                names[int(entry.name)] = os.path.basename((entry / "cmdline").read_bytes().split(b"\0")[0])
            except OSError:
                continue

    def is_below(pid):
        while (pid := parents.get(pid)) is not None:
            if pid in roots:
                return True
        return False

    return [pid for pid, name in names.items() if name == os.path.basename(program).encode() and is_below(pid)]


def merged():
    out = subprocess.run([program, "shard", "merge", "tree.shards", "parts", "--json"], capture_output=True)
    return json.loads(out.stdout).get("files") == files if out.returncode == 0 else False


def static(kill):
    fresh("parts")
    start = time.monotonic()
    loops = []
    for worker in range(WORKERS):
        loop = f'for i in $(seq {worker + 1} {WORKERS} {shards}); do "{program}" each --compute sha256 --shard $i/{shards} --manifest tree.shards --part parts --quiet; done'
        loops.append(subprocess.Popen(["sh", "-c", loop], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    if kill:
        kill_one(lambda: started_by([loop.pid for loop in loops], program), kill)
    for loop in loops:
        loop.wait()
    return time.monotonic() - start, merged


def queue(kill):
    fresh("parts")
    subprocess.run([program, "shard", "submit", "--remove", "--queue", url], capture_output=True)
    start = time.monotonic()
    subprocess.run([program, "shard", "submit", "tree.shards", "--queue", url, "--lease", "2"], check=True, stdout=subprocess.DEVNULL)
    command = [program, "each", "--compute", "sha256", "--queue", url, "--manifest", "tree.shards", "--part", "parts", "--quiet"]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(WORKERS)]
    if kill:
        kill_one(lambda: [p.pid for p in running if p.poll() is None], kill)
    for process in running:
        process.wait()
    return time.monotonic() - start, merged


def parallel(kill):
    fresh("out")
    start = time.monotonic()
    running = subprocess.Popen(
        ["parallel", "--will-cite", f"-j{WORKERS}", "--joblog", "out/log", "xargs -0 sha256sum < {} > out/{/}"]
        + [":::"] + sorted(str(p) for p in pathlib.Path("lists").iterdir()),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if kill:
        kill_one(lambda: started_by([running.pid], "sha256sum"), kill)
    running.wait()
    took = time.monotonic() - start
    return took, lambda: sum(len(p.read_bytes().splitlines()) for p in pathlib.Path("out").glob("0*")) == files


def hashes(name):
    out = []
    for path in pathlib.Path(name).read_bytes().split(b"\0")[:-1]:
        with open(path, "rb") as file:
            out.append(hashlib.sha256(file.read()).hexdigest())
    return out


client = None


def dask(kill):
    start = time.monotonic()
    names = sorted(str(p.resolve()) for p in pathlib.Path("lists").iterdir())
    futures = client.map(hashes, names, pure=False)
    if kill:
        workers = list(client.cluster.workers.values())
        kill_one(lambda: [worker.pid for worker in workers if worker.pid], kill)
    found = client.gather(futures)
    took = time.monotonic() - start
    return took, lambda: sum(map(len, found)) == files


def main():
    global client, shards, files
    shards = json.loads((directory / "tree.shards" / "plan").read_bytes().split(b"\n")[1])["shards"]
    files = manifests()
    from dask.distributed import Client, LocalCluster
    shutil.rmtree("store", ignore_errors=True)
    pathlib.Path("nats.conf").write_text(f'port: 4778\nhttp: 4779\njetstream {{ store_dir: "{directory}/store", sync_interval: always }}\n')
    nats = subprocess.Popen([server, "-c", "nats.conf"], stderr=subprocess.DEVNULL)
    cluster = LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    time.sleep(1)
    arms = {"static": static, "queue": queue, "parallel": parallel, "dask": dask}
    seconds = {name: [] for name in arms}
    for name, arm in arms.items():
        took, complete = arm(None)
        assert complete(), name
    for block in range(blocks):
        print(f"block {block + 1} of {blocks}", file=sys.stderr, flush=True)
        for name in draw.sample(list(arms), len(arms)):
            took, complete = arms[name](None)
            assert complete(), name
            seconds[name].append(took)
    result = {"files": files, "shards": shards, "blocks": blocks, "seed": seed, "arms": {}}
    for name, times in seconds.items():
        logs = [math.log(a / b) for a, b in zip(seconds["queue"], times)]
        mean, sd = statistics.mean(logs), statistics.stdev(logs)
        half = t95(blocks - 1) * sd / math.sqrt(blocks)
        ratio = [round(math.exp(v), 3) for v in (mean, mean - half, mean + half)]
        killed = []
        for _ in range(3):
            took, complete = arms[name](statistics.median(times) / 3)
            killed.append({"seconds": round(took, 2), "complete": complete()})
        result["arms"][name] = {"median_s": round(statistics.median(times), 3), "queue_divided_by_it": ratio,
                                "killed": killed, "seconds": [round(t, 3) for t in times]}
    print(json.dumps(result, indent=1))
    client.close()
    cluster.close()
    nats.kill()


if __name__ == "__main__":
    main()
