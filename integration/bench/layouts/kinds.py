#!/usr/bin/env python3
"""What a bucket of each kind takes in Redis, with its key and TTL: growth of used_memory over 100,000 buckets, and MEMORY USAGE.

Usage: kinds.py
Writes kinds.csv beside this file and prints it. The clients have ids of 16 bytes. Tools as run.py.
"""

import sys
import tempfile

sys.dont_write_bytecode = True  # no __pycache__ in the source tree
from layouts import DECIDE
from run import Redis, write

BUCKETS = 100_000
KEY = "rl:{public-api:user:%s}:gold-orders-create:"
BUCKET = ["1", "1", "1000", "0"]  # capacity, num, den, idle: a token comes back in 1,000 s
WINDOW = ["1", "3600000"]
LEASE = "3600000"
PENALTY = ["10", "3600000", "3600000", *BUCKET]

# kind -> (key, arguments of each call of a client)
KINDS = {
    "token bucket": (KEY + "tb1", [["tb1", "e", "1", *BUCKET]]),
    "token bucket, short names": ("rl:{api:user:%s}:orders:tb1", [["tb1", "e", "1", *BUCKET]]),
    "token bucket, once denied under a penalty": (KEY + "tb1", [["tb1", "ep", "1", *BUCKET, *PENALTY]] * 2),
    "sliding window": (KEY + "sw1", [["sw1", "e", "1", *WINDOW]]),
    "sliding window, once denied under a penalty": (KEY + "sw1", [["sw1", "ep", "1", *WINDOW, *PENALTY]] * 2),
    "concurrency, 1 slot held": (KEY + "cc1", [["cc1", "e", "1", "100", LEASE, "filter-7f3a:0001"]]),
    "concurrency, 10 slots held": (
        KEY + "cc1",
        [["cc1", "e", "1", "100", LEASE, f"filter-7f3a:{slot:04}"] for slot in range(10)],
    ),
}


def main():
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        redis = Redis(directory)
        try:
            print("Redis", redis.info("server")["redis_version"])
            sha = redis("SCRIPT", "LOAD", DECIDE)
            for kind, (name, calls) in KINDS.items():
                redis("FLUSHALL")
                before = int(redis.info("memory")["used_memory"])
                for start in range(0, BUCKETS, 1_000):
                    keys = [name % f"u_a1{number:012}" for number in range(start, start + 1_000)]
                    for arguments in calls:
                        redis.pipeline(["EVALSHA", sha, "1", key, "", *arguments] for key in keys)
                grown = (int(redis.info("memory")["used_memory"]) - before) / BUCKETS
                key = redis("RANDOMKEY")
                assert redis("DBSIZE") == BUCKETS and redis("PTTL", key) > 0
                rows.append([kind, len(key), round(grown), redis("MEMORY", "USAGE", key)])
        finally:
            redis.process.terminate()
            redis.process.wait()
    write("kinds.csv", ["kind", "bytes_of_the_key", "bytes_per_bucket", "memory_usage_of_one"], rows)
    for row in rows:
        print("|", " | ".join(map(str, row)), "|")


main()
