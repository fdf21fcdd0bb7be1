-- decide.lua: decides one request. All its rules are read, decided and charged as one step: nothing is written unless every
-- enforcing rule admits.
--
-- KEYS[i]   bucket of rule i. Only these keys are touched, and none may be given twice.
-- ARGV[1]   now, in whole microseconds since the epoch; '' for the server's clock, which is what all pods share.
-- then 7 per rule, decimal integers where not said otherwise:
--   tag     algorithm and format of the state: 'tb1', a token bucket
--   flag    'e' enforces; 's' is a shadow: it denies nobody, and is charged only if the request passes and it admits itself
--   cost    tokens that the request costs; above the capacity is never admitted
--   capacity   tokens, 1 to 1e9
--   num, den   refill in tokens per second, a fraction: num <= 1e15, den divides 1e10; num = 0 never refills
--   idle    milliseconds without a charge after which a bucket that never refills starts full; else ignored
--
-- Returns integers: admitted (1 or 0), then 3 per rule:
--   verdict 1 admit, 0 not now, 2 never
--   left    whole tokens left, rounded down: after the charge if the rule was charged
--   wait    milliseconds, rounded up, until this cost is admitted (after a charge: until it, at least 1, is admitted again);
--           0 if at once or never; at most 400 days
-- or an error, with nothing written: KOTA if the number of arguments, an algorithm or the length of a state is none that this
-- script knows, else one of the server's own (OOM, a right that is missing). Numbers outside of the above are not looked for.
--
-- State: how much was USED, in micro-tokens (1e-6 token), and when that was true. It does not hold what is left, so that an
-- edited limit keeps its meaning: raised, it admits at once; lowered, it denies at once; at a new rate what was used is still
-- used. No state is a full bucket. Little-endian, `at` in 7 bytes and `used` in 5, or in 7 if it is 2^40 or more: with 12
-- bytes the value fits the allocator's class of 32.
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
local floor, ceil, min = math.floor, math.ceil, math.min

-- Micro-tokens that come back within dt > 0 microseconds, rounded down. What is 2^53 or more comes out inexact, but not
-- below 2^53 (all terms are positive, rounding is monotone), and no bucket has so many to give back.
local function credit(dt, num, den)
  local product = num * dt
  if product < EXACT then -- (P), (F)
    return floor(product / den)
  end
  -- num = a * den + r and dt = b * den + s with r, s < den <= 1e10, so num * dt / den = a * dt + r * b + r * s / den, of
  -- which the first two are integers. r * s reaches 1e20: s = s1 * 1e5 + s0 with both below 1e5, r * s1 = u * den + v,
  -- and r * s / den = u * 1e5 + (v * 1e5 + r * s0) / den, where nothing passes 2e15.
  local a, b = floor(num / den), floor(dt / den)
  local r, s = num - a * den, dt - b * den
  local s1 = floor(s / 1e5)
  local s0 = s - s1 * 1e5
  local u = floor(r * s1 / den)
  local v = r * s1 - u * den
  return a * dt + r * b + u * 1e5 + floor((v * 1e5 + r * s0) / den)
end

-- Whole milliseconds from now, rounded up, until `missing` > 0 micro-tokens have come back, counted from `ahead` microseconds
-- after now (before now if negative). Not above 0 if they have come back already.
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
    return dt > 0 and credit(dt, num, den) >= missing
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
local n = #KEYS
if #ARGV ~= 1 + 7 * n then
  return redis.error_reply('KOTA wants 7 arguments for each of ' .. n .. ' rules, not ' .. (#ARGV - 1))
end
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local states = redis.call('MGET', unpack(KEYS))

-- === Decide

local admitted = 1
local answer = {0, 0, 0, 0} -- made at the size that one rule needs: growing costs more than all the arithmetic
local used, at = {0, 0}, {0, 0} -- the states to write if the request passes
for i = 1, n do
  local arg = i * 7 - 5
  if ARGV[arg] ~= 'tb1' then
    return redis.error_reply('KOTA unknown algorithm ' .. ARGV[arg])
  end
  local cost, capacity = ARGV[arg + 2] * 1000000, ARGV[arg + 3] * 1000000
  local was, since, is = 0, now, 0
  local state = states[i]
  if state then
    local length = #state
    if length == 12 then
      since, was = struct.unpack('<I7I5', state)
    elseif length == 14 then
      since, was = struct.unpack('<I7I7', state)
    else
      return redis.error_reply('KOTA rule ' .. i .. ' has a state of ' .. length .. ' bytes, not 12 or 14: delete its key')
    end
    is = was
    local dt = now - since
    if dt > 0 then -- a clock that went back brings nothing back
      local num, den = ARGV[arg + 4] + 0, ARGV[arg + 5] + 0
      if num > 0 then
        is = was - credit(dt, num, den)
        if is < 0 then is = 0 end
      elseif dt >= ARGV[arg + 6] * 1000 then
        is = 0
      end
    end
  end

  local verdict, left, wait = 1, floor((capacity - is) / 1000000), 0
  if is + cost <= capacity then
    if cost > 0 then
      was = is + cost
      if since < now then since = now end -- never back: the same time must not be credited twice
    end
    used[i], at[i] = was, since
  else
    if cost > capacity then
      verdict = 2
    else
      verdict = 0
      wait = wait_for(was + cost - capacity, since - now, ARGV[arg + 4] + 0, ARGV[arg + 5] + 0, ARGV[arg + 6])
    end
    if left < 0 then left = 0 end -- the limit was lowered
    if ARGV[arg + 1] ~= 's' then admitted = 0 end
  end
  answer[i * 3 - 1], answer[i * 3], answer[i * 3 + 1] = verdict, left, wait
end
answer[1] = admitted
if admitted == 0 then
  return answer
end

-- === Charge

for i = 1, n do
  if answer[i * 3 - 1] == 1 then
    local arg = i * 7 - 5
    local cost, capacity = ARGV[arg + 2] * 1000000, ARGV[arg + 3] * 1000000
    local num, den, idle = ARGV[arg + 4] + 0, ARGV[arg + 5] + 0, ARGV[arg + 6]
    local was, since = used[i], at[i]
    if cost > 0 then
      answer[i * 3] = floor((capacity - was) / 1000000)
      -- Until all has come back, and a second more. A number goes to the server by '%.17g': digits only, below 1e17.
      local keep = num == 0 and idle + 0 or was * den / num / 1000
      keep = ceil(keep + (since - now) / 1000) + 1000
      redis.call('SET', KEYS[i], struct.pack(was < 1099511627776 and '<I7I5' or '<I7I7', since, was), 'PX', keep)
    else
      cost = 1000000
    end
    local missing = was + cost - capacity
    if missing > 0 then
      local wait = wait_for(missing, since - now, num, den, idle)
      if wait > 0 then answer[i * 3 + 1] = wait end
    end
  end
end
return answer
