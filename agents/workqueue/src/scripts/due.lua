-- What is due in a sorted set, earliest first, a bounded number, and the time.
-- KEYS: retry or scheduled
-- ARGV: how many
local now = redis.call('TIME')[1]
return {now, redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])}
