//! Files that go to nodes of 0.6.

use super::*;
use crate::net::bodies::{StreamRequest, decode_bootstrap_token};
use crate::repair::original::{Load, PushError};
use crate::ring::TokenRange;
use crate::storage::engine::TakenIn;
use tokio::task::JoinHandle;

/// The whole ring.
fn all() -> TokenRange {
    TokenRange { start: Token::Minimum, end: Token::Minimum }
}

fn ask(scene: &Scene, keyspaces: &[&str], range: &TokenRange) {
    let request = |keyspace: &&str| StreamRequest {
        target: ORIGINAL.into(),
        keyspace: (*keyspace).to_owned(),
        ranges: vec![range.clone()],
    };
    let requests: Vec<_> = keyspaces.iter().map(request).collect();
    let body = StreamRequest::encode(&requests, Partitioner::Random).unwrap();
    scene.say(Verb::StreamRequest, &[], &body);
}

fn push(scene: &Scene) -> JoinHandle<Result<TakenIn, PushError>> {
    let (operations, host) = (Arc::clone(&scene.operations), scene.host());
    tokio::spawn(async move {
        let load = Load { keyspace: "Blog", ranges: &[all()], family: None };
        operations.originals().push(ORIGINAL.into(), load, &*host).await
    })
}

/// What the node announces next.
async fn hear_initiate(scene: &mut Scene) -> (String, Vec<StreamFile>) {
    let (verb, body, headers) = scene.hear().await;
    assert_eq!(verb, Verb::StreamInitiate);
    let [(name, keyspace)] = &headers[..] else { panic!("{headers:?}") };
    assert_eq!(name, STREAMING_KEYSPACE);
    (String::from_utf8(keyspace.clone()).unwrap(), StreamFile::decode(&body).unwrap())
}

fn finish(scene: &Scene, file: &StreamFile, is_received: bool) {
    let StreamFile { path, length, .. } = file.clone();
    let body = StreamFinished { path, length, is_received }.encode().unwrap();
    scene.say(Verb::StreamFinished, &[], &body);
}

/// Takes all files that were announced.
pub(super) async fn take_all(scene: &mut Scene, files: &[StreamFile]) -> Vec<Vec<u8>> {
    scene.say(Verb::StreamInitiateDone, &[], b"");
    let mut taken = Vec::new();
    for file in files {
        let bytes = read(scene.files.recv().await.unwrap()).await;
        assert_eq!(bytes.len() as u64, file.length);
        taken.push(bytes);
        // The next one comes when this one has arrived.
        let next = tokio::time::timeout(Duration::from_secs(5), scene.files.recv()).await;
        assert!(next.is_err());
        finish(scene, file, true);
    }
    taken
}

/// The keys of a table of the node, which must be one as 0.6 has it.
pub(super) fn keys_of(data: &[u8]) -> Vec<String> {
    let storage = open(&SimFileSystem::new(5));
    let mut spooled = storage.spool(ROWS, data.len() as u64).unwrap();
    spooled.append(data).unwrap();
    storage.take_in(ROWS, &spooled, &AtomicBool::new(false)).unwrap();
    keys(&storage, ROWS)
}

#[tokio::test(start_paused = true)]
async fn who_asks_gets_one_session_for_each_keyspace() {
    let mut scene = Scene::new();
    for key in ["a", "b", "c"] {
        insert(&scene.storage, "Blog", ROWS, key, b"in memory");
        insert(&scene.storage, "Blog", FamilyId(1), key, b"in memory");
    }
    scene.storage.flush(ROWS).unwrap();
    ask(&scene, &["Blog", "Other"], &all());
    let (keyspace, files) = hear_initiate(&mut scene).await;
    assert_eq!((keyspace.as_str(), files.len()), ("Blog", 6));
    let name = |file: &StreamFile| file.path.rsplit('/').next().unwrap().to_owned();
    let endings: Vec<String> =
        files.iter().map(|file| name(file).rsplit('-').next().unwrap().to_owned()).collect();
    assert_eq!(endings[..3], ["Index.db", "Filter.db", "Data.db"]);
    let bytes = take_all(&mut scene, &files).await;
    assert_eq!(keys_of(&bytes[2]), ["a", "b", "c"]);
    // Only now the next keyspace, and also if there is nothing.
    assert_eq!(hear_initiate(&mut scene).await, ("Other".to_owned(), Vec::new()));
    assert!(scene.is_silent().await && scene.left_over().is_empty());

    // Exactly the rows that were asked for.
    let token = Partitioner::Random.token(b"b");
    let Token::Random(number) = &token else { panic!("{token:?}") };
    let range = TokenRange { start: Token::Random(number - 1), end: token };
    ask(&scene, &["Blog"], &range);
    let (_, files) = hear_initiate(&mut scene).await;
    let bytes = take_all(&mut scene, &files).await;
    assert_eq!(keys_of(&bytes[2]), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn requests_that_make_no_sense_get_nothing() {
    let mut scene = Scene::new();
    scene.say(Verb::StreamRequest, &[], b"nothing of the kind");
    ask(&scene, &["Nowhere"], &all());
    scene.die();
    ask(&scene, &["Blog"], &all());
    assert!(scene.is_silent().await);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_did_not_arrive_is_sent_again() {
    let mut scene = Scene::new();
    insert(&scene.storage, "Blog", ROWS, "a", b"value");
    let pushed = push(&scene);
    let (_, files) = hear_initiate(&mut scene).await;
    scene.say(Verb::StreamInitiateDone, &[], b"");
    let mut first = read(scene.files.recv().await.unwrap()).await;
    for _ in 0..2 {
        finish(&scene, &files[0], false);
        let again = read(scene.files.recv().await.unwrap()).await;
        assert_eq!(first, again);
        first = again;
    }
    finish(&scene, &files[0], true);
    for file in &files[1..] {
        read(scene.files.recv().await.unwrap()).await;
        // Of a file that is not under way nothing is believed.
        finish(&scene, &files[0], true);
        finish(&scene, file, true);
    }
    assert_eq!(pushed.await.unwrap().unwrap().rows, 1);

    let pushed = push(&scene);
    let (_, files) = hear_initiate(&mut scene).await;
    scene.say(Verb::StreamInitiateDone, &[], b"");
    for _ in 0..3 {
        read(scene.files.recv().await.unwrap()).await;
        finish(&scene, &files[0], false);
    }
    let error = pushed.await.unwrap().unwrap_err();
    assert!(matches!(error, PushError::NotTaken(_)), "{error}");
    assert!(scene.left_over().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_target_that_says_nothing_is_given_up() {
    let mut scene = Scene::new();
    insert(&scene.storage, "Blog", ROWS, "a", b"value");
    let pushed = push(&scene);
    hear_initiate(&mut scene).await;
    let error = pushed.await.unwrap().unwrap_err();
    assert!(matches!(error, PushError::NotReady), "{error}");

    let pushed = push(&scene);
    hear_initiate(&mut scene).await;
    scene.say(Verb::StreamInitiateDone, &[], b"");
    read(scene.files.recv().await.unwrap()).await;
    let error = pushed.await.unwrap().unwrap_err();
    assert!(matches!(error, PushError::NotFinished(_)), "{error}");

    // It takes none of the bytes.
    let pushed = push(&scene);
    hear_initiate(&mut scene).await;
    scene.say(Verb::StreamInitiateDone, &[], b"");
    let connection = scene.files.recv().await.unwrap();
    let error = pushed.await.unwrap().unwrap_err();
    assert!(matches!(error, PushError::NotFinished(_)), "{error}");
    drop(connection);

    scene.network.refuse_files();
    let pushed = push(&scene);
    hear_initiate(&mut scene).await;
    scene.say(Verb::StreamInitiateDone, &[], b"");
    let error = pushed.await.unwrap().unwrap_err();
    assert!(matches!(error, PushError::Dial(_)), "{error}");

    let pushed = push(&scene);
    hear_initiate(&mut scene).await;
    scene.die();
    let error = pushed.await.unwrap().unwrap_err();
    assert!(matches!(error, PushError::Dead), "{error}");
    assert!(scene.left_over().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_heir_that_was_started_anew_gets_everything_again() {
    let mut scene = Scene::new();
    insert(&scene.storage, "Blog", ROWS, "a", b"value");
    let pushed = push(&scene);
    let (_, files) = hear_initiate(&mut scene).await;
    scene.say(Verb::StreamInitiateDone, &[], b"");
    read(scene.files.recv().await.unwrap()).await;
    finish(&scene, &files[0], true);
    read(scene.files.recv().await.unwrap()).await;
    scene.restart();
    let (_, files) = hear_initiate(&mut scene).await;
    let bytes = take_all(&mut scene, &files).await;
    assert_eq!(keys_of(&bytes[2]), ["a"]);
    assert_eq!(pushed.await.unwrap().unwrap().rows, 1);
    assert!(scene.left_over().is_empty());
}

/// It counts the sessions that it gets, and would take those for what it has asked for since.
#[tokio::test(start_paused = true)]
async fn who_was_started_anew_gets_nothing_of_what_it_asked_for_before() {
    let mut scene = Scene::new();
    insert(&scene.storage, "Blog", ROWS, "a", b"value");
    ask(&scene, &["Blog", "Other"], &all());
    // One that waits for the other to end.
    ask(&scene, &["Other"], &all());
    assert_eq!(hear_initiate(&mut scene).await.0, "Blog");
    scene.restart();
    assert!(scene.is_silent().await && scene.left_over().is_empty());
    ask(&scene, &["Other"], &all());
    assert_eq!(hear_initiate(&mut scene).await.0, "Other");
}

#[tokio::test(start_paused = true)]
async fn two_sessions_with_one_target_follow_each_other() {
    let mut scene = Scene::new();
    insert(&scene.storage, "Blog", ROWS, "a", b"value");
    let pushed = [push(&scene), push(&scene)];
    for _ in 0..2 {
        let (_, files) = hear_initiate(&mut scene).await;
        assert!(scene.messages.try_recv().is_err());
        take_all(&mut scene, &files).await;
    }
    for pushed in pushed {
        assert_eq!(pushed.await.unwrap().unwrap().rows, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_a_token_gets_one_that_halves_the_load() {
    let mut scene = Scene::new();
    let range = scene.known.look().members.ring.primary_range(OURS.into()).unwrap();
    let middle = Partitioner::Random.midpoint(&range.start, &range.end);
    assert_eq!(said_token(&mut scene).await, middle, "nothing is known of the load");
    let keys: Vec<String> = (0..200).map(|number| format!("key {number}")).collect();
    for key in &keys {
        insert(&scene.storage, "Blog", ROWS, key, b"in memory");
    }
    let said = said_token(&mut scene).await;
    let is_of_a_row = |key: &String| Partitioner::Random.token(key.as_bytes()) == said;
    assert!(range.contains(&said) && keys.iter().any(is_of_a_row), "{said:?}");
}

async fn said_token(scene: &mut Scene) -> Token {
    scene.say(Verb::BootstrapToken, &[], b"");
    let (verb, body, _) = scene.hear().await;
    assert_eq!(verb, Verb::ReadResponse);
    Partitioner::Random.parse_token(decode_bootstrap_token(&body).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_busiest_node_of_0_6_is_asked_for_a_token() {
    let mut scene = Scene::new();
    scene.known.0.lock().unwrap().loads.insert(ORIGINAL.into(), 500.0);
    let ask = |scene: &Scene, than| {
        let (operations, look) = (Arc::clone(&scene.operations), scene.known.look());
        tokio::spawn(async move { operations.originals().busier(&look, than).await })
    };
    // One here has more.
    assert_eq!(ask(&scene, Some(600.0)).await.unwrap(), None);
    for (said, heard) in [(&b"17"[..], Some("17")), (b"Token(bytes[61])", None)] {
        let asked = ask(&scene, Some(400.0));
        let payload = scene.messages.recv().await.unwrap();
        let request = Message::decode(&payload).unwrap();
        assert_eq!((request.verb, request.body), (Verb::BootstrapToken, &b""[..]));
        let reply = Message::new(request.id, ORIGINAL.into(), Verb::ReadResponse, said);
        scene.messenger.on_response(&reply);
        let found = asked.await.unwrap();
        let token = found.as_ref().map(|(_, halving)| halving.token.as_str());
        assert_eq!(token, heard);
        assert!(found.is_none_or(|(from, halving)| {
            from == IpAddr::from(ORIGINAL) && halving.load.total_cmp(&500.0).is_eq()
        }));
    }
}

/// A node of 0.6 removes another one, so that this node becomes a replica of more.
#[tokio::test(start_paused = true)]
async fn what_a_removed_node_had_is_collected_from_the_others() {
    let mut scene = Scene::new();
    let after = scene.known.look().members.ring;
    let mut before = after.clone();
    let removed: IpAddr = [10, 0, 0, 3].into();
    before.insert(Token::Random(3 << 125), removed);
    scene.operations.restore(ORIGINAL.into(), (&before, &after), &scene.host());
    let mut keyspaces = Vec::new();
    for _ in 0..2 {
        let (verb, body, _) = scene.hear().await;
        assert_eq!(verb, Verb::StreamRequest);
        let [request] = &StreamRequest::decode(&body, Partitioner::Random).unwrap()[..] else {
            panic!("one for each keyspace")
        };
        // What that node and the other one had.
        let range = TokenRange { start: Token::Random(1 << 125), end: Token::Random(1 << 126) };
        assert!(request.ranges.contains(&range), "{request:?}");
        keyspaces.push(request.keyspace.clone());
        scene.announce(&request.keyspace, &[]);
    }
    assert_eq!(keyspaces, ["Blog", "Other"]);
    assert!(scene.is_silent().await);
}
