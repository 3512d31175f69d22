-- Makes the count of jobs in flight true again. A pool's share is never more than the length of its in-progress
-- list and never less than zero; the count is their sum. Whoever takes or ends a job changes list, share and count
-- in one step, so in between there is nothing to mend. Answers with 1 if something was wrong.
-- KEYS: lock, lock_info, queue
though_full(KEYS[2])
local sum, wrong = 0, 0
local shares = redis.call('HGETALL', KEYS[2])
for i = 1, #shares, 2 do
  local pool, share = shares[i], tonumber(shares[i + 1]) or 0
  local right = math.max(0, math.min(share, redis.call('LLEN', KEYS[3] .. ':' .. pool .. ':inprogress')))
  if right == 0 then
    redis.call('HDEL', KEYS[2], pool)
  elseif right ~= share then
    redis.call('HSET', KEYS[2], pool, right)
  end
  if right ~= share then wrong = 1 end
  sum = sum + right
end
local count = redis.call('GET', KEYS[1])
if count and tonumber(count) ~= sum then
  redis.call('SET', KEYS[1], sum)
  wrong = 1
end
return wrong
