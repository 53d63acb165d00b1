//! Authentication of clients. Logins of one address go one at a time, with a pause after each that
//! failed.

use super::{Service, ServiceError, Session};
use crate::base::audit;
use crate::base::hex::hex;
use crate::base::lock::{Mutex, rank};
use crate::config::ConfigError;
use crate::config::java_properties::{self, MAX_FILE_BYTES};
use crate::config::properties::PasswordMode;
use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use log::Level;
use md5::{Digest, Md5};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::hint::black_box;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedMutexGuard, Semaphore};

/// The system property that names the password file.
const PASSWORDS: &str = "passwd.properties";
/// The system property that names the access file.
const ACCESS: &str = "access.properties";

/// End of the name of a keyspace in the access file, for users that may only read it.
const READ_ONLY: &str = ".<ro>";
/// The same for users that may change it, too. It may be left out.
const READ_WRITE: &str = ".<rw>";

/// The most characters of a client's text in a log line.
const LONGEST_SHOWN: usize = 200;

/// Authentication method.
#[derive(Debug, Clone)]
pub enum Authenticator {
    /// Every login succeeds, and none is needed.
    AllowAll,
    /// Logins are looked up in files, and data calls need one.
    Simple(SimpleAuthenticator),
}

/// Users with their passwords, and keyspaces with their users, in two files of Java properties
/// that are read at every login.
#[derive(Debug, Clone)]
pub struct SimpleAuthenticator {
    /// `user=password`; none was configured if absent.
    pub password_file: Option<PathBuf>,
    /// `keyspace=user,user`, and `keyspace.<ro>=user,user` for those that may only read; none was
    /// configured if absent.
    pub access_file: Option<PathBuf>,
    /// `KeyspaceRights`: whether each call is checked. If not, a login is good for all keyspaces,
    /// as in 0.6.
    pub checks_calls: bool,
    /// Form of the passwords in their file. An unknown mode refuses every login, as in 0.6.
    pub password_mode: Result<PasswordMode, ConfigError>,
}

impl Authenticator {
    /// Whether data calls need a login before.
    pub fn requires_login(&self) -> bool {
        !matches!(self, Self::AllowAll)
    }
}

/// Use of a keyspace. The right to a later one includes those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Reading its rows.
    Read,
    /// Changing rows or definitions.
    Write,
}

/// Rights of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// The user.
    pub user: String,
    /// The keyspaces that list the user.
    pub keyspaces: BTreeMap<String, Access>,
}

impl Grants {
    /// The rights that entries of the access file give to a user.
    fn new(user: String, entries: &BTreeMap<String, String>) -> Self {
        let mut keyspaces = BTreeMap::new();
        for (name, users) in entries {
            let (keyspace, access) = match name.strip_suffix(READ_ONLY) {
                Some(keyspace) => (keyspace, Access::Read),
                None => (name.strip_suffix(READ_WRITE).unwrap_or(name), Access::Write),
            };
            if users.split(',').any(|it| it == user) {
                let most = keyspaces.entry(keyspace.to_owned()).or_insert(access);
                *most = access.max(*most);
            }
        }
        Self { user, keyspaces }
    }

    /// Fails with the reason unless the user has this right.
    pub fn check(&self, keyspace: &str, access: Access) -> Result<(), String> {
        let user = &self.user;
        match self.keyspaces.get(keyspace) {
            Some(granted) if *granted >= access => Ok(()),
            Some(_) => Err(format!("User {user} may only read keyspace {keyspace}")),
            None => Err(format!("User {user} could not be authorized to use keyspace {keyspace}")),
        }
    }
}

impl Service {
    /// Whether clients have to log in.
    pub fn requires_login(&self) -> bool {
        self.options.authenticator.requires_login()
    }

    /// Marks the connection as logged in. Nothing ever takes the mark away, as in 0.6. The rights
    /// are those of the last user. A login that fails is logged, and the next one of its address
    /// waits.
    pub async fn login(
        &self,
        session: &Session,
        keyspace: &str,
        credentials: BTreeMap<String, String>,
    ) -> Result<(), ServiceError> {
        let asked = keyspace.to_owned();
        let what = format!(" for keyspace {}", shown(keyspace));
        let check = move |simple: &SimpleAuthenticator| simple.check(&asked, &credentials);
        self.grant(session, self.in_turn(session, what, check).await?);
        Ok(())
    }

    /// Logs a user in by the password alone.
    pub async fn authenticate(
        &self,
        session: &Session,
        user: String,
        password: String,
    ) -> Result<(), ServiceError> {
        let check = move |simple: &SimpleAuthenticator| simple.log_in(user, &password);
        self.grant(session, self.in_turn(session, String::new(), check).await?);
        Ok(())
    }

    fn grant(&self, session: &Session, grants: Option<Grants>) {
        let version = self.rights_version.load(Ordering::Relaxed);
        // Without an authenticator there are none, and a later one knows nothing of the user.
        if let Some(grants) = grants {
            let line = format_args!("login of {} from {}", shown(&grants.user), session.client);
            self.logins.log(Level::Info, (session.client, grants.user.clone()), line);
            *session.grants.lock() = Some((grants, version));
            session.logged_in.store(true, Ordering::Relaxed);
        }
    }

    /// Fails with the reason unless the user of the connection may use a keyspace so. Reads the
    /// access file if rights may have changed since the login.
    pub fn check_grants(
        &self,
        session: &Session,
        keyspace: &str,
        access: Access,
    ) -> Result<(), String> {
        let Authenticator::Simple(simple) = &*self.options.authenticator else { return Ok(()) };
        let version = self.rights_version.load(Ordering::Relaxed);
        let mut held = session.grants.lock();
        let Some((grants, granted_at)) = held.as_mut() else {
            return Err(super::LOGIN_REQUIRED.to_owned());
        };
        if *granted_at != version {
            *grants = simple.grants(grants.user.clone())?;
            *granted_at = version;
        }
        grants.check(keyspace, access).inspect_err(|why| {
            let (client, user) = (session.client, grants.user.clone());
            self.refusals.warn((client, user), format_args!("{client} is refused: {}", shown(why)));
        })
    }

    /// Authenticates clients so from now on. Users that are logged in keep the rights that the
    /// access file gives them now.
    pub fn set_authenticator(&self, authenticator: Authenticator) {
        self.options.authenticator.set(authenticator);
        self.rights_version.fetch_add(1, Ordering::Relaxed);
    }

    /// Has a login checked in its turn. `what` it is for is told in the log if it fails.
    async fn in_turn<T: Send + 'static>(
        &self,
        session: &Session,
        what: String,
        check: impl FnOnce(&SimpleAuthenticator) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<Option<T>, ServiceError> {
        let Authenticator::Simple(simple) = &*self.options.authenticator else { return Ok(None) };
        let simple = simple.clone();
        self.login_turns.judge(session.client, what, move || check(&simple)).await.map(Some)
    }
}

/// The beginning of a text that a client chose, on one line.
fn shown(text: &str) -> String {
    text.chars().take(LONGEST_SHOWN).flat_map(char::escape_debug).collect()
}

impl SimpleAuthenticator {
    /// Reasons for which every login would be refused now.
    pub fn faults(&self) -> Vec<String> {
        let mode = self.password_mode.as_ref().err().map(ToString::to_string);
        let faults = self.files().map(|(property, file)| {
            let path = file.map(|it| it.display().to_string()).unwrap_or_default();
            read_properties(file, property).err().map(|why| why.replace(&of(property), &path))
        });
        std::iter::once(mode).chain(faults).flatten().collect()
    }

    /// Hashes of the entries of both files as they are now, by the property that names a file;
    /// `None` if it cannot be read.
    pub fn hashes(&self) -> Vec<(&'static str, Option<u64>)> {
        let hash = |(property, file)| {
            let entries = read_properties(file, property).ok();
            (property, entries.map(|it| BuildHasherDefault::<DefaultHasher>::new().hash_one(it)))
        };
        self.files().map(hash).to_vec()
    }

    fn files(&self) -> [(&'static str, Option<&Path>); 2] {
        [(PASSWORDS, self.password_file.as_deref()), (ACCESS, self.access_file.as_deref())]
    }

    /// Judges a login, and returns the rights of its user. Reads both files, and so blocks.
    pub fn check(
        &self,
        keyspace: &str,
        credentials: &BTreeMap<String, String>,
    ) -> Result<Grants, ServiceError> {
        let refused = ServiceError::Unauthenticated;
        // Before anything about the credentials, as in 0.6.
        self.password_mode.as_ref().map_err(|error| refused(error.to_string()))?;
        let credential = |key| {
            let missing = || format!("Authentication request was missing the required key '{key}'");
            credentials.get(key).ok_or_else(|| refused(missing()))
        };
        let (user, password) = (credential("username")?, credential("password")?);
        let grants = self.log_in(user.clone(), password)?;
        // Where calls are not checked, nobody can be kept from writing later.
        let least = if self.checks_calls { Access::Read } else { Access::Write };
        grants.check(keyspace, least).map_err(ServiceError::Unauthorized)?;
        Ok(grants)
    }

    /// Judges a password, and tells the rights of the user. Reads both files, and so blocks.
    fn log_in(&self, user: String, password: &str) -> Result<Grants, ServiceError> {
        let refused = ServiceError::Unauthenticated;
        let mode = self.password_mode.as_ref().map_err(|error| refused(error.to_string()))?;
        if !self.has_password(*mode, &user, password)? {
            return Err(refused(format!(
                "Given password in password mode {} could not be validated for user {user}",
                mode.name()
            )));
        }
        self.grants(user).map_err(ServiceError::Internal)
    }

    /// The rights of a user now, or why they cannot be read.
    fn grants(&self, user: String) -> Result<Grants, String> {
        let access = read_properties(self.access_file.as_deref(), ACCESS)?;
        Ok(Grants::new(user, &access))
    }

    fn has_password(
        &self,
        mode: PasswordMode,
        user: &str,
        shown: &str,
    ) -> Result<bool, ServiceError> {
        let passwords = read_properties(self.password_file.as_deref(), PASSWORDS);
        let passwords = passwords.map_err(ServiceError::Internal)?;
        let stored = passwords.get(user);
        if let Some(hash) = stored.filter(|it| it.starts_with(HASH_PREFIX)) {
            return Ok(is_of_hash(hash, shown));
        }
        // As long as for a user with a hash, so that timing does not reveal which users exist.
        if let Some(hash) = passwords.values().find(|it| it.starts_with(HASH_PREFIX)) {
            black_box(is_of_hash(hash, shown));
        }
        Ok(stored.is_some_and(|stored| match mode {
            PasswordMode::Plain => stored == shown,
            PasswordMode::Md5 => stored.eq_ignore_ascii_case(&hex(&Md5::digest(shown.as_bytes()))),
        }))
    }
}

/// Beginning of a hash of Argon2, which is known as one in each mode.
const HASH_PREFIX: &str = "$argon2";

/// A hash of a password for its file, by Argon2id with a random salt. Fails if the system has no
/// random numbers.
pub fn hash_password(password: &str) -> Result<String, argon2::password_hash::Error> {
    Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string())
}

/// Whether a hash is of this password. One that cannot be read is of none.
fn is_of_hash(hash: &str, password: &str) -> bool {
    PasswordHash::new(hash)
        .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// A file of logins in a reason that clients get. They do not learn its path.
fn of(property: &str) -> String {
    format!("the file of -D{property}")
}

/// The entries of a file, or why they cannot be read.
fn read_properties(
    path: Option<&Path>,
    property: &'static str,
) -> Result<BTreeMap<String, String>, String> {
    let path = path.ok_or_else(|| {
        format!("logins are looked up in files, and no -D{property}=FILE names one")
    })?;
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // One byte more than is accepted shows that there are too many.
        File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("cannot read {}: {error}", of(property)))?;
    java_properties::parse(&bytes)
        .map_err(|error| format!("cannot understand {}: {error}", of(property)))
}

/// Time from a failed login to the next one of the same address.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest wait for a turn. It bounds how long guesses hold connections, and how long their
/// address is shut out after them.
const MOST_WAIT: Duration = Duration::from_secs(4);

/// Most logins that wait for a turn after a failed one: further ones would wait too long.
const MOST_WAITING: usize = (MOST_WAIT.as_millis() / PAUSE.as_millis()) as usize;

/// Logins that are checked at a time, of all addresses.
const MOST_CHECKS: usize = 2;

/// Idle addresses are dropped when there are as many.
const MOST_IDLE: usize = 1024;

/// Gives each address its turn to log in. However many connections guess passwords, an address
/// has one guess in each pause; other addresses do not wait for it.
#[derive(Debug)]
pub struct LoginTurns {
    /// By address. Lock: held for a lookup only.
    hosts: Mutex<rank::State, HashMap<IpAddr, Arc<Host>>>,
    /// Bounds the memory and processors that hashes of passwords take.
    checks: Arc<Semaphore>,
}

impl Default for LoginTurns {
    fn default() -> Self {
        Self { hosts: Mutex::default(), checks: Arc::new(Semaphore::new(MOST_CHECKS)) }
    }
}

/// One address. All of its logins hold it.
#[derive(Debug, Default)]
struct Host {
    /// Locked by the login under way.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether the last login failed.
    has_failed: AtomicBool,
}

/// The turn of one login. The next one of its address waits until it is dropped.
#[derive(Debug)]
struct Turn {
    host: Arc<Host>,
    _guard: OwnedMutexGuard<()>,
}

impl LoginTurns {
    /// Waits for the turn of an address, and ends it: after a pause if its secret was wrong.
    /// `false` if too many wait: they are not told whether theirs was right.
    pub async fn take(&self, address: IpAddr, is_right: bool) -> bool {
        let Some(turn) = self.wait(address).await else { return false };
        if is_right {
            turn.end();
        } else {
            turn.end_late();
        }
        true
    }

    /// Has a login checked in its turn, on a thread that may block. Once the check has begun it is
    /// logged if it fails, and holds its turn until its end, whether or not the client stays.
    async fn judge<T: Send + 'static>(
        &self,
        client: IpAddr,
        what: String,
        check: impl FnOnce() -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let Some(turn) = self.wait(client).await else {
            let why = "too many logins from this address fail: try again later";
            return Err(ServiceError::Unauthenticated(why.to_owned()));
        };
        // The semaphore is never closed.
        let permit = Arc::clone(&self.checks).acquire_owned().await;
        let judged = tokio::task::spawn_blocking(move || {
            let checked = check();
            drop(permit);
            match &checked {
                Ok(_) => turn.end(),
                Err(error) => {
                    let why = shown(error.text());
                    log::warn!(target: audit::TARGET, "a login from {client}{what} failed: {why}");
                    turn.end_late();
                }
            }
            checked
        });
        judged.await.unwrap_or_else(|error| {
            Err(ServiceError::Internal(format!("a login was given up: {error}")))
        })
    }

    /// Waits for the turn of an address, without a thread. `None` after [`MOST_WAIT`], or at once
    /// if [`MOST_WAITING`] wait already after a failed login.
    async fn wait(&self, address: IpAddr) -> Option<Turn> {
        let host = {
            let mut hosts = self.hosts.lock();
            if hosts.len() >= MOST_IDLE {
                hosts.retain(|_, host| Arc::strong_count(host) > 1);
            }
            let host = hosts.entry(host(address)).or_default();
            // The map holds it, and so does the login whose turn it is.
            let waiting = Arc::strong_count(host).saturating_sub(2);
            if host.has_failed.load(Ordering::Relaxed) && waiting >= MOST_WAITING {
                return None;
            }
            Arc::clone(host)
        };
        let turn = Arc::clone(&host.turn).lock_owned();
        let guard = tokio::time::timeout(MOST_WAIT, turn).await.ok()?;
        Some(Turn { host, _guard: guard })
    }
}

impl Turn {
    /// Ends the turn of a login that succeeded.
    fn end(self) {
        self.host.has_failed.store(false, Ordering::Relaxed);
    }

    /// Ends the turn of a failed login after the pause, whether or not its client stays.
    fn end_late(self) {
        self.host.has_failed.store(true, Ordering::Relaxed);
        tokio::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            drop(self);
        });
    }
}

/// The address that stands for a host. One host of IPv6 usually has 64 bits of addresses, and this
/// one all of the loopback interface.
fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        IpAddr::V4(address) if address.is_loopback() => IpAddr::from(Ipv4Addr::LOCALHOST),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn an_address_waits_after_a_failure_and_others_do_not() {
        let turns = Arc::new(LoginTurns::default());
        let [attacker, other] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let begin = Instant::now();
        // A hundred connections of one address guess at the same time.
        let guesses = (0..100).map(|_| {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.wait(attacker).await.map(Turn::end_late) })
        });
        let guesses: Vec<_> = guesses.collect();
        tokio::task::yield_now().await;
        for _ in 0..100 {
            turns.wait(other).await.unwrap();
        }
        assert_eq!(begin.elapsed(), Duration::ZERO, "another address waits for nobody");
        let mut made = 0;
        for guess in guesses {
            made += u32::from(guess.await.unwrap().is_some());
        }
        assert_eq!(begin.elapsed(), MOST_WAIT);
        assert!(PAUSE * (made - 1) <= MOST_WAIT, "{made} guesses");
        turns.wait(attacker).await.unwrap().end();
        let begin = Instant::now();
        turns.wait(attacker).await.unwrap();
        assert_eq!(begin.elapsed(), Duration::ZERO, "a login that succeeds makes nobody wait");
    }

    #[tokio::test(start_paused = true)]
    async fn few_logins_wait_behind_one_that_failed_and_all_behind_others() {
        let turns = Arc::new(LoginTurns::default());
        let address = IpAddr::from([10, 0, 0, 1]);
        let log_in = |_| {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.wait(address).await.map(Turn::end).is_some() })
        };
        let first = turns.wait(address).await.unwrap();
        let mut logins: Vec<_> = (0..100).map(log_in).collect();
        tokio::task::yield_now().await;
        first.end();
        for login in logins.drain(..) {
            assert!(login.await.unwrap());
        }
        turns.wait(address).await.unwrap().end_late();
        logins.extend((0..MOST_WAITING).map(log_in));
        tokio::task::yield_now().await;
        let begin = Instant::now();
        assert!(turns.wait(address).await.is_none());
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for login in logins {
            assert!(login.await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_login_whose_client_leaves_is_led_to_its_end() {
        let turns = Arc::new(LoginTurns::default());
        let address = IpAddr::from([10, 0, 0, 1]);
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (gate, opened) = std::sync::mpsc::channel::<()>();
        let check = move || {
            begun.send(()).unwrap();
            opened.recv().unwrap();
            Err::<(), _>(ServiceError::Unauthenticated("wrong".to_owned()))
        };
        let judging = Arc::clone(&turns);
        let login = tokio::spawn(async move { judging.judge(address, String::new(), check).await });
        has_begun.await.unwrap();
        login.abort();
        assert!(login.await.unwrap_err().is_cancelled());
        let host = Arc::clone(&turns.hosts.lock()[&address]);
        assert!(host.turn.try_lock().is_err());
        assert_eq!(turns.checks.available_permits(), MOST_CHECKS - 1);
        gate.send(()).unwrap();
        drop(host.turn.lock().await);
        assert!(host.has_failed.load(Ordering::Relaxed));
        assert_eq!(turns.checks.available_permits(), MOST_CHECKS);
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_of_one_host_of_ipv6_share_their_turns() {
        let turns = LoginTurns::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let turn = turns.wait(address("2001:db8::1")).await;
        assert!(turns.wait(address("2001:db8::2")).await.is_none());
        assert!(turns.wait(address("2001:db8:0:1::2")).await.is_some());
        drop(turn);
        assert!(turns.wait(address("2001:db8::2")).await.is_some());
    }

    #[tokio::test]
    async fn idle_addresses_are_forgotten() {
        let turns = LoginTurns::default();
        for address in 0..10_000u32 {
            drop(turns.wait(std::net::Ipv4Addr::from_bits(address).into()).await);
        }
        assert!(turns.hosts.lock().len() <= MOST_IDLE);
    }
}
