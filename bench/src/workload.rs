//! What every contender is given: the same keys in the same order.

/// Keys as callers have them, and the order in which they come.
pub struct Workload {
    pub keys: Vec<String>,
    pub order: Vec<u32>,
}

impl Workload {
    /// So many keys, drawn by Zipf's law with exponent 1.
    pub fn zipf(keys: usize, draws: usize) -> Workload {
        let mut random = Random::new();
        // Key n stands at a random place, so that popular keys are not neighbours in memory.
        let mut ranked: Vec<u32> = (0..keys as u32).collect();
        for at in (1..keys).rev() {
            ranked.swap(at, (random.next() % (at as u64 + 1)) as usize);
        }
        let mut sums = Vec::with_capacity(keys);
        let mut sum = 0.0;
        for rank in 1..=keys {
            sum += 1.0 / rank as f64;
            sums.push(sum);
        }
        let order = (0..draws)
            .map(|_| {
                let point = random.unit() * sum;
                ranked[sums.partition_point(|sum| *sum < point).min(keys - 1)]
            })
            .collect();
        Workload { keys: (0..keys).map(|n| format!("user-{n:011}")).collect(), order }
    }
}

/// xorshift64*: quick, and the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new() -> Random {
        Random(0x9e37_79b9_7f4a_7c15)
    }

    /// Another sequence for each number.
    pub fn seeded(number: u64) -> Random {
        let mut random = Random(Random::new().0 ^ (number + 1));
        // Numbers that are near each other begin with draws that are, too.
        for _ in 0..16 {
            random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
