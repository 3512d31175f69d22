-- Writes a heartbeat, and what must not be missing while a pool works. Answers with false if the pool is no
-- longer what it was: its heartbeat is gone or too old, so a reaper may be about to give its jobs to others.
-- KEYS: worker_pools, heartbeat, known_jobs, then max_concurrency of each job name
-- ARGV: pool, mode (new, renew or old), patience, concurrency, worker ids, host, pid,
--       then name and max_concurrency of each job name
local pool, mode, patience = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lived = age(KEYS[2])
if mode ~= 'new' and not lived then return 0 end
if mode == 'renew' and lived >= patience then return 0 end

though_full(KEYS[2])
local now = redis.call('TIME')[1]
local names = {}
for i = 8, #ARGV, 2 do
  names[#names + 1] = ARGV[i]
  if mode == 'new' then
    redis.call('SET', KEYS[4 + (i - 8) / 2], ARGV[i + 1])
  end
  if mode ~= 'old' then
    redis.call('SADD', KEYS[3], ARGV[i])
  end
end
redis.call('SADD', KEYS[1], pool)
redis.call('HSETNX', KEYS[2], 'started_at', now)
redis.call('HSET', KEYS[2], 'heartbeat_at', now, 'job_names', table.concat(names, ','), 'concurrency', ARGV[4],
  'worker_ids', ARGV[5], 'host', ARGV[6], 'pid', ARGV[7])
return 1
