"""Kills workers at seeded random moments: kill.py ROUNDS, in a directory with the tree t and its plan t.shards of
8 shards. Each round starts two workers, which often have the same shard, and kills both."""
import json, os, random, subprocess, sys, time

PROGRAM = os.environ.get("IOLOOM", "ioloom")
SHARDS = 8
random.seed(int(os.environ.get("SEED", "24")))
os.makedirs("p", exist_ok=True)


def run(*args):
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True)


def worker(shard):
    return ["each", "--shard", f"{shard}/{SHARDS}", "--manifest", "t.shards", "--part", "p", "-q"]


def hidden():
    return len([name for name in os.listdir("p") if name.startswith(".")])


killed = completed = bad = checks = 0
rounds = int(sys.argv[1])
for number in range(rounds):
    workers = []
    for _ in range(2):
        args = worker(random.randint(1, SHARDS)) + (["--redo"] if random.random() < 0.7 else [])
        workers.append(subprocess.Popen([PROGRAM, *args], stderr=subprocess.PIPE))
    time.sleep(random.random() * 0.02)
    for started in workers:
        started.kill()
        message = started.communicate()[1]
        killed += started.returncode == -9
        completed += started.returncode == 0
        if started.returncode not in (-9, 0):
            bad += 1
            print("failed", started.returncode, message)
    if number % 5 == 4:
        checks += 1
        faults = json.loads(run("shard", "status", "t.shards", "p", "--json").stdout)["faults"]
        if faults["double"] or faults["foreign"] or faults["damaged"]:
            bad += 1
            print("fault", number, faults)
print(f"workers {2 * rounds}, killed {killed}, completed {completed}, checks {checks}, bad {bad}, "
      f"temporary files {hidden()}")
for shard in range(1, SHARDS + 1):
    run(*worker(shard))
merged = json.loads(run("shard", "merge", "t.shards", "p", "--json").stdout)
whole = json.loads(run("each", "t", "--json").stdout)
same = all(merged[field] == whole[field] for field in ("digest", "files", "bytes", "errors"))
print(f"merged: equal to one run {same}, files {merged['files']}, errors {merged['errors']}, "
      f"temporary files {hidden()}")
