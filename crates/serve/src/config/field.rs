//! How one key of the configuration is read from TOML and printed.

use std::fmt::Write;
use std::path::PathBuf;

use engine::gateway::Spread;
use engine::route::Policy;
use toml::Value;

use super::{Class, Kind, Mistake, Role, Secret, Service, Size};

/// One key.
pub trait Field {
    /// Takes the value of a file or an override; the error says what to write.
    fn read(&mut self, value: Value, place: &str, mistakes: &mut Vec<Mistake>);
    /// The value as TOML; `None` if it is not set.
    fn show(&self) -> Option<String>;
}

/// Sees each key of a section.
pub trait Visitor {
    /// One key, with its explanation.
    fn field(&mut self, key: &'static str, explanation: &str, field: &mut dyn Field);
}

/// Reads a section and remembers which keys there are.
pub struct Reader<'a> {
    name: &'a str,
    table: toml::Table,
    known: Vec<&'static str>,
    mistakes: &'a mut Vec<Mistake>,
}

impl Reader<'_> {
    /// Reads what is given of a section; the rest keeps its defaults.
    pub fn section(
        name: &str,
        value: Option<Value>,
        mistakes: &mut Vec<Mistake>,
        visit: &mut dyn FnMut(&mut dyn Visitor),
    ) {
        let table = match value {
            None => toml::Table::new(),
            Some(Value::Table(table)) => table,
            Some(other) => {
                let what = format!("must be a section, not a {}", other.type_str());
                mistakes.push(Mistake { place: name.to_owned(), what });
                return;
            }
        };
        let mut reader = Reader { name, table, known: Vec::new(), mistakes };
        visit(&mut reader);
        for key in reader.table.keys() {
            let what = unknown(key, &reader.known);
            reader.mistakes.push(Mistake { place: format!("{name}.{key}"), what });
        }
    }
}

impl Visitor for Reader<'_> {
    fn field(&mut self, key: &'static str, _: &str, field: &mut dyn Field) {
        self.known.push(key);
        if let Some(value) = self.table.remove(key) {
            field.read(value, &format!("{}.{key}", self.name), self.mistakes);
        }
    }
}

/// What to say of an unknown key.
pub fn unknown(key: &str, known: &[&str]) -> String {
    let nearest = known.iter().min_by_key(|name| distance(key, name));
    match nearest {
        Some(name) if distance(key, name) <= 1 + key.len() / 3 => {
            format!("is not a key; did you mean `{name}`?")
        }
        _ => format!("is not a key; there are: {}", known.join(", ")),
    }
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let cost = (diagonal + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

/// Puts `a.b=c` on top of a table; a number as part of the path is a place in a list. The value is
/// TOML where it reads as such, and else a string.
pub fn override_with(table: &mut toml::Table, text: &str) -> Result<(), String> {
    let (path, value) = text.split_once('=').ok_or("has no `=`; write it as section.key=value")?;
    let value = match format!("v = {value}").parse::<toml::Table>() {
        Ok(mut parsed) if parsed.len() == 1 => parsed.remove("v").unwrap_or(Value::Boolean(false)),
        _ => Value::String(value.to_owned()),
    };
    let parts: Vec<&str> = path.trim().split('.').collect();
    let [first, middle @ .., last] = parts.as_slice() else {
        return Err("names no section; write it as section.key=value".to_owned());
    };
    let mut at = table.entry(*first).or_insert_with(|| match middle.first() {
        Some(index) if index.parse::<usize>().is_ok() => Value::Array(Vec::new()),
        _ => Value::Table(toml::Table::new()),
    });
    for part in middle {
        at = step(at, part)?;
    }
    match at {
        Value::Table(table) => {
            table.insert((*last).to_owned(), value);
            Ok(())
        }
        _ => Err(format!(
            "`{path}` is not in a section; devices are device.0, device.1 ..., members member.0 ..."
        )),
    }
}

fn step<'a>(at: &'a mut Value, part: &str) -> Result<&'a mut Value, String> {
    match at {
        Value::Table(table) => {
            Ok(table.entry(part).or_insert_with(|| Value::Table(toml::Table::new())))
        }
        Value::Array(list) => {
            let index: usize =
                part.parse().map_err(|_| format!("`{part}` is not a place in a list"))?;
            if index == list.len() {
                list.push(Value::Table(toml::Table::new()));
            }
            let length = list.len();
            list.get_mut(index).ok_or(format!("there is no number {index} in a list of {length}"))
        }
        _ => Err(format!("`{part}` is inside of a value")),
    }
}

/// Prints sections as TOML.
pub struct Printer {
    text: String,
    explain: bool,
}

impl Printer {
    /// A printer with or without explanations.
    pub fn new(explain: bool) -> Printer {
        Printer { text: String::new(), explain }
    }

    /// A section's head.
    pub fn section(&mut self, head: &str, explanation: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        if self.explain {
            let _ = writeln!(self.text, "# {explanation}");
        }
        let _ = writeln!(self.text, "{head}");
    }

    /// A line as it is. Goes before the first section.
    pub fn raw(&mut self, line: &str) {
        self.text.insert_str(0, &format!("{line}\n\n"));
    }

    /// Lines of which each is a comment.
    pub fn example(&mut self, text: &str) {
        self.text.push('\n');
        for line in text.lines() {
            let _ = writeln!(self.text, "# {line}");
        }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

impl Visitor for Printer {
    fn field(&mut self, key: &'static str, explanation: &str, field: &mut dyn Field) {
        if self.explain {
            for line in wrapped(explanation, 96) {
                let _ = writeln!(self.text, "# {line}");
            }
        }
        match field.show() {
            Some(value) => {
                let _ = writeln!(self.text, "{key} = {value}");
            }
            None if self.explain => {
                let _ = writeln!(self.text, "# {key} = ");
            }
            None => {}
        }
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

/// Implements [`Field`] from a conversion and what to write instead.
macro_rules! field {
    ($type:ty, $expected:expr, $read:expr, $show:expr) => {
        impl Field for $type {
            fn read(&mut self, value: Value, place: &str, mistakes: &mut Vec<Mistake>) {
                let read: fn(&Value) -> Option<$type> = $read;
                match read(&value) {
                    Some(value) => *self = value,
                    None => mistakes.push(Mistake {
                        place: place.to_owned(),
                        what: format!("must be {}, not {value}", $expected),
                    }),
                }
            }
            fn show(&self) -> Option<String> {
                let show: fn(&$type) -> Option<String> = $show;
                show(self)
            }
        }
    };
}

fn quoted(text: &str) -> Option<String> {
    Some(Value::String(text.to_owned()).to_string())
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64)).filter(|n| n.is_finite())
}

fn size(value: &Value) -> Option<Size> {
    match value.as_integer() {
        Some(n) => u64::try_from(n).ok().map(Size),
        None => value.as_str()?.parse().ok(),
    }
}

field!(String, "a string", |v| v.as_str().map(str::to_owned), |s| quoted(s));
field!(Option<String>, "a string", |v| Some(Some(v.as_str()?.to_owned())), |s| quoted(s.as_ref()?));
impl Field for Option<Secret> {
    fn read(&mut self, value: Value, place: &str, mistakes: &mut Vec<Mistake>) {
        match value {
            Value::String(text) => *self = Some(Secret::new(text)),
            // What was written may be the secret, so it is not repeated.
            _ => mistakes
                .push(Mistake { place: place.to_owned(), what: "must be a string".to_owned() }),
        }
    }

    fn show(&self) -> Option<String> {
        None
    }
}

field!(PathBuf, "a path", |v| v.as_str().map(PathBuf::from), |p| quoted(&p.to_string_lossy()));
field!(Option<PathBuf>, "a path", |v| Some(Some(PathBuf::from(v.as_str()?))), |p| quoted(
    &p.as_ref()?.to_string_lossy()
));
field!(bool, "true or false", Value::as_bool, |b| Some(b.to_string()));
field!(u32, "a number from 0 to 4294967295", |v| v.as_integer()?.try_into().ok(), |n| Some(
    n.to_string()
));
field!(u64, "a number, 0 or more", |v| v.as_integer()?.try_into().ok(), |n| Some(n.to_string()));
field!(f64, "a number", number, |n| Some(format!("{n:?}")));
field!(Vec<f64>, "a list of numbers", |v| v.as_array()?.iter().map(number).collect(), |list| Some(
    format!("{list:?}")
));
field!(Size, "bytes, like 4096 or \"64MiB\"", size, |s| quoted(&s.to_string()));
field!(
    Class,
    "\"bulk\" or \"hot\"",
    |v| match v.as_str()? {
        "bulk" => Some(Class::Bulk),
        "hot" => Some(Class::Hot),
        _ => None,
    },
    |class| quoted(if *class == Class::Hot { "hot" } else { "bulk" })
);
field!(
    Kind,
    "\"exponential\", \"gamma\", \"lognormal\" or \"empirical\"",
    |v| match v.as_str()? {
        "exponential" => Some(Kind::Exponential),
        "gamma" => Some(Kind::Gamma),
        "lognormal" => Some(Kind::Lognormal),
        "empirical" => Some(Kind::Empirical),
        _ => None,
    },
    |kind| quoted(match kind {
        Kind::Exponential => "exponential",
        Kind::Gamma => "gamma",
        Kind::Lognormal => "lognormal",
        Kind::Empirical => "empirical",
    })
);

field!(
    Role,
    "\"all\", \"gateway\" or \"node\"",
    |v| [Role::All, Role::Gateway, Role::Node].into_iter().find(|r| v.as_str() == Some(r.as_str())),
    |role| quoted(role.as_str())
);
field!(
    Policy,
    "\"smallest_expected_response\", \"blowfish\", \"shortest_queue\", \"power_of_two\", \"round_robin\" \
     or \"primary\"",
    |v| v.clone().try_into().ok(),
    |policy| Some(Value::try_from(policy).ok()?.to_string())
);
field!(Spread, "\"primary\", \"warm\" or \"all\"", |v| v.clone().try_into().ok(), |spread| Some(
    Value::try_from(spread).ok()?.to_string()
));

impl Field for Option<Service> {
    fn read(&mut self, value: Value, place: &str, mistakes: &mut Vec<Mistake>) {
        let mut service = Service::default();
        Reader::section(place, Some(value), mistakes, &mut |v| service.visit(v));
        *self = Some(service);
    }

    fn show(&self) -> Option<String> {
        let mut service = self.clone()?;
        let mut printer = Printer::new(false);
        service.visit(&mut printer);
        let parts: Vec<String> = printer.finish().lines().map(str::to_owned).collect();
        Some(format!("{{ {} }}", parts.join(", ")))
    }
}
