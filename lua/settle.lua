-- settle.lua: settles the cost of a request after the fact. Tokens go back into its bucket, or are charged although nobody was
-- asked whether they are there.
--
-- KEYS[1]   the bucket. No other key is touched.
-- ARGV[1]   now, in whole microseconds since the epoch; '' for the server's clock.
-- ARGV[2]   tag     'tb1' or 'sw1', see decide.lua
-- ARGV[3]   flag    'p' with a penalty, else ''
-- ARGV[4]   'give' (back) or 'take'
-- ARGV[5]   tokens  how many, a decimal integer
-- ARGV[6]   age     how long ago they were taken, in whole milliseconds, rather too many than too few
-- then, as in decide.lua, what the algorithm wants: capacity num den idle, or capacity window; and with a penalty: denials within
-- for capacity num den idle.
--
-- Returns 1, or 0 if there is nothing to give back to; or an error with the code KOTA, as decide.lua does, with nothing written.
--
-- What is given is taken off what was used, down to nothing; of a sliding window off the count of the window in which it was
-- taken, by its age, and off none if that is gone. What is taken is counted now. It may exceed the capacity: a debt, which makes what is used twice the capacity at most, so that one wild report locks nobody out for
-- long. A penalty's bucket, while it holds, gets the same.
--
-- State, and why all arithmetic is exact: see decide.lua, and here too that nothing passes 2^53 where it matters: of tokens * 1e6
-- beyond that only a comparison is asked. The specification is limits::settle.

local EXACT = 4503599627370496 -- 2^52
local WAIT_MAX = 34560000000 -- 400 days in ms
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local KEY, ARGV = KEYS[1], ARGV
local tag, penal, gives, tokens = ARGV[2], ARGV[3] == 'p', ARGV[4] == 'give', (ARGV[5] or 0) + 0
local age = (ARGV[6] or 0) + 0
local p = tag == 'sw1' and 9 or 11 -- where the penalty's arguments begin
if tag ~= 'tb1' and tag ~= 'sw1' then
  return redis.error_reply('KOTA nothing to settle by algorithm ' .. tostring(tag))
end
if #ARGV ~= p - 1 + (penal and 7 or 0) then
  return redis.error_reply('KOTA wants ' .. p - 1 .. ' arguments, 7 more with a penalty, not ' .. #ARGV)
end
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local now_ms = floor(now / 1000)

-- What is still used of `was` after dt microseconds, see decide.lua.
local function used_after(dt, was, num, den, idle)
  if dt <= 0 then
    return was
  end
  if num == 0 then
    return dt < idle * 1000 and was or 0
  end
  local credit
  local product = num * dt
  if product < EXACT then
    credit = floor(product / den)
  else
    local a, b = floor(num / den), floor(dt / den)
    local r, s = num - a * den, dt - b * den
    local s1 = floor(s / 1e5)
    local s0 = s - s1 * 1e5
    local u = floor(r * s1 / den)
    local v = r * s1 - u * den
    credit = a * dt + r * b + u * 1e5 + floor((v * 1e5 + r * s0) / den)
  end
  return credit < was and was - credit or 0
end

-- A token bucket whose arguments begin at `arg`, settled: what is used, and when that was true.
local function settle(arg, was, since)
  local micro = tokens * 1000000
  if gives then
    return max(was - micro, 0), since
  end
  local capacity, num, den, idle = ARGV[arg] * 1000000, ARGV[arg + 1] + 0, ARGV[arg + 2] + 0, ARGV[arg + 3]
  local is = used_after(now - since, was, num, den, idle)
  return min(is + micro, max(2 * capacity, is)), max(since, now)
end

local state = redis.call('MGET', KEY)[1]
if not state and gives then
  return 0
end
local length = state and #state
if state and length ~= 12 and length ~= 42 and (tag == 'sw1' or length ~= 14 and length ~= 44) then
  return redis.error_reply('KOTA a state of ' .. length .. ' bytes is none of ' .. tag .. ': delete its key')
end

local settled, keep -- the new state, and for how many milliseconds it matters
if tag == 'tb1' then
  local since, was = now, 0
  if state then
    since, was = struct.unpack((length == 12 or length == 42) and '<I7I5' or '<I7I7', state)
  end
  was, since = settle(7, was, since)
  settled = struct.pack(was < 1099511627776 and '<I7I5' or '<I7I7', since, was)
  local num = ARGV[8] + 0
  keep = (num == 0 and ARGV[10] + 0 or ceil(was * ARGV[9] / num) / 1000) + (since - now) / 1000
  keep = max(min(ceil(keep), WAIT_MAX), 0) + 1000
else
  local capacity, window = ARGV[7] + 0, ARGV[8] + 0
  local start, current, previous = now_ms - now_ms % window, 0, 0
  if state then
    local began, counted, before = struct.unpack('<I4I4I4', state)
    began = began * 1000
    if began >= start then
      current, previous = counted, before
    elseif began + window >= start then
      previous = counted
    end
  end
  if gives and now_ms - age >= start then
    current = max(current - tokens, 0)
  elseif gives and now_ms - age >= start - window then
    previous = max(previous - tokens, 0)
  elseif not gives then
    current = min(current + tokens, max(2 * capacity, current))
  end
  settled = struct.pack('<I4I4I4', start / 1000, current, previous)
  keep = start + 2 * window - now_ms + 1000
end

if penal and state and length > 14 then
  local first, denials, ends, was, since = struct.unpack('<I6I4I6I7I7', state, length - 29)
  local punished = now_ms < ends
  if punished then
    was, since = settle(p + 3, was, since)
  end
  local within = ARGV[p + 1] + 0
  local counts = denials > 0 and now_ms < first + within
  if punished or counts then
    settled = settled .. struct.pack('<I6I4I6I7I7', first, denials, ends, was, since)
    keep = max(keep, max(denials > 0 and first + within or 0, ends) - now_ms + 1000)
  end
end

redis.call('SET', KEY, settled, 'PX', keep)
return 1
