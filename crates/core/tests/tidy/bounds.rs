//! `docs/bounds.md` against the sources: each row names a constant or a setting, which must exist with the value in the row.

use crate::checks::Findings;
use crate::house::File;
use crate::source::code;

/// The page with the bounds.
pub(crate) const PAGE: &str = "docs/bounds.md";
/// The page with the settings and their defaults, which is generated from the code.
pub(crate) const SETTINGS: &str = "docs/settings.md";

/// What the third column says where a bound has no constant.
const NO_CONSTANT: &str = "by design";
const HEADER: &str = "| bound | value | constant or setting |";
/// Constants that refer to constants; deeper is a cycle.
const MAX_DEPTH: u32 = 8;

/// A number, or a time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Number(i128),
    Micros(i128),
}

/// A row of the page.
struct Bound<'a> {
    line: usize,
    value: &'a str,
    names: &'a str,
}

/// `const NAME: TYPE = EXPRESSION;` of a crate.
struct Constant<'a> {
    /// The folder in `crates/`.
    package: &'a str,
    path: &'a str,
    name: String,
    expression: String,
}

/// The sources, without comments and literals.
pub(crate) struct Sources<'a> {
    files: Vec<(&'a str, &'a str, String)>,
    constants: Vec<Constant<'a>>,
    settings: &'a str,
}

impl<'a> Sources<'a> {
    /// Reads the crates' sources, their Lua scripts included, and the page with the settings.
    pub(crate) fn new(files: &'a [File]) -> Sources<'a> {
        let settings = files.iter().find(|file| file.path == SETTINGS).map_or("", |file| file.text.as_str());
        let files: Vec<_> = files.iter().filter_map(|file| Some((package(&file.path)?, file))).collect();
        let files: Vec<_> = files.into_iter().map(|(package, file)| (package, &*file.path, code(&file.text))).collect();
        let constants = files.iter().flat_map(|(package, path, code)| constants(package, path, code)).collect();
        Sources { files, constants, settings }
    }

    /// What the constant or setting of this name is; or why that is not known.
    fn quantities(&self, name: &str) -> Result<Vec<(Quantity, &'a str)>, String> {
        let Some((package, rest)) = name.split_once("::") else { return self.setting(name) };
        let (path, last) = rest.rsplit_once("::").map_or((None, rest), |(path, last)| (Some(path), last));
        let matches = |other: &&str, file: &str, code: &str| {
            *other == package && path.is_none_or(|path| path.split("::").all(|part| is_at(part, file, code)))
        };
        let files = self.files.iter().filter(|(package, file, code)| matches(package, file, code));
        let found: Vec<_> = match last.split_once('.') {
            Some((owner, field)) => files
                .filter_map(|(package, file, code)| Some((self.field(package, file, code, owner, field)?, *file)))
                .collect(),
            None => files
                .flat_map(|(_, file, _)| self.constants.iter().filter(move |constant| constant.path == *file))
                .filter(|constant| constant.name == last)
                .filter_map(|constant| Some((self.evaluate(constant, MAX_DEPTH)?, constant.path)))
                .collect(),
        };
        if found.is_empty() {
            return Err(format!("there is no `{name}` with a number in crates/{package}/src"));
        }
        Ok(found)
    }

    /// The default of a setting, and the largest value that it may have.
    fn setting(&self, name: &str) -> Result<Vec<(Quantity, &'a str)>, String> {
        let row = self.settings.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` | `")));
        let Some((default, text)) = row.and_then(|row| row.split_once("` | ")) else {
            return Err(format!("there is no setting `{name}` in {SETTINGS}"));
        };
        let largest = text.rsplit_once(" to ").and_then(|(_, rest)| rest.split([',', ' ']).next());
        let values = [Some(default), largest].into_iter().flatten().filter_map(short_quantity);
        Ok(values.map(|value| (value, SETTINGS)).collect())
    }

    /// The field of a struct that is built in this file: `OWNER { FIELD: EXPRESSION, … }`.
    fn field(&self, package: &str, path: &str, code: &str, owner: &str, field: &str) -> Option<Quantity> {
        let (built, constant) = (format!("{owner} {{"), format!("const {owner}: "));
        let begins = code.match_indices(&built).map(|(at, text)| at + text.len());
        let literal = code.match_indices(&constant).filter_map(|(at, _)| Some(at + code[at..].find('{')? + 1));
        begins.chain(literal).find_map(|begin| {
            let block = &code[begin..begin + code[begin..].find('}')?];
            let expression = block.split(',').find_map(|part| part.trim().strip_prefix(&format!("{field}: ")))?;
            self.read(expression, package, path, MAX_DEPTH)
        })
    }

    fn evaluate(&self, constant: &Constant<'_>, depth: u32) -> Option<Quantity> {
        self.read(&constant.expression, constant.package, constant.path, depth)
    }

    fn read(&self, expression: &str, package: &str, path: &str, depth: u32) -> Option<Quantity> {
        let mut reader = Reader { rest: expression, sources: self, package, path, depth };
        let quantity = reader.shift()?;
        reader.rest.trim().is_empty().then_some(quantity)
    }

    /// The constant that an expression names: of its own file, of its own crate, of any crate.
    fn referred(&self, name: &str, package: &str, path: &str, depth: u32) -> Option<Quantity> {
        let (owner, last) = name.rsplit_once("::").unwrap_or(("", name));
        let owner = owner.rsplit("::").next().filter(|owner| owner.starts_with(char::is_uppercase) && *owner != "Self");
        let is_owner = |constant: &&Constant<'_>| {
            let code = self.files.iter().find(|(_, file, _)| *file == constant.path).map(|(_, _, code)| code);
            owner.is_none_or(|owner| code.is_some_and(|code| has_methods(code, owner)))
        };
        let named = || self.constants.iter().filter(|constant| constant.name == last).filter(is_owner);
        let here = named().find(|constant| constant.path == path);
        let near = || named().find(|constant| constant.package == package);
        let constant = here.or_else(near).or_else(|| named().next())?;
        self.evaluate(constant, depth.checked_sub(1)?)
    }

    /// Candidates for a row whose constant is gone: those of its name elsewhere, and those of its crate with this value.
    fn candidates(&self, name: &str, value: Quantity) -> String {
        let package = name.split("::").next().unwrap_or_default();
        let last = name.rsplit("::").next().unwrap_or_default();
        let is_candidate = |constant: &&Constant<'_>| {
            let value = || self.evaluate(constant, MAX_DEPTH).is_some_and(|other| same(value, other));
            constant.name == last || constant.package == package && value()
        };
        let candidates = self.constants.iter().filter(is_candidate);
        let list: Vec<_> = candidates.map(|constant| format!("{} ({})", constant.name, constant.path)).collect();
        if list.is_empty() { String::new() } else { format!("; candidates: {}", list.join(", ")) }
    }
}

/// What is wrong with the page.
pub(crate) fn are_in_the_sources(page: &str, sources: &Sources<'_>) -> Findings {
    let mut findings = Findings::new();
    let mut rows = 0;
    for bound in bounds(page) {
        rows += 1;
        let say = |what: String| format!(":{}: {what}", bound.line);
        let names: Vec<_> = bound.names.split('`').skip(1).step_by(2).collect();
        if names.is_empty() && bound.names != NO_CONSTANT {
            findings.push(say(format!("name a constant or a setting in backticks, or write {NO_CONSTANT}")));
        }
        if names.is_empty() {
            continue;
        }
        let Some(value) = long_quantity(bound.value) else {
            findings.push(say(format!("`{}` is not a number with a unit", bound.value)));
            continue;
        };
        for name in names {
            match sources.quantities(name) {
                Err(why) => findings.push(say(format!("{why}{}", sources.candidates(name, value)))),
                Ok(found) if found.iter().any(|(_, path)| *path == SETTINGS) => {
                    if !found.iter().any(|(other, _)| same(value, *other)) {
                        findings.push(say(format!("the setting `{name}` is not {}", bound.value)));
                    }
                }
                Ok(found) => {
                    let other = found.iter().filter(|(other, _)| !same(value, *other));
                    findings.extend(other.map(|(other, path)| {
                        say(format!("`{name}` is {other:?} in {path}, and the page says {}", bound.value))
                    }));
                }
            }
        }
    }
    if rows == 0 {
        findings.push(format!(": there is no table that begins with {HEADER}"));
    }
    findings
}

/// The rows of all tables with the header.
fn bounds(page: &str) -> Vec<Bound<'_>> {
    let mut rows = Vec::new();
    let mut in_table = false;
    for (at, line) in page.lines().enumerate() {
        if line.starts_with(HEADER) {
            in_table = true;
        } else if !line.starts_with('|') {
            in_table = false;
        } else if in_table && !line.starts_with("| ---") {
            let mut cells = line.split('|').map(str::trim).skip(2);
            let (value, names) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
            rows.push(Bound { line: at + 1, value, names });
        }
    }
    rows
}

/// The crate of a source file that is not a test.
fn package(path: &str) -> Option<&str> {
    let (package, rest) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = rest.contains("tests/") || rest.ends_with("tests.rs");
    (!is_test && (rest.ends_with(".rs") || rest.ends_with(".lua"))).then_some(package)
}

/// Whether a part of a name is in the path of a file, or a type that the file has methods of.
fn is_at(part: &str, path: &str, code: &str) -> bool {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside).trim_end_matches(".rs");
    inside.split('/').any(|folder| folder == part) || has_methods(code, part)
}

/// Whether there is an `impl` of the type.
fn has_methods(code: &str, owner: &str) -> bool {
    let names = |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == owner);
    code.lines().any(|line| line.starts_with("impl") && names(line))
}

/// `const NAME: TYPE = EXPRESSION;`, and Lua's `local NAME = NUMBER`.
fn constants<'a>(package: &'a str, path: &'a str, code: &str) -> Vec<Constant<'a>> {
    let mut found = Vec::new();
    for (at, word) in code.match_indices("const ") {
        let rest = &code[at + word.len()..];
        if let Some((name, rest)) = rest.split_once(": ")
            && is_constant_name(name)
            && let Some((_, expression)) = rest[..rest.find(';').unwrap_or(0)].split_once(" = ")
        {
            found.push(Constant { package, path, name: name.to_owned(), expression: expression.to_owned() });
        }
    }
    for line in code.lines().filter(|_| path.ends_with(".lua")) {
        let line = line.split("--").next().unwrap_or_default();
        if let Some((name, expression)) = line.strip_prefix("local ").and_then(|line| line.split_once(" = "))
            && is_constant_name(name)
        {
            found.push(Constant { package, path, name: name.to_owned(), expression: expression.trim().to_owned() });
        }
    }
    found
}

fn is_constant_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Whether the page's value is the code's. A time may be a number of seconds or of microseconds there.
fn same(page: Quantity, code: Quantity) -> bool {
    match (page, code) {
        (Quantity::Micros(micros), Quantity::Number(number)) => {
            [1, 1_000_000].into_iter().any(|unit| number * unit == micros)
        }
        _ => page == code,
    }
}

/// A value of the page: `64`, `4,096 bytes`, `64 KiB`, `at least 1 ms`, `2^53 − 1`.
fn long_quantity(text: &str) -> Option<Quantity> {
    let text = text.strip_prefix("at least ").unwrap_or(text);
    if let Some(rest) = text.strip_prefix("2^53") {
        let less = match rest.trim() {
            "" => 0,
            "− 1" => 1,
            _ => return None,
        };
        return Some(Quantity::Number((1 << 53) - less));
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    let number: i128 = text[..digits].replace(',', "").parse().ok()?;
    match text[digits..].trim() {
        "" | "bytes" | "characters" => Some(Quantity::Number(number)),
        "min" => unit(number, "m"),
        "days" => unit(number, "d"),
        word => unit(number, word),
    }
}

/// A value of a setting: `4096`, `256KiB`, `24h`.
fn short_quantity(text: &str) -> Option<Quantity> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..digits].parse().ok()?;
    if digits == text.len() { Some(Quantity::Number(number)) } else { unit(number, &text[digits..]) }
}

fn unit(number: i128, unit: &str) -> Option<Quantity> {
    let bytes = |shift: u32| Some(Quantity::Number(number << shift));
    let seconds = |seconds: i128| Some(Quantity::Micros(number * seconds * 1_000_000));
    match unit {
        "KiB" => bytes(10),
        "MiB" => bytes(20),
        "GiB" => bytes(30),
        "ms" => Some(Quantity::Micros(number * 1_000)),
        "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3_600),
        "d" => seconds(86_400),
        _ => None,
    }
}

/// Reads the expressions that constants are written with: integers, `+ - * / <<`, other constants, times.
struct Reader<'a, 's> {
    rest: &'a str,
    sources: &'a Sources<'s>,
    package: &'a str,
    path: &'a str,
    depth: u32,
}

impl Reader<'_, '_> {
    fn shift(&mut self) -> Option<Quantity> {
        let mut left = self.sum()?;
        while self.takes("<<") {
            left = joined(left, self.sum()?, |left, right| left.checked_shl(u32::try_from(right).ok()?))?;
        }
        Some(left)
    }

    fn sum(&mut self) -> Option<Quantity> {
        let mut left = self.product()?;
        loop {
            left = if self.takes("+") {
                joined(left, self.product()?, i128::checked_add)?
            } else if self.takes("-") {
                joined(left, self.product()?, i128::checked_sub)?
            } else {
                return Some(left);
            };
        }
    }

    fn product(&mut self) -> Option<Quantity> {
        let mut left = self.operand()?;
        loop {
            left = if self.takes("*") {
                joined(left, self.operand()?, i128::checked_mul)?
            } else if self.takes("/") {
                joined(left, self.operand()?, i128::checked_div)?
            } else {
                return Some(left);
            };
        }
    }

    fn operand(&mut self) -> Option<Quantity> {
        if self.takes("(") {
            let inside = self.shift()?;
            return self.takes(")").then_some(inside);
        }
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        self.rest = after;
        let quantity = if word.starts_with(|c: char| c.is_ascii_digit()) {
            Quantity::Number(word.replace('_', "").parse().ok()?)
        } else if self.takes("(") {
            let Quantity::Number(inside) = self.shift()? else { return None };
            self.takes(")").then_some(Quantity::Micros(inside * micros(word)?))?
        } else {
            self.sources.referred(word, self.package, self.path, self.depth)?
        };
        // A cast does not change the number.
        if let Some(rest) = self.rest.trim_start().strip_prefix("as ") {
            self.rest = rest.trim_start_matches(|c: char| c.is_alphanumeric());
        }
        Some(quantity)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }
}

/// The microseconds of one unit of a constructor of times.
fn micros(constructor: &str) -> Option<i128> {
    let (owner, function) = constructor.split_once("::")?;
    let unit = match function {
        "from_secs" => 1_000_000,
        "from_millis" => 1_000,
        "from_micros" => 1,
        _ => return None,
    };
    ["Duration", "Span"].contains(&owner).then_some(unit)
}

/// Two numbers to one. Times are only constants, never parts of expressions.
fn joined(left: Quantity, right: Quantity, operation: impl Fn(i128, i128) -> Option<i128>) -> Option<Quantity> {
    let (Quantity::Number(left), Quantity::Number(right)) = (left, right) else { return None };
    operation(left, right).map(Quantity::Number)
}
