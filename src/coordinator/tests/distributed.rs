//! Coordinators that need each other.

use super::cluster::{Cluster, ClusterOptions, ROWS, TIMEOUT, address};
use crate::coordinator::unacknowledged::MAX_UNACKNOWLEDGED;
use crate::coordinator::{ConsistencyLevel, CoordinatorError};
use crate::kit::network::{Delivery, Sent};
use crate::model::key::RowKey;
use crate::model::mutation::MutationBuilder;
use crate::model::slice::Slice;
use crate::net::Verb;
use crate::replica::tests::ENDLESS;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

use ConsistencyLevel::{All, Any, One, Quorum};

fn lose_all_to(place: usize) -> impl Fn(Sent) -> Delivery {
    move |sent| if sent.to == address(place) { Delivery::Never } else { Delivery::Once }
}

#[tokio::test(start_paused = true)]
async fn what_a_level_wrote_the_same_level_reads() {
    let cluster = Cluster::start(4, &ClusterOptions::default());
    for (at, level) in (1..).zip([Quorum, All]) {
        for place in 0..4 {
            let (column, at) = (format!("{level:?}{place}"), at * 10 + place as i64);
            cluster.write(place, &column, at, level).await.unwrap();
            for reader in 0..4 {
                let one = Slice::range(None, column.as_bytes(), column.as_bytes(), false, 1);
                let read = cluster.read(reader, "a", &one, level).await.unwrap();
                assert_eq!(read, format!("{column}={at}"), "by {reader}");
            }
        }
    }
    assert_eq!(cluster.columns(3), "", "it is no replica");
}

#[tokio::test(start_paused = true)]
async fn a_silent_replica_gets_a_hint_when_the_time_is_over() {
    let cluster = Cluster::start(3, &ClusterOptions::default());
    cluster.network.rule(lose_all_to(2));
    cluster.write(0, "c", 1, Quorum).await.unwrap();
    assert_eq!(cluster.hints(0, 2), 0);
    tokio::time::sleep(TIMEOUT + Duration::from_secs(1)).await;
    assert_eq!((cluster.hints(0, 1), cluster.hints(0, 2)), (0, 1));
    let began = Instant::now();
    let written = cluster.write(0, "d", 2, All).await;
    assert!(matches!(written, Err(CoordinatorError::TimedOut)));
    assert_eq!(began.elapsed(), TIMEOUT);
    assert_eq!(cluster.columns(1), "c=1 d=2", "a write that timed out may have happened");
    cluster.set_live(&[0, 1]);
    let written = cluster.write(0, "e", 3, All).await;
    assert!(matches!(written, Err(CoordinatorError::Unavailable)));
    assert_eq!(cluster.columns(1), "c=1 d=2", "nothing was sent");
}

#[tokio::test(start_paused = true)]
async fn what_a_silent_replica_has_to_acknowledge_is_bounded() {
    let cluster = Cluster::start(3, &ClusterOptions::default());
    cluster.network.rule(lose_all_to(2));
    let value = vec![b'v'; MAX_UNACKNOWLEDGED / 4];
    let large = |key: &str| {
        let mut builder = MutationBuilder::new(&cluster.schema, "Blog", key.as_bytes());
        builder.family(ROWS).insert((b"", b"c"), &value, 1);
        [builder.finish()]
    };
    for key in ["a1", "a2", "a3", "a4"] {
        cluster.write_all(0, &large(key), Quorum).await.unwrap();
    }
    assert_eq!((cluster.hints(0, 1), cluster.hints(0, 2)), (0, 0));
    cluster.network.take_sent();
    cluster.write(0, "c", 1, Quorum).await.unwrap();
    assert_eq!((cluster.hints(0, 1), cluster.hints(0, 2)), (0, 1), "at once");
    assert!(cluster.network.take_sent().iter().all(|sent| sent.to != address(2)));
    let written = cluster.write(0, "d", 2, All).await;
    assert!(matches!(written, Err(CoordinatorError::TimedOut)), "a hint does not count");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cluster.hints(0, 2), 6, "the time of the others is over as well");
    cluster.network.rule(|_| Delivery::Once);
    cluster.write(0, "e", 3, All).await.unwrap();
    assert_eq!(cluster.columns(2), "e=3");
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_enough_for_any() {
    let cluster = Cluster::start(4, &ClusterOptions::default());
    cluster.set_live(&[3]);
    assert!(matches!(cluster.write(3, "c", 1, One).await, Err(CoordinatorError::Unavailable)));
    cluster.write(3, "c", 1, Any).await.unwrap();
    assert_eq!([0, 1, 2].map(|target| cluster.hints(3, target)), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn replies_that_come_twice_count_once() {
    let cluster = Cluster::start(3, &ClusterOptions::default());
    cluster.network.rule(|sent| match sent {
        Sent { from, .. } if from == address(2) => Delivery::Never,
        Sent { verb: Verb::ReadResponse, .. } => Delivery::Twice,
        _ => Delivery::Once,
    });
    assert!(matches!(cluster.write(0, "c", 1, All).await, Err(CoordinatorError::TimedOut)));
    assert_eq!(cluster.columns(2), "c=1");
    let read = cluster.read(0, "a", &Slice::all(None), All).await;
    assert!(matches!(read, Err(CoordinatorError::TimedOut)));
}

/// A node whose disk stands still, and which therefore is as good as silent to itself.
fn stalled(speculative_percentile: Option<f64>) -> Cluster {
    let (runs_inline, rest) = (false, ClusterOptions::default());
    let cluster =
        Cluster::start(3, &ClusterOptions { runs_inline, speculative_percentile, ..rest });
    cluster.nodes[0].store.stall(true);
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_quorum_does_not_wait_for_a_stalled_disk_of_the_coordinator() {
    let cluster = stalled(Some(99.0));
    let began = Instant::now();
    // More than the pool for writes may have waiting.
    for at in 0..200 {
        cluster.write(0, "c", at, Quorum).await.unwrap();
    }
    let all = Slice::all(None);
    assert_eq!(cluster.read(0, "a", &all, Quorum).await.unwrap(), "c=199");
    assert_eq!(cluster.scan(0, 10, Quorum).await.unwrap(), ["a: c=199"]);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    cluster.nodes[0].store.stall(false);
}

#[tokio::test(start_paused = true)]
async fn reads_at_one_do_not_wait_for_a_stalled_disk_of_the_coordinator() {
    for (percentile, patience) in [(None, TIMEOUT / 2), (Some(99.0), Duration::from_millis(51))] {
        let cluster = stalled(percentile);
        for place in 1..3 {
            cluster.put(place, &cluster.insert("a", "c", 1));
        }
        let (all, key, coordinator) =
            (Slice::all(None), RowKey::from("a"), &cluster.nodes[0].coordinator);
        let began = Instant::now();
        // More than the replica has tickets.
        for _ in 0..3 {
            assert_eq!(cluster.read(0, "a", &all, One).await.unwrap(), "c=1");
        }
        assert_eq!(coordinator.count(ROWS, &key, None, One).await.unwrap(), 1);
        let keys = [key.clone(), RowKey::from("b")];
        let mut ticket = coordinator.ticket();
        let rows = coordinator.read_many(ROWS, &keys, &all, One, &mut ticket).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.count).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(cluster.scan(0, 10, One).await.unwrap(), ["a: c=1"]);
        // Counting may take as long as it is useful to wait.
        assert!(began.elapsed() <= patience * 8 + TIMEOUT / 2, "{:?}", began.elapsed());
        cluster.nodes[0].store.stall(false);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_disk_that_is_the_only_one_times_out() {
    let cluster = stalled(Some(99.0));
    cluster.set_live(&[0]);
    let (all, key, coordinator) =
        (Slice::all(None), RowKey::from("a"), &cluster.nodes[0].coordinator);
    let began = Instant::now();
    let read = cluster.read(0, "a", &all, One).await;
    assert!(matches!(read, Err(CoordinatorError::TimedOut)), "{read:?}");
    let mut ticket = coordinator.ticket();
    let read = coordinator.read_many(ROWS, std::slice::from_ref(&key), &all, One, &mut ticket);
    assert!(matches!(read.await, Err(CoordinatorError::TimedOut)));
    let counted = coordinator.count(ROWS, &key, None, One).await;
    assert!(matches!(counted, Err(CoordinatorError::TimedOut)), "{counted:?}");
    let scanned = cluster.scan(0, 10, One).await;
    assert!(matches!(scanned, Err(CoordinatorError::TimedOut)), "{scanned:?}");
    assert_eq!(began.elapsed(), TIMEOUT * 4);
    cluster.nodes[0].store.stall(false);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_stalled_disk_of_the_coordinator_is_written_when_it_goes_on() {
    let cluster = stalled(Some(99.0));
    // More than the pool for writes may have waiting.
    for at in 0..200 {
        let level = if at % 2 == 0 { Quorum } else { ConsistencyLevel::Zero };
        cluster.write(0, &format!("c{at:03}"), at, level).await.unwrap();
    }
    tokio::time::sleep(TIMEOUT * 2).await;
    cluster.nodes[0].store.stall(false);
    // The threads of the replica know no paused clock.
    tokio::time::resume();
    cluster.nodes[0].coordinator.drain().await;
    assert_eq!(cluster.nodes[0].store.stored(ROWS, "a").cells.len(), 200);
    assert_eq!(cluster.nodes[0].coordinator.stats().missed_writes, 0);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_stalled_disk_of_the_coordinator_is_bounded() {
    let cluster = stalled(Some(99.0));
    let value = vec![b'v'; MAX_UNACKNOWLEDGED / 4];
    for at in 0..140 {
        let mut builder = MutationBuilder::new(&cluster.schema, "Blog", b"a");
        let value: &[u8] = if at < 4 { &value } else { b"" };
        builder.family(ROWS).insert((b"", b"c"), value, at);
        cluster.write_all(0, &[builder.finish()], Quorum).await.unwrap();
    }
    tokio::time::sleep(TIMEOUT * 2).await;
    let missed = cluster.nodes[0].coordinator.stats().missed_writes;
    assert!((1..=140 - 128).contains(&missed), "{missed}");
    cluster.nodes[0].store.stall(false);
}

#[tokio::test(start_paused = true)]
async fn writes_that_the_coordinator_refuses_itself_are_counted() {
    let cluster = Cluster::start(3, &ClusterOptions::default());
    cluster.nodes[0].store.refuses.store(true, Ordering::SeqCst);
    cluster.write(0, "c", 1, Quorum).await.unwrap();
    assert_eq!(cluster.nodes[0].coordinator.stats().missed_writes, 1);
    cluster.write(0, "d", 2, ConsistencyLevel::Zero).await.unwrap();
    assert_eq!(cluster.nodes[0].coordinator.stats().missed_writes, 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_takes_longer_than_the_timeout_if_the_disk_of_the_coordinator_stalls() {
    let cluster = stalled(None);
    cluster.put(1, &cluster.insert("a", "c", 1));
    let all = Slice::all(None);
    for attempt in 0..3 {
        let began = Instant::now();
        let read = cluster.read(0, "a", &all, All).await;
        assert!(matches!(read, Err(CoordinatorError::TimedOut)), "{attempt} {read:?}");
        let scanned = cluster.scan(0, 10, All).await;
        assert!(matches!(scanned, Err(CoordinatorError::TimedOut)), "{attempt} {scanned:?}");
        let written = cluster.write(0, "c", 2, All).await;
        assert!(matches!(written, Err(CoordinatorError::TimedOut)), "{attempt} {written:?}");
        assert_eq!(began.elapsed(), TIMEOUT * 3);
    }
    cluster.nodes[0].store.stall(false);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_takes_no_repair_is_no_harm_if_the_others_are_enough() {
    let cluster = Cluster::start(3, &ClusterOptions::default());
    for place in 1..3 {
        cluster.put(place, &cluster.insert("a", "c", 1));
    }
    cluster.nodes[0].store.refuses.store(true, Ordering::SeqCst);
    let all = Slice::all(None);
    let read = cluster.read(0, "a", &all, All).await;
    assert!(matches!(read, Err(CoordinatorError::Failed(_))), "{read:?}");
    for place in 0..3 {
        assert_eq!(cluster.read(place, "a", &all, Quorum).await.unwrap(), "c=1");
    }
    cluster.nodes[0].store.refuses.store(false, Ordering::SeqCst);
    assert_eq!(cluster.read(0, "a", &all, Quorum).await.unwrap(), "c=1");
    assert_eq!(cluster.columns(0), "c=1");
}

#[tokio::test(start_paused = true)]
async fn a_read_at_one_asks_one() {
    let cluster = Cluster::start(4, &ClusterOptions::default());
    cluster.write(0, "c", 1, All).await.unwrap();
    cluster.network.take_sent();
    let all = Slice::all(None);
    assert_eq!(cluster.read(2, "a", &all, One).await.unwrap(), "c=1");
    assert_eq!(cluster.network.take_sent(), [], "it is a replica itself");
    assert_eq!(cluster.read(3, "a", &all, One).await.unwrap(), "c=1");
    let verbs: Vec<Verb> = cluster.network.take_sent().iter().map(|sent| sent.verb).collect();
    assert_eq!(verbs, [Verb::Read, Verb::ReadResponse]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_replica_does_not_show_as_long_as_there_are_others() {
    let options =
        ClusterOptions { speculative_percentile: Some(99.0), ..ClusterOptions::default() };
    let cluster = Cluster::start(4, &options);
    cluster.write(0, "c", 1, All).await.unwrap();
    let slow = Duration::from_secs(5);
    for place in 0..3 {
        cluster.network.rule(move |sent| {
            let is_slow = sent.from == address(place) && sent.verb == Verb::ReadResponse;
            if is_slow { Delivery::After(slow) } else { Delivery::Once }
        });
        let began = Instant::now();
        for level in [One, Quorum] {
            let read = cluster.read(3, "a", &Slice::all(None), level).await.unwrap();
            assert_eq!((read.as_str(), cluster.scan(3, 9, level).await.unwrap().len()), ("c=1", 1));
        }
        assert!(began.elapsed() < slow, "{place}");
        let read = cluster.read(3, "a", &Slice::all(None), All).await.unwrap();
        assert!(read == "c=1" && began.elapsed() >= slow, "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_silent_in_the_second_round_is_replaced() {
    let options =
        ClusterOptions { speculative_percentile: Some(99.0), ..ClusterOptions::default() };
    let cluster = Cluster::start(4, &options);
    cluster.write(0, "c", 1, All).await.unwrap();
    for silent in 0..2 {
        cluster.put(0, &cluster.insert("a", "c", 2 + silent as i64));
        let (began, latency) = (Instant::now(), Duration::from_secs(1));
        // The first round is so slow that everybody is asked, and two answer it.
        cluster.network.rule(move |sent| match sent {
            _ if began.elapsed() < latency => Delivery::After(latency / 2),
            Sent { to, verb: Verb::Read, .. } if to == address(silent) => Delivery::Never,
            _ => Delivery::Once,
        });
        cluster.read(3, "a", &Slice::all(None), Quorum).await.unwrap();
        assert!(began.elapsed() < latency * 2, "{silent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_scan_repairs_its_rows_at_once() {
    let cluster = Cluster::start(3, &ClusterOptions::default());
    let rows = 400;
    for row in 0..rows {
        cluster.put(0, &cluster.insert(&format!("a{row:03}"), "c", 1));
    }
    let latency = Duration::from_millis(50);
    cluster.network.rule(move |_| Delivery::After(latency));
    let began = Instant::now();
    let scanned = cluster.scan(0, rows, Quorum).await.unwrap();
    assert_eq!(scanned.len(), rows);
    assert!(began.elapsed() < latency * 10, "{:?}", began.elapsed());
    assert_eq!(cluster.nodes[1].store.stored(ROWS, "a399").cells.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_counts_once_towards_its_size() {
    let options = ClusterOptions { max_answer_bytes: 600, ..ClusterOptions::default() };
    let cluster = Cluster::start(3, &options);
    let columns = "c".repeat(200);
    cluster.write(0, &columns, 1, All).await.unwrap();
    let all = Slice::all(None);
    assert!(cluster.read(0, "a", &all, Quorum).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn replicas_are_compared_in_the_background_although_one_is_silent() {
    for (silent, percentile) in [(2, None), (0, Some(99.0)), (1, Some(99.0)), (2, Some(99.0))] {
        let speculative_percentile = percentile;
        let options =
            ClusterOptions { repair_chance: 1.0, speculative_percentile, ..Default::default() };
        let cluster = Cluster::start(4, &options);
        cluster.network.rule(lose_all_to(silent));
        let others: Vec<usize> = (0..3).filter(|place| *place != silent).collect();
        cluster.put(others[0], &cluster.insert("a", "c", 1));
        cluster.read(3, "a", &Slice::all(None), One).await.unwrap();
        tokio::time::sleep(TIMEOUT + Duration::from_secs(1)).await;
        assert_eq!(cluster.columns(others[1]), "c=1", "{silent} is silent");
    }
}

#[tokio::test(start_paused = true)]
async fn rounds_that_are_over_take_no_room() {
    let options = ClusterOptions { max_answer_bytes: 1000, ..ClusterOptions::default() };
    let cluster = Cluster::start(4, &options);
    let columns = "c".repeat(200);
    cluster.write(0, &columns, 1, All).await.unwrap();
    cluster.put(1, &cluster.insert("a", &columns, 2));
    // The data of one replica, then that of two.
    assert!(cluster.read(3, "a", &Slice::all(None), Quorum).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn pieces_that_are_too_large_together_are_read_one_by_one() {
    let options = ClusterOptions {
        max_answer_bytes: 2500,
        replication_factor: 1,
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(4, &options);
    let column = "c".repeat(200);
    let keys = ["a", "c1", "c2", "c3", "d1", "d2", "d3", "e1", "e2", "e3"];
    let rows = keys.map(|key| cluster.insert(key, &column, 1));
    cluster.write_all(0, &rows, All).await.unwrap();
    // What is wanted comes last.
    cluster.network.rule(|sent| match sent {
        Sent { from, .. } if from == address(2) => Delivery::After(Duration::from_secs(1)),
        _ => Delivery::Once,
    });
    let scanned = cluster.scan(0, 4, One).await.unwrap();
    assert!(scanned.iter().zip(keys).all(|(row, key)| row.starts_with(key)));
    assert_eq!(scanned.len(), 4);
    let refused = cluster.scan(0, 10, One).await;
    assert!(matches!(refused, Err(CoordinatorError::TooLarge(_))), "{refused:?}");
}

/// The first piece has one row, so that all the others are read at once, each for as many rows as
/// are wanted.
#[tokio::test(start_paused = true)]
async fn a_scan_is_not_too_large_if_its_answer_is_not() {
    for (replication_factor, level) in [(1, One), (3, One), (3, Quorum), (3, All)] {
        let max_answer_bytes = 40_000;
        let options = ClusterOptions { replication_factor, max_answer_bytes, ..Default::default() };
        let cluster = Cluster::start(5, &options);
        let column = "c".repeat(100);
        let mut keys = vec!["a".to_owned()];
        for piece in ["b1", "c1", "d1", "e1", "f1"] {
            keys.extend((0..20).map(|row| format!("{piece}{row:02}")));
        }
        let rows: Vec<_> = keys.iter().map(|key| cluster.insert(key, &column, 1)).collect();
        cluster.write_all(0, &rows, All).await.unwrap();
        for asked in 0..5 {
            // A row takes about 300 bytes of the answer.
            for wanted in [100_000, 101, 60, 21, 2] {
                let scanned = cluster.scan(asked, wanted, level).await;
                let scanned = scanned.unwrap_or_else(|error| {
                    panic!("{wanted} rows of {asked} at {level:?}: {error}")
                });
                assert_eq!(scanned.len(), wanted.min(keys.len()));
            }
        }
    }
}

/// All rows are in one piece, of which each replica sends a page.
#[tokio::test(start_paused = true)]
async fn pages_that_are_too_large_together_are_read_by_fewer_rows() {
    let options = ClusterOptions { max_answer_bytes: 40_000, ..Default::default() };
    let cluster = Cluster::start(4, &options);
    let column = "c".repeat(100);
    let keys: Vec<String> = (0..100).map(|row| format!("c1{row:02}")).collect();
    let rows: Vec<_> = keys.iter().map(|key| cluster.insert(key, &column, 1)).collect();
    cluster.write_all(0, &rows, All).await.unwrap();
    for asked in 0..4 {
        for level in [One, Quorum, All] {
            let scanned = cluster.scan(asked, 100_000, level).await.unwrap();
            let found: Vec<&str> = scanned.iter().map(|row| &row[..4]).collect();
            assert_eq!(found, keys, "of {asked} at {level:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_needs_no_disk_if_a_replica_has_the_write() {
    let options = ClusterOptions { hints_wait_for_sync: true, ..ClusterOptions::default() };
    let cluster = Cluster::start(4, &options);
    cluster.set_live(&[0, 1, 3]);
    cluster.write(3, "c", 1, Any).await.unwrap();
    assert_eq!(cluster.columns(0), "c=1");
    cluster.nodes[0].store.refuses.store(true, Ordering::SeqCst);
    cluster.set_live(&[0]);
    let began = Instant::now();
    let hints = std::sync::Arc::clone(&cluster.nodes[0].hints);
    let (written, ()) = tokio::join!(cluster.write(0, "d", 2, Any), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        hints.sync().unwrap();
    });
    written.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(1), "the hint had to be on disk");
}

#[tokio::test(start_paused = true)]
async fn what_is_unanswered_at_the_end_becomes_hints() {
    let cluster = Cluster::start(3, &ClusterOptions::default());
    cluster.network.rule(lose_all_to(2));
    cluster.write(0, "c", 1, Quorum).await.unwrap();
    cluster.nodes[0].messenger.give_up_all();
    assert_eq!((cluster.hints(0, 1), cluster.hints(0, 2)), (0, 1));
    assert_eq!(cluster.nodes[0].messenger.pending(), 0);
}

/// By the real clock: a paused one would run on while the threads of the replica are at work.
#[tokio::test]
async fn others_are_asked_for_what_this_node_cannot_read() {
    let cluster = Cluster::start(3, &ClusterOptions { runs_inline: false, ..Default::default() });
    cluster.write(0, "c", 1, All).await.unwrap();
    let store = &cluster.nodes[0].store;
    store.blocks.store(true, Ordering::SeqCst);
    store.panics.store(true, Ordering::SeqCst);
    let (all, coordinator) = (Slice::all(None), &cluster.nodes[0].coordinator);
    for level in [One, Quorum] {
        assert_eq!(cluster.read(0, "a", &all, level).await.unwrap(), "c=1");
        assert_eq!(cluster.scan(0, 10, level).await.unwrap(), ["a: c=1"]);
        let (key, mut ticket) = (RowKey::from("a"), coordinator.ticket());
        assert_eq!(coordinator.count(ROWS, &key, None, level).await.unwrap(), 1);
        let rows = coordinator.read_many(ROWS, &[key], &all, level, &mut ticket).await.unwrap();
        assert_eq!(rows[0].count, 1);
    }
    cluster.set_live(&[0]);
    let read = cluster.read(0, "a", &all, One).await;
    assert!(matches!(read, Err(CoordinatorError::Failed(_))), "{read:?}");
}

/// By the real clock, as above.
#[tokio::test]
async fn the_dynamic_snitch_hears_of_ranges_and_of_this_node_too() {
    let (runs_inline, has_dynamic_snitch) = (false, true);
    let options = ClusterOptions { runs_inline, has_dynamic_snitch, ..Default::default() };
    let cluster = Cluster::start(3, &options);
    cluster.write(0, "c", 1, All).await.unwrap();
    let (all, node) = (Slice::all(None), &cluster.nodes[0]);
    let heard = || {
        let snitch = node.coordinator.latencies.dynamic_snitch().unwrap();
        [0, 1, 2].map(|place| snitch.latencies(address(place)).len())
    };
    cluster.read(0, "a", &all, One).await.unwrap();
    assert_eq!(heard(), [0, 0, 0], "what is at hand is not measured");
    cluster.read(0, "a", &all, All).await.unwrap();
    assert_eq!(heard(), [1, 1, 1]);
    cluster.scan(0, 10, All).await.unwrap();
    let after_scan = heard();
    assert!(after_scan.iter().all(|count| *count > 1), "{after_scan:?}");
    let moment = Duration::from_millis(1);
    node.store.stall(true);
    let mut read = Box::pin(cluster.read(0, "a", &all, One));
    assert!(tokio::time::timeout(moment, &mut read).await.is_err());
    node.store.stall(false);
    read.await.unwrap();
    assert_eq!(heard()[0], after_scan[0] + 1, "it was queued");
    node.store.stall(true);
    let mut scan = Box::pin(cluster.scan(0, 10, One));
    assert!(tokio::time::timeout(moment, &mut scan).await.is_err());
    node.store.stall(false);
    scan.await.unwrap();
    assert_eq!(heard()[0], after_scan[0] + 2, "it was queued");
}

#[tokio::test(start_paused = true)]
async fn the_dynamic_snitch_hears_of_a_disk_that_stands_still() {
    let (runs_inline, has_dynamic_snitch) = (false, true);
    let options = ClusterOptions { runs_inline, has_dynamic_snitch, ..Default::default() };
    let cluster = Cluster::start(3, &options);
    let (all, node) = (Slice::all(None), &cluster.nodes[0]);
    node.store.stall(true);
    let snitch = node.coordinator.latencies.dynamic_snitch().unwrap();
    cluster.read(0, "a", &all, One).await.unwrap();
    assert_eq!(snitch.latencies(address(0)), [TIMEOUT / 2]);
    let read = cluster.read(0, "a", &all, All).await;
    assert!(matches!(read, Err(CoordinatorError::TimedOut)), "{read:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(snitch.latencies(address(0)), [TIMEOUT / 2, TIMEOUT]);
    node.store.stall(false);
}

#[tokio::test(start_paused = true)]
async fn an_own_read_that_takes_long_ends_when_others_have_answered() {
    let (runs_inline, speculative_percentile) = (false, Some(99.0));
    let options = ClusterOptions { runs_inline, speculative_percentile, ..Default::default() };
    let cluster = Cluster::start(3, &options);
    for node in &cluster.nodes[1..] {
        node.store.ends.store(true, Ordering::SeqCst);
    }
    cluster.read(0, ENDLESS, &Slice::all(None), Quorum).await.unwrap();
    while cluster.nodes[0].store.running.load(Ordering::SeqCst) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Stretches that a node reads together have other replicas, each its own.
#[tokio::test]
async fn what_this_node_cannot_scan_is_asked_of_those_who_have_it() {
    let (replication_factor, runs_inline) = (2, false);
    let options = ClusterOptions { replication_factor, runs_inline, ..Default::default() };
    let cluster = Cluster::start(3, &options);
    let keys = ["a", "b1", "c1", "d1"];
    let rows = keys.map(|key| cluster.insert(key, "c", 1));
    cluster.write_all(0, &rows, All).await.unwrap();
    let store = &cluster.nodes[0].store;
    store.blocks.store(true, Ordering::SeqCst);
    store.panics.store(true, Ordering::SeqCst);
    let expected = keys.map(|key| format!("{key}: c=1"));
    assert_eq!(cluster.scan(0, 10, One).await.unwrap(), expected);
    assert_eq!(cluster.scan(0, 3, One).await.unwrap(), expected[..3]);
    cluster.set_live(&[0, 1]);
    let scanned = cluster.scan(0, 10, One).await;
    assert!(matches!(scanned, Err(CoordinatorError::Failed(_))), "{scanned:?}");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_sent_is_found_before_any_was() {
    let cluster = Cluster::start(3, &ClusterOptions::default());
    let mut nameless = MutationBuilder::new(&cluster.schema, "Blog", b"\xff");
    nameless.family(ROWS).insert((b"", b"c"), b"", 1);
    let batch = [cluster.insert("a", "c", 1), nameless.finish()];
    let written = cluster.write_all(0, &batch, Quorum).await;
    assert!(matches!(written, Err(CoordinatorError::Unsendable(_))), "{written:?}");
    assert_eq!(cluster.network.take_sent().len(), 0);
    assert_eq!([0, 1, 2].map(|place| cluster.columns(place)), ["", "", ""]);
}
