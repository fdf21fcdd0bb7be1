#!/usr/bin/env python3
"""Compares layouts of a bucket's state in one run on one Redis: rate, CPU and memory, interleaved, medians with spread.

Usage: run.py [ROUNDS]   (default 7; about a minute each)
Writes speed.csv and memory.csv beside this file and prints both as tables. Tools: REDIS_SERVER and REDIS_BENCHMARK, else PATH.
"""

import csv
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
from layouts import LAYOUTS, call

HERE = Path(__file__).parent
CALLS = {1: 60_000, 2: 50_000, 8: 20_000}  # per measurement, by rules of a request
CLIENTS = 10_000
MEMORY_BUCKETS = 200_000
ADMITTED = (300_000, 1, 100)  # capacity, num, den: never exhausted here, a token is kept for 100 s
DENIED = (1, 1, 1_000)  # the first call takes the token, the rest wait 1,000 s


class Redis:
    """A Redis of our own on a Unix socket, without persistence, and one connection to it."""

    def __init__(self, directory):
        self.path = f"{directory}/redis.sock"
        words = [tool("REDIS_SERVER", "redis-server"), "--port", "0", "--unixsocket", self.path]
        words += ["--save", "", "--appendonly", "no", "--dir", directory]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(500):
            try:
                self.socket.connect(self.path)
                break
            except OSError:
                time.sleep(0.01)
        self.replies = self.socket.makefile("rb")

    def pipeline(self, commands):
        commands = list(commands)
        self.socket.sendall(b"".join(encode(words) for words in commands))
        return [self.reply() for _ in commands]

    def __call__(self, *words):
        return self.pipeline([words])[0]

    def reply(self):
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise SystemExit(f"Redis: {rest.decode()}")
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.replies.read(int(rest) + 2)[:-2].decode()
        return [self.reply() for _ in range(int(rest))] if kind == b"*" else rest.decode()

    def info(self, section):
        lines = (line.partition(":") for line in self("INFO", section).splitlines())
        return {key: value for key, colon, value in lines if colon}


def tool(variable, name):
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        raise SystemExit(f"{name} is missing: install redis-server and redis-tools, or set {variable}")
    return found


def encode(words):
    words = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def fill(redis, layout, sha, clients, rules, limit):
    """Charges every client once."""
    for start in range(0, clients, 1_000):
        names = (f"u_a1{number:012}" for number in range(start, start + 1_000))
        redis.pipeline(call(layout, sha, name, rules, limit) for name in names)


def measure(redis, layout, sha, rules, outcome):
    """Calls/s as redis-benchmark sees it, and what a call costs the server: the command's own time, and CPU with its I/O."""
    limit = ADMITTED if outcome == "admitted" else DENIED
    redis("FLUSHALL")
    fill(redis, layout, sha, CLIENTS, rules, limit)
    redis("CONFIG", "RESETSTAT")
    before = cpu_us(redis)
    words = [tool("REDIS_BENCHMARK", "redis-benchmark"), "-s", redis.path, "-c", "8", "-P", "16", "-n", str(CALLS[rules])]
    words += ["-r", str(CLIENTS), "--csv", *call(layout, sha, "u_a1__rand_int__", rules, limit)]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    used = cpu_us(redis) - before
    stats = dict(pair.split("=") for pair in redis.info("commandstats")["cmdstat_evalsha"].split(","))
    if stats["failed_calls"] != "0":
        raise SystemExit(f"{layout}: {stats}")
    rate = float(list(csv.reader(printed.splitlines()))[-1][1])
    return round(rate), float(stats["usec_per_call"]), round(used / int(stats["calls"]), 2)


def cpu_us(redis):
    info = redis.info("cpu")
    return 1e6 * (float(info["used_cpu_user_main_thread"]) + float(info["used_cpu_sys_main_thread"]))


def speed(redis, shas, rounds):
    rows = []
    for number in range(rounds):
        names = list(LAYOUTS)
        names = names[number % len(names):] + names[: number % len(names)]  # nobody always runs first
        for rules in CALLS:
            for outcome in ("admitted", "denied"):
                for layout in names:
                    if rules > 1 and LAYOUTS[layout][1] == "brief":
                        continue  # it knows one bucket only
                    rows.append([number, layout, rules, outcome, *measure(redis, layout, shas[layout], rules, outcome)])
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return rows


def memory(redis, shas):
    """Bytes per bucket: growth of used_memory, and MEMORY USAGE of a key, both over its buckets."""
    rows = []
    for layout in LAYOUTS:
        for rules in (1, 2, 8):
            if rules > 1 and LAYOUTS[layout][1] != "client":
                continue  # a key per bucket, however many a client has
            redis("FLUSHALL")
            before = int(redis.info("memory")["used_memory"])
            fill(redis, layout, shas[layout], MEMORY_BUCKETS // rules, rules, DENIED)
            grown = int(redis.info("memory")["used_memory"]) - before
            assert redis("PTTL", redis("RANDOMKEY")) > 0
            keys = 1 if LAYOUTS[layout][1] == "client" else rules
            usage = int(redis("MEMORY", "USAGE", redis("RANDOMKEY"))) * keys / rules
            rows.append([layout, rules, round(grown / MEMORY_BUCKETS, 1), round(usage, 1)])
    return rows


def edits(redis, shas):
    """What the next request hears after all 100 tokens were taken at 1/s and the limit was then edited, at the same moment."""
    print("\n| layout | edited to | admitted at once | then waits |\n|---|---|---|---|")
    now = 1_790_000_000_000_000
    for layout in ("packed12", "GCRA"):
        for what, (capacity, num, den) in (
            ("10/s", (100, 10, 1)), ("0.1/s", (100, 1, 10)), ("capacity 200", (200, 1, 1)), ("capacity 50", (50, 1, 1)),
        ):
            redis("FLUSHALL")
            ask = ["EVALSHA", shas[layout], "1", "bucket", now, "tb1", "e"]
            redis(*ask, 100, 100, 1, 1, 0)
            admitted = 0
            while (answer := redis(*ask, 1, capacity, num, den, 0))[0] == 1:
                admitted += 1
            print(f"| {layout} | {what} | {admitted} | {answer[3] / 1000:g} s |")


def write(name, header, rows):
    with open(HERE / name, "w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([header, *rows])


def tables(rows, memory_rows):
    print("\n| layout | rules | outcome | calls/s | script µs | CPU µs |\n|---|---|---|---|---|---|")
    cells = {}
    for _, layout, rules, outcome, *values in rows:
        cells.setdefault((rules, outcome, layout), []).append(values)
    for (rules, outcome, layout), runs in cells.items():
        rate, script, cpu = (
            f"{statistics.median(run):,g} ({min(run):,g}-{max(run):,g})" for run in zip(*runs)
        )
        print(f"| {layout} | {rules} | {outcome} | {rate} | {script} | {cpu} |")
    print("\n| layout | rules of a client | bytes/bucket | MEMORY USAGE/bucket |\n|---|---|---|---|")
    for row in memory_rows:
        print("|", " | ".join(map(str, row)), "|")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as directory:
        redis = Redis(directory)
        try:
            print("Redis", redis.info("server")["redis_version"])
            shas = {layout: redis("SCRIPT", "LOAD", script) for layout, (script, _) in LAYOUTS.items()}
            memory_rows = memory(redis, shas)
            rows = speed(redis, shas, rounds)
            edits(redis, shas)
        finally:
            redis.process.terminate()
            redis.process.wait()
    write("memory.csv", ["layout", "rules_of_a_client", "bytes_per_bucket", "memory_usage_per_bucket"], memory_rows)
    write("speed.csv", ["round", "layout", "rules", "outcome", "calls_per_s", "script_us", "cpu_us"], rows)
    tables(rows, memory_rows)


if __name__ == "__main__":
    main()
