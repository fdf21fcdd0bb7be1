-- decide.lua: decides one request. All its rules are read, decided and charged as one step: nothing is charged unless every
-- enforcing rule admits.
--
-- KEYS[i]   bucket of rule i. Only these keys are touched, and none may be given twice.
-- ARGV[1]   now, in whole microseconds since the epoch; '' for the server's clock, which is what all pods share.
-- then per rule, decimal integers where not said otherwise:
--   tag     algorithm and format of the state
--   flag    'e' enforces; 's' is a shadow: it denies nobody, and is charged only if the request passes and it admits itself;
--           'ep' and 'sp' the same with a penalty
--   cost    tokens that the request costs; above the capacity is never admitted
--   capacity   tokens, 1 to 1e9
-- then what the algorithm wants:
--   'tb1'   a token bucket.
--     num, den   refill in tokens per second, a fraction: num <= 1e15, den divides 1e10; num = 0 never refills
--     idle    milliseconds without a charge after which a bucket that never refills starts full; else ignored
--   'sw1'   a sliding window counter.
--     window  its length in milliseconds, 1,000 to 2,678,400,000
--   'cc1'   concurrency, whose cost is 1 whatever is given; capacity at most 1e5; without a penalty.
--     lease   milliseconds after which a slot that nobody renews is free again
--     slot    the id of the slot to take, 1 to 64 bytes of any kind
-- then, with a penalty:
--   denials, within, for   so many denials, the first at most `within` ms ago, bring it about for `for` ms
--   capacity, num, den, idle   of the token bucket that the client is then also held to
--
-- Returns integers: admitted (1 or 0), then 3 per rule:
--   verdict 1 admit, 0 not now, 2 never
--   left    whole tokens left, rounded down: after the charge if the rule was charged
--   wait    milliseconds, rounded up, until this cost is admitted (after a charge: until it, at least 1, is admitted again);
--           0 if at once, never or not known; of a token bucket at most 400 days
-- or an error, with nothing written: KOTA if the number of arguments, an algorithm or the length of a state is none that this
-- script knows, else one of the server's own (OOM, a right that is missing). Numbers outside of the above are not looked for.
--
-- STATE. No state is an unused bucket. All little-endian.
-- tb1: how much was USED, in micro-tokens (1e-6 token), and when that was true. It does not hold what is left, so that an edited
--   limit keeps its meaning: raised, it admits at once; lowered, it denies at once; at a new rate what was used is still used.
--   `at` in 7 bytes and `used` in 5, or in 7 if it is 2^40 or more: with 12 bytes the value fits the allocator's class of 32.
-- sw1: when the current window began (whole seconds, 4 bytes, until 2106), what was counted in it (4) and in the one before (4).
-- Strikes, 30 bytes after either, only of who was denied under a penalty: when the first denial that counts was (ms, 6), how many
--   there were (4), when the penalty ends (ms, 6, 0 before), and of its bucket `used` (7) and `at` (7).
-- cc1: a sorted set of slots, by the time (ms) at which their lease ends; of one that was released before it was taken (a
--   tombstone) by that time made negative.
-- Written on a denial are only strikes; a suffix that no penalty asks for is ignored, and gone with the next write.
--
-- EXACT: every number is an integer below 2^53 in a double, so that + - * are exact where their results are below it, and:
-- (F) floor(a / b) and ceil(a / b) are exact for integers a >= 0, b >= 1 with a + b <= 2^53. A quotient that is no integer lies
--     at least 1 / b from the integers q around it. To be rounded onto q it has to lie within q * 2^-53 of it, which takes
--     q * b >= 2^53; but q * b < a + b.
-- (P) if the double x * y is below 2^52, so is the integer (rounding is monotone), and the double is exact.
-- The specification is src/limits (u128); src/sidecar/tests/lua/ holds the two together over random histories.
--
-- Redis 6.2 or later, or Valkey. Before Redis 5 a script that has read TIME may not write.

local EXACT = 4503599627370496 -- 2^52: leaves room in (F) for a divisor, which is at most 1e15
local WAIT_MAX = 34560000000 -- 400 days in ms
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

-- === Token buckets

-- What is still used of `was` after dt microseconds: less what has come back, rounded down. A clock that went back (dt < 0)
-- brings nothing back. What comes back is inexact where it is 2^53 or more, but not below 2^53 (all terms are positive, rounding is
-- monotone), and no bucket has so much to give back.
local function used_after(dt, was, num, den, idle)
  if dt <= 0 then
    return was
  end
  if num == 0 then
    return dt < idle * 1000 and was or 0
  end
  local credit
  local product = num * dt
  if product < EXACT then -- (P), (F)
    credit = floor(product / den)
  else
    -- num = a * den + r and dt = b * den + s with r, s < den <= 1e10, so num * dt / den = a * dt + r * b + r * s / den, of
    -- which the first two are integers. r * s reaches 1e20: s = s1 * 1e5 + s0 with both below 1e5, r * s1 = u * den + v,
    -- and r * s / den = u * 1e5 + (v * 1e5 + r * s0) / den, where nothing passes 2e15.
    local a, b = floor(num / den), floor(dt / den)
    local r, s = num - a * den, dt - b * den
    local s1 = floor(s / 1e5)
    local s0 = s - s1 * 1e5
    local u = floor(r * s1 / den)
    local v = r * s1 - u * den
    credit = a * dt + r * b + u * 1e5 + floor((v * 1e5 + r * s0) / den)
  end
  if credit < was then
    return was - credit
  end
  return 0
end

-- Whole milliseconds from now, rounded up, until `missing` micro-tokens have come back, counted from `ahead` microseconds after
-- now (before now if negative). Not above 0 if they have come back already.
local function wait_for(missing, ahead, num, den, idle)
  if num == 0 then
    return min(ceil((ahead + idle * 1000) / 1000), WAIT_MAX)
  end
  local product = missing * den
  local time = product / num
  if product < EXACT then -- (P), (F); a sum that is not exact is far beyond WAIT_MAX
    return min(ceil((ceil(time) + ahead) / 1000), WAIT_MAX)
  end
  -- The product is rounded: `time` is right to 2^-52 of itself, which is 2 microseconds at most, so the wait is right to 1 ms.
  -- The exact credit decides.
  local wait = ceil((time + ahead) / 1000)
  if wait > WAIT_MAX then
    return WAIT_MAX
  end
  local function enough(ms)
    local dt = ms * 1000 - ahead
    return dt > 0 and used_after(dt, missing, num, den) == 0
  end
  if not enough(wait) then
    wait = wait + 1
  elseif enough(wait - 1) then
    wait = wait - 1
  end
  return min(wait, WAIT_MAX)
end

-- === Read

local KEYS, ARGV = KEYS, ARGV
local n, last = #KEYS, #ARGV
local args -- where each rule's arguments begin; nil if all are plain token buckets, with 7 each
local arg = 2
for i = 1, n do
  local tag, flag = ARGV[arg], ARGV[arg + 1]
  if (tag ~= 'tb1' or flag ~= 'e' and flag ~= 's') and not args then
    args = {}
    for before = 1, i - 1 do args[before] = before * 7 - 5 end
  end
  if args then
    args[i] = arg
    local penal = flag == 'ep' or flag == 'sp'
    if tag == 'sw1' then
      arg = arg - 2
    elseif tag == 'cc1' and not penal then
      arg = arg - 1
    elseif tag ~= 'tb1' and arg <= last then
      return redis.error_reply('KOTA unknown algorithm ' .. tag .. ' of rule ' .. i)
    end
    if penal then arg = arg + 7 end
  end
  arg = arg + 7
end
if arg ~= last + 1 then
  return redis.error_reply('KOTA wants ' .. (arg - 1) .. ' arguments for ' .. n .. ' rules, not ' .. last)
end
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local states = redis.call('MGET', unpack(KEYS)) -- of a sorted set: nothing

-- A closure costs 2 % of a call: what plain token buckets have no use for is made only for others.
local now_ms, share, window_wait, under_penalty, strikes
if args then
  now_ms = floor(now / 1000)

  -- === Sliding windows

  -- x * y / d, rounded by `round` (floor or ceil), for x < 2^31 and y, d < 2^32: a count is at most 2e9, a window 2.7e9 ms.
  function share(x, y, d, round)
    local product = x * y
    if product < EXACT then -- (P), (F)
      return round(product / d)
    end
    -- y = y1 * 2^16 + y0 with both below 2^16, and x * y1 = u * d + v, below 2^47. So x * y / d = u * 2^16 +
    -- (v * 2^16 + x * y0) / d, of which the first is an integer; v < d, so the dividend is below 2^48 + 2^47. (F)
    local y1 = floor(y / 65536)
    local u = floor(x * y1 / d)
    return u * 65536 + round(((x * y1 - u * d) * 65536 + x * (y - y1 * 65536)) / d)
  end

  -- Milliseconds until no more than `room` is counted, `rest` ms before the current window ends.
  function window_wait(room, current, previous, rest, window)
    local counted, from = current, rest + window -- in the next window, where this one is the previous
    if room >= current then
      room, counted, from = room - current, previous, rest
    end
    -- The longest part of a window with so much in it that counts for at most `room`.
    local part = room >= counted and window or share(room, window, counted, floor)
    return max(from - part, 0)
  end

  -- === Penalties

  -- What the penalty whose arguments begin at p leaves, and how long it lets this cost wait: 0 if it admits it. `was` and `since`
  -- are its bucket's, `ends` is when it is over.
  function under_penalty(p, cost, was, since, ends)
    local capacity, num, den, idle = ARGV[p + 3] * 1000000, ARGV[p + 4] + 0, ARGV[p + 5] + 0, ARGV[p + 6]
    local left = max(floor((capacity - used_after(now - since, was, num, den, idle)) / 1000000), 0)
    local wait = ends - now_ms
    if cost <= capacity then
      local missing = was + cost - capacity
      wait = missing > 0 and max(min(wait_for(missing, since - now, num, den, idle), wait), 0) or 0
    end
    return left, wait
  end

  -- Strikes as they are stored, and how long they matter in milliseconds.
  function strikes(first, denials, ends, was, since, within)
    local until_ms = max(denials > 0 and first + within or 0, ends)
    return struct.pack('<I6I4I6I7I7', first, denials, ends, was, since), max(until_ms - now_ms, 0) + 1000
  end
end

-- === Decide

local admitted = 1
local answer = {0, 0, 0, 0} -- made at the size that one rule needs: growing costs more than all the arithmetic
local used, at = {0, 0}, {0, 0} -- what to write if the request passes: of sw1 both counts, of cc1 whether a slot is to be taken
local held -- strikes of rules that admit
local struck -- what to write whether or not the request passes: states of rules that deny, with their strikes
for i = 1, n do
  local arg = args and args[i] or i * 7 - 5
  local tag, flag, state = ARGV[arg], ARGV[arg + 1], states[i]
  local penal = args and (flag == 'ep' or flag == 'sp')
  local verdict, left, wait = 1, 0, 0
  local cost, capacity = ARGV[arg + 2] * 1000000, ARGV[arg + 3] * 1000000

  if tag == 'tb1' then
    local was, since, is = 0, now, 0
    if state then
      local length = #state
      if length == 12 or length == 42 then
        since, was = struct.unpack('<I7I5', state)
      elseif length == 14 or length == 44 then
        since, was = struct.unpack('<I7I7', state)
      else
        return redis.error_reply('KOTA rule ' .. i .. ' has a state of ' .. length ..
          ' bytes, not 12, 14, 42 or 44: delete its key')
      end
      is = used_after(now - since, was, ARGV[arg + 4] + 0, ARGV[arg + 5] + 0, ARGV[arg + 6])
    end
    left = floor((capacity - is) / 1000000)
    if is + cost <= capacity then
      if cost > 0 then
        was = is + cost
        if since < now then since = now end -- never back: the same time must not be credited twice
      end
      used[i], at[i] = was, since
    elseif cost > capacity then
      verdict = 2
    else
      verdict = 0
      wait = wait_for(was + cost - capacity, since - now, ARGV[arg + 4] + 0, ARGV[arg + 5] + 0, ARGV[arg + 6])
    end

  elseif tag == 'sw1' then
    local tokens, most, window = ARGV[arg + 2] + 0, ARGV[arg + 3] + 0, ARGV[arg + 4] + 0
    local start, current, previous = now_ms - now_ms % window, 0, 0
    if state then
      local length = #state
      if length ~= 12 and length ~= 42 then
        return redis.error_reply('KOTA rule ' .. i .. ' has a state of ' .. length ..
          ' bytes, not 12 or 42: delete its key')
      end
      local began, counted, before = struct.unpack('<I4I4I4', state)
      began = began * 1000
      if began >= start then -- or the clock went back, or the window was shorter: nothing is forgotten
        current, previous = counted, before
      elseif began + window >= start then
        previous = counted
      end
    end
    local rest = start + window - now_ms
    left = most - current - share(previous, rest, window, ceil)
    used[i], at[i] = current, previous
    if tokens > most then
      verdict = 2
    elseif tokens > left then
      verdict = 0
      wait = window_wait(most - tokens, current, previous, rest, window)
    end

  else
    local key, from = KEYS[i], '(' .. now_ms -- 14 digits, which `..` writes all, last until the year 5138
    local ends = redis.call('ZSCORE', key, ARGV[arg + 5])
    left = ARGV[arg + 3] - redis.call('ZCOUNT', key, from, '+inf')
    used[i] = 0
    if not ends or math.abs(ends) <= now_ms then -- else it is held already, or was released before it was taken
      used[i] = 1
      if left <= 0 then -- until as many leases have ended as it takes; not -left, which can be -0
        verdict = 0
        wait = redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', 0 - left, 1)[2] - now_ms
      end
    end

  end

  if penal then
    local p = arg + (tag == 'tb1' and 7 or 5)
    local within = ARGV[p + 1] + 0
    local bare, first, denials, ends, was, since = state, 0, 0, 0, 0, 0
    if state and #state > 14 then
      bare = state:sub(1, #state - 30)
      first, denials, ends, was, since = struct.unpack('<I6I4I6I7I7', state, #state - 29)
    end
    local punished = now_ms < ends
    if punished and verdict == 1 then
      local _, longer = under_penalty(p, cost, was, since, ends)
      if longer > 0 then verdict = 0 end
    end
    if verdict == 1 and bare ~= state then
      held = held or {}
      held[i] = {first, denials, ends, was, since}
    elseif verdict ~= 1 then -- one more denial; what was used stays as it is
      if not punished then
        if denials == 0 or now_ms >= first + within then
          first, denials, ends, was, since = now_ms, 0, 0, 0, now
        end
        denials = denials + 1
        if denials >= ARGV[p] + 0 then
          punished, denials, was, since = true, 0, ARGV[p + 3] * 1000000, now -- its bucket starts empty
        end
      end
      if punished then ends = now_ms + ARGV[p + 2] end
      local suffix, matter = strikes(first, denials, ends, was, since, within)
      if tag == 'tb1' then
        bare = bare or struct.pack('<I7I5', now, 0)
        local since, was = struct.unpack(#bare == 12 and '<I7I5' or '<I7I7', bare)
        matter = max(matter, wait_for(was, since - now, ARGV[arg + 4] + 0, ARGV[arg + 5] + 0, ARGV[arg + 6]) + 1000)
      else
        local window = ARGV[arg + 4] + 0
        bare = bare or struct.pack('<I4I4I4', (now_ms - now_ms % window) / 1000, 0, 0)
        matter = max(matter, struct.unpack('<I4', bare) * 1000 + 2 * window - now_ms + 1000)
      end
      struck = struck or {}
      struck[i] = {bare .. suffix, matter}
    end
    if punished then
      local less, longer = under_penalty(p, cost, was, since, ends)
      left = min(left, less)
      if verdict == 0 then wait = max(wait, longer) end
    end
  end

  if left < 0 then left = 0 end -- the limit was lowered
  if verdict ~= 1 and flag ~= 's' and flag ~= 'sp' then admitted = 0 end
  answer[i * 3 - 1], answer[i * 3], answer[i * 3 + 1] = verdict, left, wait
end
answer[1] = admitted
if admitted == 0 and not struck then
  return answer
end

-- === Charge

for i = 1, n do
  if struck and struck[i] then
    redis.call('SET', KEYS[i], struck[i][1], 'PX', struck[i][2])
  elseif admitted == 1 and answer[i * 3 - 1] == 1 then
    local arg = args and args[i] or i * 7 - 5
    local tag, cost, wait = ARGV[arg], ARGV[arg + 2] * 1000000, 0
    local state, keep -- to write, if anything

    if tag == 'tb1' then
      local capacity, num, den, idle = ARGV[arg + 3] * 1000000, ARGV[arg + 4] + 0, ARGV[arg + 5] + 0, ARGV[arg + 6]
      local was, since = used[i], at[i]
      if cost > 0 then
        answer[i * 3] = floor((capacity - was) / 1000000)
        state = struct.pack(was < 1099511627776 and '<I7I5' or '<I7I7', since, was)
        -- Until all has come back (at most 400 days: an edited limit is forgiven the rest), and a second more.
        keep = ceil((num == 0 and idle * 1000 or was * den / num) / 1000 + (since - now) / 1000)
        if keep > WAIT_MAX then keep = WAIT_MAX end
        keep = keep + 1000 -- goes to the server by '%.17g': digits only, below 1e17
      else
        cost = 1000000
      end
      local missing = was + cost - capacity
      if missing > 0 then
        wait = wait_for(missing, since - now, num, den, idle)
        if wait < 0 then wait = 0 end
      end

    elseif tag == 'sw1' then
      local tokens, most, window = ARGV[arg + 2] + 0, ARGV[arg + 3] + 0, ARGV[arg + 4] + 0
      local start, current, previous = now_ms - now_ms % window, used[i] + tokens, at[i]
      if tokens > 0 then
        answer[i * 3] = answer[i * 3] - tokens
        state = struct.pack('<I4I4I4', start / 1000, current, previous)
        keep = start + 2 * window - now_ms + 1000
      end
      wait = window_wait(most - max(tokens, 1), current, previous, start + window - now_ms, window)

    elseif used[i] == 1 then
      local lease = ARGV[arg + 4] + 0
      redis.call('ZREMRANGEBYSCORE', KEYS[i], -now_ms, now_ms) -- what has ended, tombstones too
      redis.call('ZADD', KEYS[i], now_ms + lease, ARGV[arg + 5])
      -- As long as any lease runs: others may have longer ones, if the rule was edited.
      local last = redis.call('ZRANGE', KEYS[i], -1, -1, 'WITHSCORES')[2]
      redis.call('PEXPIRE', KEYS[i], max(lease, last - now_ms) + 1000)
      answer[i * 3] = answer[i * 3] - 1
    end

    local strike = held and held[i]
    if strike then
      local p = arg + (tag == 'tb1' and 7 or 5)
      local within = ARGV[p + 1] + 0
      local first, denials, ends, was, since = unpack(strike)
      local punished = now_ms < ends
      if punished then
        if state then
          was = cost + used_after(now - since, was, ARGV[p + 4] + 0, ARGV[p + 5] + 0, ARGV[p + 6])
          since = max(since, now)
        end
        local less, longer = under_penalty(p, max(cost, 1000000), was, since, ends)
        answer[i * 3], wait = min(answer[i * 3], less), max(wait, longer)
      end
      if state and (punished or denials > 0 and now_ms < first + within) then
        local suffix, matter = strikes(first, denials, ends, was, since, within)
        state, keep = state .. suffix, max(keep, matter)
      end
    end

    if state then redis.call('SET', KEYS[i], state, 'PX', keep) end
    answer[i * 3 + 1] = wait
  end
end
return answer
