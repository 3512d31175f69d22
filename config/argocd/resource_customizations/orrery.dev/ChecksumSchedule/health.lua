local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration < obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not seen this version yet"}
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, stalled, reconciling = conditions.Ready, conditions.Stalled, conditions.Reconciling

if stalled ~= nil and stalled.status == "True" then
  return {status = "Degraded", message = stalled.message}
end
if obj.spec.suspend == true then
  return {status = "Suspended", message = ready and ready.message or "suspended"}
end
if ready ~= nil and ready.status == "True" and (reconciling == nil or reconciling.status ~= "True") then
  return {status = "Healthy", message = ready.message}
end
return {status = "Progressing", message = ready and ready.message or "waiting for the condition Ready"}
