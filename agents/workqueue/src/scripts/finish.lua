-- Ends one job, with all its consequences or, if it is no longer ours, with none. Answers with 1 or 0.
-- KEYS: in progress, lock, lock_info, known_jobs, retry, dead, then the queue of each job to push
-- ARGV: pool, element, fate (done, retry or dead), seconds until the retry, the failed job before and after the
--       time of its failure, then name, and the job before and after its time, of each job to push
if redis.call('LREM', KEYS[1], 1, ARGV[2]) == 0 then return 0 end
release(KEYS[2], KEYS[3], ARGV[1], 1)

local now = redis.call('TIME')[1]
if ARGV[3] == 'retry' then
  redis.call('ZADD', KEYS[5], now + ARGV[4], ARGV[5] .. now .. ARGV[6])
elseif ARGV[3] == 'dead' then
  redis.call('ZADD', KEYS[6], now, ARGV[5] .. now .. ARGV[6])
end
for i = 7, #KEYS do
  local at = 7 + (i - 7) * 3
  redis.call('LPUSH', KEYS[i], ARGV[at + 1] .. now .. ARGV[at + 2])
  redis.call('SADD', KEYS[4], ARGV[at])
end
return 1
