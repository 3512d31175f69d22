-- Removes a dead pool whose jobs were moved: heartbeat, what its workers were seen doing, membership. Answers
-- with 1, or with 0 if it lives after all.
-- KEYS: heartbeat, worker_pools
-- ARGV: pool, the time of its last heartbeat or nothing if it has none, prefix of observations
if (redis.call('HGET', KEYS[1], 'heartbeat_at') or '') ~= ARGV[2] then return 0 end
for worker in string.gmatch(redis.call('HGET', KEYS[1], 'worker_ids') or '', '[^,]+') do
  redis.call('DEL', ARGV[3] .. worker)
end
redis.call('DEL', KEYS[1])
redis.call('SREM', KEYS[2], ARGV[1])
return 1
