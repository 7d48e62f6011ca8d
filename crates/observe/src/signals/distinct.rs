//! Counting distinct values in bounded memory.
//!
//! Up to [`MAX_FEW`] values are counted exactly. Beyond that, a HyperLogLog with 2^12 registers of a byte estimates them: the
//! standard error is 1.04 ÷ √4,096 = 1.6 %. The estimator is Ertl's, which needs no correction by tables at either end ("New
//! cardinality estimation algorithms for HyperLogLog sketches", 2017, section 4).

/// The distinct values of a stream, by their hashes. Sketches of several streams can be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctSketch(Form);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// All hashes, in order.
    Few(Vec<u64>),
    /// For each of the first bits of a hash, the most zeros that followed them, plus one.
    Many(Box<[u8; REGISTERS]>),
}

/// The bits of a hash that choose a register.
const INDEX_BITS: u32 = 12;
const REGISTERS: usize = 1 << INDEX_BITS;
/// The highest value of a register: the other bits are all zeros.
const MAX_RANK: u8 = (u64::BITS - INDEX_BITS + 1) as u8;

/// The number of values up to which the count is exact.
pub const MAX_FEW: usize = 128;

impl Default for DistinctSketch {
    /// No values.
    fn default() -> DistinctSketch {
        DistinctSketch(Form::Few(Vec::new()))
    }
}

impl DistinctSketch {
    /// Counts the value with this hash. Returns whether the sketch has changed.
    pub fn insert(&mut self, hash: u64) -> bool {
        match &mut self.0 {
            Form::Few(hashes) => {
                let Err(place) = hashes.binary_search(&hash) else { return false };
                if hashes.len() < MAX_FEW {
                    hashes.insert(place, hash);
                } else {
                    let mut registers = registers_of(hashes);
                    raise(&mut registers, hash);
                    self.0 = Form::Many(registers);
                }
                true
            }
            Form::Many(registers) => raise(registers, hash),
        }
    }

    /// Counts the values of another sketch too.
    pub fn merge(&mut self, other: &DistinctSketch) {
        match (&mut self.0, &other.0) {
            (_, Form::Few(hashes)) => hashes.iter().for_each(|hash| {
                self.insert(*hash);
            }),
            (Form::Few(hashes), Form::Many(registers)) => {
                let mut merged = registers.clone();
                hashes.iter().for_each(|hash| {
                    raise(&mut merged, *hash);
                });
                self.0 = Form::Many(merged);
            }
            (Form::Many(own), Form::Many(registers)) => {
                own.iter_mut().zip(registers.iter()).for_each(|(own, other)| *own = (*own).max(*other));
            }
        }
    }

    /// The number of distinct values: exact up to [`MAX_FEW`], else an estimate.
    pub fn estimate(&self) -> u64 {
        match &self.0 {
            Form::Few(hashes) => hashes.len() as u64,
            Form::Many(registers) => estimate(registers).round() as u64,
        }
    }

    /// Memory on the heap, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Few(hashes) => hashes.capacity() * size_of::<u64>(),
            Form::Many(_) => REGISTERS,
        }
    }

    /// The sketch as bytes, for [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.0 {
            Form::Few(hashes) => hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect(),
            Form::Many(registers) => registers.to_vec(),
        }
    }

    /// The sketch of these bytes, if they are one.
    pub fn from_bytes(bytes: &[u8]) -> Option<DistinctSketch> {
        if let Ok(registers) = <[u8; REGISTERS]>::try_from(bytes) {
            let is_valid = registers.iter().all(|register| *register <= MAX_RANK);
            return is_valid.then(|| DistinctSketch(Form::Many(Box::new(registers))));
        }
        let (hashes, rest) = bytes.as_chunks();
        let hashes: Vec<u64> = hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
        let is_valid = rest.is_empty() && hashes.len() <= MAX_FEW && hashes.is_sorted_by(|one, next| one < next);
        is_valid.then_some(DistinctSketch(Form::Few(hashes)))
    }
}

fn registers_of(hashes: &[u64]) -> Box<[u8; REGISTERS]> {
    let mut registers = Box::new([0; REGISTERS]);
    hashes.iter().for_each(|hash| {
        raise(&mut registers, *hash);
    });
    registers
}

/// Raises the register of a hash. Returns whether it was lower.
fn raise(registers: &mut [u8; REGISTERS], hash: u64) -> bool {
    let rest = hash << INDEX_BITS;
    let rank = (rest.leading_zeros() as u8 + 1).min(MAX_RANK);
    let register = &mut registers[(hash >> (u64::BITS - INDEX_BITS)) as usize];
    let is_higher = rank > *register;
    *register = rank.max(*register);
    is_higher
}

fn estimate(registers: &[u8; REGISTERS]) -> f64 {
    let mut counts = [0u32; MAX_RANK as usize + 1];
    registers.iter().for_each(|register| counts[usize::from(*register)] += 1);
    let m = REGISTERS as f64;
    let highest = f64::from(counts[usize::from(MAX_RANK)]);
    let ranks = counts[1..usize::from(MAX_RANK)].iter().rev();
    let sum = ranks.fold(m * tau(1.0 - highest / m), |sum, count| 0.5 * (sum + f64::from(*count)));
    let sum = sum + m * sigma(f64::from(counts[0]) / m);
    m * m / (2.0 * std::f64::consts::LN_2 * sum)
}

/// `x + Σ x^(2^k) × 2^(k − 1)` for k from 1: what registers at zero contribute.
fn sigma(x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut factor, mut sum) = (x, 1.0, x);
    loop {
        power *= power;
        let next = sum + power * factor;
        if next <= sum {
            return sum;
        }
        (sum, factor) = (next, 2.0 * factor);
    }
}

/// `(1 − x − Σ (1 − x^(2^−k))² × 2^−k) ÷ 3` for k from 1: what registers at the highest rank contribute.
fn tau(x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (x, 1.0, 1.0 - x);
    loop {
        root = root.sqrt();
        factor *= 0.5;
        let next = sum - (1.0 - root).powi(2) * factor;
        if next >= sum {
            return sum / 3.0;
        }
        sum = next;
    }
}

#[cfg(test)]
mod tests;
