-- Puts jobs of a dead pool back into their queue, a bounded number at a time: Redis does nothing else meanwhile. They
-- have waited their turn, and are next; one that has come back before is last, so that a job that ends whoever takes it
-- keeps nobody from the others.
-- It is dead if its heartbeat is still the one that has not changed for so long. Compared here, where nobody can come
-- in between. Answers with how many were moved, or with -1 if the pool lives.
-- KEYS: heartbeat, in progress, queue, lock, lock_info, come back
-- ARGV: pool, the time of its last heartbeat or nothing if it has none, how many, for how many seconds it is known what has come back
if (redis.call('HGET', KEYS[1], 'heartbeat_at') or '') ~= ARGV[2] then return -1 end

though_full(KEYS[6])
local moved = 0
while moved < tonumber(ARGV[3]) do
  local job = redis.call('LINDEX', KEYS[2], -1)
  if not job then break end
  local is_first = redis.call('HINCRBY', KEYS[6], redis.sha1hex(job), 1) == 1
  redis.call(is_first and 'RPUSH' or 'LPUSH', KEYS[3], job)
  redis.call('RPOP', KEYS[2])
  moved = moved + 1
end
if moved > 0 then
  redis.call('EXPIRE', KEYS[6], ARGV[4])
  release(KEYS[4], KEYS[5], ARGV[1], moved)
end
return moved
