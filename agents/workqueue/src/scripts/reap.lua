-- Puts jobs of a dead pool back into their queue, a bounded number at a time: Redis does nothing else meanwhile. They
-- have waited their turn, and are next; one that has come back before is last, so that a job that ends whoever takes it
-- keeps nobody from the others. One that has come back too often stays until the caller says what is to be kept of it
-- among the dead.
-- The pool is dead if its heartbeat is still the one that has not changed for so long. Compared here, where nobody can come
-- in between. Answers with how many were moved, or with -1 if the pool lives, and with the job that has come back too often.
-- KEYS: heartbeat, in progress, queue, lock, lock_info, come back, dead
-- ARGV: pool, the time of its last heartbeat or nothing if it has none, how many, for how many seconds it is known what has
--       come back, how often one comes back at most; then perhaps a job for the dead: as it is, and what is kept before and
--       after the time
if (redis.call('HGET', KEYS[1], 'heartbeat_at') or '') ~= ARGV[2] then return {-1, false} end

though_full(KEYS[6])
local moved, too_often = 0, false
while moved < tonumber(ARGV[3]) do
  local job = redis.call('LINDEX', KEYS[2], -1)
  if not job then break end
  local id = redis.sha1hex(job)
  local times = tonumber(redis.call('HGET', KEYS[6], id)) or 0
  if job == ARGV[6] then
    local now = redis.call('TIME')[1]
    redis.call('ZADD', KEYS[7], now, ARGV[7] .. now .. ARGV[8])
    redis.call('HDEL', KEYS[6], id)
  elseif times >= tonumber(ARGV[5]) then
    too_often = job
    break
  else
    redis.call('HINCRBY', KEYS[6], id, 1)
    redis.call(times == 0 and 'RPUSH' or 'LPUSH', KEYS[3], job)
  end
  redis.call('RPOP', KEYS[2])
  moved = moved + 1
end
if moved > 0 then
  redis.call('EXPIRE', KEYS[6], ARGV[4])
  release(KEYS[4], KEYS[5], ARGV[1], moved)
end
return {moved, too_often}
