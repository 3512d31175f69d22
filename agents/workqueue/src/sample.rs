//! In: priorities. Out: the order in which a fetch looks at the queues.
//! Pure: the random numbers are an argument.

/// The largest priority that gocraft/work accepts.
pub(crate) const MOST: u32 = 100_000;

/// A random order in which each next place goes to one of the rest with the probability of its share.
///
/// `below(n)` draws a number from 0 to n - 1.
pub(crate) fn order(priorities: &[u32], mut below: impl FnMut(u64) -> u64) -> Vec<usize> {
    let mut rest: Vec<usize> = (0..priorities.len()).collect();
    let mut order = Vec::with_capacity(rest.len());
    while rest.len() > 1 {
        let share = |index: usize| u64::from(priorities[index].max(1));
        let sum = rest.iter().map(|index| share(*index)).sum();
        let mut drawn = below(sum);
        let mut place = 0;
        while place + 1 < rest.len() && drawn >= share(rest[place]) {
            drawn -= share(rest[place]);
            place += 1;
        }
        order.push(rest.remove(place));
    }
    order.extend(rest);
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_draw_decides() {
        let draws = |numbers: &'static [u64]| {
            let mut numbers = numbers.iter();
            move |_| *numbers.next().unwrap()
        };
        assert_eq!(order(&[1, 2, 3], draws(&[0, 0])), [0, 1, 2]);
        assert_eq!(order(&[1, 2, 3], draws(&[1, 0])), [1, 0, 2]);
        assert_eq!(order(&[1, 2, 3], draws(&[5, 2])), [2, 1, 0]);
        assert_eq!(order(&[7], draws(&[])), [0]);
    }

    #[test]
    fn shares_are_kept() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut first = [0_u32; 2];
        for _ in 0..10_000 {
            first[order(&[3, 1], |sum| random.u64(0..sum))[0]] += 1;
        }
        assert!((7_200..7_800).contains(&first[0]), "{first:?}");
    }

    proptest! {
        #[test]
        fn every_queue_has_one_place(priorities in prop::collection::vec(0..=MOST, 0..8), seed: u64) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut order = order(&priorities, |sum| random.u64(0..sum));
            order.sort_unstable();
            prop_assert_eq!(order, (0..priorities.len()).collect::<Vec<_>>());
        }
    }
}
