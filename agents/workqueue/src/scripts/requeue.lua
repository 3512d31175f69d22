-- Moves jobs that are due to their queues. A member that is gone was moved by somebody else; a name that nobody
-- knows is looked at again later. Answers with how many were moved and how many were put off.
-- KEYS: retry or scheduled, known_jobs, dead, then the queue of each job
-- ARGV: when to look again, then name, member and job of each; an empty name sends the job to the dead
local moved, later = 0, 0
for i = 4, #KEYS do
  local at = 2 + (i - 4) * 3
  local name, member, job = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if name ~= '' and redis.call('SISMEMBER', KEYS[2], name) == 0 then
    later = later + redis.call('ZADD', KEYS[1], 'XX', 'CH', ARGV[1], member)
  elseif redis.call('ZREM', KEYS[1], member) == 1 then
    if name == '' then
      redis.call('ZADD', KEYS[3], redis.call('TIME')[1], job)
    else
      redis.call('LPUSH', KEYS[i], job)
    end
    moved = moved + 1
  end
end
return {moved, later}
