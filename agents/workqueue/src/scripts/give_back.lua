-- Puts jobs that nobody works on back into their queue. Answers with how many were still there.
-- KEYS: in progress, queue, lock, lock_info
-- ARGV: pool, then the elements
local moved = 0
for i = 2, #ARGV do
  if redis.call('LREM', KEYS[1], 1, ARGV[i]) == 1 then
    redis.call('LPUSH', KEYS[2], ARGV[i])
    moved = moved + 1
  end
end
if moved > 0 then release(KEYS[3], KEYS[4], ARGV[1], moved) end
return moved
