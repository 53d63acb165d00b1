//! Deliveries to a target whose answers the test chooses.

use super::*;
use crate::base::clock::Clock;
use crate::base::context::RequestContext;
use crate::base::worker::Spawner;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::kit::network::{Arrivals, Delivery, Network};
use crate::model::comparator::Comparator;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId};
use crate::net::Verb;
use crate::net::bodies;
use crate::net::message::Message;
use crate::replica::{HINT_SEGMENT_BYTES, HintOptions};
use crate::ring::Partitioner;
use std::sync::Mutex;
use std::thread::ThreadId;

const FAMILY: FamilyId = FamilyId(0);

const TIMEOUT: Duration = Duration::from_secs(10);

fn target() -> IpAddr {
    [10, 0, 0, 2].into()
}

/// Notes the threads that read the time of day, which reads and writes of hints do.
#[derive(Debug, Default)]
struct Watch {
    clock: ManualClock,
    threads: Mutex<Vec<ThreadId>>,
}

impl Clock for Watch {
    fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn coarse_millis(&self) -> u64 {
        self.threads.lock().unwrap().push(std::thread::current().id());
        self.clock.coarse_millis()
    }
}

struct Rig {
    schema: Arc<Schema>,
    clock: Arc<Watch>,
    hints: Arc<HintStore>,
    network: Arc<Network>,
    messenger: Arc<Messenger>,
    handoff: Arc<Handoff>,
    arrivals: Mutex<Arrivals<Arc<[u8]>>>,
    /// Row keys of mutations that the target never acknowledges.
    refused: Mutex<BTreeSet<String>>,
    /// Row keys of acknowledged mutations, in order.
    taken: Mutex<Vec<String>>,
}

impl Rig {
    fn new() -> Self {
        Self::with(Spawner::Inline)
    }

    fn with(spawner: Spawner) -> Self {
        let family = |(keyspace, name): (&str, &str)| {
            Arc::new(ColumnFamilySchema::new(
                keyspace.to_owned(),
                name.to_owned(),
                ColumnFamilyKind::Standard { columns: Comparator::Bytes },
            ))
        };
        let families = [("Blog", "Authors"), ("system", "LocationInfo")];
        let schema = Arc::new(Schema::new(families.map(family)));
        let (clock, day) = (Arc::new(Watch::default()), Duration::from_secs(86400));
        let options = HintOptions {
            directory: "/hints".into(),
            max_age: day,
            max_bytes_per_target: 1 << 30,
            segment_bytes: HINT_SEGMENT_BYTES,
            schema: Arc::clone(&schema),
        };
        let (fs, rng) = (Arc::new(SimFileSystem::new(1)), fastrand::Rng::with_seed(1));
        let hints = HintStore::open(fs, Arc::<Watch>::clone(&clock), rng, options).unwrap();
        let (hints, network) = (Arc::new(hints), Arc::<Network>::default());
        let arrivals = Mutex::new(network.messages_to(&[target()]));
        let (time, transport) = (Arc::<Watch>::clone(&clock), Arc::clone(&network) as _);
        let messenger = Messenger::new([10, 0, 0, 1].into(), TIMEOUT, time, transport);
        let messenger = Arc::new(messenger);
        let handoff = Handoff::new(
            Arc::clone(&hints),
            Arc::clone(&schema),
            Arc::clone(&messenger),
            Duration::ZERO,
            spawner,
        );
        let (refused, taken) = Default::default();
        let rig =
            Self { schema, clock, hints, network, messenger, handoff, arrivals, refused, taken };
        rig.takes(0);
        rig
    }

    /// Delivers this many mutations to the target from now on, and loses what follows.
    fn takes(&self, mut count: usize) {
        self.network.rule(move |_| {
            let delivery = if count > 0 { Delivery::Once } else { Delivery::Never };
            count = count.saturating_sub(1);
            delivery
        });
    }

    fn taken(&self) -> Vec<String> {
        self.taken.lock().unwrap().clone()
    }

    fn keep(&self, number: usize) {
        self.hints.store(target(), &self.mutation(number)).unwrap();
    }

    fn mutation(&self, number: usize) -> RowMutation {
        let key = format!("{number:03}");
        let mut builder = MutationBuilder::new(&self.schema, "Blog", key.as_bytes());
        builder.family(FAMILY).insert((b"", b"name"), &[7; 10_000], 1);
        builder.finish()
    }

    /// Lets the delivery go on until it waits for nothing but the target.
    async fn settle(&self) {
        loop {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let mut arrivals = self.arrivals.lock().unwrap();
            if arrivals.is_empty() {
                return;
            }
            while let Ok(bytes) = arrivals.try_recv() {
                let message = Message::decode(&bytes).unwrap();
                assert_eq!(message.verb, Verb::Mutation);
                let mutation =
                    bodies::decode_mutation(message.body, &self.schema, &RequestContext::default())
                        .unwrap();
                let key = mutation.key.to_string();
                if !mutation.families.is_empty() {
                    if self.refused.lock().unwrap().contains(&key) {
                        continue;
                    }
                    self.taken.lock().unwrap().push(key);
                }
                let reply = Message::new(message.id.clone(), target(), Verb::ReadResponse, b"");
                self.messenger.on_response(&reply);
            }
        }
    }

    async fn pass(&self, time: Duration) {
        self.clock.clock.advance(time);
        self.messenger.expire();
        self.settle().await;
    }

    fn left(&self) -> u64 {
        self.hints.targets().first().map_or(0, |target| target.hints)
    }

    fn is_due(&self) -> bool {
        self.handoff.is_due(target(), self.messenger.now())
    }
}

#[tokio::test]
async fn hints_go_out_in_their_order_and_a_batch_at_a_time() {
    let rig = Rig::new();
    (0..40).for_each(|number| rig.keep(number));
    assert!(rig.is_due());
    rig.takes(100);
    rig.handoff.begin(target());
    assert!(!rig.is_due(), "it is under way");
    rig.handoff.begin(target());
    rig.settle().await;
    let expected: Vec<String> = (0..40).map(|number| format!("{number:03}")).collect();
    assert_eq!(rig.taken(), expected);
    assert_eq!((rig.left(), rig.messenger.pending()), (0, 0));
    rig.keep(40);
    assert!(rig.is_due());
    rig.handoff.stop().await;
}

#[tokio::test]
async fn unacknowledged_hints_are_sent_again_after_a_pause() {
    let rig = Rig::new();
    (0..40).for_each(|number| rig.keep(number));
    rig.takes(20);
    rig.handoff.begin(target());
    rig.settle().await;
    let left = rig.left();
    assert!((20..40).contains(&left), "whole batches are done: {left}");
    // The rest of the batch, that again, and whether anything else is acknowledged.
    for _ in 0..3 {
        assert!(!rig.is_due(), "it is under way");
        rig.pass(TIMEOUT).await;
    }
    assert_eq!(rig.left(), left);
    assert!(!rig.is_due(), "it is left alone for a while");
    rig.pass(RETRY_AFTER).await;
    assert!(rig.is_due());
    rig.takes(100);
    rig.handoff.begin(target());
    rig.settle().await;
    assert_eq!(rig.left(), 0);
    let taken = rig.taken();
    assert!((0..40).all(|number| taken.contains(&format!("{number:03}"))));
    assert!(taken.len() < 60, "only one batch came twice: {}", taken.len());
}

#[tokio::test]
async fn hints_under_delivery_do_not_reach_a_later_family_of_the_name() {
    let rig = Rig::new();
    (0..3).for_each(|number| rig.keep(number));
    rig.handoff.begin(target());
    rig.settle().await;
    rig.schema.remove(FAMILY);
    rig.schema.insert(Arc::clone(rig.schema.family(FAMILY)));
    rig.hints.store(target(), &rig.mutation(3)).unwrap_err();
    rig.takes(100);
    rig.pass(TIMEOUT).await;
    assert_eq!((rig.taken(), rig.left()), (keys([]), 0));
}

fn keys(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("{number:03}")).collect()
}

#[tokio::test]
async fn refused_hints_do_not_hold_up_later_ones() {
    // One among others; a whole batch and more; the last one.
    for refused in [3..4, 0..30, 39..40] {
        let rig = Rig::new();
        (0..40).for_each(|number| rig.keep(number));
        rig.takes(1000);
        rig.refused.lock().unwrap().extend(keys(refused.clone()));
        rig.handoff.begin(target());
        rig.settle().await;
        for _ in 0..20 {
            rig.pass(TIMEOUT).await;
        }
        let others = (0..40).filter(|number| !refused.contains(number));
        assert_eq!(rig.taken(), keys(others), "each once, in order");
        assert_eq!(rig.left(), refused.len() as u64);
        // What comes later is delivered, too, and so are those when the node takes them.
        rig.keep(40);
        rig.pass(LONGEST_PAUSE).await;
        assert!(rig.is_due());
        rig.handoff.begin(target());
        rig.settle().await;
        for _ in 0..20 {
            rig.pass(TIMEOUT).await;
        }
        assert_eq!(rig.taken.lock().unwrap().last(), keys([40]).last());
        assert_eq!(rig.left(), refused.len() as u64);
        rig.refused.lock().unwrap().clear();
        rig.pass(LONGEST_PAUSE).await;
        rig.handoff.begin(target());
        rig.settle().await;
        assert_eq!(rig.left(), 0);
        let mut last = rig.taken.lock().unwrap().split_off(41 - refused.len());
        last.sort();
        assert_eq!(last, keys(refused));
    }
}

#[tokio::test]
async fn nothing_is_put_aside_for_a_node_that_acknowledges_nothing() {
    let rig = Rig::new();
    (0..40).for_each(|number| rig.keep(number));
    for _ in 0..5 {
        rig.handoff.begin(target());
        rig.settle().await;
        rig.pass(TIMEOUT).await;
        rig.pass(TIMEOUT).await;
        assert!(!rig.is_due());
        rig.pass(RETRY_AFTER).await;
        assert!(rig.is_due());
    }
    rig.takes(100);
    rig.handoff.begin(target());
    rig.settle().await;
    assert_eq!(rig.taken(), keys(0..40));
}

#[tokio::test]
async fn a_delivery_ends_with_the_node() {
    let rig = Rig::new();
    rig.keep(1);
    rig.handoff.begin(target());
    rig.settle().await;
    rig.handoff.stop().await;
    assert_eq!(rig.left(), 1);
}

#[tokio::test]
async fn a_slow_disk_of_hints_holds_up_no_other_work() {
    let rig = Rig::with(Spawner::Threads);
    (0..40).for_each(|number| rig.keep(number));
    rig.clock.threads.lock().unwrap().clear();
    rig.takes(1000);
    rig.refused.lock().unwrap().extend(keys([39]));
    rig.handoff.begin(target());
    while rig.handoff.lock().running.contains_key(&target()) {
        rig.settle().await;
        if rig.messenger.pending() > 0 {
            rig.pass(TIMEOUT).await;
        }
    }
    assert_eq!(rig.left(), 1);
    assert_eq!(rig.taken(), keys(0..39));
    let threads = rig.clock.threads.lock().unwrap();
    assert!(!threads.is_empty() && !threads.contains(&std::thread::current().id()));
}

#[tokio::test]
async fn an_interrupted_delivery_begins_again_without_a_pause() {
    let rig = Rig::new();
    (0..40).for_each(|number| rig.keep(number));
    rig.takes(20);
    rig.handoff.begin(target());
    rig.settle().await;
    assert!(!rig.is_due(), "it waits for acknowledgements");
    rig.handoff.interrupt(target());
    rig.settle().await;
    assert!(rig.is_due(), "nothing has to be waited for");
    rig.takes(100);
    rig.handoff.begin(target());
    rig.settle().await;
    assert_eq!(rig.left(), 0);
}

#[tokio::test]
async fn hints_for_nodes_outside_of_the_ring_are_kept_and_logged() {
    let token = |last: u8| Partitioner::Random.token(&[last]);
    let other = IpAddr::from([10, 0, 0, 3]);
    let both = {
        let mut both = TokenMetadata::single(token(2), target());
        both.insert(token(3), other);
        both
    };
    let rig = Rig::new();
    rig.keep(1);
    let hints = &rig.hints;
    rig.handoff.start(&both);
    assert_eq!(rig.handoff.strangers(&both), None);
    // It leaves.
    let without = TokenMetadata::single(token(3), other);
    rig.handoff.follow(&without);
    assert_eq!((hints.waiting(), rig.left()), (vec![(target(), target())], 1));
    let line = rig.handoff.strangers(&without).unwrap();
    assert!(line.contains("10.0.0.2 (1 hints, "), "{line}");
    // It is back.
    rig.handoff.follow(&both);
    assert_eq!(hints.waiting(), [(target(), target())]);
    // It moves, and the ring was not saved when it was back.
    rig.handoff.follow(&{
        let mut moved = without.clone();
        moved.insert(token(2), [10, 0, 0, 4].into());
        moved
    });
    assert_eq!(hints.waiting(), [(target(), IpAddr::from([10, 0, 0, 4]))]);
    rig.handoff.start(&both);
    assert_eq!(hints.waiting(), [(target(), target())]);
}
