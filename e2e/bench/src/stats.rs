//! In: repeated measurements. Out: median, spread, ratio, and whether a goal is met.
//! Pure.

/// Digits that a measurement on a machine with other things to do can claim.
const DIGITS: i32 = 4;

/// What is told of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Half of them are not above, half of them not below.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Summary {
    /// The summary of at least one measurement, in digits that mean something.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: rounded(median(&sorted)?),
            least: rounded(*sorted.first()?),
            most: rounded(*sorted.last()?),
        })
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

/// How many times the peer's we need; none if the peer needs nothing.
pub fn ratio(ours: f64, peer: f64) -> Option<f64> {
    (peer != 0.0).then(|| rounded(ours / peer))
}

/// Whether we stay within the goal: as a share of the peer's where there is a peer, else as it stands.
pub fn met(goal: f64, ours: f64, peer: Option<f64>) -> bool {
    match peer {
        None => ours <= goal,
        Some(peer) => ratio(ours, peer).map_or(ours == 0.0, |ratio| ratio <= goal),
    }
}

/// The number with as many digits as it can claim, so that what is printed is what was compared.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let text = format!("{value:.*e}", (DIGITS - 1).unsigned_abs() as usize);
    text.parse().unwrap_or(value)
}

/// A count as a number to calculate with.
#[expect(
    clippy::cast_precision_loss,
    reason = "bytes and ticks stay far below 2^53"
)]
pub fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Summary {
        Summary::of(values).unwrap()
    }

    #[test]
    fn the_order_of_repetitions_does_not_matter() {
        let expected = Summary {
            median: 2.0,
            least: 1.0,
            most: 9.0,
        };
        assert_eq!(of(&[9.0, 1.0, 2.0]), expected);
        assert_eq!(of(&[2.0, 9.0, 1.0]), expected);
    }

    #[test]
    fn between_two_middles_the_median_lies_in_the_middle() {
        let summary = of(&[4.0, 1.0, 2.0, 100.0]);
        assert!((summary.median - 3.0).abs() < 1e-9, "{summary:?}");
    }

    #[test]
    fn nothing_measured_has_no_summary() {
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn a_goal_beside_a_peer_is_a_share_of_the_peers() {
        assert!(met(0.4, 20.0, Some(50.0)));
        assert!(!met(0.4, 20.1, Some(50.0)));
        assert!(met(15.0, 14.6, None));
        assert!(!met(15.0, 15.1, None));
    }

    #[test]
    fn beside_a_peer_that_needs_nothing_only_nothing_is_good_enough() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert!(met(0.5, 0.0, Some(0.0)));
        assert!(!met(0.5, 0.1, Some(0.0)));
    }

    #[test]
    fn what_is_compared_is_what_is_printed() {
        assert_eq!(ratio(0.500_01, 1.0), Some(0.5));
        assert!(met(0.5, 0.500_01, Some(1.0)));
        assert_eq!(ratio(0.500_1, 1.0), Some(0.5001));
        assert!(!met(0.5, 0.500_1, Some(1.0)));
    }

    proptest! {
        #[test]
        fn the_median_is_one_of_the_values_or_between_two(values in prop::collection::vec(0.0..1e9, 1..20)) {
            let summary = of(&values);
            prop_assert!(summary.least <= summary.median && summary.median <= summary.most);
        }
    }
}
