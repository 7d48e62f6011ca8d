//! Random numbers that depend on a seed only: the same on every machine and in every version.

/// A generator of random numbers (xoshiro256++).
#[derive(Clone, Debug)]
pub(crate) struct Generator {
    state: [u64; 4],
}

impl Generator {
    /// A generator for one purpose. Those of different purposes are independent, so that more draws of one leave the
    /// others as they are.
    pub(crate) fn new(seed: u64, purpose: u64) -> Generator {
        let mut mixed = seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let state = std::array::from_fn(|_| {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(mixed)
        });
        Generator { state }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// From 0 to less than 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0 to less than `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// From `first` to `last`, both included.
    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below((last - first).saturating_add(1).max(1))
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() < share
    }

    /// A gap between events that come independently, one a unit of time on average.
    pub(crate) fn gap(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// How many events come when `mean` are expected.
    pub(crate) fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 30.0 {
            // A sum of twelve uniform numbers has a variance of 1 and is close enough to a normal distribution.
            let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
            return (mean + mean.sqrt() * normal + 0.5).max(0.0) as u64;
        }
        let (mut count, mut left) = (0, mean - self.gap());
        while left >= 0.0 {
            count += 1;
            left -= self.gap();
        }
        count
    }
}

/// Spreads a number over all numbers.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Draws ranks by Zipf's law: rank `r`, from 1, is drawn in proportion to `r` to the power of minus the exponent. By
/// rejection-inversion (Hörmann and Derflinger), so that there is no table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    ranks: u64,
    exponent: f64,
    first: f64,
    last: f64,
    accepted: f64,
}

/// The ranks that are summed one by one.
const SUMMED: u64 = 100_000;
/// Further ranks are summed in blocks that grow by this factor.
const BLOCK: f64 = 1.01;

impl Zipf {
    /// For ranks 1 to `ranks`, which is not zero.
    pub(crate) fn new(ranks: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { ranks, exponent, first: 0.0, last: 0.0, accepted: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(ranks as f64 + 0.5);
        zipf.accepted = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// A rank, from 0.
    pub(crate) fn draw(&self, random: &mut Generator) -> u64 {
        if self.exponent == 0.0 || self.ranks == 1 {
            return random.below(self.ranks);
        }
        loop {
            let area = self.last + random.unit() * (self.first - self.last);
            let place = self.inverse(area);
            let rank = place.round().clamp(1.0, self.ranks as f64);
            if rank - place <= self.accepted || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn weight(&self, rank: f64) -> f64 {
        rank.powf(-self.exponent)
    }

    /// The integral of the weight.
    fn integral(&self, rank: f64) -> f64 {
        let log = rank.ln();
        relative_exp((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (relative_log(scaled) * area).exp()
    }

    /// The sum of a figure over all ranks, which depends on the share of draws that a rank has.
    pub(crate) fn sum(exponent: f64, ranks: u64, figure: impl Fn(f64) -> f64) -> f64 {
        let total = Zipf::total(exponent, ranks);
        let at = |rank: f64| figure(rank.powf(-exponent) / total);
        let mut sum: f64 = (1..=ranks.min(SUMMED)).map(|rank| at(rank as f64)).sum();
        let (mut first, end) = (SUMMED as f64 + 1.0, ranks as f64 + 1.0);
        while first < end {
            let next = (first * BLOCK).floor().min(end);
            sum += (next - first) * at((first + next - 1.0) / 2.0);
            first = next;
        }
        sum
    }

    /// The sum of the weights of the first `ranks` ranks.
    pub(crate) fn total(exponent: f64, ranks: u64) -> f64 {
        let summed = ranks.min(SUMMED);
        let head: f64 = (1..=summed).rev().map(|rank| (rank as f64).powf(-exponent)).sum();
        let zipf = Zipf { ranks, exponent, first: 0.0, last: 0.0, accepted: 0.0 };
        // The rest is nearly flat from one rank to the next.
        head + zipf.integral(ranks as f64 + 0.5) - zipf.integral(summed as f64 + 0.5)
    }
}

/// `(exp(x) - 1) / x`
fn relative_exp(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// `ln(1 + x) / x`
fn relative_log(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_zipfs_law() {
        for exponent in [0.0, 0.5, 0.85, 1.0, 1.2, 2.0] {
            let (zipf, mut random) = (Zipf::new(1_000, exponent), Generator::new(7, 0));
            let mut counts = vec![0u32; 1_000];
            const DRAWS: u32 = 200_000;
            for _ in 0..DRAWS {
                counts[zipf.draw(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=1_000).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1usize, 2, 3, 10, 100] {
                let expected = f64::from(DRAWS) * (rank as f64).powf(-exponent) / total;
                let deviation = (f64::from(counts[rank - 1]) - expected).abs() / expected.sqrt().max(1.0);
                assert!(deviation < 5.0, "{exponent}: rank {rank}: {} of {expected}", counts[rank - 1]);
            }
        }
    }

    #[test]
    fn weights_of_many_ranks_are_summed_closely() {
        for exponent in [0.0, 0.85, 1.0, 1.2] {
            let exact: f64 = (1..=1_000_000).rev().map(|rank| f64::from(rank).powf(-exponent)).sum();
            let total = Zipf::total(exponent, 1_000_000);
            assert!((total / exact - 1.0).abs() < 1e-6, "{exponent}: {total} of {exact}");
        }
    }

    #[test]
    fn counts_have_their_mean_and_spread() {
        let mut random = Generator::new(3, 1);
        for mean in [0.1, 2.0, 29.0, 500.0] {
            let counts: Vec<f64> = (0..20_000).map(|_| random.poisson(mean) as f64).collect();
            let measured = counts.iter().sum::<f64>() / counts.len() as f64;
            let spread = counts.iter().map(|count| (count - measured).powi(2)).sum::<f64>() / counts.len() as f64;
            assert!((measured / mean - 1.0).abs() < 0.05, "{mean}: {measured}");
            assert!((spread / mean - 1.0).abs() < 0.1, "{mean}: {spread}");
        }
    }
}
