#!/usr/bin/env python3
"""overlay.py BEFORE AFTER BLOCKS OUT NAME DIR [cold|asis]: interleaved runs of `each DIR`, one JSON line each."""
import json, os, random, subprocess, sys, time
before, after, blocks, out, name, directory, condition = sys.argv[1:8]
arms = {"before": [before], "after": [after],
        "uring-256": [after, "--plan", "uring/window:l=256,p=2"],
        "read-128": [after, "--plan", "read/window:l=128,p=2"]}
for extra in sys.argv[8:]:
    arms[extra] = [after, "--plan", extra]
generator = random.Random(1)
with open(out, "a") as file:
    for block in range(int(blocks)):
        order = list(arms)
        generator.shuffle(order)
        for arm in order:
            if condition == "cold":
                os.sync()
                open("/proc/sys/vm/drop_caches", "w").write("3\n")
            program, *plan = arms[arm]
            start = time.monotonic_ns()
            done = subprocess.run([program, "each", directory, "--json", "--compute", "xxh3", *plan],
                                  stdout=subprocess.PIPE, check=True)
            wall = time.monotonic_ns() - start
            found = json.loads(done.stdout)
            line = {"set": name, "block": block, "arm": arm, "wall_ns": wall, "files": found["files"],
                    "cpu_ns": found["cpu_kernel_ns"] + found["cpu_user_ns"], "digest": found["digest"],
                    "plan": found["plan"]}
            file.write(json.dumps(line) + "\n"); file.flush()
