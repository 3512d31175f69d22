-- Ends somebody's pause of a queue, and nobody else's.
-- KEYS: paused
-- ARGV: who
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
