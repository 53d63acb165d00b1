//! Files that nodes of 0.6 send.

use super::*;
use crate::net::bodies::StreamRequest;
use crate::repair::calls::WantedRange;
use crate::repair::original::AskOriginalError;
use crate::ring::TokenRange;
use crate::storage::engine::TakenIn;
use tokio::task::JoinHandle;

/// Has the node ask the peer for a range, and gives what it says.
fn fetch(scene: &Scene) -> JoinHandle<Result<TakenIn, AskOriginalError>> {
    let wanted = WantedRange {
        keyspace: "Blog".into(),
        start: "0".into(),
        end: (1_u128 << 126).to_string(),
        lost: Vec::new(),
        kept: vec![ORIGINAL.into()],
        from_all: false,
        accepts_loss: false,
    };
    let (operations, host) = (Arc::clone(&scene.operations), scene.host());
    tokio::spawn(async move {
        operations.originals().fetch_from(ORIGINAL.into(), "Blog", &[wanted], &*host).await
    })
}

/// Takes the answer to an announcement and sends all files.
async fn send_all(scene: &mut Scene, table: &PeerTable) {
    assert_eq!(scene.hear().await, (Verb::StreamInitiateDone, Vec::new(), Vec::new()));
    for (file, bytes) in table.files.iter().zip(&table.bytes) {
        scene.send_file(bytes).await;
        let StreamFile { path, length, .. } = file.clone();
        let told = StreamFinished { path, length, is_received: true };
        assert_eq!(scene.hear_finished().await, told);
    }
}

#[tokio::test(start_paused = true)]
async fn files_that_nobody_asked_for_become_rows() {
    let mut scene = Scene::new();
    let table = peer_table(&["a", "b", "c"]);
    scene.announce("Blog", &table.files);
    send_all(&mut scene, &table).await;
    assert_eq!(keys(&scene.storage, ROWS), ["a", "b", "c"]);
    assert!(scene.left_over().is_empty());
    // There is nothing to say to who has nothing.
    scene.announce("Blog", &[]);
    assert!(scene.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_is_here_when_all_files_are() {
    let mut scene = Scene::new();
    let fetched = fetch(&scene);
    let (verb, body, headers) = scene.hear().await;
    assert_eq!((verb, headers), (Verb::StreamRequest, Vec::new()));
    let range = TokenRange { start: Token::Random(0), end: Token::Random(1 << 126) };
    let (target, keyspace) = (OURS.into(), "Blog".into());
    let asked = StreamRequest { target, keyspace, ranges: vec![range] };
    assert_eq!(StreamRequest::decode(&body, Partitioner::Random).unwrap(), [asked]);
    // What comes of another keyspace is no answer.
    scene.announce("Other", &[]);
    let table = peer_table(&["a", "b"]);
    scene.announce("Blog", &table.files);
    send_all(&mut scene, &table).await;
    let taken = fetched.await.unwrap().unwrap();
    assert_eq!(taken, TakenIn { rows: 2, bytes: table.files[2].length });
    assert_eq!(keys(&scene.storage, ROWS), ["a", "b"]);

    let fetched = fetch(&scene);
    scene.hear().await;
    // Without the header, which nodes of 0.6 always send.
    scene.say(Verb::StreamInitiate, &[], &StreamFile::encode(&[]).unwrap());
    assert_eq!(fetched.await.unwrap().unwrap(), TakenIn::default());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_breaks_off_is_sent_again() {
    let mut scene = Scene::new();
    let table = peer_table(&["a", "b"]);
    scene.announce("Blog", &table.files);
    scene.hear().await;
    let mut is_first = true;
    for (file, bytes) in table.files.iter().zip(&table.bytes) {
        let wrong: [&[u8]; 2] = [&bytes[..bytes.len() - 1], &[&bytes[..], b"x"].concat()];
        for wrong in wrong {
            scene.send_file(wrong).await;
            let finished = scene.hear_finished().await;
            assert!(!finished.is_received && finished.path == file.path);
        }
        if std::mem::take(&mut is_first) {
            // One that comes in pieces, and slowly.
            let (mut writer, reader) = tokio::io::duplex(16);
            let slow = IncomingFile::new(bytes[..7].to_vec(), reader);
            let rest = bytes[7..].to_vec();
            tokio::spawn(async move {
                for byte in rest {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    tokio::io::AsyncWriteExt::write_u8(&mut writer, byte).await.unwrap();
                }
            });
            scene.operations.receive_file(ORIGINAL.into(), slow).await;
        } else {
            scene.send_file(bytes).await;
        }
        assert!(scene.hear_finished().await.is_received);
    }
    assert_eq!(keys(&scene.storage, ROWS), ["a", "b"]);
    assert!(scene.left_over().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_file_of_garbage_is_given_up() {
    let mut scene = Scene::new();
    let fetched = fetch(&scene);
    scene.hear().await;
    let table = peer_table(&["a"]);
    scene.announce("Blog", &table.files);
    scene.hear().await;
    for bytes in &table.bytes[..2] {
        scene.send_file(bytes).await;
        assert!(scene.hear_finished().await.is_received);
    }
    let garbage = vec![7; table.bytes[2].len()];
    for _ in 0..2 {
        scene.send_file(&garbage).await;
        assert!(!scene.hear_finished().await.is_received);
    }
    scene.send_file(&garbage).await;
    let error = fetched.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("cannot be taken") && error.contains("is damaged"), "{error}");
    // The session is over.
    scene.send_file(&table.bytes[2]).await;
    assert!(scene.is_silent().await);
    assert!(keys(&scene.storage, ROWS).is_empty() && scene.left_over().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_stands_still_is_given_up() {
    let mut scene = Scene::new();
    let table = peer_table(&["a"]);
    scene.announce("Blog", &table.files);
    scene.hear().await;
    let (writer, reader) = tokio::io::duplex(16);
    let file = IncomingFile::new(Vec::new(), reader);
    scene.operations.receive_file(ORIGINAL.into(), file).await;
    assert!(!scene.hear_finished().await.is_received);
    drop(writer);
}

#[tokio::test(start_paused = true)]
async fn connections_that_were_not_announced_are_closed() {
    let mut scene = Scene::new();
    let table = peer_table(&["a"]);
    scene.send_file(&table.bytes[2]).await;
    // Nor does it count what another node has announced.
    scene.announce("Blog", &table.files);
    scene.hear().await;
    let file = IncomingFile::new(table.bytes[0].clone(), tokio::io::empty());
    scene.operations.receive_file([10, 0, 0, 3].into(), file).await;
    assert!(scene.is_silent().await);
    assert!(keys(&scene.storage, ROWS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_taken_is_refused() {
    let mut scene = Scene::new();
    let table = peer_table(&["a"]);
    let changed = |change: fn(&mut StreamFile)| {
        let mut files = table.files.clone();
        change(&mut files[2]);
        files
    };
    let bad = [
        changed(|file| file.keyspace = "Nowhere".into()),
        changed(|file| file.path = "/data/Blog/Nothing-1-Data.db".into()),
        changed(|file| file.path = "/data/Blog/Rows-tmp-1-Data.db".into()),
        changed(|file| file.path = "..".into()),
        changed(|file| file.length = i64::MAX as u64),
    ];
    for files in bad {
        let fetched = fetch(&scene);
        scene.hear().await;
        scene.announce("Blog", &files);
        let error = fetched.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("it announces"), "{error}");
    }
    scene.say(Verb::StreamInitiate, &[], b"nothing of the kind");
    scene.die();
    scene.announce("Blog", &table.files);
    assert!(scene.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_come_is_not_waited_for_for_ever() {
    let mut scene = Scene::new();
    let fetched = fetch(&scene);
    scene.hear().await;
    let error = fetched.await.unwrap().unwrap_err();
    assert!(matches!(error, AskOriginalError::Silent { .. }), "{error}");

    // It dies in the middle.
    let fetched = fetch(&scene);
    scene.hear().await;
    let table = peer_table(&["a"]);
    scene.announce("Blog", &table.files);
    scene.hear().await;
    scene.send_file(&table.bytes[0]).await;
    scene.hear().await;
    scene.die();
    let error = fetched.await.unwrap().unwrap_err();
    assert!(matches!(error, AskOriginalError::Dead(_)), "{error}");
    scene.send_file(&table.bytes[1]).await;
    assert!(scene.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn who_begins_anew_has_forgotten_what_was_before() {
    let mut scene = Scene::new();
    let (first, second) = (peer_table(&["a"]), peer_table(&["b", "c"]));
    scene.announce("Blog", &first.files);
    scene.hear().await;
    scene.send_file(&first.bytes[0]).await;
    scene.hear().await;
    scene.announce("Blog", &second.files);
    send_all(&mut scene, &second).await;
    assert_eq!(keys(&scene.storage, ROWS), ["b", "c"]);
    // A session in which nothing happens ends by itself.
    scene.announce("Blog", &first.files);
    scene.hear().await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    scene.operations.tidy();
    scene.send_file(&first.bytes[0]).await;
    assert!(scene.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_started_anew_is_asked_again() {
    let mut scene = Scene::new();
    let fetched = fetch(&scene);
    let table = peer_table(&["a", "b"]);
    let asked = scene.hear().await;
    scene.announce("Blog", &table.files);
    scene.hear().await;
    scene.send_file(&table.bytes[0]).await;
    scene.hear().await;
    scene.restart();
    assert_eq!(scene.hear().await, asked);
    scene.announce("Blog", &table.files);
    send_all(&mut scene, &table).await;
    let taken = fetched.await.unwrap().unwrap();
    assert_eq!(taken, TakenIn { rows: 2, bytes: table.files[2].length });

    // Not for ever.
    let fetched = fetch(&scene);
    for _ in 0..5 {
        assert_eq!(scene.hear().await, asked);
        scene.restart();
    }
    let error = fetched.await.unwrap().unwrap_err();
    assert!(matches!(error, AskOriginalError::Restarted(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn sources_are_asked_side_by_side_each_for_one_keyspace_after_the_other() {
    let mut scene = Scene::new();
    let other: IpAddr = OTHER_ORIGINAL.into();
    scene.known.0.lock().unwrap().live.insert(other);
    // Each of the two others has to give this node a range of each keyspace.
    let mut before = crate::ring::TokenMetadata::default();
    before.insert(Token::Random(1 << 126), ORIGINAL.into());
    before.insert(Token::Random(3 << 125), other);
    let mut after = before.clone();
    after.insert(Token::Random(1 << 125), OURS.into());
    scene.operations.restore(ORIGINAL.into(), (&before, &after), &scene.host());
    let mut asked = async |keyspace: &str| {
        let (verb, body, _) = scene.hear().await;
        let requests = StreamRequest::decode(&body, Partitioner::Random).unwrap();
        let keyspaces: Vec<&str> = requests.iter().map(|it| it.keyspace.as_str()).collect();
        assert_eq!((verb, &keyspaces[..]), (Verb::StreamRequest, &[keyspace][..]));
    };
    asked("Blog").await;
    asked("Blog").await;
    assert!(scene.is_silent().await);
    for source in [other, ORIGINAL.into()] {
        scene.announce_as(source, "Blog", &[]);
        assert!(matches!(scene.hear().await, (Verb::StreamRequest, ..)));
        scene.announce_as(source, "Other", &[]);
        assert!(scene.is_silent().await);
    }
}
