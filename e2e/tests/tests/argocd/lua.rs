//! In: a script and an object. Out: what the script returns, as JSON. Runs the interpreter.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use e2e::render;
use serde_json::Value;
use testbed::tools;

/// Argo CD gives its scripts the base, table and package libraries, and of `os` the clock and the date.
const WITHHELD: &str = "\
    local write, format = io.write, string.format\n\
    local function quoted(text) return format('%q', text) end\n\
    os = {date = os.date, time = os.time}\n\
    string, io, math, debug, coroutine, channel = nil\n";

/// Prints a value; a table without fields is an object.
const PRINT: &str = "\
    local function print_json(value)\n\
      if type(value) == 'string' then write(quoted(value))\n\
      elseif type(value) ~= 'table' then write(tostring(value))\n\
      else\n\
        local list, first = #value > 0, true\n\
        write(list and '[' or '{')\n\
        for key, item in pairs(value) do\n\
          if not first then write(',') end\n\
          first = false\n\
          if not list then write(quoted(key), ':') end\n\
          print_json(item)\n\
        end\n\
        write(list and ']' or '}')\n\
      end\n\
    end\n";

/// What `script` returns for `object`.
pub(crate) async fn run(script: &str, object: &Value) -> Result<Value> {
    let mut program = WITHHELD.to_owned();
    program += "obj = ";
    table(&mut program, object);
    write!(
        program,
        "\nlocal function script()\n{script}\nend\n{PRINT}print_json(script())\n"
    )?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), program)?;
    let path = file.path().to_str().context("a path that is not UTF-8")?;
    let printed = render::run(&tools::glua().await?, &[path]).await?.ok()?;
    serde_json::from_str(&printed).with_context(|| printed)
}

/// The value as Lua writes it. A text of JSON is one of Lua, for the characters that our objects have.
fn table(text: &mut String, value: &Value) {
    match value {
        Value::Null => *text += "nil",
        Value::Bool(_) | Value::Number(_) | Value::String(_) => *text += &value.to_string(),
        Value::Array(items) => {
            *text += "{";
            for item in items {
                table(text, item);
                *text += ",";
            }
            *text += "}";
        }
        Value::Object(fields) => {
            *text += "{";
            for (name, field) in fields {
                *text += &["[", &Value::from(name.as_str()).to_string(), "]="].concat();
                table(text, field);
                *text += ",";
            }
            *text += "}";
        }
    }
}
