//! How many readers there are to be. In: how much came of it. Out: how many to try next. Pure.

/// Changes of the rate below this are noise.
const NOISE: f64 = 0.05;

/// Looks for the number of readers beyond which the storage gives no more. It goes up while that pays, back when it does
/// not, and rather fewer than more where both give the same: those who work on the same storage notice.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapt {
    least: usize,
    most: usize,
    now: usize,
    rate: f64,
    upwards: bool,
}

impl Adapt {
    /// Begins with the least.
    pub fn new(least: usize, most: usize) -> Self {
        let least = least.max(1);
        Self {
            least,
            most: most.max(least),
            now: least,
            rate: 0.0,
            upwards: true,
        }
    }

    /// How many readers there are to be.
    pub fn readers(&self) -> usize {
        self.now
    }

    /// Takes note of what came of it since the last time, per second, and tries another number.
    pub fn observe(&mut self, rate: f64) -> usize {
        let step = (self.now / 4).max(1);
        let change = if self.rate > 0.0 {
            rate / self.rate - 1.0
        } else {
            1.0
        };
        self.rate = rate;
        // Going up must pay; going down may cost nothing.
        self.upwards = match (self.upwards, change) {
            (true, change) => change > NOISE,
            (false, change) => change < -NOISE,
        };
        self.now = if self.upwards {
            (self.now + step).min(self.most)
        } else {
            self.now.saturating_sub(step).max(self.least)
        };
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a storage gives that serves so many at once.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn rate(readers: usize, serves: usize) -> f64 {
        readers.min(serves) as f64 * 100.0
    }

    fn after(steps: usize, serves: usize) -> Vec<usize> {
        let mut adapt = Adapt::new(2, 64);
        let mut tried = vec![adapt.readers()];
        for _ in 0..steps {
            tried.push(adapt.observe(rate(adapt.readers(), serves)));
        }
        tried
    }

    #[test]
    fn storage_that_likes_many_gets_many_and_keeps_them() {
        let tried = after(60, 32);
        let late = &tried[30..];
        assert!(late.iter().all(|it| (20..=50).contains(it)), "{tried:?}");
    }

    #[test]
    fn storage_that_serves_two_is_not_crowded() {
        let tried = after(40, 2);
        assert!(tried.iter().all(|it| *it <= 4), "{tried:?}");
    }

    #[test]
    fn the_number_stays_within_its_bounds() {
        let mut adapt = Adapt::new(3, 5);
        for n in 0..100 {
            let rate = if n % 3 == 0 { 1e9 } else { 1.0 };
            assert!((3..=5).contains(&adapt.observe(rate)));
        }
    }
}
