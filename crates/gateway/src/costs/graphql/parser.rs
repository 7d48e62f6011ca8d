//! GraphQL documents, as far as costs depend on them.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::super::CostRefusal;
use super::lexer::{Lexer, QueryToken};

/// Operations and fragments. Everything borrows from the query.
#[derive(Debug, Default)]
pub(super) struct Document<'q> {
    pub(super) operations: Vec<Operation<'q>>,
    pub(super) fragments: Vec<Fragment<'q>>,
    /// How many fields have another name in the response.
    pub(super) aliases: u32,
}

#[derive(Debug)]
pub(super) struct Operation<'q> {
    pub(super) name: Option<&'q str>,
    /// The defaults of its variables, where they are numbers.
    pub(super) defaults: HashMap<&'q str, u64>,
    pub(super) selections: Vec<Selection<'q>>,
}

#[derive(Debug)]
pub(super) struct Fragment<'q> {
    pub(super) name: &'q str,
    pub(super) selections: Vec<Selection<'q>>,
}

#[derive(Debug)]
pub(super) enum Selection<'q> {
    Field(Field<'q>),
    /// `...Name`
    Spread(&'q str),
    /// `... on Type { … }`
    Inline(Vec<Selection<'q>>),
}

#[derive(Debug, Default)]
pub(super) struct Field<'q> {
    pub(super) name: &'q str,
    /// The arguments `first`, `last` and `limit`.
    pub(super) lengths: SmallVec<[ListLength<'q>; 1]>,
    /// Whether it has an argument that only lists have, such as `after`.
    pub(super) is_paged: bool,
    pub(super) selections: Vec<Selection<'q>>,
}

/// The length of a list, as an argument says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListLength<'q> {
    Number(u64),
    Variable(&'q str),
    /// Not a number: the list has a length that is not known.
    Unknown,
}

/// How deep anything in a document may be nested. The parser and what reads its result recurse so deep at most.
pub(super) const MAX_NESTING: u32 = 128;

const LENGTH_ARGUMENTS: [&str; 3] = ["first", "last", "limit"];
const PAGE_ARGUMENTS: [&str; 5] = ["after", "before", "offset", "skip", "page"];

struct Parser<'q> {
    lexer: Lexer<'q>,
    token: QueryToken<'q>,
    aliases: u32,
    nesting: u32,
}

type Parsed<T> = Result<T, CostRefusal>;

/// Parses a document.
pub(super) fn parse(query: &str) -> Parsed<Document<'_>> {
    let mut parser = Parser { lexer: Lexer::new(query), token: QueryToken::End, aliases: 0, nesting: 0 };
    parser.advance()?;
    let mut document = Document::default();
    while parser.token != QueryToken::End {
        // A description.
        parser.takes(QueryToken::Text)?;
        match parser.token {
            QueryToken::Name("fragment") => document.fragments.push(parser.fragment()?),
            _ => document.operations.push(parser.operation()?),
        }
    }
    document.aliases = parser.aliases;
    Ok(document)
}

fn malformed() -> CostRefusal {
    CostRefusal::new("The GraphQL query can't be read.")
}

impl<'q> Parser<'q> {
    fn advance(&mut self) -> Parsed<QueryToken<'q>> {
        let next = self.lexer.next().ok_or_else(malformed)?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    /// Takes a token if it is the next one.
    fn takes(&mut self, token: QueryToken<'_>) -> Parsed<bool> {
        let is_next = self.token == token;
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn takes_sign(&mut self, sign: u8) -> Parsed<bool> {
        self.takes(QueryToken::Sign(sign))
    }

    fn expect_sign(&mut self, sign: u8) -> Parsed<()> {
        if self.takes_sign(sign)? { Ok(()) } else { Err(malformed()) }
    }

    fn name(&mut self) -> Parsed<&'q str> {
        match self.advance()? {
            QueryToken::Name(name) => Ok(name),
            _ => Err(malformed()),
        }
    }

    /// Parses something that is one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting >= MAX_NESTING {
            return Err(CostRefusal::new(format!("A GraphQL query is nested at most {MAX_NESTING} levels deep.")));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    fn operation(&mut self) -> Parsed<Operation<'q>> {
        if self.token == QueryToken::Sign(b'{') {
            return Ok(Operation { name: None, defaults: HashMap::new(), selections: self.selections()? });
        }
        if !matches!(self.name()?, "query" | "mutation" | "subscription") {
            return Err(malformed());
        }
        let name = match self.token {
            QueryToken::Name(_) => Some(self.name()?),
            _ => None,
        };
        let defaults = self.variables()?;
        self.directives()?;
        Ok(Operation { name, defaults, selections: self.selections()? })
    }

    fn fragment(&mut self) -> Parsed<Fragment<'q>> {
        self.advance()?;
        let name = self.name()?;
        if !self.takes(QueryToken::Name("on"))? {
            return Err(malformed());
        }
        self.name()?;
        self.directives()?;
        Ok(Fragment { name, selections: self.selections()? })
    }

    /// `($name: Type = default, …)`.
    fn variables(&mut self) -> Parsed<HashMap<&'q str, u64>> {
        let mut defaults = HashMap::new();
        if self.takes_sign(b'(')? {
            while !self.takes_sign(b')')? {
                self.takes(QueryToken::Text)?;
                self.expect_sign(b'$')?;
                let name = self.name()?;
                self.expect_sign(b':')?;
                self.type_reference()?;
                if self.takes_sign(b'=')?
                    && let ListLength::Number(number) = self.value()?
                {
                    defaults.insert(name, number);
                }
                self.directives()?;
            }
        }
        Ok(defaults)
    }

    fn type_reference(&mut self) -> Parsed<()> {
        if self.takes_sign(b'[')? {
            self.nested(Self::type_reference)?;
            self.expect_sign(b']')?;
        } else {
            self.name()?;
        }
        self.takes_sign(b'!')?;
        Ok(())
    }

    fn directives(&mut self) -> Parsed<()> {
        while self.takes_sign(b'@')? {
            self.name()?;
            self.arguments(|_, _| {})?;
        }
        Ok(())
    }

    /// `(name: value, …)`, if there is one.
    fn arguments(&mut self, mut seen: impl FnMut(&'q str, ListLength<'q>)) -> Parsed<()> {
        if self.takes_sign(b'(')? {
            while !self.takes_sign(b')')? {
                let name = self.name()?;
                self.expect_sign(b':')?;
                seen(name, self.value()?);
            }
        }
        Ok(())
    }

    /// A value as the length of a list.
    fn value(&mut self) -> Parsed<ListLength<'q>> {
        match self.advance()? {
            QueryToken::Sign(b'$') => return self.name().map(ListLength::Variable),
            QueryToken::Int(digits) => return Ok(number(digits)),
            QueryToken::Float | QueryToken::Text | QueryToken::Name(_) => {}
            QueryToken::Sign(b'[') => {
                while !self.takes_sign(b']')? {
                    self.nested(Self::value)?;
                }
            }
            QueryToken::Sign(b'{') => {
                while !self.takes_sign(b'}')? {
                    self.name()?;
                    self.expect_sign(b':')?;
                    self.nested(Self::value)?;
                }
            }
            _ => return Err(malformed()),
        }
        Ok(ListLength::Unknown)
    }

    /// `{ … }`, which is not empty.
    fn selections(&mut self) -> Parsed<Vec<Selection<'q>>> {
        self.expect_sign(b'{')?;
        let mut selections = vec![self.nested(Self::selection)?];
        while !self.takes_sign(b'}')? {
            selections.push(self.nested(Self::selection)?);
        }
        Ok(selections)
    }

    fn selection(&mut self) -> Parsed<Selection<'q>> {
        if !self.takes(QueryToken::Spread)? {
            return self.field().map(Selection::Field);
        }
        match self.token {
            QueryToken::Name(name) if name != "on" => {
                self.advance()?;
                self.directives()?;
                return Ok(Selection::Spread(name));
            }
            QueryToken::Name(_) => {
                self.advance()?;
                self.name()?;
            }
            _ => {}
        }
        self.directives()?;
        self.selections().map(Selection::Inline)
    }

    fn field(&mut self) -> Parsed<Field<'q>> {
        let mut field = Field { name: self.name()?, ..Field::default() };
        if self.takes_sign(b':')? {
            self.aliases = self.aliases.saturating_add(1);
            field.name = self.name()?;
        }
        self.arguments(|name, value| {
            if LENGTH_ARGUMENTS.contains(&name) {
                field.lengths.push(value);
            }
            field.is_paged |= PAGE_ARGUMENTS.contains(&name);
        })?;
        self.directives()?;
        if self.token == QueryToken::Sign(b'{') {
            field.selections = self.selections()?;
        }
        Ok(field)
    }
}

/// A number of any length.
fn number(digits: &str) -> ListLength<'_> {
    match digits.starts_with('-') {
        true => ListLength::Unknown,
        false => ListLength::Number(digits.parse().unwrap_or(u64::MAX)),
    }
}
