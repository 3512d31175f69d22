-- For good: it cannot be taken back.
obj.spec.cancel = true
return obj
