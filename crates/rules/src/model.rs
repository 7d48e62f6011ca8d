//! Rules as the program sees them: what files say, checked, with nothing left to refuse.

use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::{Algorithm, Limit, OnFailure, Span};

use crate::pattern::Pattern;

/// The rules of one domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Its name in requests.
    pub name: String,
    /// The attribute that names a caller: counters whose key has it live together.
    pub entity: Option<String>,
    /// The tiers that limits may be given for, in the order of the file.
    pub tiers: Vec<Tier>,
    /// The place in `tiers` of the one that callers have who have none.
    pub default_tier: usize,
    /// The attribute that names the caller's tier, where no tenant record does.
    pub tier_from: Option<String>,
    /// The rule that a caller's quota means when no other is named.
    pub default_rule: Option<String>,
    /// The rules of the `rules` list.
    pub rules: Vec<Rule>,
    /// The roots of the `descriptors` tree.
    pub tree: Vec<Node>,
    /// Whether the limits on the way to a node of the tree are charged too.
    pub match_parents: bool,
    /// How limits count that do not say.
    pub default_algorithm: Counting,
    /// Where it was declared.
    pub at: Place,
}

/// A class of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// Its name in limit maps.
    pub name: String,
    /// Whether its callers pay: policy `cost` denies the others when the store is away.
    pub paid: bool,
    /// Who is served first under overload; larger is first.
    pub priority: u32,
}

/// One rule of the `rules` list.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name in headers, metrics and logs; unique in the domain.
    pub name: String,
    /// The attributes whose values name a counter. None: one counter for all.
    pub key: Vec<KeyPart>,
    /// What else must hold of the request; all of them.
    pub clauses: Vec<Clause>,
    /// What a request costs.
    pub cost: Cost,
    /// What it is held to, and what follows.
    pub terms: Terms,
    /// Where it was declared.
    pub at: Place,
    /// Which of its versions this is; rules of files have none.
    pub version: Option<u64>,
}

/// A part of a rule's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// The attribute.
    pub attribute: String,
    /// Whether the rule also applies to requests without it.
    pub optional: bool,
}

/// A condition on one attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The attribute.
    pub attribute: String,
    /// What must hold of it.
    pub test: Test,
}

/// What must hold of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is there.
    Present,
    /// It is not there.
    Absent,
    /// It is there and matches one of these.
    AnyOf(Vec<Pattern>),
    /// It is there and is an address in one of these networks.
    Within(Vec<Network>),
    /// The other does not hold; so it holds where the attribute is absent.
    Not(Box<Test>),
}

/// An address range. Addresses that IPv6 maps from IPv4 count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address in it; the bits past the prefix do not count.
    pub address: IpAddr,
    /// How many bits count: at most 32 or 128.
    pub prefix: u8,
}

/// What a request costs under a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// What the request says.
    Request,
    /// Always this.
    Fixed(u64),
    /// The number in this attribute; without it the rule does not apply.
    Attribute(String),
    /// By the value of an attribute: the first case that matches.
    Table {
        /// The attribute.
        attribute: String,
        /// Patterns and what they cost, in the order of the file.
        cases: Vec<(Pattern, u64)>,
        /// What everything else costs; without it the rule does not apply to anything else.
        default: Option<u64>,
    },
}

/// What a rule holds callers to: the part that both file forms share.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What each tier is held to, in the order of the domain's tiers. `None`: the rule does not apply to that tier.
    pub caps: Vec<Option<Cap>>,
    /// What follows when there is no room.
    pub mode: RuleMode,
    /// What each tier's charges become when the store is away, in the order of the domain's tiers.
    pub on_failure: Vec<OnFailure>,
    /// What the limit is for, which decides how it fails.
    pub policy: Policy,
    /// How many bits of an IPv6 address name a counter.
    pub ipv6_prefix: u8,
    /// Whether `ipv6_prefix` was written in the file: then every IPv6 address in the key counts by it, not only those of
    /// the attributes that are known to be addresses.
    pub ipv6_prefix_given: bool,
    /// What of it clients are shown.
    pub headers: Headers,
    /// How it is named to clients that it refuses; by default its name.
    pub denied_by_label: Option<String>,
    /// What becomes of what it took when the request has ended.
    pub ending: EndTerms,
}

/// What becomes of what a rule took when the request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTerms {
    /// What was taken is an estimate: the real cost is settled.
    pub settle: bool,
    /// What was taken is given back if the request failed.
    pub refund: bool,
    /// The most that one request may reserve, in ten-thousandths of the limit.
    pub reserve_max: Option<u16>,
    /// How long that may be told.
    pub hold: Span,
}

impl Default for EndTerms {
    /// Nothing becomes of it.
    fn default() -> EndTerms {
        EndTerms { settle: false, refund: false, reserve_max: None, hold: Self::HOLD }
    }
}

impl EndTerms {
    /// How long is waited for a request to end, where a rule does not say.
    pub const HOLD: Span = Span::from_secs(60);
}

/// How a limit counts, by the name that files have for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// A count that moves with time.
    SlidingWindow,
    /// A level that falls with time.
    Bucket,
    /// The same, with admitted requests spaced evenly.
    LeakyBucket,
    /// A count for each aligned period.
    FixedWindow,
    /// Every entry.
    SlidingLog,
}

impl Counting {
    /// The algorithm, given what some of them need.
    pub fn algorithm(self, burst: u64, sub_windows: u16) -> Algorithm {
        match self {
            Counting::SlidingWindow => Algorithm::SlidingWindow { sub_windows },
            Counting::Bucket => Algorithm::Bucket { burst, paced: false },
            Counting::LeakyBucket => Algorithm::Bucket { burst, paced: true },
            Counting::FixedWindow => Algorithm::FixedWindow,
            Counting::SlidingLog => Algorithm::SlidingLog,
        }
    }
}

/// What a tier is held to.
#[derive(Clone, Debug, PartialEq)]
pub enum Cap {
    /// Nothing.
    Unlimited,
    /// A limit.
    Limit(Limit),
}

/// Whether a rule refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMode {
    /// It does.
    Enforce,
    /// It refuses a share of its callers, always the same; the others are shadow.
    Share {
        /// Of 10,000 callers, how many.
        of_10_000: u16,
    },
    /// It refuses if all matched rules of this mode do (envoyproxy/ratelimit's `quota_mode`).
    AnyOf,
    /// It only says what it would do.
    Shadow,
    /// It admits past the limit, and says so.
    Soft,
    /// It is not there.
    Off,
}

/// What a limit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A short over-allowance heals itself: count locally.
    Comfort,
    /// The limit is the defence: deny.
    Security,
    /// Deny unpaid tiers, count paid ones locally.
    Cost,
    /// Errors in a budget don't heal: deny, and never approximate.
    Quota,
}

impl Policy {
    /// What a tier's charges become when the store is away.
    pub fn for_tier(self, tier: &Tier) -> OnFailure {
        match self {
            Policy::Comfort => OnFailure::Local,
            Policy::Cost if tier.paid => OnFailure::Local,
            Policy::Security | Policy::Cost | Policy::Quota => OnFailure::Deny,
        }
    }
}

/// What of a rule clients are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// All dialects.
    Full,
    /// The standard's fields alone.
    Standard,
    /// Nothing.
    Hidden,
}

/// A node of the `descriptors` tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// The entry's key.
    pub key: String,
    /// What its value must be; `None` takes what no sibling takes.
    pub value: Option<Pattern>,
    /// The text of the value as the file has it.
    pub value_text: Option<String>,
    /// What is counted here, if anything.
    pub limit: Option<NodeLimit>,
    /// Values that a wildcard takes share one counter.
    pub share_threshold: bool,
    /// A metric for each value.
    pub detailed_metric: bool,
    /// The value is part of the metric's name.
    pub value_to_metric: bool,
    /// Told to the gateway with the answer: names and texts, nested ones as JSON text.
    pub metadata: Vec<(String, String)>,
    /// What may follow.
    pub children: Vec<Node>,
    /// Where it was declared.
    pub at: Place,
}

/// What a node of the tree counts.
#[derive(Clone, Debug)]
pub struct NodeLimit {
    /// Its name: the file's, or the path of keys and values that leads to it.
    pub name: String,
    /// Whether the file gave the name: only then is it told to clients, and can it be replaced.
    pub named: bool,
    /// The names of limits that it takes the place of in a request that meets both.
    pub replaces: Vec<String>,
    /// What it is held to, and what follows.
    pub terms: Terms,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
}
