//! JSON lines of other programs.

use std::borrow::Cow;

use serde_json::Value;
use tollgate::Timestamp;
use tollgate_rules::quoted;

use super::LineFields;
use crate::replay::timestamp;

/// A line of JSON. A field is a name, or a path of names with dots.
pub(super) struct JsonLine(Value);

/// The fields that may have the time, if the mapping names none.
const TIMES: [&str; 5] = ["at", "time", "timestamp", "@timestamp", "start_time"];

/// Numbers from here on are milliseconds: as seconds they would be in the year 5138.
const MILLISECONDS_FROM: f64 = 1e11;

impl JsonLine {
    pub(super) fn parse(text: &str) -> Result<JsonLine, String> {
        match serde_json::from_str::<Value>(text) {
            Ok(value) if value.is_object() => Ok(JsonLine(value)),
            Ok(_) => Err("it is not a JSON object".to_owned()),
            Err(error) => Err(format!("it is not JSON (column {})", error.column())),
        }
    }

    /// A member of this name, also if it has dots; else the member at the path.
    fn find(&self, path: &str) -> Option<&Value> {
        let value = match self.0.get(path) {
            Some(value) => value,
            None => path.split('.').try_fold(&self.0, |value, name| value.get(name))?,
        };
        (!value.is_null()).then_some(value)
    }
}

impl LineFields for JsonLine {
    fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        match self.find(name)? {
            Value::String(text) if matches!(text.as_str(), "" | "-") => None,
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            Value::Bool(flag) => Some(Cow::Owned(flag.to_string())),
            _ => None,
        }
    }

    fn time(&self, field: Option<&str>) -> Result<Timestamp, String> {
        let fields = field.map_or_else(|| TIMES.to_vec(), |field| vec![field]);
        let Some(value) = fields.iter().find_map(|field| self.find(field)) else {
            let names = fields.join(", ");
            return Err(format!("it has no time in {names}; name its field: --map at=FIELD"));
        };
        let time = match value {
            Value::String(text) => timestamp::from_rfc3339(text).or_else(|| timestamp::from_log_time(text)),
            Value::Number(number) if number.as_f64().is_some_and(|number| number >= MILLISECONDS_FROM) => {
                timestamp::from_seconds(&format!("{number}e-3"))
            }
            Value::Number(number) => timestamp::from_seconds(&number.to_string()),
            _ => None,
        };
        time.ok_or_else(|| format!("its time is {}", quoted(&value.to_string())))
    }
}
