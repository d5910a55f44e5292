"""Kills workers, the server and submissions of a queue at random moments until all shards are done.

Usage: kill.py PROGRAM NATS_SERVER DIR KILLS SHARDS. DIR/tree.shards is a plan of SHARDS shards.
"""

import json, os, random, signal, subprocess, sys, time

program, nats, where, kills, shards = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
os.chdir(where)
rng = random.Random(int(os.environ.get("SEED", "1")))
port = 4555
url = f"nats://127.0.0.1:{port}/kills"
open("nats.conf", "w").write(
    f'listen: 127.0.0.1:{port}\njetstream {{ store_dir: "{os.getcwd()}/store", sync_interval: always }}\n'
)
null = subprocess.DEVNULL
log = open("workers.log", "a")
start = lambda *args: subprocess.Popen(args, stdin=null, stdout=log, stderr=log)
serve = lambda: subprocess.Popen([nats, "-c", "nats.conf"], stdin=null, stdout=null, stderr=null)
submit = lambda: start(program, "shard", "submit", "tree.shards", "--queue", url, "--lease", "1", "--tries", "50")
work = lambda: start(program, "each", "--queue", url, "--manifest", "tree.shards", "--part", "parts", "--quiet")
status = lambda: subprocess.run(
    [program, "shard", "status", "--json", "--queue", url], capture_output=True, text=True
)
os.makedirs("parts", exist_ok=True)
server, began = serve(), time.time()
time.sleep(0.5)
submitting, workers = submit(), [work() for _ in range(3)]
count = {"worker": 0, "server": 0, "submission": 0}
last = None
while True:
    time.sleep(rng.uniform(0.01, 0.12))
    killed = sum(count.values())
    if killed < kills:
        kind = rng.choices(["worker", "server", "submission"], [90, 5, 5])[0]
        if kind == "worker":
            victim = rng.randrange(3)
            if workers[victim].poll() is None:
                os.kill(workers[victim].pid, signal.SIGKILL)
                workers[victim].wait()
                count[kind] += 1
        elif kind == "server":
            server.kill()
            server.wait()
            time.sleep(rng.uniform(0, 0.3))
            server = serve()
            count[kind] += 1
        else:
            # A submission that is repeated while workers go on, and killed.
            again = submit()
            time.sleep(rng.uniform(0, 0.1))
            if again.poll() is None:
                again.kill()
                count[kind] += 1
            again.wait()
    for at, worker in enumerate(workers):
        if worker.poll() is not None:
            workers[at] = work()
    if submitting.poll() not in (None, 0):
        submitting = submit()
    if killed % 50 == 0 or killed >= kills:
        said = status()
        if said.returncode == 0:
            last = json.loads(said.stdout)
            print(f"{time.time() - began:.0f} s {count} done {last['done']} parked {last['parked']}", flush=True)
            if killed >= kills and last["finished"] and submitting.poll() == 0:
                break
for worker in workers:
    worker.wait()
time.sleep(1)
last = json.loads(status().stdout)
server.kill()
merged = json.loads(subprocess.run([program, "shard", "merge", "--json", "tree.shards", "parts"], capture_output=True, text=True).stdout)
whole = json.loads(subprocess.run([program, "each", "--json", "tree"], capture_output=True, text=True).stdout)
counted = sum(worker["shards"] for worker in last["workers"])
print(f"killed {count}; done {last['done']} of {shards}, parked {last['parked']}, leases left {last['leases_queued']}")
print(f"counted by workers {counted} (a killed worker may not have reported its last second)")
print(f"merged {merged['digest']} {merged['files']} files, {merged['errors']} errors; one run {whole['digest']} {whole['files']} files")
ok = last["done"] == shards and last["parked"] == 0 and merged["digest"] == whole["digest"] and merged["files"] == whole["files"]
print("PASS" if ok else "FAIL")
sys.exit(not ok)
