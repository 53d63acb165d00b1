//! Choice of rows: distributions of numbers below a bound.

use clap::ValueEnum;
use fastrand::Rng;
use std::f64::consts::TAU;

/// A prime that spreads neighbouring numbers: modulo a lesser bound, multiplication by it is a
/// permutation.
const SPREAD: u64 = 2_654_435_761;

/// Distribution of the rows that operations choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Shape {
    /// Each row in turn
    Sequential,
    /// Any row with the same chance
    Uniform,
    /// A bell curve around the row in the middle
    Gauss,
    /// Few rows often and most rows seldom; popular rows are no neighbours
    Zipf,
}

/// A chooser of rows.
#[derive(Debug)]
pub(super) enum Keys {
    Sequential,
    Uniform,
    /// The standard deviation as a share of the bound.
    Gauss(f64),
    Zipf(Zipf),
}

impl Keys {
    /// A number below `count`, by chance.
    pub(super) fn choose(&self, count: u64, rng: &mut Rng) -> u64 {
        match self {
            Self::Sequential | Self::Uniform => rng.u64(..count),
            Self::Gauss(deviation) => {
                // A very wide curve would miss the bounds for long.
                let mut tries = (0..100).map(|_| (0.5 + deviation * normal(rng)) * count as f64);
                let inside = tries.find(|it| (0.0..count as f64).contains(it));
                inside.map_or_else(|| rng.u64(..count), |it| (it as u64).min(count - 1))
            }
            Self::Zipf(zipf) => {
                // Bounds are those of `Rows`, so that the product fits.
                (zipf.rank(rng) - 1) * SPREAD % count
            }
        }
    }
}

/// A number of the standard normal distribution, by the transform of Box and Muller.
fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.f64()).ln()).sqrt() * (TAU * rng.f64()).cos()
}

/// Ranks from 1 to a greatest one, rank k with a chance proportional to k to the power of minus the
/// exponent.
///
/// A point below the curve of the continuous distribution is rounded to a rank, and rejected if it
/// lies outside of the bar of that rank. The curve is convex, so that each bar is at most as large
/// as the area that is rounded to it: the result is exact, without a table of all ranks.
#[derive(Debug)]
pub(super) struct Zipf {
    greatest: f64,
    exponent: f64,
    /// Bounds of the area below the curve. The first bar begins at the lower one.
    area: (f64, f64),
}

impl Zipf {
    /// The exponent is above 0.
    pub(super) fn new(greatest: u64, exponent: f64) -> Self {
        let mut zipf = Self { greatest: greatest as f64, exponent, area: (0.0, 0.0) };
        zipf.area = (zipf.integral(1.5) - 1.0, zipf.integral(zipf.greatest + 0.5));
        zipf
    }

    fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let point = self.area.0 + rng.f64() * (self.area.1 - self.area.0);
            let rank = self.inverse(point).round().clamp(1.0, self.greatest);
            if point >= self.integral(rank + 0.5) - rank.powf(-self.exponent) {
                return rank as u64;
            }
        }
    }

    /// An integral of the curve.
    fn integral(&self, x: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < 1e-6 { x.ln() } else { x.powf(power) / power }
    }

    fn inverse(&self, area: f64) -> f64 {
        let power = 1.0 - self.exponent;
        if power.abs() < 1e-6 { area.exp() } else { (area * power).powf(power.recip()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHOICES: u64 = 100_000;

    /// How often each of ten numbers is chosen.
    fn counts(keys: &Keys) -> [u64; 10] {
        let mut rng = Rng::with_seed(1);
        let mut counts = [0; 10];
        for _ in 0..CHOICES {
            counts[keys.choose(10, &mut rng) as usize] += 1;
        }
        counts
    }

    #[test]
    fn every_number_has_the_same_chance() {
        for count in counts(&Keys::Uniform) {
            assert!(count.abs_diff(CHOICES / 10) < 500, "{count}");
        }
    }

    #[test]
    fn about_two_thirds_are_within_a_deviation() {
        let counts = counts(&Keys::Gauss(0.2));
        let within: u64 = counts[3..7].iter().sum();
        // 0.683 of the curve, of which 0.988 lies inside of the bounds.
        assert!(within.abs_diff(CHOICES * 691 / 1000) < 500, "{counts:?}");
        assert!(counts[0].abs_diff(counts[9]) < 300, "{counts:?}");
        let wide = Keys::Gauss(1e9);
        assert!((0..10).all(|seed| wide.choose(3, &mut Rng::with_seed(seed)) < 3));
    }

    #[test]
    fn chances_fall_with_the_rank() {
        for exponent in [0.5, 0.99, 1.0, 2.0] {
            let zipf = Zipf::new(10, exponent);
            let mut rng = Rng::with_seed(2);
            let mut counts = [0_u64; 10];
            for _ in 0..CHOICES {
                counts[zipf.rank(&mut rng) as usize - 1] += 1;
            }
            let chance = |rank: usize| (rank as f64).powf(-exponent);
            let total: f64 = (1..=10).map(chance).sum();
            for (rank, count) in (1..).zip(counts) {
                let expected = (CHOICES as f64 * chance(rank) / total) as u64;
                assert!(count.abs_diff(expected) < 500, "{exponent} {rank}: {count} {expected}");
            }
        }
    }

    #[test]
    fn popular_rows_are_spread_over_all() {
        for count in [1_u64, 2, 1000, 1 << 20, 1_000_000] {
            let mut rows: Vec<u64> = (0..count.min(1000)).map(|it| it * SPREAD % count).collect();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len() as u64, count.min(1000));
        }
    }
}
