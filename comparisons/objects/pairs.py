#!/usr/bin/env python3
"""Compares ioloom and `object_store` without a request limit, in blocks of one run each, in alternating order.

    python3 pairs.py CAP_EXAMPLE RIVAL SECONDS BLOCKS

CAP_EXAMPLE and RIVAL are those of caps.py. `object_store` has 256 requests at a time. Prints a line of JSON for each run.
"""
import subprocess, json, sys

cap, R, secs, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
for block in range(rounds):
    def ours():
        r = json.loads(subprocess.run([cap, secs, "none"], capture_output=True, text=True).stdout)
        r.update(block=block, client="ioloom"); print(json.dumps(r), flush=True)
    def rival():
        p = subprocess.Popen([cap, "server", "none", secs], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        url = p.stdout.readline().strip()
        r = json.loads(subprocess.run([R, url, "256", secs], capture_output=True, text=True).stdout)
        p.kill(); p.wait()
        r.update(block=block, client="object_store 256"); print(json.dumps(r), flush=True)
    for run in ((ours, rival), (rival, ours))[block % 2]: run()
