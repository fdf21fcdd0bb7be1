-- slot.lua: gives a slot of a concurrency limit back, or begins its lease anew.
--
-- KEYS[1]   the bucket. No other key is touched.
-- ARGV[1]   now, in whole microseconds since the epoch; '' for the server's clock.
-- ARGV[2]   'release' or 'renew'
-- ARGV[3]   lease   in milliseconds, a decimal integer
-- ARGV[4]   slot    its id
--
-- Returns 1, or 0 if there is no such slot to renew: what is gone is not brought back. Or an error with the code KOTA, with nothing
-- written.
--
-- A slot that is released and is not there may be on its way: a tombstone stays for a lease, at which its acquire takes nothing.
-- State: see decide.lua. The specification is limits::concurrency.

local KEY, ARGV = KEYS[1], ARGV
local what, lease, slot = ARGV[2], ARGV[3], ARGV[4]
if #ARGV ~= 4 or what ~= 'release' and what ~= 'renew' then
  return redis.error_reply('KOTA wants now, release or renew, a lease and a slot')
end
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local now_ms = math.floor(now / 1000)
local ends = now_ms + lease

local score = redis.call('ZSCORE', KEY, slot)
local held = score and score + 0 > 0 -- else a tombstone, or nothing
if what == 'renew' then
  if not held then
    return 0
  end
  redis.call('ZADD', KEY, ends, slot)
elseif held then
  redis.call('ZREM', KEY, slot)
else
  redis.call('ZADD', KEY, -ends, slot)
end
-- As long as any lease runs: others may have longer ones, from before the rule was edited or from a pod that has not heard of it.
local last = redis.call('ZRANGE', KEY, -1, -1, 'WITHSCORES')[2] or 0
redis.call('PEXPIRE', KEY, math.max(lease + 0, last - now_ms) + 1000)
return 1
