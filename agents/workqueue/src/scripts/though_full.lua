-- Put before the scripts that take work out of Redis, put it right or keep more from coming, which must go on when it is
-- full: it refuses commands that may need memory only while a script has changed nothing. Taking a field away that is not
-- there is such a change.
local function though_full(hash)
  redis.call('HDEL', hash, '')
end

