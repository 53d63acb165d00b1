//! What does not fit into a message between nodes.

use super::cluster::{Cluster, ClusterOptions, ROWS, address};
use crate::coordinator::{ConsistencyLevel, CoordinatorError};
use crate::model::mutation::{MutationBuilder, RowMutation};

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
