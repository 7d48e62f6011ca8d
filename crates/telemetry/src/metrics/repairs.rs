//! Invalid parts of checks that are decided all the same.

/// What was wrong with a check, and was repaired: clients choose values, and no value may keep a check from being decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// A name or value is too long: it is its beginning and a digest.
    LongText,
    /// A value is not UTF-8, or looks like an escaped one: it is escaped.
    NotText,
    /// A cost is not a whole number: it counts as 1.
    BadCost,
    /// The name of a claim, or an idempotency key, is too long, empty or contradictory.
    BadName,
    /// The idempotency key belongs to another request: the check is decided without it.
    KeyConflict,
    /// There are too many descriptors, entries or limits: some are left out.
    TooMany,
    /// The check is too large, or there is no memory for it: the policies of the rules decide.
    Undecided,
}

/// The repairs of one check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs(u8);

impl Repairs {
    pub fn add(&mut self, repair: Repair) {
        self.0 |= 1 << repair as u8;
    }

    pub fn add_all(&mut self, others: Repairs) {
        self.0 |= others.0;
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn contains(self, repair: Repair) -> bool {
        self.0 & 1 << repair as u8 != 0
    }
}

impl Repair {
    /// In the order of their numbers.
    pub const ALL: [Repair; 7] = [
        Repair::LongText,
        Repair::NotText,
        Repair::BadCost,
        Repair::BadName,
        Repair::KeyConflict,
        Repair::TooMany,
        Repair::Undecided,
    ];

    /// The value of the label `reason`.
    pub fn name(self) -> &'static str {
        match self {
            Repair::LongText => "long_text",
            Repair::NotText => "not_text",
            Repair::BadCost => "bad_cost",
            Repair::BadName => "bad_name",
            Repair::KeyConflict => "key_conflict",
            Repair::TooMany => "too_many",
            Repair::Undecided => "undecided",
        }
    }
}
