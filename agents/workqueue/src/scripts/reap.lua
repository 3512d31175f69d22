-- Puts jobs of a dead pool back into their queue, a bounded number at a time: Redis does nothing else meanwhile.
-- It is dead if its heartbeat is still the one that has not changed for so long. Compared here, where nobody can come
-- in between. Answers with how many were moved, or with -1 if the pool lives.
-- KEYS: heartbeat, in progress, queue, lock, lock_info
-- ARGV: pool, the time of its last heartbeat or nothing if it has none, how many
if (redis.call('HGET', KEYS[1], 'heartbeat_at') or '') ~= ARGV[2] then return -1 end

local moved = 0
while moved < tonumber(ARGV[3]) and redis.call('RPOPLPUSH', KEYS[2], KEYS[3]) do
  moved = moved + 1
end
if moved > 0 then release(KEYS[4], KEYS[5], ARGV[1], moved) end
return moved
