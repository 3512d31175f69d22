//! In: the tables beside this file. Out: objects to apply, each the shortest valid one with one change.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub(crate) const RUN: &str = "ChecksumRun";
pub(crate) const SCHEDULE: &str = "ChecksumSchedule";

/// One row of a table: the object it is about, and what is said of it.
pub(crate) struct Case {
    pub(crate) kind: String,
    pub(crate) name: String,
    row: Value,
}

impl Case {
    /// The object with the column of that name laid over its spec; without a name, the whole row.
    pub(crate) fn object(&self, column: Option<&str>) -> Result<Value> {
        let spec = column.map_or(Some(&self.row), |column| self.row.get(column));
        let spec = spec.with_context(|| format!("{} has no {column:?}", self.name))?;
        Ok(object(&self.kind, &self.name, spec))
    }

    /// Part of the refusal, in the rows of objects that are refused.
    pub(crate) fn says(&self) -> Option<&str> {
        self.row.get("says")?.as_str()
    }
}

/// The rows of a table: by kind, by name.
pub(crate) fn table(yaml: &str) -> Result<Vec<Case>> {
    type Rows = BTreeMap<String, Value>;
    let kinds: BTreeMap<String, Rows> = serde_saphyr::from_str(yaml)?;
    let cases = kinds.into_iter().flat_map(|(kind, rows)| {
        rows.into_iter().map(move |(name, row)| Case {
            kind: kind.clone(),
            name,
            row,
        })
    });
    Ok(cases.collect())
}

/// The shortest valid object of the kind with `spec` laid over it.
pub(crate) fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let run = json!({"source": {"persistentVolumeClaim": {"claimName": "home"}}});
    let shortest = match kind {
        SCHEDULE => json!({"schedule": "0 3 * * *", "template": {"spec": run}}),
        _ => run,
    };
    let mut object = json!({
        "apiVersion": "orrery.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": shortest,
    });
    lay_over(&mut object, &json!({"spec": spec}));
    object
}

/// Lays a change over a value, field by field; null takes a field away.
fn lay_over(target: &mut Value, change: &Value) {
    let (Value::Object(target), Value::Object(change)) = (&mut *target, change) else {
        target.clone_from(change);
        return;
    };
    for (name, change) in change {
        if change.is_null() {
            target.remove(name);
        } else {
            lay_over(target.entry(name).or_insert(Value::Null), change);
        }
    }
}
