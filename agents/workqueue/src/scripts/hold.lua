-- Pauses a queue for somebody, for a while; what somebody else has paused is left to them.
-- KEYS: paused, lock_info
-- ARGV: who, seconds
local holder = redis.call('GET', KEYS[1])
if not holder or holder == ARGV[1] then
  though_full(KEYS[2])
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
end
return 1
