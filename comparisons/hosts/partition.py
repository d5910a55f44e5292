#!/usr/bin/env python3
"""Cuts the network of a worker for longer than its lease, and counts which of two results counts.

    sudo python3 partition.py PROGRAM NATS_SERVER DIR ROUNDS [SEED]

The server and two workers run in network namespaces of their own, which are created for it and removed at the end:
`iol-server` has a link to `iol-a` and one to `iol-b`. Worker a holds the last of 6 shards when its link goes down for 3 to 5 s.
The lease of 1 s runs out, so b is given the same shard. In half of the rounds (`late`) b has committed it before the link is
up again; in the others (`first`) b takes longer, and the commit of a comes first. Each round has a new queue and a new
directory for parts. Prints a line of JSON for each round and one for all: `counted` is the number of
shards done, `twice` the parts or commits beyond one for each shard, `same_files` whether
the merged result has as many files as the tree.
"""
import json, os, pathlib, random, shutil, subprocess, sys, time

program, nats, directory, rounds = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).resolve(), int(sys.argv[4])
draw = random.Random(int(sys.argv[5]) if len(sys.argv) > 5 else 1)
os.chdir(directory)
SHARDS = 6
PORT = 4790
LINKS = {"a": "10.213.1", "b": "10.213.2"}


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=not check)


def remove_namespaces():
    for name in ("server", "a", "b"):
        ip("netns", "del", f"iol-{name}", check=False)


def make_namespaces():
    remove_namespaces()
    for name in ("server", "a", "b"):
        ip("netns", "add", f"iol-{name}")
        ip("-n", f"iol-{name}", "link", "set", "lo", "up")
    for name, net in LINKS.items():
        ip("link", "add", f"s-{name}", "netns", "iol-server", "type", "veth", "peer", "name", "w", "netns", f"iol-{name}")
        for where, link, address in (("server", f"s-{name}", 1), (name, "w", 2)):
            ip("-n", f"iol-{where}", "addr", "add", f"{net}.{address}/24", "dev", link)
            ip("-n", f"iol-{where}", "link", "set", link, "up")


def within(name, *words, **settings):
    return subprocess.Popen(["ip", "netns", "exec", f"iol-{name}", *words], **settings)


def answer(name, *words):
    out = within(name, program, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    text, errors = out.communicate(timeout=120)
    return out.returncode, text, errors


def url(name, queue):
    return f"nats://{LINKS.get(name, LINKS['a'])}.1:{PORT}/{queue}"


def worker(name, queue, seconds):
    """Runs a worker whose last file takes so many seconds."""
    command = [program, "each", "--exec", "./work {}", "--queue", url(name, queue), "--manifest", "tree.shards",
               "--part", "parts", "--worker", name, "--json"]
    return within(name, *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                  env={**os.environ, "SECONDS_EACH": str(seconds)})


def status(queue):
    _, text, said = answer("server", "shard", "status", "--queue", url("a", queue), "--json")
    assert text, said
    return json.loads(text)


def one(number, order, expected):
    queue = f"partition{number}"
    shutil.rmtree("parts", ignore_errors=True)
    os.mkdir("parts")
    subprocess.run(["ip", "netns", "exec", "iol-server", program, "shard", "submit", "tree.shards", "--queue", url("a", queue), "--lease", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    a = worker("a", queue, 2)
    time.sleep(draw.uniform(0.8, 1.2))
    ip("-n", "iol-server", "link", "set", "s-a", "down")
    cut = time.monotonic()
    down = draw.uniform(3, 5)
    b = worker("b", queue, 0.05 if order == "late" else down + 1)
    time.sleep(max(0, down - (time.monotonic() - cut)))
    ip("-n", "iol-server", "link", "set", "s-a", "up")
    ends = {}
    for name, process in (("a", a), ("b", b)):
        text, errors = process.communicate(timeout=300)
        report = json.loads(text)["queue"] if text else {}
        ends[name] = {"exit": process.returncode, "shards": report.get("shards"), "late": report.get("late")}
        if errors:
            ends[name]["said"] = errors.splitlines()[:3]
    found = status(queue)
    merge = subprocess.run([program, "shard", "merge", "tree.shards", "parts", "--json"], capture_output=True, text=True)
    merged = json.loads(merge.stdout) if merge.returncode == 0 else {}
    row = {"round": number, "order": order, "down_s": round(down, 2), "workers": ends, "done": found["done"],
           "parked": found["parked"], "counted": sum(end["shards"] or 0 for end in ends.values()),
           "late": sum(end["late"] or 0 for end in ends.values()),
           "same_files": merge.returncode == 0 and merged.get("files") == expected}
    print(json.dumps(row), flush=True)
    subprocess.run(["ip", "netns", "exec", "iol-server", program, "shard", "submit", "--remove", "--queue", url("a", queue)],
                   stdout=subprocess.DEVNULL)
    return row


def main():
    shutil.rmtree("tree", ignore_errors=True)
    shutil.rmtree("tree.shards", ignore_errors=True)
    shutil.rmtree("store", ignore_errors=True)
    os.mkdir("tree")
    for number in range(SHARDS):
        pathlib.Path(f"tree/file{number}").write_text(f"{number}\n")
    pathlib.Path("work").write_text(f"#!/bin/sh\ncase $1 in *file{SHARDS - 1}) sleep $SECONDS_EACH;; esac\ncksum < \"$1\" > /dev/null\n")
    os.chmod("work", 0o755)
    subprocess.run([program, "shard", "plan", "tree", "--shards", str(SHARDS)], check=True, stdout=subprocess.DEVNULL)
    pathlib.Path("nats.conf").write_text(
        f'listen: 0.0.0.0:{PORT}\njetstream {{ store_dir: "{directory}/store", sync_interval: always }}\n')
    make_namespaces()
    server = within("server", nats, "-c", "nats.conf", stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        rows = [one(number, "late" if number % 2 else "first", SHARDS) for number in range(rounds)]
    finally:
        server.kill()
        remove_namespaces()
    print(json.dumps({
        "rounds": len(rows), "shards": SHARDS * len(rows), "done": sum(row["done"] for row in rows),
        "lost": sum(SHARDS - row["done"] for row in rows),
        "twice": sum(row["counted"] - row["done"] for row in rows),
        "refused": {order: sum(row["late"] for row in rows if row["order"] == order) for order in ("late", "first")},
        "refused_of": {name: sum(row["workers"][name]["late"] or 0 for row in rows) for name in ("a", "b")},
        "same_files": sum(row["same_files"] for row in rows),
    }))


if __name__ == "__main__":
    main()
