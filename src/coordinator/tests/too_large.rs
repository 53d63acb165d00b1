//! What does not fit into a message between nodes.

use super::cluster::{Cluster, ClusterOptions, ROWS, address};
use crate::coordinator::{ConsistencyLevel, CoordinatorError};
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};

use crate::model::slice::Slice;
use tokio::time::Instant;

use ConsistencyLevel::{All, Any, One, Quorum, Zero};

/// What a message can hold here, in bytes.
const LIMIT: usize = 2000;

fn cluster(count: usize, replication_factor: usize) -> Cluster {
    let options =
        ClusterOptions { replication_factor, max_body_bytes: LIMIT, ..ClusterOptions::default() };
    Cluster::start(count, &options)
}

/// A row of columns that have values of so many bytes.
fn row(cluster: &Cluster, key: &str, columns: &[&str], value: usize) -> RowMutation {
    let mut builder = MutationBuilder::new(&cluster.schema, "Blog", key.as_bytes());
    builder.family(ROWS);
    for column in columns {
        builder.insert((b"", column.as_bytes()), &vec![b'v'; value], 1);
    }
    builder.finish()
}

#[tokio::test(start_paused = true)]
async fn a_write_that_no_message_holds_is_refused_before_anything_is_sent() {
    let cluster = cluster(4, 3);
    let batch = [row(&cluster, "a", &["c"], 10), row(&cluster, "a1", &["d"], LIMIT)];
    for live in [[0, 1, 2, 3].as_slice(), &[0, 3]] {
        cluster.set_live(live);
        for (place, level) in [(0, One), (0, Any), (0, Zero), (3, Any), (3, Zero)] {
            let written = cluster.write_all(place, &batch, level).await;
            let Err(CoordinatorError::Unsendable(why)) = written else { panic!("{written:?}") };
            assert!(why.contains(&format!("the {LIMIT} that a message")), "{why}");
            assert!(why.contains("Write fewer columns at a time"), "{why}");
        }
    }
    assert_eq!(cluster.network.take_sent(), []);
    assert_eq!([0, 1, 2].map(|place| cluster.columns(place)), ["", "", ""]);
    assert_eq!([1, 2].map(|target| cluster.hints(0, target)), [0, 0]);
    cluster.set_live(&[0, 1, 2, 3]);
    cluster.write_all(3, &[row(&cluster, "a", &["c"], LIMIT - 200)], All).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_only_this_node_keeps_may_be_larger_than_a_message() {
    for count in [1, 2] {
        let cluster = cluster(count, 1);
        let row = row(&cluster, "a", &["c"], LIMIT);
        cluster.write_all(0, std::slice::from_ref(&row), Quorum).await.unwrap();
        assert_eq!(cluster.nodes[0].store.stored(ROWS, "a").cells.len(), 1);
        assert!(cluster.network.take_sent().iter().all(|sent| sent.to != address(1)));
    }
}

/// A refusal that names the limit.
fn is_refused<T: std::fmt::Debug>(read: &Result<T, CoordinatorError>) -> bool {
    let limit = format!("the {LIMIT} that a message between nodes can hold: ask for fewer columns");
    matches!(read, Err(CoordinatorError::TooLarge(why)) if why.contains(&limit))
}

#[tokio::test(start_paused = true)]
async fn a_read_that_no_message_answers_is_refused_at_once() {
    let mut cluster = cluster(4, 3);
    let names: Vec<String> = (10..34).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for place in 0..3 {
        cluster.put(place, &row(&cluster, "a", &names, 100));
    }
    let (all, began) = (Slice::all(None), Instant::now());
    for level in [One, Quorum, All] {
        let read = cluster.read(3, "a", &all, level).await;
        assert!(is_refused(&read), "{level:?} {read:?}");
        let scanned = cluster.scan(3, 9, level).await;
        assert!(is_refused(&scanned), "{level:?} {scanned:?}");
        let few = Slice::range(None, b"", b"", false, 10);
        assert!(cluster.read(3, "a", &few, level).await.is_ok());
        assert!(cluster.read(0, "a", &all, level).await.is_ok(), "digests are short");
        let (coordinator, key) = (&cluster.nodes[3].coordinator, RowKey::from("a"));
        assert_eq!(coordinator.count(ROWS, &key, None, level).await.unwrap(), 24, "{level:?}");
    }
    assert!(cluster.scan(0, 9, One).await.is_ok(), "nothing is sent for it");
    assert_eq!(began.elapsed().as_secs(), 0);
    cluster.refuses = false;
    cluster.set_live(&[0, 1, 2, 3]);
    let read = cluster.read(3, "a", &all, One).await;
    assert!(matches!(read, Err(CoordinatorError::TimedOut)), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn rows_that_no_message_holds_together_are_read_by_fewer() {
    let cluster = cluster(4, 3);
    let keys = ["a0", "a1", "a2", "a3", "a4"];
    for key in keys {
        cluster.write_all(0, &[row(&cluster, key, &["c"], LIMIT / 3)], All).await.unwrap();
    }
    for place in [0, 3] {
        let scanned = cluster.scan(place, 9, Quorum).await.unwrap();
        assert_eq!(scanned.len(), keys.len(), "by {place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repair_that_no_message_holds_is_sent_in_parts() {
    let cluster = cluster(3, 3);
    let names: Vec<String> = (10..34).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    cluster.put(0, &row(&cluster, "a", &names, 100));
    let (all, began) = (Slice::all(None), Instant::now());
    cluster.read(0, "a", &all, All).await.unwrap();
    for place in 1..3 {
        assert_eq!(cluster.columns(place), cluster.columns(0));
    }
    cluster.put(0, &row(&cluster, "a1", &["huge", "small"], 10));
    cluster.put(0, &row(&cluster, "a1", &["huge"], LIMIT));
    let read = cluster.read(0, "a1", &all, All).await.unwrap();
    assert!(read.contains("huge=vvvvvvvvvvv"), "{read}");
    assert_eq!(cluster.nodes[1].store.stored(ROWS, "a1").cells.len(), 1, "the rest can be sent");
    assert_eq!(began.elapsed().as_secs(), 0);
}
