-- Put before the scripts that take jobs out of an in-progress list: `count` of them are no longer in flight.
-- Never below zero: a count that has drifted once would open or close the queue for ever. A pool without a
-- share has no field, so that the hash does not grow with every pool that ever was.
local function release(lock, lock_info, pool, count)
  if tonumber(redis.call('DECRBY', lock, count)) < 0 then
    redis.call('SET', lock, 0)
  end
  if tonumber(redis.call('HINCRBY', lock_info, pool, -count)) <= 0 then
    redis.call('HDEL', lock_info, pool)
  end
end

