local status = obj.status
if status == nil or status.observedGeneration == nil or status.observedGeneration < obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not seen this version yet"}
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, stalled, complete = conditions.Ready, conditions.Stalled, conditions.Complete

-- How a run ended is the reason of Complete; that it ended on request is no fault.
if complete ~= nil and complete.status == "True" then
  local good = {Verified = true, ChangedMeanwhile = true, Cancelled = true, Stopped = true}
  local message = complete.reason .. ": " .. (complete.message or "")
  return {status = good[complete.reason] and "Healthy" or "Degraded", message = message}
end
if stalled ~= nil and stalled.status == "True" then
  return {status = "Degraded", message = stalled.message}
end
if obj.spec.suspend == true then
  return {status = "Suspended", message = ready and ready.message or "suspended"}
end
local reconciling = conditions.Reconciling
if ready ~= nil and ready.status == "True" and (reconciling == nil or reconciling.status ~= "True") then
  return {status = "Healthy", message = ready.message}
end
return {status = "Progressing", message = ready and ready.message or "waiting for the condition Ready"}
