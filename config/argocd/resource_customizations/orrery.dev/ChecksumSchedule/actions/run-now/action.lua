-- Each new value of the annotation starts one run.
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["orrery.dev/run-now"] = os.date("!%Y-%m-%dT%XZ")
return obj
