-- Takes one job of the first queue, in the order given, that has one, is not paused and is below its cap.
-- Answers with the number of the queue (from 1), the job and the time, with 0 if the pool counts as dead, or with
-- nothing.
-- KEYS: per queue six: queue, in progress, paused, lock, lock_info, max_concurrency; last the heartbeat
-- ARGV: pool, patience
local lived = age(KEYS[#KEYS])
if not lived or lived >= tonumber(ARGV[2]) then return {0, '', 0} end

for i = 1, #KEYS - 1, 6 do
  local queue, in_progress, paused, lock, lock_info, cap = unpack(KEYS, i, i + 5)
  local most = tonumber(redis.call('GET', cap)) or 0
  local flying = tonumber(redis.call('GET', lock)) or 0
  if redis.call('EXISTS', paused) == 0 and (most == 0 or flying < most) and redis.call('LLEN', queue) > 0 then
    though_full(lock_info)
    redis.call('INCR', lock)
    redis.call('HINCRBY', lock_info, ARGV[1], 1)
    return {(i + 5) / 6, redis.call('RPOPLPUSH', queue, in_progress), tonumber(redis.call('TIME')[1])}
  end
end
return nil
