"""handover.py PROGRAM DIR: three handovers under load per store and number of retained orders.

Prints a line per case: clients connect for every order, and repeat it under the same number until it is answered.
"""
import os, shutil, signal, socket, subprocess, sys, threading, time

PROGRAM, DIR = os.path.abspath(sys.argv[1]), sys.argv[2]
CLIENTS, HANDOVERS, ROUNDS, LEFT = 3, 3, 3, 100_000_000
CASES = [("log", "os", 0), ("log", "os", 100_000), ("log", "os", 1_000_000), ("sqlite", "group", 0),
         ("sqlite", "group", 100_000)]


def connect(address):
    stream = socket.create_connection(address, timeout=120)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream, stream.makefile("rb")


def fill(address, orders):
    stream, lines = connect(address)
    for start in range(0, orders, 500):
        count = min(500, orders - start)
        stream.sendall(b"buy 1 1\n" * count)
        for _ in range(count):
            assert lines.readline() == b"[buy] success\n"


class Seen:
    def __init__(self):
        self.lock, self.is_over = threading.Lock(), False
        self.done = self.refused = self.repeated = 0
        self.longest = 0.0


def orders(address, name, seen):
    number = 0
    while not seen.is_over:
        number += 1
        since = time.monotonic()
        while True:
            try:
                stream, lines = connect(address)
            except ConnectionRefusedError:
                with seen.lock:
                    seen.refused += 1
                continue
            try:
                stream.sendall(b"HELLO stock/2 client=%s\n%d BUY 1 1\n" % (name, number))
                lines.readline()
                answer = lines.readline()
            except OSError:
                answer = b""
            stream.close()
            if answer:
                assert answer.startswith(b"%d OK " % number), answer
                break
            with seen.lock:
                seen.repeated += 1
        with seen.lock:
            seen.done += 1
            seen.longest = max(seen.longest, time.monotonic() - since)


def case(store, level, retained):
    shutil.rmtree(DIR, ignore_errors=True)
    os.makedirs(DIR)
    program, stocks = os.path.join(DIR, "program"), os.path.join(DIR, "stock.txt")
    os.symlink(PROGRAM, program)
    with open(stocks, "w") as file:
        file.write(f"1 {LEFT} 10\n")
    command = [program, "serve", "--stock", stocks, "--listen", "127.0.0.1:0", "--dialect", "line", "--store", store,
               "--durability", level]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def wait_for(words):
        for line in server.stderr:
            if words in line:
                return line
        raise SystemExit(f"the server ended without {words!r}")

    host, port = wait_for("listening on").split()[-1].rsplit(":", 1)
    address = (host, int(port))
    fill(address, retained)
    seen = Seen()
    clients = [threading.Thread(target=orders, args=(address, b"c%d" % n, seen)) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    for _ in range(HANDOVERS):
        before = seen.done
        while seen.done < before + 10:
            time.sleep(0.001)
        server.send_signal(signal.SIGUSR2)
        wait_for("listening on")
    seen.is_over = True
    for client in clients:
        client.join()
    server.send_signal(signal.SIGTERM)
    server.stderr.read()
    assert server.wait() == 0
    with open(stocks) as file:
        lost = retained + seen.done - (LEFT - int(file.read().split()[1]))
    inspected = subprocess.run([PROGRAM, "store", "inspect", stocks + ".store"], capture_output=True, text=True, check=True)
    kept = next(line.split()[-1] for line in inspected.stdout.splitlines() if line.startswith("retained orders"))
    print(store, level, retained, kept, seen.done, seen.refused, seen.repeated, lost, f"{seen.longest:.3f}", sep="\t",
          flush=True)


print("store", "level", "before", "kept", "orders", "refused", "repeated", "lost", "longest_s", sep="\t")
for one in CASES * ROUNDS:
    case(*one)
shutil.rmtree(DIR)
