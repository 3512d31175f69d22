-- How many jobs of one name there are, all at one moment: they move while one looks.
-- KEYS: queue, lock_info, worker_pools, then sorted sets
-- ARGV: name, first and last rank to look at in the sorted sets
-- Answers: length of the queue, jobs in progress, then for each sorted set the jobs of that name between the ranks
-- and the number of all its members.
local pools = {}
for _, pool in ipairs(redis.call('SMEMBERS', KEYS[3])) do pools[pool] = true end
for _, pool in ipairs(redis.call('HKEYS', KEYS[2])) do pools[pool] = true end
local flying = 0
for pool in pairs(pools) do
  flying = flying + redis.call('LLEN', KEYS[1] .. ':' .. pool .. ':inprogress')
end

local plain = not string.find(ARGV[1], '[^%w/_.:%-]')
local quoted = '"' .. ARGV[1] .. '"'
local escaped = string.gsub(quoted, '/', '\\/')
local found = {redis.call('LLEN', KEYS[1]), flying}
for i = 4, #KEYS do
  local count = 0
  for _, member in ipairs(redis.call('ZRANGE', KEYS[i], ARGV[2], ARGV[3])) do
    -- Decoding is dear, and a plain name is there as it is or with its slashes escaped.
    if not plain or string.find(member, quoted, 1, true) or string.find(member, escaped, 1, true) then
      local whole, job = pcall(cjson.decode, member)
      if whole and type(job) == 'table' and job['name'] == ARGV[1] then count = count + 1 end
    end
  end
  found[#found + 1] = count
  found[#found + 1] = redis.call('ZCARD', KEYS[i])
end
return found
