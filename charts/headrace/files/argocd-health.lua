-- Health of a Queue for Argo CD: resource.customizations.health.headrace.dev_Queue in the ConfigMap argocd-cm.
-- Argo CD gives the object as `obj` and wants a table with `status` and `message`.
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function health(name, text)
  return { status = name, message = text }
end

local function holds(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", conditions.Ready and conditions.Ready.message or "it is being deleted")
end
if status.observedGeneration == nil or status.observedGeneration < obj.metadata.generation then
  return health("Progressing", "the operator has not looked at it yet")
end
-- These need somebody: waiting does not help.
if holds("Stalled", "True") then
  return health("Degraded", conditions.Stalled.reason .. ": " .. conditions.Stalled.message)
end
if holds("DataLoss", "True") then
  return health("Degraded", conditions.DataLoss.message)
end
if holds("TopologyApplied", "False") and conditions.TopologyApplied.reason == "AwaitingPromotion" then
  return health("Suspended", conditions.TopologyApplied.message)
end
if holds("Ready", "True") then
  -- Not Suspended: a pause that Git asks for must not hold up what is synchronised after it.
  if holds("Paused", "True") then
    return health("Healthy", "paused: " .. conditions.Paused.message)
  end
  return health("Healthy", conditions.Ready.message)
end
if holds("Reconciling", "True") then
  return health("Progressing", conditions.Reconciling.reason .. ": " .. conditions.Reconciling.message)
end
return health("Degraded", conditions.Ready and conditions.Ready.message or "no condition Ready")
