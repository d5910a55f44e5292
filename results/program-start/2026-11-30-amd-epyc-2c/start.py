"""Times the start of programs: `python3 start.py PROGRAM...` runs each with --version, 200 times, in turns."""
import json, random, subprocess, sys, time
runs = {program: [] for program in sys.argv[1:]}
for _ in range(200):
    order = list(runs); random.shuffle(order)
    for program in order:
        begin = time.perf_counter_ns()
        subprocess.run([program, "--version"], stdout=subprocess.DEVNULL, check=True)
        runs[program].append(time.perf_counter_ns() - begin)
for program, ns in runs.items():
    ns.sort()
    print(json.dumps({"program": program.split("/")[-1], "median_ns": ns[100], "p05_ns": ns[10], "p95_ns": ns[190]}))
