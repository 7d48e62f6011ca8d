//! The model of rules: the content of the files, validated.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use tollgate_core::{Algorithm, Limit, OnFailure, Span};

use crate::pattern::Pattern;
use crate::private::PrivateAttributes;
use crate::regions::{KnownRegions, RegionMode};

/// The rules of one domain.
#[derive(Clone, Debug)]
pub struct Domain {
    /// The name in requests.
    pub name: String,
    /// The attribute that identifies a caller. Counters whose key has it share the caller's partition.
    pub entity: Option<String>,
    /// The attributes whose values are in no name of a counter and in no log.
    pub private: PrivateAttributes,
    /// The tiers that limits may be given for, in the order of the file.
    pub tiers: Vec<Tier>,
    /// The index in `tiers` of the tier of callers without one.
    pub default_tier: usize,
    /// The attribute with the caller's tier, if no tenant record has one.
    pub tier_from: Option<String>,
    /// The rule that a caller's quota refers to if it names no other.
    pub default_rule: Option<String>,
    /// The rules of the `rules` list.
    pub rules: Vec<Rule>,
    /// The roots of the `descriptors` tree.
    pub tree: Vec<Node>,
    /// What to watch for, in the order of the file.
    pub signals: Vec<Signal>,
    /// Who is never banned.
    pub never_ban: NeverBan,
    /// Whether the limits of a node's ancestors are charged too.
    pub match_parents: bool,
    /// The algorithm of limits that name none.
    pub default_algorithm: Counting,
    /// Whether rules that say nothing about it are leased.
    pub default_lease: Lease,
    /// The regions that its rules may name.
    pub regions: KnownRegions,
    /// Where it was declared.
    pub at: SourceLocation,
}

/// A class of callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The name in limit maps.
    pub name: String,
    /// Whether its callers pay. Policy `cost` denies the others while the store is unavailable.
    pub paid: bool,
    /// Which callers give way last when a gateway lowers their rates under overload: a higher number later.
    pub priority: u32,
}

/// One rule of the `rules` list.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The name in headers, metrics and logs. Unique in the domain.
    pub name: String,
    /// The attributes whose values identify a counter. If empty, there is one counter for all.
    pub key: Vec<KeyPart>,
    /// Further conditions on the request, all of which must hold.
    pub clauses: Vec<Clause>,
    /// The cost of a request.
    pub cost: Cost,
    /// The limits and what follows from them.
    pub terms: Terms,
    /// When callers are blocked because too many of their requests were refused.
    pub ban: Option<BanTerms>,
    /// Where it was declared.
    pub at: SourceLocation,
    /// The version of the rule. `None` for rules of files.
    pub version: Option<u64>,
}

impl Rule {
    /// How many counters it can have, if its conditions list the values of each part of its key.
    pub(crate) fn listed_counters(&self) -> Option<usize> {
        let values = |part: &KeyPart| self.clauses.iter().find_map(|clause| clause.listed_values(&part.attribute));
        self.key.iter().map(values).try_fold(1, |all: usize, values| Some(all.saturating_mul(values?)))
    }
}

impl Clause {
    /// How many values of this attribute fulfil the condition, if it lists them.
    fn listed_values(&self, attribute: &str) -> Option<usize> {
        match &self.test {
            Test::AnyOf(patterns) if self.attribute == attribute => {
                patterns.iter().all(|pattern| matches!(pattern, Pattern::Exact(_))).then_some(patterns.len())
            }
            _ => None,
        }
    }
}

/// What to watch for: many distinct values of one attribute with one value of others, such as accounts of one address.
#[derive(Clone, Debug)]
pub struct Signal {
    /// The name in lists, metrics and events. Unique in the domain.
    pub name: String,
    /// The attribute whose distinct values are counted.
    pub distinct: String,
    /// The attributes for whose values they are counted. At least one.
    pub per: Vec<String>,
    /// Conditions on the requests that count, all of which must hold.
    pub clauses: Vec<Clause>,
    /// The signal is raised from this number of distinct values on.
    pub threshold: u64,
    /// The time in which they are counted.
    pub window: Span,
    /// How many bits of an IPv6 address are an address, counted and counted for.
    pub ipv6_prefix: u8,
    /// The ban of those for whom it is raised.
    pub ban: Option<SignalBan>,
    /// Where it was declared.
    pub at: SourceLocation,
}

/// When those whose requests a rule refuses are banned: after this many refusals within a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanTerms {
    /// The number of refusals. At least one.
    pub after: u64,
    /// The time in which they count.
    pub within: Span,
    /// How long the first ban lasts.
    pub lasts: Span,
    /// How long each further ban lasts, in percent of the one before. At least 100.
    pub escalate_percent: u64,
    /// How long a ban lasts at most.
    pub most: Span,
    /// What happens to banned requests.
    pub action: BanAction,
    /// Who is banned.
    pub who: BanSubject,
}

/// The ban of those for whom a signal is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalBan {
    /// How long it lasts.
    pub lasts: Span,
    /// What happens to banned requests.
    pub action: BanAction,
}

/// What happens to the requests of those that are banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanAction {
    /// They are refused with 403.
    Block,
    /// They are admitted, whatever their limits say, and marked for the application.
    Shadow,
}

/// Whom a rule bans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BanSubject {
    /// The value of the domain's `entity`.
    Caller,
    /// The address in this attribute; IPv6 by the rule's prefix.
    Address(String),
}

/// Who is never banned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeverBan {
    /// Requests from these networks.
    pub networks: Vec<Network>,
    /// Callers of these names.
    pub callers: Vec<Pattern>,
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
    /// The condition.
    pub test: Test,
}

/// A condition on the value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The attribute is present.
    Present,
    /// The attribute is absent.
    Absent,
    /// The attribute is present and matches one of these.
    AnyOf(Vec<Pattern>),
    /// The attribute is present and is an address in one of these networks.
    Within(Vec<Network>),
    /// The inner condition does not hold. Also true if the attribute is absent.
    Not(Box<Test>),
}

/// An address range. IPv4-mapped IPv6 addresses count as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address in the range; the bits after the prefix are ignored.
    pub address: IpAddr,
    /// The number of significant bits: at most 32 or 128.
    pub prefix: u8,
}

/// The cost of a request under a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// The cost in the request.
    Request,
    /// A constant.
    Fixed(u64),
    /// The number in this attribute. The rule does not apply without it.
    Attribute(String),
    /// By the value of an attribute: the first case that matches.
    Table {
        /// The attribute.
        attribute: String,
        /// Patterns and their costs, in the order of the file.
        cases: Vec<(Pattern, u64)>,
        /// The cost of all other values. Without it, the rule does not apply to them.
        default: Option<u64>,
    },
}

/// The limits of a rule and what follows from them. Shared by both file forms.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The cap of each tier, in the order of the domain's tiers. `None`: the rule does not apply to that tier.
    pub caps: Vec<Option<Cap>>,
    /// Other caps for some values of an attribute.
    pub by_value: Option<CapsByValue>,
    /// The limit protects the service, not callers from each other: its refusals are 503.
    pub shed: bool,
    /// The effect if there is no room.
    pub mode: RuleMode,
    /// The answer for each tier while the store is unavailable, in the order of the domain's tiers.
    pub on_failure: Vec<OnFailure>,
    /// The purpose of the limit, which determines how it fails.
    pub policy: Policy,
    /// How many bits of an IPv6 address identify a counter.
    pub ipv6_prefix: u8,
    /// Whether the file has `ipv6_prefix`. If so, it applies to every IPv6 address in the key, not only to the
    /// attributes that are known to be addresses.
    pub ipv6_prefix_given: bool,
    /// How much of the rule clients see.
    pub headers: Headers,
    /// The rule's name in refusals; by default its name.
    pub denied_by_label: Option<String>,
    /// What happens to the units when the request has ended.
    pub ending: EndTerms,
    /// Who counts concurrent requests.
    pub count: HoldCounting,
    /// Whether servers may take units ahead of requests.
    pub lease: Lease,
    /// The part of a quota that servers may admit before the store counts it, in basis points.
    pub ahead: Option<u16>,
    /// What the limits mean in several regions.
    pub region: RegionMode,
}

/// The caps for some values of an attribute. They count on the same counter as the others.
#[derive(Clone, Debug)]
pub struct CapsByValue {
    /// The attribute.
    pub attribute: String,
    /// Values and their caps, in the order of the file.
    pub cases: Vec<(String, Cap)>,
}

/// Whether servers may take units of a rule's counters ahead of requests, and decide from what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lease {
    /// If little depends on it: policy `comfort`, a large quota and a short period.
    #[default]
    Auto,
    /// Wherever the limit allows it.
    On,
    /// Never: the store decides every request.
    Off,
}

/// Who counts the concurrent requests of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldCounting {
    /// All servers, on one counter.
    #[default]
    Exact,
    /// Each server by itself. It admits against the sum of what all publish.
    Summed,
}

/// What happens to a rule's units when the request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndTerms {
    /// The units were an estimate: the real cost is settled.
    pub settle: bool,
    /// The units are given back if the request failed.
    pub refund: bool,
    /// The maximum that one request may reserve, in basis points of the limit.
    pub reserve_max: Option<u16>,
    /// How long the settlement may take.
    pub hold: Span,
}

impl Default for EndTerms {
    /// No settlement and no refund.
    fn default() -> EndTerms {
        EndTerms { settle: false, refund: false, reserve_max: None, hold: Self::HOLD }
    }
}

impl EndTerms {
    /// The default time to wait for the end of a request.
    pub const HOLD: Span = Span::from_secs(60);
}

/// A counting algorithm, by its name in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// A count that moves with time.
    SlidingWindow,
    /// A level that drains with time.
    Bucket,
    /// A bucket that spaces admitted requests evenly.
    LeakyBucket,
    /// A count for each aligned period.
    FixedWindow,
    /// A timestamp for every request.
    SlidingLog,
}

impl Counting {
    /// The core's algorithm, with the parameters that some algorithms need.
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

/// The cap of a tier.
#[derive(Clone, Debug, PartialEq)]
pub enum Cap {
    /// No limit.
    Unlimited,
    /// A limit.
    Limit(Limit),
}

/// How a rule is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleMode {
    /// The rule refuses requests.
    Enforce,
    /// The rule refuses requests of a share of its callers, always the same ones. It is in shadow mode for the
    /// others.
    Share {
        /// The share in basis points.
        bps: u16,
    },
    /// The rule refuses a request only if all matching rules of this mode do (envoyproxy/ratelimit's `quota_mode`).
    AnyOf,
    /// The rule only reports what it would do.
    Shadow,
    /// The rule admits past the limit and reports it.
    Soft,
    /// The rule is disabled.
    Off,
}

impl RuleMode {
    /// The mode as a rule file has it: `enforce`, `enforce: 12.5%`, `shadow`.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            RuleMode::Enforce => "enforce",
            RuleMode::Share { bps } => {
                let share = format!("{}.{:02}", bps / 100, bps % 100);
                return Cow::Owned(format!("enforce: {}%", share.trim_end_matches('0').trim_end_matches('.')));
            }
            RuleMode::AnyOf => "any_of",
            RuleMode::Shadow => "shadow",
            RuleMode::Soft => "soft",
            RuleMode::Off => "off",
        })
    }
}

/// The purpose of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A short excess is harmless: count locally.
    Comfort,
    /// The limit protects something: deny.
    Security,
    /// Deny unpaid tiers, count paid ones locally.
    Cost,
    /// Errors in a budget last: deny, and never approximate.
    Quota,
}

impl Policy {
    /// The name in rule files.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Comfort => "comfort",
            Policy::Security => "security",
            Policy::Cost => "cost",
            Policy::Quota => "quota",
        }
    }

    /// How long checks of its rules are decided by the store when there are too many of them: the higher, the longer.
    pub fn importance(self) -> u8 {
        match self {
            Policy::Comfort => 0,
            Policy::Cost => 1,
            Policy::Quota => 2,
            Policy::Security => 3,
        }
    }

    /// The answer for a tier's charges while the store is unavailable.
    pub fn for_tier(self, tier: &Tier) -> OnFailure {
        match self {
            Policy::Comfort => OnFailure::Local,
            Policy::Cost if tier.paid => OnFailure::Local,
            Policy::Security | Policy::Cost | Policy::Quota => OnFailure::Deny,
        }
    }
}

/// How much of a rule clients see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headers {
    /// All header dialects.
    Full,
    /// Only the fields of the standard.
    Standard,
    /// Nothing.
    Hidden,
}

/// A node of the `descriptors` tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// The key of the entry.
    pub key: String,
    /// The pattern of its value. `None` matches what no sibling matches.
    pub value: Option<Pattern>,
    /// The text of the value as the file has it.
    pub value_text: Option<String>,
    /// The limit of the node, if it has one.
    pub limit: Option<NodeLimit>,
    /// All values that match a wildcard share one counter.
    pub share_threshold: bool,
    /// A metric for each value.
    pub detailed_metric: bool,
    /// The value is part of the metric's name.
    pub value_to_metric: bool,
    /// Sent to the gateway with the answer: names and texts, nested values as JSON text.
    pub metadata: Vec<(String, String)>,
    /// The nodes of the next entry.
    pub children: Vec<Node>,
    /// Where it was declared.
    pub at: SourceLocation,
}

/// The limit of a tree node.
#[derive(Clone, Debug)]
pub struct NodeLimit {
    /// The name: the file's, or the path of keys and values to the node.
    pub name: String,
    /// Whether the name comes from the file. Only then is it sent to clients, and can the limit be replaced.
    pub named: bool,
    /// The names of limits that it replaces in a request that matches both.
    pub replaces: Vec<String>,
    /// The limits and what follows from them.
    pub terms: Terms,
}

/// Where rules are written. It is compared by its parts: rules by API of two domains may have the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RuleOrigin {
    /// A file, by its name in problems.
    File(String),
    /// A rule by API.
    Rule {
        /// Its domain.
        domain: String,
        /// Its name.
        name: String,
    },
    /// A switch by API.
    Switch {
        /// The domain; `None` for all.
        domain: Option<String>,
        /// The rule; `None` for all.
        rule: Option<String>,
    },
}

/// A location in a file, or in what was set by API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file.
    pub file: Arc<RuleOrigin>,
    /// The line number, from 1.
    pub line: usize,
}
