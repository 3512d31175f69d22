-- Pushes jobs, and makes their names known. Answers with the length of each queue after its push.
-- KEYS: known_jobs, then the queue of each job
-- ARGV: name, and the job before and after its time, of each job
local now = redis.call('TIME')[1]
local lengths = {}
for i = 2, #KEYS do
  local at = 1 + (i - 2) * 3
  lengths[i - 1] = redis.call('LPUSH', KEYS[i], ARGV[at + 1] .. now .. ARGV[at + 2])
  redis.call('SADD', KEYS[1], ARGV[at])
end
return lengths
