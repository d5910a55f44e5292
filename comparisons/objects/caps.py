#!/usr/bin/env python3
"""Measures ioloom and its rivals against a server with a request limit that none of them knows.

    PYTHONPATH=... python3 caps.py CAP_EXAMPLE RIVAL SECONDS RIVAL_SECONDS SEED...

CAP_EXAMPLE is the example `cap` of ioloom-objects (cargo build --release -p ioloom-objects --features s3 --example cap), RIVAL the
program of comparisons/objects. Of each seed: ioloom without settings for SECONDS, then `object_store` with
`buffer_unordered` and Python `obstore`, each at eight numbers of requests at a time for RIVAL_SECONDS, against a new server with
the same limit and burst. The server runs in a process of its own on the same processors. Prints a line of JSON for each run.
"""
import asyncio, json, os, resource, subprocess, sys, time

SETTINGS = [1, 4, 16, 32, 64, 128, 256, 1024]


class Server:
    def __init__(self, seed, seconds):
        self.process = subprocess.Popen([cap, "server", seed, str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def counts(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [int(word) for word in self.process.stdout.readline().split()]

    def close(self):
        self.process.kill()
        self.process.wait()


def obstore_child(url, at_once, seconds):
    import obstore
    from obstore.store import S3Store
    store = S3Store("bucket", endpoint=url, region="us-east-1", access_key_id="id", secret_access_key="secret",
                    client_options={"allow_http": True})

    async def run():
        done = errors = 0
        start = time.monotonic()
        names = asyncio.Queue(maxsize=4 * at_once)

        async def listing():
            async for page in store.list("o", chunk_size=1000):
                for meta in page:
                    await names.put(meta["path"])

        async def worker():
            nonlocal done, errors
            while True:
                path = await names.get()
                try:
                    found = await obstore.get_async(store, path)
                    await found.bytes_async()
                    done += 1
                except Exception:
                    errors += 1

        tasks = [asyncio.create_task(listing())] + [asyncio.create_task(worker()) for _ in range(at_once)]
        await asyncio.sleep(seconds - (time.monotonic() - start))
        took = time.monotonic() - start
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"seconds": round(took, 2), "objects": done, "errors": errors,
                          "cpu_s": round(used.ru_utime + used.ru_stime, 2)}), flush=True)
        os._exit(0)

    asyncio.run(run())


def rivals(seed, limit):
    for name in ("object_store", "obstore"):
        for at_once in SETTINGS:
            server = Server(seed, rival_seconds)
            if name == "object_store":
                command = [rival, server.url, str(at_once), str(rival_seconds)]
            else:
                command = [sys.executable, __file__, "--obstore", server.url, str(at_once), str(rival_seconds)]
            out = subprocess.run(command, capture_output=True, text=True)
            served, refused, _ = server.counts()
            server.close()
            row = json.loads(out.stdout)
            per_s = row["objects"] / row["seconds"]
            row.update(seed=seed, client=name, at_once=at_once, served=served, refused=refused, objects_per_s=round(per_s),
                       share_of_cap=round(per_s / limit, 4) if limit else None,
                       refused_share=round(refused / max(1, served + refused), 5),
                       cpu_us_per_request=round(row["cpu_s"] * 1e6 / max(1, served + refused), 1))
            print(json.dumps(row), flush=True)


if sys.argv[1] == "--obstore":
    obstore_child(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    cap, rival, seconds, rival_seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    for seed in sys.argv[5:]:
        out = subprocess.run([cap, str(seconds), seed], capture_output=True, text=True, check=True).stdout
        row = json.loads(out)
        row["client"] = "ioloom"
        print(json.dumps(row), flush=True)
        rivals(seed, row["cap_per_s"])
