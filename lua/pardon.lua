-- pardon.lua: forgets a client's denials, and with them its penalty. What it used stays used.
--
-- KEYS[1]   the bucket. No other key is touched.
--
-- Returns 1, or 0 if nothing was held against it.
--
-- State: see decide.lua. A state of more than 14 bytes ends in strikes, which are cut off; how long the key lives stays as it is.

local state = redis.call('MGET', KEYS[1])[1] -- of a sorted set: nothing
if not state or #state <= 30 then
  return 0
end
redis.call('SET', KEYS[1], state:sub(1, #state - 30), 'KEEPTTL')
return 1
