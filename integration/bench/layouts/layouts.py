"""The layouts that are compared: lua/decide.lua itself, and the same script with only its reading and writing exchanged."""

from pathlib import Path

DECIDE = (Path(__file__).parents[3] / "lua" / "decide.lua").read_text()

READ = "local states = redis.call('MGET', unpack(KEYS)) -- of a sorted set: nothing\n"
UNPACK = """local length = #state
      if length == 12 or length == 42 then
        since, was = struct.unpack('<I7I5', state)
      elseif length == 14 or length == 44 then
        since, was = struct.unpack('<I7I7', state)
      else
        return redis.error_reply('KOTA rule ' .. i .. ' has a state of ' .. length ..
          ' bytes, not 12, 14, 42 or 44: delete its key')
      end
"""
PACK = "state = struct.pack(was < 1099511627776 and '<I7I5' or '<I7I7', since, was)\n"
WRITE = "redis.call('SET', KEYS[i], state, 'PX', keep)"


def variant(read=READ, unpack=UNPACK, pack=PACK, write=WRITE, more=()):
    """decide.lua with other lines for reading, unpacking, packing and writing, and `more` pairs of (old, new) text."""
    script = DECIDE
    for old, new in ((READ, read), (UNPACK, unpack), (PACK, pack), (WRITE, write), *more):
        if script.count(old) != 1:
            raise SystemExit(f"lua/decide.lua no longer holds this line once, adapt layouts.py: {old!r}")
        script = script.replace(old, new)
    return script


def each(command):
    """Reads every bucket by a command of its own."""
    return f"local states = {{}}\nfor i = 1, n do states[i] = {command} end\n"


# The brief's script, word for word: one bucket, floating point, what is LEFT is stored, a denial is written too.
BRIEF = """
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local capacity = tonumber(ARGV[1])
local rate = tonumber(ARGV[2]) / 1000
local cost = tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local tokens = tonumber(state[1]) or capacity
local ts = tonumber(state[2]) or now
tokens = math.min(capacity, tokens + math.max(0, now - ts) * rate)
local allowed, retry_ms = 0, 0
if tokens >= cost then
  tokens = tokens - cost
  allowed = 1
else
  retry_ms = math.ceil((cost - tokens) / rate)
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(capacity / rate) + 1000)
return {allowed, math.floor(tokens), retry_ms}
"""

# GCRA at its best: one integer, the time at which the bucket would be full (TAT, microseconds), and no care for exactness.
GCRA = """
local n = #KEYS
local now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = tonumber(ARGV[1])
end
local states = redis.call('MGET', unpack(KEYS))
local admitted, answer, tats = 1, {}, {}
for i = 1, n do
  local arg = i * 7 - 5
  local per_token = ARGV[arg + 5] * 1000000 / ARGV[arg + 4]
  local full, tat = ARGV[arg + 3] * per_token, tonumber(states[i] or now)
  if tat < now then tat = now end
  local verdict, wait, after = 1, 0, tat + ARGV[arg + 2] * per_token
  if after - now > full then
    verdict, wait = 0, math.ceil((after - now - full) / 1000)
    if ARGV[arg + 1] ~= 's' then admitted = 0 end
    after = tat
  end
  local left = math.floor((full - (after - now)) / per_token)
  tats[i] = after
  answer[i * 3 - 1], answer[i * 3], answer[i * 3 + 1] = verdict, left < 0 and 0 or left, wait
end
answer[1] = admitted
if admitted == 1 then
  for i = 1, n do
    if answer[i * 3 - 1] == 1 then
      redis.call('SET', KEYS[i], string.format('%.0f', tats[i]), 'PX', math.ceil((tats[i] - now) / 1000) + 1000)
    end
  end
end
return answer
"""

# name -> (script, what its keys and arguments look like)
LAYOUTS = {
    "packed12": (DECIDE, "buckets"),
    "packed12, GET each": (variant(read=each("redis.call('GET', KEYS[i])")), "buckets"),
    "packed16": (
        variant(
            unpack="since, was = struct.unpack('<dd', state)\n",
            pack="state = struct.pack('<dd', since, was)\n",
        ),
        "buckets",
    ),
    "text": (
        variant(
            unpack="since, was = string.match(state, '(%d+):(%d+)')\nsince, was = tonumber(since), tonumber(was)\n",
            pack="state = string.format('%.0f:%.0f', since, was)\n",
        ),
        "buckets",
    ),
    "hash": (
        variant(
            read=each("redis.call('HMGET', KEYS[i], 'at', 'used')"),
            unpack="since, was = tonumber(state[1]) or now, tonumber(state[2]) or 0\n",
            pack="state = {string.format('%.0f', since), string.format('%.0f', was)}\n",
            write="redis.call('HSET', KEYS[i], 'at', state[1], 'used', state[2]) redis.call('PEXPIRE', KEYS[i], keep)",
        ),
        "buckets",
    ),
    # A hash of all rules of a client; it lives as long as the longest of them, hence the PTTL.
    "client hash": (
        variant(
            read="local states = redis.call('HMGET', KEYS[1], unpack(ARGV, 2 + 7 * n))\nlocal fields, longest = {}, 0\n",
            write="fields[#fields + 1] = ARGV[1 + 7 * n + i] fields[#fields + 1] = state "
            "if keep > longest then longest = keep end",
            more=(
                ("local n, last = #KEYS, #ARGV\n", "local n = (#ARGV - 1) / 8\nlocal last = 1 + 7 * n\n"),
                (
                    "= wait\n  end\nend\nreturn answer\n",
                    "= wait\n  end\nend\nif #fields > 0 then\n  redis.call('HSET', KEYS[1], unpack(fields))\n"
                    "  if redis.call('PTTL', KEYS[1]) < longest then redis.call('PEXPIRE', KEYS[1], longest) end\nend\n"
                    "return answer\n",
                ),
            ),
        ),
        "client",
    ),
    "GCRA": (GCRA, "buckets"),
    "the brief's": (BRIEF, "brief"),
}


def call(layout, sha, client, rules, limit):
    """The words of one EVALSHA: `limit` is (capacity, num, den) of every rule."""
    capacity, num, den = limit
    tag = f"rl:{{public-api:user:{client}}}"
    names = [f"gold-orders-create-{rule}:tb1" for rule in range(1, rules + 1)]
    shape = LAYOUTS[layout][1]
    if shape == "brief":
        return ["EVALSHA", sha, "1", f"{tag}:{names[0]}", str(capacity), str(num / den), "1"]
    keys = [tag] if shape == "client" else [f"{tag}:{name}" for name in names]
    rest = ["tb1", "e", "1", str(capacity), str(num), str(den), "0"] * rules
    return ["EVALSHA", sha, str(len(keys)), *keys, "", *rest, *(names if shape == "client" else [])]
