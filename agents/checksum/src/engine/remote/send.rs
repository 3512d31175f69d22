//! Sends packs in portions. In: how many are wanted. Out: how many were sent, and whether there are more.
//! Touches the world only through the [`Line`].

use workqueue::MOST_AT_ONCE;

use super::Error;

/// A portion that has so many bytes is sent: there are several copies of it on its way.
const PORTION: usize = 4 << 20;

/// Where packs come from, and where they go.
pub(super) trait Line {
    /// A pack.
    type Pack: Clone + Send + Sync;

    /// How many bytes it has.
    fn size(pack: &Self::Pack) -> usize;

    /// The next pack, if there is one.
    fn next(&mut self) -> impl Future<Output = Result<Option<Self::Pack>, Error>> + Send;

    /// Sends all of them, or none; whether nothing else waited there.
    fn push(
        &self,
        packs: Vec<Self::Pack>,
    ) -> impl Future<Output = Result<bool, workqueue::Error>> + Send;
}

/// What became of an attempt.
#[derive(Debug)]
pub(super) struct Sent {
    /// Packs that were sent.
    pub(super) packs: u64,
    /// Whether the first of them found nothing that waited: somebody perhaps had nothing to do.
    pub(super) found_empty: bool,
    /// Whether nothing is left to be sent.
    pub(super) is_all: bool,
    /// What kept the others from being sent.
    pub(super) trouble: Option<workqueue::Error>,
}

/// Sends as many as are wanted, in portions of at most [`MOST_AT_ONCE`] and about 4 MiB. What was taken and could not be sent stays in
/// `held`, and goes first the next time.
pub(super) async fn send<L: Line + Send + Sync>(
    line: &mut L,
    held: &mut Vec<L::Pack>,
    wanted: u64,
) -> Result<Sent, Error> {
    let mut sent = Sent {
        packs: 0,
        found_empty: false,
        is_all: false,
        trouble: None,
    };
    while sent.packs < wanted && sent.trouble.is_none() {
        let missing = usize::try_from(wanted - sent.packs).unwrap_or(usize::MAX);
        let portion = missing.min(MOST_AT_ONCE);
        let mut bytes: usize = held.iter().map(L::size).sum();
        while held.len() < portion
            && bytes < PORTION
            && let Some(pack) = line.next().await?
        {
            bytes += L::size(&pack);
            held.push(pack);
        }
        if held.is_empty() {
            sent.is_all = true;
            break;
        }
        match line.push(held.clone()).await {
            Ok(found_empty) => {
                sent.found_empty |= found_empty && sent.packs == 0;
                sent.packs += held.len() as u64;
                held.clear();
            }
            Err(error) => sent.trouble = Some(error),
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Packs from this number on are large.
    const LARGE: u32 = 10_000;

    /// So many packs, and the portions in which they were sent; the portion of this number is refused once.
    #[derive(Default)]
    struct Sink {
        packs: std::ops::Range<u32>,
        portions: Mutex<Vec<Vec<u32>>>,
        refused: Mutex<Option<usize>>,
    }

    impl Line for Sink {
        type Pack = u32;

        fn size(pack: &u32) -> usize {
            if *pack < LARGE { 1 } else { PORTION / 4 }
        }

        async fn next(&mut self) -> Result<Option<u32>, Error> {
            Ok(self.packs.next())
        }

        async fn push(&self, packs: Vec<u32>) -> Result<bool, workqueue::Error> {
            let mut portions = self.portions.lock().unwrap();
            let mut refused = self.refused.lock().unwrap();
            if *refused == Some(portions.len()) {
                *refused = None;
                let what = "on purpose".into();
                return Err(workqueue::Error::Invalid { what });
            }
            portions.push(packs);
            Ok(true)
        }
    }

    #[tokio::test]
    async fn as_many_as_are_wanted_are_sent_however_few_go_at_once() {
        let mut sink = Sink {
            packs: 0..1000,
            ..Sink::default()
        };
        let mut held = Vec::new();
        for (wanted, packs, is_all) in [(300, 300, false), (600, 600, false), (600, 100, true)] {
            let sent = send(&mut sink, &mut held, wanted).await.unwrap();
            assert_eq!((sent.packs, sent.is_all), (packs, is_all));
            assert!(sent.found_empty);
        }
        let portions = sink.portions.into_inner().unwrap();
        assert!(portions.iter().all(|it| it.len() <= MOST_AT_ONCE));
        assert!(portions.concat().into_iter().eq(0..1000));
    }

    #[tokio::test]
    async fn of_large_packs_few_go_at_once() {
        let packs = LARGE..LARGE + 10;
        let mut sink = Sink {
            packs: packs.clone(),
            ..Sink::default()
        };
        let sent = send(&mut sink, &mut Vec::new(), 300).await.unwrap();
        assert_eq!((sent.packs, sent.is_all), (10, true));
        let portions = sink.portions.into_inner().unwrap();
        let lengths: Vec<_> = portions.iter().map(Vec::len).collect();
        assert_eq!(lengths, [4, 4, 2]);
        assert!(portions.concat().into_iter().eq(packs));
    }

    #[tokio::test]
    async fn what_could_not_be_sent_is_sent_the_next_time() {
        let mut sink = Sink {
            packs: 0..200,
            refused: Mutex::new(Some(1)),
            ..Sink::default()
        };
        let mut held = Vec::new();
        let sent = send(&mut sink, &mut held, 200).await.unwrap();
        assert!(sent.trouble.is_some() && !sent.is_all);
        assert_eq!(sent.packs, MOST_AT_ONCE as u64);
        let again = send(&mut sink, &mut held, 300).await.unwrap();
        assert!(again.trouble.is_none() && again.is_all);
        let portions = sink.portions.into_inner().unwrap();
        assert!(portions.concat().into_iter().eq(0..200));
    }
}
