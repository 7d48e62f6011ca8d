//! Priority classes of requests.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::str::FromStr;

/// How important a request is, the least important first. A shedder refuses a class before it refuses a greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Traffic of test mode.
    Test,
    /// Requests that read.
    Get,
    /// Requests that write, and those of which nothing else is known.
    Post,
    /// What the business depends on. Only the operator's configuration says so.
    Critical,
}

/// A value for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByClass<T>([T; Class::ALL.len()]);

/// A text that names no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownClass;

impl Class {
    /// All classes, the least important first.
    pub const ALL: [Class; 4] = [Class::Test, Class::Get, Class::Post, Class::Critical];

    /// The class of a request that no rule classifies, by its HTTP method.
    pub fn from_method(method: &str) -> Class {
        match method {
            "GET" | "HEAD" | "OPTIONS" => Class::Get,
            _ => Class::Post,
        }
    }

    /// The class of a request whose caller requests another one: a caller may lower its class, never raise it.
    #[must_use]
    pub fn lowered_to(self, requested: Class) -> Class {
        self.min(requested)
    }

    /// The name in settings, headers and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Test => "test",
            Class::Get => "get",
            Class::Post => "post",
            Class::Critical => "critical",
        }
    }
}

impl<T> ByClass<T> {
    /// From a value for each class, the least important first.
    pub const fn new(values: [T; Class::ALL.len()]) -> ByClass<T> {
        ByClass(values)
    }

    /// From a function of the class.
    pub fn from_fn(value: impl FnMut(Class) -> T) -> ByClass<T> {
        ByClass(Class::ALL.map(value))
    }

    /// The values with their classes, the least important first.
    pub fn iter(&self) -> impl Iterator<Item = (Class, &T)> {
        Class::ALL.into_iter().zip(&self.0)
    }

    /// Another value for each class.
    pub fn map<U>(&self, mut change: impl FnMut(&T) -> U) -> ByClass<U> {
        ByClass::from_fn(|class| change(&self[class]))
    }
}

impl<T> Index<Class> for ByClass<T> {
    type Output = T;

    fn index(&self, class: Class) -> &T {
        &self.0[class as usize]
    }
}

impl<T> IndexMut<Class> for ByClass<T> {
    fn index_mut(&mut self, class: Class) -> &mut T {
        &mut self.0[class as usize]
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Class, UnknownClass> {
        Class::ALL.into_iter().find(|class| class.name() == text).ok_or(UnknownClass)
    }
}

impl fmt::Display for UnknownClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a class is one of test, get, post, critical")
    }
}

impl std::error::Error for UnknownClass {}

#[cfg(test)]
mod tests;
