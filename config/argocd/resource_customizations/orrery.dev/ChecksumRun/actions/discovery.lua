-- A run that has ended, or is about to, cannot be changed any more.
local over = obj.spec.cancel == true
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    if condition.type == "Complete" and condition.status == "True" then
      over = true
    end
  end
end
local suspended = obj.spec.suspend == true
return {
  ["suspend"] = {["disabled"] = over or suspended},
  ["resume"] = {["disabled"] = over or not suspended},
  ["cancel"] = {["disabled"] = over},
}
