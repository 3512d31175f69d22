-- Put before the scripts that ask whether a pool lives: the age of its heartbeat by the clock of Redis, in
-- seconds, or nothing if it has none.
local function age(heartbeat)
  local at = tonumber(redis.call('HGET', heartbeat, 'heartbeat_at'))
  return at and tonumber(redis.call('TIME')[1]) - at
end

