//! One record of the control plane, and its kind.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One record of the control plane as of a generation: a decision of an operator, or its deletion.
///
/// In JSON a record is one object: `{"generation":7,"kind":"quota","domain":"shop","name":"ada","document":{"tier":"pro"}}`. An
/// empty domain or name and the document of a deleted record are omitted. A record that is read borrows from its text, so it can be
/// read from a slice or a string, and not from a reader.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Record<'r> {
    /// The generation of the write that made it what it is.
    pub generation: u64,
    /// What it is about.
    pub kind: RecordKind,
    /// Its domain; empty for all domains.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub domain: Cow<'r, str>,
    /// Its name among the records of its kind and domain.
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub name: Cow<'r, str>,
    /// A JSON object; `None` if the record was deleted.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", with = "raw_json")]
    pub document: Option<Cow<'r, str>>,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordKind {
    /// A caller's tier and overrides. The record's name is the caller, or a glob.
    Quota,
    /// A rule above the files. The record's name is the rule's.
    Rule,
    /// One version of a rule above the files, for its history.
    RuleVersion,
    /// The mode of a rule, of a domain, or of everything. The record's name is the rule's.
    Switch,
    /// A limit that overrides all others until it expires.
    Emergency,
    /// A caller or an address range that is not served. The record's name is the caller, or the range.
    Block,
    /// The shares of regions of a rule, which follow demand. The record's name is the rule's.
    Shares,
    /// A version of the rule files that was held and released. The record's name is the version.
    Files,
    /// A write that waits for a confirmation. The record's name is the id of the plan.
    Plan,
    /// A token of the admin API.
    Token,
    /// A caller's counters. The counter store has them: only the audit log speaks of them, and there are no records.
    Counter,
    /// The leases of a server. Only the audit log speaks of them. The name is the server's.
    Lease,
    /// The gateway of a server. Only the audit log speaks of it. The name is the server's.
    Gateway,
    /// Refused access to the admin API. Only the audit log speaks of it.
    Access,
    /// The store of record itself. Only the audit log speaks of it.
    Control,
    /// A kind of a newer version. Its records are ignored.
    #[serde(other)]
    Unknown,
}

impl Record<'_> {
    /// The same record without borrowed text.
    pub fn into_owned(self) -> Record<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Record {
            generation: self.generation,
            kind: self.kind,
            domain: owned(self.domain),
            name: owned(self.name),
            document: self.document.map(owned),
        }
    }
}

impl RecordKind {
    /// All kinds that this version knows.
    pub const ALL: [RecordKind; 15] = [
        RecordKind::Quota,
        RecordKind::Rule,
        RecordKind::RuleVersion,
        RecordKind::Switch,
        RecordKind::Emergency,
        RecordKind::Block,
        RecordKind::Shares,
        RecordKind::Files,
        RecordKind::Plan,
        RecordKind::Token,
        RecordKind::Counter,
        RecordKind::Lease,
        RecordKind::Gateway,
        RecordKind::Access,
        RecordKind::Control,
    ];

    /// Its name in JSON, in the database and in the audit log.
    pub const fn name(self) -> &'static str {
        match self {
            RecordKind::Quota => "quota",
            RecordKind::Rule => "rule",
            RecordKind::RuleVersion => "rule-version",
            RecordKind::Switch => "switch",
            RecordKind::Emergency => "emergency",
            RecordKind::Block => "block",
            RecordKind::Shares => "shares",
            RecordKind::Files => "files",
            RecordKind::Plan => "plan",
            RecordKind::Token => "token",
            RecordKind::Counter => "counter",
            RecordKind::Lease => "lease",
            RecordKind::Gateway => "gateway",
            RecordKind::Access => "access",
            RecordKind::Control => "control",
            RecordKind::Unknown => "unknown",
        }
    }

    /// The kind of this name; `None` if this version does not know it.
    pub fn parse(name: &str) -> Option<RecordKind> {
        RecordKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether limiters decide by records of this kind. These, and no others, are the records of snapshots and feeds.
    pub const fn decides(self) -> bool {
        match self {
            RecordKind::Quota
            | RecordKind::Rule
            | RecordKind::Switch
            | RecordKind::Emergency
            | RecordKind::Block
            | RecordKind::Shares
            | RecordKind::Files => true,
            RecordKind::RuleVersion
            | RecordKind::Plan
            | RecordKind::Token
            | RecordKind::Counter
            | RecordKind::Lease
            | RecordKind::Gateway
            | RecordKind::Access
            | RecordKind::Control
            | RecordKind::Unknown => false,
        }
    }

    /// Whether the database stores records of this kind.
    pub const fn is_stored(self) -> bool {
        match self {
            RecordKind::Counter
            | RecordKind::Lease
            | RecordKind::Gateway
            | RecordKind::Access
            | RecordKind::Control
            | RecordKind::Unknown => false,
            RecordKind::Quota
            | RecordKind::Rule
            | RecordKind::RuleVersion
            | RecordKind::Switch
            | RecordKind::Emergency
            | RecordKind::Block
            | RecordKind::Shares
            | RecordKind::Files
            | RecordKind::Plan
            | RecordKind::Token => true,
        }
    }
}

impl fmt::Display for RecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A document's text as a value of the JSON around it, neither parsed nor quoted.
mod raw_json {
    use std::borrow::Cow;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, ser};
    use serde_json::value::RawValue;

    /// Fails if the text is not JSON: it would break the line that it is part of.
    pub(super) fn serialize<S: Serializer>(text: &Option<Cow<'_, str>>, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: Option<&RawValue> =
            text.as_deref().map(serde_json::from_str).transpose().map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
        let raw = Option::<&'de RawValue>::deserialize(deserializer)?;
        Ok(raw.map(|raw| Cow::Borrowed(raw.get())))
    }
}
