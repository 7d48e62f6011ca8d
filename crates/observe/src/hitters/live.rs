//! The minute under way, in one shard.
//!
//! Most keys come seldom, and to list one costs more than to decide about it. So once there were many decisions a key that is not listed, and
//! has nothing to be told of but that it came, first has to come a few times: as often as the door asks, which counts such keys by a part
//! of their hashes. What the door kept back nobody can have more of than its threshold: that is added to what every key may have missed.

use tollgate::Charge;

use super::name::Name;
use super::summary::{ByHash, Cell, DECISIONS, Floor, Keep, REFUSALS, Summary, Terms};

/// The keys of one shard, in the minute under way.
#[derive(Debug)]
pub(crate) struct Live {
    minute: u64,
    totals: [u64; 2],
    floor: Floor,
    cells: ByHash<Cell>,
    /// How often keys came that were not listed, by a part of their hashes.
    door: Box<[u8; DOOR]>,
    /// The most of these.
    kept_back: u8,
    /// Room to write names in.
    text: String,
}

/// What happened to the minute under way.
#[derive(Debug)]
pub(crate) enum Turned {
    /// Nothing.
    Not,
    /// The minute of this number is over, and this is what it came to.
    Over(u64, Summary),
    /// The clock was set back.
    Back,
}

/// What a limit said to a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'s, 'a> {
    pub(crate) charge: &'s Charge<'a>,
    /// It refused.
    pub(crate) refused: bool,
    /// Units for which it had no room.
    pub(crate) over: u64,
    /// How full the counter was, in thousandths.
    pub(crate) used: Option<u32>,
    /// The tier, or what stands for it.
    pub(crate) tier: &'s str,
}

/// Keys that are kept by each measure when a shard is full.
pub(crate) const KEEP: Keep = Keep { counted: 560, used: 256 };
/// The most keys of a shard: some hundreds more than are kept by all measures. A hash table of this many has 2,048 places.
pub(crate) const MOST_CELLS: usize = 1_792;
/// Keys that the door tells apart.
const DOOR: usize = 16_384;
/// It asks each to come once for so many decisions: half as often as they would all come if they came alike.
const ONCE_IN: u64 = 8_192;
/// From here on a counter is near its limit, in thousandths.
pub(crate) const NEAR: u32 = 800;
/// How many minutes a clock may be behind before all begins anew.
const MOST_BEHIND: u64 = 10;

impl Live {
    pub(crate) fn new() -> Live {
        Live {
            minute: 0,
            totals: [0; 2],
            floor: Floor::default(),
            cells: ByHash::default(),
            door: Box::new([0; DOOR]),
            kept_back: 0,
            text: String::new(),
        }
    }

    /// Brings it to this minute. A clock that is a little behind changes nothing.
    #[inline]
    pub(crate) fn turn(&mut self, minute: u64) -> Turned {
        if minute == self.minute {
            return Turned::Not;
        }
        self.turn_from(self.minute, minute)
    }

    #[cold]
    fn turn_from(&mut self, over: u64, minute: u64) -> Turned {
        if minute < over && over - minute <= MOST_BEHIND {
            return Turned::Not;
        }
        let summary = self.take();
        self.minute = minute;
        if over < minute { Turned::Over(over, summary) } else { Turned::Back }
    }

    /// A limit had a say.
    #[inline]
    pub(crate) fn met(&mut self, hash: u128, said: Said<'_, '_>) {
        self.totals[DECISIONS] += 1;
        let Some(cell) = self.cells.get_mut(&hash) else { return self.begin(hash, said) };
        self.totals[REFUSALS] += u64::from(said.refused);
        cell.met(said);
    }

    /// A caller was turned away before any limit was asked.
    pub(crate) fn turned_away(&mut self, hash: u128, name: impl FnOnce() -> Name) {
        self.totals[DECISIONS] += 1;
        self.totals[REFUSALS] += 1;
        self.make_room();
        let floor = self.floor;
        let cell = self.cells.entry(hash).or_insert_with(|| Cell::new(name(), &floor));
        cell.seen[DECISIONS] += 1;
        cell.seen[REFUSALS] += 1;
    }

    /// What it has come to so far.
    pub(crate) fn summary(&self) -> Summary {
        let cells = self.cells.iter().map(|(hash, cell)| (*hash, cell.counted())).collect();
        Summary { totals: self.totals, floor: self.floor, cells }.missing(self.kept_back.into())
    }

    fn begin(&mut self, hash: u128, said: Said<'_, '_>) {
        if self.keeps_back(hash, &said) {
            return;
        }
        self.list(hash, said);
    }

    /// Whether a key that is not listed has to come again before it is.
    #[inline]
    fn keeps_back(&mut self, hash: u128, said: &Said<'_, '_>) -> bool {
        let threshold = self.threshold();
        let is_plain = !said.refused && said.over == 0 && !self.floor.is_below_fullness(hash, said.used);
        if threshold == 0 || !is_plain {
            return false;
        }
        // The low half finds the cell.
        let came = &mut self.door[(hash >> 64) as usize % DOOR];
        if u64::from(*came) >= threshold {
            return false;
        }
        *came += 1;
        self.kept_back = self.kept_back.max(*came);
        true
    }

    /// How often the door asks a key to come. It only rises.
    fn threshold(&self) -> u64 {
        (self.totals[DECISIONS] / ONCE_IN).min(u8::MAX.into())
    }

    #[cold]
    fn list(&mut self, hash: u128, said: Said<'_, '_>) {
        self.totals[REFUSALS] += u64::from(said.refused);
        self.make_room();
        let mut cell = Cell::new(Name::of(&mut self.text, &said.charge.key), &self.floor);
        cell.met(said);
        self.cells.insert(hash, cell);
    }

    fn make_room(&mut self) {
        if self.cells.len() < MOST_CELLS {
            return;
        }
        self.floor.raise(KEEP, self.cells.iter().map(|(hash, cell)| (*hash, cell)));
        let floor = self.floor;
        self.cells.retain(|hash, cell| floor.is_below(*hash, cell));
    }

    fn take(&mut self) -> Summary {
        let (cells, kept_back) = (self.cells.drain().collect(), std::mem::take(&mut self.kept_back));
        self.door.fill(0);
        let (totals, floor) = (std::mem::take(&mut self.totals), std::mem::take(&mut self.floor));
        Summary { totals, floor, cells }.missing(kept_back.into())
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        // A hash table has a place in eight to spare, and a byte for each.
        let places = (self.cells.capacity() * 8 / 7).next_power_of_two();
        let names = self.cells.values().map(Cell::bytes).sum::<usize>();
        size_of::<Live>() + DOOR + places * (size_of::<(u128, Cell)>() + 1) + names + self.text.capacity()
    }
}

impl Cell {
    #[inline]
    fn met(&mut self, said: Said<'_, '_>) {
        self.seen[DECISIONS] += 1;
        self.seen[REFUSALS] += u64::from(said.refused);
        self.refused_units = self.refused_units.saturating_add(said.over);
        if said.used > self.used {
            self.used = said.used;
            if self.near.is_none() && said.used >= Some(NEAR) {
                self.near = Some(Box::new(Terms { tier: said.tier.into(), limit: said.charge.limit.clone() }));
            }
        }
    }
}
