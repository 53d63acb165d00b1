//! Trees that are compared with nodes of 0.6.

use super::*;
use crate::net::bodies::{TreeRequest, TreeResponse};
use crate::repair::anti_entropy::{FamilyRepair, RepairScope};
use crate::repair::merkle::{MerkleTree, java};
use crate::repair::original::trees::build;
use crate::repair::{OperationReport, Wish};

static GO_ON: AtomicBool = AtomicBool::new(false);

/// The tree of a peer that has these rows.
fn peer_tree(keys: &[&str]) -> Vec<u8> {
    let storage = open(&SimFileSystem::new(9));
    for key in keys {
        insert(&storage, "Blog", ROWS, key, b"value");
    }
    java::encode(&build(&storage, ROWS, &GO_ON).unwrap()).unwrap()
}

fn fill(scene: &Scene, keys: &[&str]) {
    for key in keys {
        insert(&scene.storage, "Blog", ROWS, key, b"value");
    }
}

fn ask_for_tree(scene: &Scene) {
    let body = TreeRequest { family: ROWS }.encode(scene.storage.schema()).unwrap();
    scene.say(Verb::TreeRequest, &[], &body);
}

fn send_tree(scene: &Scene, tree: &[u8]) {
    let body = TreeResponse { family: ROWS, tree }.encode(scene.storage.schema()).unwrap();
    scene.say(Verb::TreeResponse, &[], &body);
}

async fn hear_tree(scene: &mut Scene) -> MerkleTree {
    let (verb, body, _) = scene.hear().await;
    assert_eq!(verb, Verb::TreeResponse);
    let response = TreeResponse::decode(&body, scene.storage.schema()).unwrap();
    assert_eq!(response.family, ROWS);
    java::decode(response.tree, Partitioner::Random).unwrap()
}

/// Takes a session of one family that has these rows.
async fn take_rows(scene: &mut Scene, keys: &[&str]) {
    let (verb, body, _) = scene.hear().await;
    assert_eq!(verb, Verb::StreamInitiate);
    let files = StreamFile::decode(&body).unwrap();
    assert_eq!(files.len(), 3 * usize::from(!keys.is_empty()));
    if files.is_empty() {
        return;
    }
    let bytes = super::outgoing::take_all(scene, &files).await;
    assert_eq!(super::outgoing::keys_of(&bytes[2]), keys);
}

#[tokio::test(start_paused = true)]
async fn who_asks_gets_the_tree_of_what_is_in_memory_too() {
    let mut scene = Scene::new();
    fill(&scene, &["a", "b"]);
    ask_for_tree(&scene);
    let tree = hear_tree(&mut scene).await;
    let expected = peer_tree(&["a", "b"]);
    assert_eq!(java::encode(&tree).unwrap(), expected);
    // The tree of the neighbour is the same.
    send_tree(&scene, &expected);
    assert!(scene.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_gets_the_rows_of_ranges_that_differ() {
    let mut scene = Scene::new();
    fill(&scene, &["a", "b", "c", "d", "e"]);
    insert(&scene.storage, "Blog", FamilyId(1), "of another family", b"value");
    ask_for_tree(&scene);
    hear_tree(&mut scene).await;
    send_tree(&scene, &peer_tree(&["a", "b", "d", "e"]));
    take_rows(&mut scene, &["c"]).await;
    // What it alone has it sends itself: here is nothing in that range.
    ask_for_tree(&scene);
    hear_tree(&mut scene).await;
    send_tree(&scene, &peer_tree(&["a", "b", "c", "d", "e", "x"]));
    take_rows(&mut scene, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_nodes_of_0_6_cannot_have_are_in_no_tree() {
    let mut scene = Scene::new();
    fill(&scene, &["a"]);
    insert(&scene.storage, "Blog", ROWS, b"\xff", b"value");
    ask_for_tree(&scene);
    hear_tree(&mut scene).await;
    send_tree(&scene, &peer_tree(&["a"]));
    assert!(scene.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_comes_unasked_is_answered() {
    let mut scene = Scene::new();
    fill(&scene, &["a"]);
    send_tree(&scene, &peer_tree(&["a"]));
    hear_tree(&mut scene).await;
    assert!(scene.is_silent().await);
    // The request comes behind the tree of one who was asked as well: one tree is enough.
    send_tree(&scene, &peer_tree(&["b"]));
    ask_for_tree(&scene);
    hear_tree(&mut scene).await;
    take_rows(&mut scene, &["a"]).await;
    assert!(scene.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_tree_or_of_no_neighbour_is_not_taken() {
    let mut scene = Scene::new();
    send_tree(&scene, b"no tree");
    scene.say(Verb::TreeResponse, &[], b"nothing of the kind");
    scene.say(Verb::TreeRequest, &[], b"nothing of the kind");
    scene.known.0.lock().unwrap().members.ring.remove(ORIGINAL.into());
    send_tree(&scene, &peer_tree(&["a"]));
    ask_for_tree(&scene);
    assert!(scene.is_silent().await);
}

async fn ended(scene: &Scene) -> OperationReport {
    loop {
        let report = scene.operations.report().unwrap();
        if report.outcome.is_some() {
            return report;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn begin_repair(scene: &Scene) {
    let wish = Wish::Repair(vec![ROWS], RepairScope::All);
    scene.operations.begin(wish, &scene.host()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repair_is_done_when_both_have_what_they_lacked() {
    let mut scene = Scene::new();
    fill(&scene, &["a", "b"]);
    begin_repair(&scene);
    let (verb, body, _) = scene.hear().await;
    assert_eq!(verb, Verb::TreeRequest);
    assert_eq!(body, TreeRequest { family: ROWS }.encode(scene.storage.schema()).unwrap());
    hear_tree(&mut scene).await;
    let table = peer_table(&["z"]);
    send_tree(&scene, &peer_tree(&["a", "z"]));
    take_rows(&mut scene, &["b"]).await;
    assert!(scene.operations.report().unwrap().outcome.is_none());
    scene.announce("Blog", &table.files);
    scene.hear().await;
    for bytes in &table.bytes {
        scene.send_file(bytes).await;
        assert!(scene.hear_finished().await.is_received);
    }
    let report = ended(&scene).await;
    report.outcome.unwrap().unwrap();
    let [FamilyRepair { collected, rows_differed, .. }] = &report.repaired[..] else { panic!() };
    assert_eq!(*rows_differed, 1);
    assert_eq!((collected[&ORIGINAL.into()].0, collected[&OURS.into()].0), (1, 1));
    assert_eq!(keys(&scene.storage, ROWS), ["a", "b", "z"]);

    // Where nothing differs nothing is waited for.
    begin_repair(&scene);
    scene.hear().await;
    hear_tree(&mut scene).await;
    let own = build(&scene.storage, ROWS, &GO_ON).unwrap();
    send_tree(&scene, &java::encode(&own).unwrap());
    ended(&scene).await.outcome.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repair_ends_when_a_replica_dies() {
    let mut scene = Scene::new();
    begin_repair(&scene);
    scene.hear().await;
    hear_tree(&mut scene).await;
    scene.die();
    let why = ended(&scene).await.outcome.unwrap().unwrap_err();
    assert!(why.contains("it is down"), "{why}");
}
