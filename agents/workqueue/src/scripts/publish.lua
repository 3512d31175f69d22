-- Sets fields of a hash and counts the change. Answers with the new epoch.
-- KEYS: hash
-- ARGV: field and value of each
redis.call('HSET', KEYS[1], unpack(ARGV))
return redis.call('HINCRBY', KEYS[1], 'epoch', 1)
